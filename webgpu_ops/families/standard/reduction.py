"""Reductions and softmax over any axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import MAX_ROUNDS, Builder, Shape, Slot, uniform_of
from ...errors import UnsupportedError
from ..elementwise import elementwise
from ..layout import View, axes_of, axis_of, collapse, padded, wrapped
from ..registry import Operator, register
from .creation import fill


def computing_type(dtype: DType) -> DType:
    """The type in which sums of ``dtype`` are made: the narrow floats use float32."""
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def partial_type(dtype: DType) -> DType:
    """A type that holds what goes on in the arithmetic of ``dtype`` unrounded."""
    if dtype.is_integer and dtype.bits < 32:
        return dtypes.int32 if dtype.kind == "int" else dtypes.uint32
    return computing_type(dtype)


def reduce(
    b: Builder,
    x: Slot | View,
    y: Slot,
    *,
    axes: Sequence[int],
    each: str = "x",
    combine: str,
    finish: str = "a",
    count: int | None = None,
) -> None:
    """Append ``y = finish(combine over axes of each(x))`` in the arithmetic of ``y``'s type.

    ``each`` is an expression of ``x`` (one element), ``combine`` of ``a`` and ``b`` (partial
    results, in any order), ``finish`` of ``a`` and ``u.count`` (how many elements went in, or
    ``count``). No reduced axis may be empty; kept and reduced dimensions may alternate.
    """
    view = View.of(x)
    compute = computing_type(y.dtype)

    def part(dims: list[int]) -> tuple[Shape, tuple[int, ...]]:
        whole = View(
            view.slot, tuple(view.shape[d] for d in dims), tuple(view.strides[d] for d in dims), view.offset
        )
        shape, (strides,) = collapse(whole)
        return shape, strides

    kept_shape, kept_strides = part([d for d in range(len(view.shape)) if d not in axes])
    reduced_shape, reduced_strides = part([d for d in range(len(view.shape)) if d in axes])
    length = math.prod(reduced_shape)
    # Few long reductions need more hands than one invocation a result; a GPU has many to offer.
    cpu = b.caps.device_class == "cpu"
    lanes = 1
    if length >= 64 and y.size < (64 if cpu else 4096):
        lanes = 8 if cpu else 64
    # Longer ones are made in parts, which are then reduced themselves.
    rounds = 4 * length * (1 if len(reduced_shape) == 1 else 1 + len(reduced_shape))
    parts = -(-rounds // (lanes * MAX_ROUNDS))
    whole, ending = y, finish
    if parts > 1:
        y, finish = b.scratch("partial_results", (y.size, parts), partial_type(compute)), "a"
    quads = -(-y.size // 4)
    b.dispatch(
        "standard/reduce",
        reads={"x": view.slot},
        writes={"y": y},
        uniforms={
            "size": y.size,
            "length": length,
            "parts": parts,
            "offset": view.offset,
            "count": uniform_of(count or length, compute),
            "kept_rank": len(kept_shape),
            "kept_shape": padded(kept_shape),
            "kept_strides": wrapped(kept_strides),
            "reduced_rank": len(reduced_shape),
            "reduced_shape": padded(reduced_shape),
            "reduced_strides": wrapped(reduced_strides),
        },
        constants={
            "each": each,
            "combine": combine,
            "finish": finish,
            "lanes": lanes,
            "flat": len(reduced_shape) == 1,
            "compute": compute,
        },
        groups=quads if lanes > 1 else -(-quads // 64),
        workgroup=lanes if lanes > 1 else 64,
    )
    if parts > 1:
        reduce(b, y, whole, axes=(1,), combine=combine, finish=ending, count=count or length)


@dataclass(frozen=True)
class Reduction:
    """How an operator reduces, and what it makes of nothing."""

    each: str
    combine: str
    finish: str
    empty: float


# A NaN wins on either side: as b because comparisons with it are false, as a by its test.
_GREATER = "a if a > b or is_nan(a) else b"
_LESS = "a if a < b or is_nan(a) else b"
_REDUCTIONS = {
    "ReduceSum": Reduction("x", "a + b", "a", 0.0),
    "ReduceMean": Reduction("x", "a + b", "a / u.count", math.nan),
    "ReduceMax": Reduction("x", _GREATER, "a", -math.inf),
    "ReduceMin": Reduction("x", _LESS, "a", math.inf),
    "ReduceProd": Reduction("x", "a * b", "a", 1.0),
    "ReduceSumSquare": Reduction("x * x", "a + b", "a", 0.0),
    "ReduceL1": Reduction("abs(x)", "a + b", "a", 0.0),
    "ReduceL2": Reduction("x * x", "a + b", "sqrt(a)", 0.0),
    "ReduceLogSum": Reduction("x", "a + b", "log(a)", -math.inf),
}


def empty_value(value: float, dtype: DType) -> np.ndarray:
    """``value`` in ``dtype``, an infinity becoming the type's own limit where it has none."""
    if dtype.is_float:
        return np.array(value).astype(dtype.numpy)
    if dtype.kind == "bool":
        return np.array(value > 0)
    limits = np.iinfo(dtype.numpy)
    if math.isnan(value):
        value = 0
    return np.array(
        limits.min if value == -math.inf else limits.max if value == math.inf else value, dtype.numpy
    )


