"""Matrix products: one builder function, on which MatMul, Gemm and fused operators stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..core import dtypes
from ..core.dtypes import DType
from ..core.plan import Builder, Constant, Shape, Slot, uniform_of
from ..errors import UnsupportedError
from .layout import View, broadcast_shapes, collapse, padded, wrapped
from .registry import Operator, register

Order = Literal["row", "column", "any"]


def computing_type(dtype: DType) -> DType:
    """The type in which products of ``dtype`` are summed: the narrow floats use float32."""
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def _order(view: View) -> Order:
    """Which index of a matrix walks consecutive elements."""
    return "row" if view.strides[-1] == 1 else "column" if view.strides[-2] == 1 else "any"


def transposed(matrix: Slot | View) -> View:
    """A stack of matrices with rows and columns exchanged; nothing moves."""
    view = View.of(matrix)
    rank = len(view.shape)
    return view.permute((*range(rank - 2), rank - 1, rank - 2))


def matmul(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    out: Slot | View,
    *,
    bias: Slot | View | None = None,
    epilogue: str = "x",
    uniforms: Mapping[str, Any] | None = None,
) -> None:
    """Append ``out = epilogue(a @ w)``.

    ``a`` is ``[..., m, k]``, ``w`` ``[..., k, n]`` and ``out`` ``[..., m, n]``; leading dimensions
    of ``a`` and ``w`` broadcast to ``out``'s. Views give transposition, strides and offsets
    (:func:`transposed`); ``out``'s columns must be consecutive. ``bias`` broadcasts to ``[m, n]``.
    The epilogue is an expression of ``x`` (the product), ``c`` (the bias) and ``u.<name>`` for
    ``uniforms``; without one the bias is added. Sums are made in float32 for 16-bit floats and in
    the output's own type otherwise. An inner size of 0 gives a product of zeros.
    """
    left, right, target = View.of(a), View.of(w), View.of(out)
    if not target.size:
        return
    m, k = left.shape[-2:]
    n = right.shape[-1]
    batch = target.shape[:-2]
    left, right = left.broadcast((*batch, m, k)), right.broadcast((*batch, k, n))
    if not any(right.strides[:-2]) and batch:
        # One matrix for the whole batch: its rows are just more rows, where they lie evenly.
        lines = [View(v.slot, v.shape[:-1], v.strides[:-1]) for v in (left, target)]
        shape, steps = collapse(*lines)
        if len(shape) == 1 and bias_is_row(bias):
            m, batch = shape[0], ()
            left = replace(left, shape=(m, k), strides=(steps[0][0], left.strides[-1]))
            target = replace(target, shape=(m, n), strides=(steps[1][0], target.strides[-1]))
            right = replace(right, shape=(k, n), strides=right.strides[-2:])
    stack = [View(v.slot, batch, v.strides[:-2]) for v in (left, right, target)]
    batch_shape, (left_steps, right_steps, target_steps) = collapse(*stack)
    values: dict[str, Any] = {
        "m": m,
        "n": n,
        "k": k,
        "batches": math.prod(batch_shape),
        "batch_rank": len(batch_shape),
        "batch_shape": padded(batch_shape),
        "a_batch": wrapped(left_steps),
        "w_batch": wrapped(right_steps),
        "y_batch": wrapped(target_steps),
        "a_at": (left.offset, *left.strides[-2:]),
        "w_at": (right.offset, *right.strides[-2:]),
        "y_at": (target.offset, target.strides[-2]),
    }
    if bias is not None:
        added = View.of(bias).broadcast((m, n))
        values["bias_at"] = (added.offset, *added.strides)
        bias = added.slot
        epilogue = "x + c" if epilogue == "x" else epilogue
    compute = computing_type(target.slot.dtype)
    constants: dict[str, Constant] = {
        "a_order": _order(left),
        "w_order": _order(right),
        "epilogue": epilogue,
        "compute": compute,
    }
    cpu = b.caps.device_class == "cpu"
    vector = compute.bits == 32
    if not cpu and vector and m >= 16 and n >= 16:
        template, workgroup = "matmul/shared", 256
        groups = -(-m // 64) * -(-n // 64)
    else:
        # Types unpacked by hand bring much code with every load, so their tiles stay small.
        packed = any(v.slot.dtype.per_word > 1 for v in (left, right)) and "shader-f16" not in b.caps.features
        side = 8 if cpu and not packed else 4
        rows = next(t for t in (1, 2, 4, 8) if t >= min(m, side)) if vector else 1
        template, workgroup = "matmul/tile", 8 if cpu else 32
        columns = side if vector and n > 4 * workgroup else 4
        groups = -(-m // rows) * -(-n // (columns * workgroup))
        constants |= {"rows": rows, "columns": columns}
    b.dispatch(
        template,
        reads={"a": left.slot, "w": right.slot, "bias": bias},
        writes={"y": target.slot},
        uniforms=values | dict(uniforms or {}),
        constants=constants,
        groups=groups * values["batches"],
        workgroup=workgroup,
    )


def bias_is_row(bias: Slot | View | None) -> bool:
    """Whether a bias is the same for every row."""
    return bias is None or all(size == 1 for size in View.of(bias).shape[:-1])


@register("MatMul", domain="")
@dataclass(frozen=True, kw_only=True)
class MatMul(Operator):
    """NumPy's matmul: 1-D operands are a row or a column, leading dimensions broadcast."""

    def plan(self, b: Builder) -> None:
        a, w = b.need("A"), b.need("B")
        for x in (a, w):
            b.check(x.rank > 0, x.name, "is a scalar", "at least one dimension")
        left = a.reshape(1, *a.shape) if a.rank == 1 else a
        right = w.reshape(*w.shape, 1) if w.rank == 1 else w
        b.check(
            left.shape[-1] == right.shape[-2],
            "B",
            f"has shape {w.shape}",
            f"{left.shape[-1]} rows because A has shape {a.shape}",
        )
        batch = broadcast_shapes(b, [("A", left.shape[:-2]), ("B", right.shape[:-2])])
        shape = batch + a.shape[-2:-1] * (a.rank > 1) + w.shape[-1:] * (w.rank > 1)
        y = b.output("Y", shape, a.dtype)
        matmul(b, left, right, y.reshape(*batch, left.shape[-2], right.shape[-1]))


