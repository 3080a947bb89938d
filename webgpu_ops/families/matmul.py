"""Matrix products: one builder function, on which MatMul, Gemm and fused operators stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..core import dtypes
from ..core.dtypes import DType
from ..core.plan import MAX_ROUNDS, Builder, Constant, Shape, Slot, Uniform, uniform_of
from ..errors import UnsupportedError
from .layout import View, broadcast_shapes, collapse, cut, padded, wrapped
from .registry import Operator, register
from .standard.reduction import reduce

Order = Literal["row", "column", "any"]


def computing_type(dtype: DType) -> DType:
    """The type in which products of ``dtype`` are summed: the narrow floats use float32."""
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def order_of(view: View) -> Order:
    """Which index of a matrix walks consecutive elements."""
    return "row" if view.strides[-1] == 1 else "column" if view.strides[-2] == 1 else "any"


def transposed(matrix: Slot | View) -> View:
    """A stack of matrices with rows and columns exchanged; nothing moves."""
    view = View.of(matrix)
    rank = len(view.shape)
    return view.permute((*range(rank - 2), rank - 1, rank - 2))


@dataclass(frozen=True)
class Layout:
    """Where the matrices of a stack of products lie: what matmul/batch.wgsl reads.

    ``operands`` are the values that an epilogue uses: (name, mode, type) with mode "single" (one
    value), "matrix" (a row and a column step) or "stack" (also steps along the stack).
    """

    left: View
    right: View
    target: View
    slots: Mapping[str, Slot]
    operands: tuple[tuple[str, str, DType], ...]
    uniforms: Mapping[str, Any]

    @property
    def batches(self) -> int:
        return int(self.uniforms["batches"])


def lay_out(
    a: Slot | View,
    w: Slot | View,
    out: Slot | View,
    operands: Mapping[str, Slot | View],
    *,
    merge: bool = True,
) -> Layout:
    """The layout of ``out = a @ w`` with ``operands`` that broadcast to ``out``.

    With ``merge``, a batch that shares one ``w`` becomes more rows of one product where its rows
    lie evenly.
    """
    left, right, target = View.of(a), View.of(w), View.of(out)
    m, k = left.shape[-2:]
    n = right.shape[-1]
    batch = target.shape[:-2]
    left, right = left.broadcast((*batch, m, k)), right.broadcast((*batch, k, n))
    others = [View.of(x).broadcast((*batch, m, n)) for x in operands.values()]
    if merge and batch and not any(right.strides[:-2]):
        lines = [View(v.slot, v.shape[:-1], v.strides[:-1]) for v in (left, target, *others)]
        shape, steps = collapse(*lines)
        if len(shape) == 1:
            m, batch = shape[0], ()
            left, target, *others = [
                replace(v, shape=(m, v.shape[-1]), strides=(step[0], v.strides[-1]))
                for v, step in zip((left, target, *others), steps, strict=True)
            ]
            right = replace(right, shape=(k, n), strides=right.strides[-2:])
    stack = [View(v.slot, batch, v.strides[:-2]) for v in (left, right, target, *others)]
    batch_shape, steps = collapse(*stack)
    values: dict[str, Any] = {
        "m": m,
        "n": n,
        "k": k,
        "batches": math.prod(batch_shape),
        "batch_rank": len(batch_shape),
        "batch_shape": padded(batch_shape),
        "a_batch": wrapped(steps[0]),
        "w_batch": wrapped(steps[1]),
        "y_batch": wrapped(steps[2]),
        "a_at": (left.offset, *left.strides[-2:]),
        "w_at": (right.offset, *right.strides[-2:]),
        "y_at": (target.offset, target.strides[-2]),
    }
    modes: list[tuple[str, str, DType]] = []
    for name, view, along in zip(operands, others, steps[3:], strict=True):
        mode = "single"
        if view.offset or any(view.strides):
            mode = "stack" if any(along) else "matrix"
            values[f"{name}_at"] = (view.offset, *view.strides[-2:])
        if mode == "stack":
            values[f"{name}_batch"] = wrapped(along)
        modes.append((name, mode, view.slot.dtype))
    slots = {name: View.of(x).slot for name, x in operands.items()}
    return Layout(left, right, target, slots, tuple(modes), values)


def matmul(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    out: Slot | View,
    *,
    bias: Slot | View | None = None,
    operands: Mapping[str, Slot | View] | None = None,
    epilogue: str = "x",
    uniforms: Mapping[str, Any] | None = None,
) -> None:
    """Append ``out = epilogue(a @ w)``.

    ``a`` is ``[..., m, k]``, ``w`` ``[..., k, n]`` and ``out`` ``[..., m, n]``; leading dimensions
    of ``a`` and ``w`` broadcast to ``out``'s. Views give transposition, strides and offsets
    (:func:`transposed`); ``out``'s columns must be consecutive. ``bias`` and ``operands`` broadcast
    to ``out``. The epilogue holds expressions of ``x`` (the product), ``c`` (the bias), the operands'
    names and ``u.<name>`` for ``uniforms``; with several, separated by ``;``, each one is the ``x``
    of the next. Without one the bias is added. Sums are made in float32 for 16-bit floats and in the
    output's own type otherwise. An inner size of 0 gives a product of zeros. A ``w`` that exceeds one
    binding is multiplied in parts, and so is an inner size that exceeds an invocation's rounds.
    """
    target = View.of(out)
    if not target.size:
        return
    if bias is not None:
        operands = {"c": bias, **(operands or {})}
        epilogue = "x + c" if epilogue == "x" else epilogue
    if View.of(w).slot.nbytes > b.caps.max_binding_bytes and in_parts(
        b, a, w, target, operands or {}, epilogue, uniforms
    ):
        return
    layout = lay_out(a, w, out, operands or {})
    left, right, m, n = layout.left, layout.right, layout.uniforms["m"], layout.uniforms["n"]
    compute = computing_type(target.slot.dtype)
    constants: dict[str, Constant] = {
        "a_order": order_of(left),
        "w_order": order_of(right),
        "epilogue": parts_of(epilogue),
        "operands": layout.operands,
        "compute": compute,
    }
    cpu = b.caps.device_class == "cpu"
    vector = compute.bits == 32
    if not cpu and vector and m >= 16 and n >= 16:
        template, workgroup = "matmul/shared", 256
        most = 16 * (MAX_ROUNDS // 17)  # it goes round 17 times for 16 steps
        if layout.uniforms["k"] > most:
            split(b, a, w, out, most, operands or {}, epilogue, uniforms)
            return
        groups = -(-m // 64) * -(-n // 64)
    else:
        # The kernel takes four steps of k at once where it reads quads of both in its own arithmetic.
        own = all(computing_type(v.slot.dtype) == compute for v in (left, right))
        at_once = 4 if vector and own and "any" not in (order_of(left), order_of(right)) else 1
        if layout.uniforms["k"] > at_once * MAX_ROUNDS:
            split(b, a, w, out, at_once * MAX_ROUNDS, operands or {}, epilogue, uniforms)
            return
        template, workgroup = "matmul/tile", 8 if cpu and n <= 128 else 32
        # Types unpacked by hand bring much code with every load, so their tiles stay small.
        packed = any(v.slot.dtype.per_word > 1 for v in (left, right)) and "shader-f16" not in b.caps.features
        # On a software adapter a load costs much more than passing its value on, so tiles grow in the
        # direction of what is shared.
        share = cpu and at_once == 4 and not packed and "subgroup" in b.caps.features
        tall = share and m >= 16
        side = 8 if cpu and not packed else 4
        rows = next(t for t in (1, 2, 4, 8, 16) if t >= min(m, 16 if tall else side)) if vector else 1
        columns = side if vector and not tall and n > 4 * workgroup else 4
        groups = -(-m // rows) * -(-n // (columns * workgroup))
        constants |= {"rows": rows, "columns": columns, "share": share}
    b.dispatch(
        template,
        reads={"a": left.slot, "w": right.slot, **layout.slots},
        writes={"y": target.slot},
        uniforms={**layout.uniforms, **(uniforms or {})},
        constants=constants,
        groups=groups * layout.batches,
        workgroup=workgroup,
    )


def in_parts(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    target: View,
    operands: Mapping[str, Slot | View],
    epilogue: str,
    uniforms: Mapping[str, Any] | None,
) -> bool:
    """Append a product with parts of ``w`` that fit a binding; False if it has none."""
    *batch, m, n = target.shape
    k = View.of(a).shape[-1]
    left, right = View.of(a).broadcast((*batch, m, k)), View.of(w).broadcast((*batch, k, n))
    axis, parts = cut(b, right)
    if len(parts) == 1:
        return False
    if axis == len(batch):  # parts of the inner dimension, each of which adds the sums of those before
        earlier: dict[str, Slot | View] = {}
        for first, part in parts[:-1]:
            sums = b.scratch("sums", target.shape, computing_type(target.slot.dtype))
            step = left.slice(-1, first, part.shape[-2])
            matmul(b, step, part, sums, operands=earlier, epilogue="x + earlier" if earlier else "x")
            earlier = {"earlier": sums}
        first, part = parts[-1]
        step = left.slice(-1, first, part.shape[-2])
        both = {**operands, **earlier}
        matmul(b, step, part, target, operands=both, epilogue=f"x + earlier; {epilogue}", uniforms=uniforms)
        return True
    for first, part in parts:
        count = part.shape[axis]
        own = {
            name: View.of(x).broadcast(target.shape).slice(axis, first, count) for name, x in operands.items()
        }
        matmul(
            b,
            left if axis > len(batch) else left.slice(axis, first, count),
            part,
            target.slice(axis, first, count),
            operands=own,
            epilogue=epilogue,
            uniforms=uniforms,
        )
    return True


def split(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    out: Slot | View,
    most: int,
    operands: Mapping[str, Slot | View],
    epilogue: str,
    uniforms: Mapping[str, Any] | None,
) -> None:
    """Append a product in parts of at most ``most`` (a multiple of 4) steps of the inner dimension.

    All parts but the last are a stack of products, whose sum the last one adds to its own.
    """
    target = View.of(out)
    *batch, m, n = target.shape
    k = View.of(a).shape[-1]
    left, right = View.of(a).broadcast((*batch, m, k)), View.of(w).broadcast((*batch, k, n))
    count = -(-k // most)
    part = -(-k // (4 * count)) * 4
    end = (count - 1) * part
    down, across = left.strides[-1], right.strides[-2]
    products = b.scratch("partial_products", (count - 1, *batch, m, n), computing_type(target.slot.dtype))
    matmul(
        b,
        replace(left, shape=(count - 1, *batch, m, part), strides=(part * down, *left.strides)),
        replace(right, shape=(count - 1, *batch, part, n), strides=(part * across, *right.strides)),
        products,
    )
    earlier = b.scratch("earlier", (*batch, m, n), products.dtype)
    reduce(b, products, earlier, axes=(0,), combine="a + b")
    matmul(
        b,
        left.slice(-1, end, k - end),
        right.slice(-2, end, k - end),
        out,
        operands={"earlier": earlier, **operands},
        epilogue=f"x + earlier; {epilogue}",
        uniforms=uniforms,
    )


def parts_of(epilogue: str) -> tuple[str, ...]:
    """The expressions of an epilogue, in order."""
    return tuple(part.strip() for part in epilogue.split(";"))


def product_views(
    b: Builder, a: Slot | View, w: Slot | View, names: tuple[str, str] = ("A", "B")
) -> tuple[View, View, Shape, Shape]:
    """Both factors as (stacks of) matrices, the shape of their product, and that of the result.

    The rules are those of NumPy's matmul: a vector is a row or a column while multiplying, leading
    dimensions broadcast. Refuses factors that do not fit.
    """
    left, right = View.of(a), View.of(w)
    for view, name in zip((left, right), names, strict=True):
        b.check(len(view.shape) > 0, name, "is a scalar", "at least one dimension")
    rows = left.shape[-2:-1] if len(left.shape) > 1 else ()
    columns = right.shape[-1:] if len(right.shape) > 1 else ()
    left = left if rows else left.insert(0)
    right = right if columns else right.insert(1)
    b.check(
        left.shape[-1] == right.shape[-2],
        names[1],
        f"has shape {right.slot.shape}",
        f"inner size {left.shape[-1]} because {names[0]} has shape {left.slot.shape}",
    )
    batch = broadcast_shapes(b, [(names[0], left.shape[:-2]), (names[1], right.shape[:-2])])
    return left, right, (*batch, left.shape[-2], right.shape[-1]), (*batch, *rows, *columns)


@register("MatMul", domain="")
@dataclass(frozen=True, kw_only=True)
class MatMul(Operator):
    """NumPy's matmul: 1-D operands are a row or a column, leading dimensions broadcast."""

    def plan(self, b: Builder) -> None:
        left, right, matrices, shape = product_views(b, b.need("A"), b.need("B"))
        matmul(b, left, right, b.output("Y", shape, left.slot.dtype).reshape(*matrices))