@register(*_REDUCTIONS, domain="")
@dataclass(frozen=True, kw_only=True)
class Reduce(Operator):
    """The Reduce* operators; axes are an attribute or (ReduceSum 13, the others 18) an input."""

    axes: Sequence[int] | None = None
    keepdims: int = 1
    noop_with_empty_axes: int = 0

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        axes: Sequence[int] | None = self.axes
        if "axes" in b.inputs and b.get("axes") is not None:
            axes = [int(a) for a in b.host("axes").reshape(-1)]
        how = _REDUCTIONS[self.op]
        if not axes:
            chosen: tuple[int, ...] = () if self.noop_with_empty_axes else tuple(range(x.rank))
        else:
            chosen = axes_of(b, axes, x.rank)
        shape = tuple(
            1 if d in chosen else size for d, size in enumerate(x.shape) if self.keepdims or d not in chosen
        )
        y = b.output("reduced", shape, x.dtype)
        if not y.size:
            return
        if not x.size:
            fill(b, y, empty_value(how.empty, x.dtype))
        elif x.dtype.kind == "bool":
            word = {"ReduceMax": "a or b", "ReduceMin": "a and b"}.get(self.op)
            if word is None:
                raise UnsupportedError(f"{self.op}: data is bool; expected a number type")
            reduce(b, x, y, axes=chosen, combine=word)
        else:
            reduce(b, x, y, axes=chosen, each=how.each, combine=how.combine, finish=how.finish)


@register("Softmax", "LogSoftmax", domain="")
@dataclass(frozen=True, kw_only=True)
class Softmax(Operator):
    """Softmax along ``axis``; before opset 13 over all dimensions from ``axis`` (default 1) on."""

    axis: int | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        y = b.output("output", x.shape, x.dtype)
        default = 1 if self.opset < 13 else -1
        given = default if self.axis is None else self.axis
        if self.opset < 13 and given == x.rank:
            axis = x.rank
        else:
            axis = axis_of(b, given, max(1, x.rank))
        end = axis + 1 if self.opset >= 13 else x.rank
        softmax(
            b,
            x,
            y,
            outer=math.prod(x.shape[:axis]),
            width=math.prod(x.shape[axis:end]),
            inner=math.prod(x.shape[end:]),
            log=self.op == "LogSoftmax",
        )


def softmax(
    b: Builder, x: Slot, y: Slot, *, outer: int, width: int, inner: int = 1, log: bool = False
) -> None:
    """Append ``y = softmax(x)`` along the middle of ``[outer, width, inner]``."""
    if not x.size:
        return
    compute = computing_type(x.dtype)
    # What four elements cost: two loops over them, and stores; float64 has loops in its functions.
    quad = 20 if compute.bits == 32 else 400
    lanes = b.lanes(8 if b.caps.device_class == "cpu" else 64, -(-width // 4) * quad)
    if lanes is None or (inner > 1 and width * quad > MAX_ROUNDS):
        long_softmax(b, x.reshape(outer, width, inner), y.reshape(outer, width, inner), log=log)
        return
    b.dispatch(
        "standard/softmax",
        reads={"x": x},
        writes={"y": y},
        uniforms={"outer": outer, "width": width, "inner": inner},
        constants={
            "inner": inner > 1,
            "log": log,
            "compute": compute,
        },
        threads=outer * -(-inner // 4) if inner > 1 else outer * lanes,
        workgroup=64 if inner > 1 else lanes,
    )


def long_softmax(b: Builder, x: Slot, y: Slot, *, log: bool) -> None:
    """Append ``y = softmax(x)`` along the second of three dimensions, however long."""
    outer, _, inner = x.shape
    compute = computing_type(x.dtype)
    top = b.scratch("largest", (outer, 1, inner), compute)
    reduce(b, x, top, axes=(1,), combine=_GREATER)
    rest = y if y.dtype == compute else b.scratch("distances", x.shape, compute)
    elementwise(b, "x - top", rest, {"x": x, "top": top})
    total = b.scratch("total", top.shape, compute)
    reduce(b, rest, total, axes=(1,), each="exp(x)", combine="a + b")
    value = "x - log(total)" if log else "exp(x) / total"
    elementwise(b, value, y, {"x": rest, "total": total}, compute=compute, cast=y.dtype != compute)


@register("CumSum", domain="")
@dataclass(frozen=True, kw_only=True)
class CumSum(Operator):
    """Running sums along an axis, which is a scalar on the host."""

    exclusive: int = 0
    reverse: int = 0

    def plan(self, b: Builder) -> None:
        x = b.need("x")
        axis = axis_of(b, int(b.host("axis").reshape(())), x.rank)
        inner = math.prod(x.shape[axis + 1 :])
        scan(
            b,
            x,
            b.output("y", x.shape, x.dtype),
            length=x.shape[axis],
            inner=inner,
            exclusive=bool(self.exclusive),
            reverse=bool(self.reverse),
        )


def scan(
    b: Builder, x: Slot, y: Slot, *, length: int, inner: int, exclusive: bool, reverse: bool = False
) -> None:
    """Append ``y``: the running sums of ``x`` along the middle of ``[outer, length, inner]``.

    A long line is scanned in parts, each of which begins with the sum of those before it.
    """
    compute = computing_type(x.dtype)
    # An eighth of the bound, since a store of a narrow element loops too.
    part = min(max(1, length), MAX_ROUNDS // 8)
    parts = -(-length // part)
    lines = x.size // max(1, length)

    def walk(target: Slot, before: Slot | None, totals: bool) -> None:
        b.dispatch(
            "standard/scan",
            reads={"x": x, "before": before},
            writes={"y": target},
            uniforms={"lines": lines, "length": length, "inner": inner, "part": part, "parts": parts},
            constants={"exclusive": exclusive, "reverse": reverse, "totals": totals, "compute": compute},
            threads=lines * parts,
        )

    before = None
    if parts > 1:
        sums, before = (
            b.scratch(name, (lines, parts), partial_type(compute)) for name in ("part_sums", "sums_before")
        )
        walk(sums, None, totals=True)
        scan(b, sums, before, length=parts, inner=1, exclusive=True)
    walk(y, before, totals=False)