@register("Gemm", domain="")
@dataclass(frozen=True, kw_only=True)
class Gemm(Operator):
    """alpha * A' @ B' + beta * C, where C broadcasts to the product."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0

    def plan(self, b: Builder) -> None:
        a, w, c = b.need("A"), b.need("B"), b.get("C")
        for x in (a, w):
            b.check(x.rank == 2, x.name, f"has shape {x.shape}", "two dimensions")
        left = transposed(a) if self.transA else View.of(a)
        right = transposed(w) if self.transB else View.of(w)
        m, k = left.shape
        n = right.shape[1]
        b.check(
            right.shape[0] == k,
            "B",
            f"has shape {w.shape}",
            f"inner size {k} because A has shape {a.shape} (transA={self.transA}, transB={self.transB})",
        )
        if c is not None:
            fits = broadcasts(c.shape, (m, n))
            b.check(fits, "C", f"has shape {c.shape}", f"a shape that broadcasts to ({m}, {n})")
        compute = computing_type(a.dtype)
        terms, values = "x", {}
        for name, factor, needed in (("alpha", self.alpha, True), ("beta", self.beta, c is not None)):
            if not needed or factor == 1.0:
                continue
            if not compute.is_float and factor != int(factor):
                raise UnsupportedError(
                    f"{self.op}: {name} is {factor} for {a.dtype}; expected a whole number"
                )
            values[name] = uniform_of(factor if compute.is_float else int(factor), compute)
        if "alpha" in values:
            terms = "u.alpha * x"
        if c is not None:
            terms += " + u.beta * c" if "beta" in values else " + c"
        matmul(b, left, right, b.output("Y", (m, n), a.dtype), bias=c, epilogue=terms, uniforms=values)


def broadcasts(shape: Sequence[int], to: Shape) -> bool:
    """Whether ``shape`` broadcasts to exactly ``to``."""
    return len(shape) <= len(to) and all(
        have in (1, want) for have, want in zip(reversed(shape), reversed(to), strict=False)
    )