@register("Gemm", domain="")
@dataclass(frozen=True, kw_only=True)
class Gemm(Operator):
    """alpha * A' @ B' + beta * C, where C broadcasts to the product."""

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0
    transB: int = 0

    def plan(self, b: Builder) -> None:
        self.multiply(b)

    def multiply(self, b: Builder, ending: str = "x", uniforms: Mapping[str, Any] | None = None) -> None:
        """Append the product, finished by the epilogue ``ending``."""
        a, w, c = b.need("A"), b.need("B"), b.get("C")
        left, right, (m, n) = gemm_views(b, a, w, bool(self.transA), bool(self.transB))
        if c is not None:
            fits = broadcasts(c.shape, (m, n))
            b.check(fits, "C", f"has shape {c.shape}", f"a shape that broadcasts to ({m}, {n})")
        compute = computing_type(a.dtype)
        terms, values = "x", dict(uniforms or {})
        for name, factor, needed in (("alpha", self.alpha, True), ("beta", self.beta, c is not None)):
            if not needed or factor == 1.0:
                continue
            values[name] = factor_of(self.op, name, factor, compute)
        if "alpha" in values:
            terms = "u.alpha * x"
        if c is not None:
            terms += " + u.beta * c" if "beta" in values else " + c"
        y = b.output("Y", (m, n), a.dtype)
        matmul(b, left, right, y, bias=c, epilogue=f"{terms}; {ending}", uniforms=values)


def factor_of(op: str, name: str, value: float, dtype: DType) -> Uniform:
    """Attribute ``name`` as a factor in the arithmetic of ``dtype``.

    Whole numbers take whole ones, which wrap as the products do.
    """
    if dtype.is_float:
        return uniform_of(value, dtype)
    if not float(value).is_integer():
        raise UnsupportedError(f"{op}: {name} is {value} for {dtype}; expected a whole number")
    size = 1 << dtype.bits
    whole = int(value) % size
    return uniform_of(whole - size if dtype.kind == "int" and 2 * whole >= size else whole, dtype)


def gemm_views(b: Builder, a: Slot, w: Slot, trans_a: bool, trans_b: bool) -> tuple[View, View, Shape]:
    """Inputs A and B of a Gemm as the product sees them, and its shape; refused if they do not fit."""
    for x in (a, w):
        b.check(x.rank == 2, x.name, f"has shape {x.shape}", "two dimensions")
    left = transposed(a) if trans_a else View.of(a)
    right = transposed(w) if trans_b else View.of(w)
    b.check(
        right.shape[0] == left.shape[1],
        w.name,
        f"has shape {w.shape}",
        f"inner size {left.shape[1]} because {a.name} has shape {a.shape} "
        f"(transA={int(trans_a)}, transB={int(trans_b)})",
    )
    return left, right, (left.shape[0], right.shape[1])


def broadcasts(shape: Sequence[int], to: Shape) -> bool:
    """Whether ``shape`` broadcasts to exactly ``to``."""
    return len(shape) <= len(to) and all(
        have in (1, want) for have, want in zip(reversed(shape), reversed(to), strict=False)
    )
