"""Matrix products of 8- and 16-bit integers, exact in 32 bits: alone, and scaled to floats or back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import dtypes
from ..core.dtypes import DType
from ..core.plan import MAX_ROUNDS, Builder, Slot
from ..errors import UnsupportedError
from .layout import View, cut
from .matmul import broadcasts, computing_type, gemm_views, lay_out, order_of, parts_of, product_views
from .registry import Operator, register
from .standard.quantize import dynamically_quantized, saturated


def integer_matmul(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    out: Slot | View,
    *,
    a_zero: Slot | View | None = None,
    w_zero: Slot | View | None = None,
    start: Slot | View | None = None,
    a_column_zero: Slot | None = None,
    a_column_scale: Slot | None = None,
    epilogue: str = "x",
    operands: Mapping[str, Slot | View] | None = None,
    uniforms: Mapping[str, Any] | None = None,
    compute: DType | None = None,
    orders: tuple[str, str, str] | None = None,
    as_out: str = "",
) -> None:
    """Append ``out = epilogue(start + (a - a_zero) @ (w - w_zero))`` for 8- or 16-bit factors.

    ``a`` is ``[..., m, k]``, ``w`` ``[..., k, n]``, ``out`` ``[..., m, n]``. Zero points broadcast over
    ``[..., m, 1]`` and ``[..., 1, n]``, ``start`` (int32) and ``operands`` to ``out``. Sums wrap at 32
    bits, so they are exact wherever the result fits int32 (uint32 where ``out`` is that). The epilogue
    is made of expressions of ``x``, the sum, and of the operands, as in :func:`.matmul.matmul`, in the
    arithmetic of ``compute`` (default: that of ``out``).

    ``a_column_zero`` and ``a_column_scale`` (float32 or float16) hold one value for each of a's ``k``
    columns; with the scale, sums are made in float32.

    ``orders`` names the memory order (:mod:`.ordered`) of a, of w transposed, and of ``out`` and the
    operand ``as_out``; those are then whole tensors. Without them, what exceeds a binding or the rounds
    of an invocation is multiplied in parts.
    """
    target = View.of(out)
    if not target.size:
        return
    sums = dtypes.int32
    if a_column_scale is not None:
        sums = dtypes.float32
    elif target.slot.dtype == dtypes.uint32:
        sums = dtypes.uint32
    sides = {"a_zero": a_zero, "w_zero": w_zero, "start": start}
    *batch, m, n = target.shape
    k = View.of(a).shape[-1]
    product = _Product(
        View.of(a).broadcast((*batch, m, k)),
        View.of(w).broadcast((*batch, k, n)),
        target,
        sides={name: View.of(x) for name, x in sides.items() if x is not None},
        columns={"a_column_zero": a_column_zero, "a_column_scale": a_column_scale},
        operands={name: View.of(x) for name, x in (operands or {}).items()},
        epilogue=epilogue,
        uniforms=uniforms or {},
        sums=sums,
        compute=compute or computing_type(target.slot.dtype),
        orders=orders,
        as_out=as_out,
    )
    for part in [product] if orders else _parts(b, product):
        _append(b, part)


@dataclass(frozen=True)
class _Product:
    """The arguments of :func:`integer_matmul`, with the batch of both factors spelled out."""

    left: View
    right: View
    target: View
    sides: Mapping[str, View]
    columns: Mapping[str, Slot | None]
    operands: Mapping[str, View]
    epilogue: str
    uniforms: Mapping[str, Any]
    sums: DType
    compute: DType
    orders: tuple[str, str, str] | None
    as_out: str

    def part(self, axis: int, first: int, right: View) -> _Product:
        """Some of the columns or of the batch: those of ``right``."""
        count = right.shape[axis]

        def some(view: View) -> View:
            return view.broadcast(self.target.shape).slice(axis, first, count)

        return replace(
            self,
            left=self.left if axis == len(right.shape) - 1 else self.left.slice(axis, first, count),
            right=right,
            target=some(self.target),
            sides={name: some(view) for name, view in self.sides.items()},
            operands={name: some(view) for name, view in self.operands.items()},
        )

    def step(self, begin: int, right: View, earlier: View | None) -> _Product:
        """The columns of a from ``begin`` on (a multiple of 4) that meet the rows of ``right``."""
        count = right.shape[-2]
        return replace(
            self,
            left=self.left.slice(-1, begin, count),
            right=right,
            sides=self.sides if earlier is None else {**self.sides, "start": earlier},
            columns={name: x and x.rows(begin, count) for name, x in self.columns.items()},
        )


def _parts(b: Builder, product: _Product) -> Iterator[_Product]:
    """Products that each fit bindings and an invocation's rounds."""
    axis, parts = cut(b, product.right)
    if axis == len(product.right.shape) - 2:
        yield from _steps(b, product, parts)
        return
    for first, right in parts:
        yield from _steps(b, product.part(axis, first, right), [(0, right)])


def _steps(b: Builder, product: _Product, parts: Sequence[tuple[int, View]]) -> Iterator[_Product]:
    """A product along its inner dimension: a step starts with the sums of the one before it."""
    at_once = 1 if "any" in (order_of(product.left), order_of(product.right)) else 4
    most = at_once * MAX_ROUNDS
    steps = [
        (first + at, right.slice(-2, at, min(most, right.shape[-2] - at)))
        for first, right in parts
        for at in range(0, max(1, right.shape[-2]), most)
    ]
    earlier: View | None = None
    for begin, right in steps[:-1]:
        sums = View.of(b.scratch("sums", product.target.shape, product.sums))
        step = product.step(begin, right, earlier)
        yield replace(step, target=sums, operands={}, epilogue="x", uniforms={}, compute=product.sums)
        earlier = sums
    yield product.step(*steps[-1], earlier) if earlier else product


def _append(b: Builder, p: _Product) -> None:
    """One dispatch."""
    layout = lay_out(p.left, p.right, p.target, {**p.operands, **p.sides}, merge=p.orders is None)
    left, right = layout.left.slot.dtype, layout.right.slot.dtype
    m, n = layout.uniforms["m"], layout.uniforms["n"]
    cpu = b.caps.device_class == "cpu"
    orders = p.orders or (order_of(layout.left), order_of(layout.right), "row")
    # Software adapters multiply unpacked numbers faster than they emulate products of packed ones.
    plain = not cpu and left.bits == right.bits == 8 and "any" not in orders
    packed = plain and not any(p.columns.values())
    rows = next(t for t in (1, 2, 4) if t >= min(m, 4))
    workgroup = 8 if cpu else 32
    modes = tuple((name, "as y" if name == p.as_out else mode, t) for name, mode, t in layout.operands)
    values = dict(layout.uniforms)
    if p.as_out:
        values.setdefault(f"{p.as_out}_batch", (0,) * len(values["y_batch"]))
    b.dispatch(
        "integer/product",
        reads={"a": layout.left.slot, "w": layout.right.slot, **layout.slots, **p.columns},
        writes={"y": layout.target.slot},
        uniforms={**values, **p.uniforms},
        constants={
            "rows": rows,
            "a_order": orders[0],
            "w_order": orders[1],
            "y_order": orders[2],
            "packed": packed,
            "sums": p.sums,
            "compute": p.compute,
            "operands": tuple(o for o in modes if o[0] not in p.sides),
            "sides": tuple(o for o in modes if o[0] in p.sides),
            "epilogue": parts_of(p.epilogue),
        },
        groups=-(-m // rows) * -(-n // (4 * workgroup)) * layout.batches,
        workgroup=workgroup,
    )


# Scales and zero points of operators


def of_rows(b: Builder, slot: Slot, matrix: View) -> View:
    """A value for all, or one for each row: [rows], or with dimensions that broadcast to [..., rows, 1]."""
    view, expected = View.of(slot), (*matrix.shape[:-1], 1)
    if slot.size == 1:
        return View(slot, (1, 1), (0, 0))
    if slot.rank == 1:
        view = view.insert(1)
    good = view.shape[-2:] == expected[-2:] and broadcasts(view.shape, expected)
    b.check(good, slot.name, f"has shape {slot.shape}", f"one element, ({expected[-2]},) or {expected}")
    return view


def of_columns(b: Builder, slot: Slot, matrix: View) -> View:
    """A value for all, or one for each column: [columns], or what broadcasts to [..., 1, columns]."""
    expected = (*matrix.shape[:-2], 1, matrix.shape[-1])
    if slot.size == 1:
        return View(slot, (1, 1), (0, 0))
    good = slot.shape[-1] == expected[-1] and broadcasts(slot.shape, expected)
    b.check(good, slot.name, f"has shape {slot.shape}", f"one element, ({expected[-1]},) or {expected}")
    return View.of(slot)


def single(b: Builder, name: str) -> Slot:
    """Input ``name``, which has one element, as a scalar."""
    slot = b.need(name)
    b.check(slot.size == 1, name, f"has shape {slot.shape}", "one element")
    return slot.reshape()


@register("MatMulInteger", domain="")
@dataclass(frozen=True, kw_only=True)
class MatMulInteger(Operator):
    """(A - a_zero_point) @ (B - b_zero_point) in int32: zero points of all, of a row, of a column."""

    def plan(self, b: Builder) -> None:
        left, right, matrices, shape = product_views(b, b.need("A"), b.need("B"))
        a_zero, w_zero = b.get("a_zero_point"), b.get("b_zero_point")
        y = b.output("Y", shape, dtypes.int32)
        integer_matmul(
            b,
            left,
            right,
            y.reshape(*matrices),
            a_zero=None if a_zero is None else of_rows(b, a_zero, left),
            w_zero=None if w_zero is None else of_columns(b, w_zero, right),
        )


@register("MatMulInteger16")
@dataclass(frozen=True, kw_only=True)
class MatMulInteger16(Operator):
    """A @ B of 16-bit integers: uint32 if both are unsigned, else int32."""

    def plan(self, b: Builder) -> None:
        left, right, matrices, shape = product_views(b, b.need("A"), b.need("B"))
        unsigned = left.slot.dtype.kind == right.slot.dtype.kind == "uint"
        y = b.output("Y", shape, dtypes.uint32 if unsigned else dtypes.int32)
        integer_matmul(b, left, right, y.reshape(*matrices))


@register("MatMulIntegerToFloat")
@dataclass(frozen=True, kw_only=True)
class MatMulIntegerToFloat(Operator):
    """The product of what A and B stand for, plus a bias: scales and zero points of all or of a column."""

    def plan(self, b: Builder) -> None:
        scale = b.need("a_scale")
        left, right, matrices, shape = product_views(b, b.need("A"), b.need("B"))
        zero = b.get("a_zero_point")
        columns = left.shape[-1]
        for slot in (scale, zero):
            if slot is not None and slot.size != 1:
                b.check_shape(slot.name, columns, why=f"A has {columns} columns")
        y = b.output("Y", shape, scale.dtype)
        scaled_product(b, left, right, y.reshape(*matrices), scale, zero)


@register("DynamicQuantizeMatMul")
@dataclass(frozen=True, kw_only=True)
class DynamicQuantizeMatMul(Operator):
    """A, quantized to uint8 over its own range, times what B stands for, plus a bias."""

    def plan(self, b: Builder) -> None:
        a = b.need("A")
        left, right, matrices, shape = product_views(b, a, b.need("B"))
        y = b.output("Y", shape, a.dtype)
        quantized = b.scratch("A_quantized", a.shape, dtypes.uint8)
        scale = b.scratch("A_scale", (), dtypes.float32)
        zero = b.scratch("A_zero_point", (), dtypes.uint8)
        dynamically_quantized(b, a, quantized, scale, zero)
        left = View(quantized, left.shape, left.strides)
        scaled_product(b, left, right, y.reshape(*matrices), scale, zero)


def scaled_product(b: Builder, left: View, right: View, y: Slot, scale: Slot, zero: Slot | None) -> None:
    """Append y = scaled ``left`` @ scaled B + bias, with B's scale, zero point and bias by their names.

    ``scale`` and ``zero`` have one element, or one for each column of ``left``.
    """
    columns = right.shape[-1]
    w_scale, w_zero, bias = b.need("b_scale"), b.get("b_zero_point"), b.get("bias")
    b.check_shape("bias", columns, why=f"B has {columns} columns")
    inner = left.shape[-1]
    operands: dict[str, Slot | View] = {"w_scale": of_columns(b, w_scale, right)}
    factors = ["w_scale"]
    if scale.size == 1:
        operands["a_scale"] = scale.reshape()
        factors.insert(0, "a_scale")
    if bias is not None:
        operands["bias"] = bias
    integer_matmul(
        b,
        left,
        right,
        y,
        a_zero=zero.reshape() if zero is not None and zero.size == 1 else None,
        w_zero=None if w_zero is None else of_columns(b, w_zero, right),
        a_column_zero=zero if zero is not None and zero.size == inner != 1 else None,
        a_column_scale=scale if scale.size == inner != 1 else None,
        epilogue=f"x * ({' * '.join(factors)}){' + bias' if bias is not None else ''}",
        operands=operands,
    )


@register("QLinearMatMul", domain="")
@dataclass(frozen=True, kw_only=True)
class QLinearMatMul(Operator):
    """The product of what a and b stand for, quantized: parameters of all, of a row, of a column."""

    def plan(self, b: Builder) -> None:
        left, right, matrices, shape = product_views(b, b.need("a"), b.need("b"), ("a", "b"))
        zero = b.need("y_zero_point")
        for slot in (left.slot, right.slot, zero):
            if not slot.dtype.is_integer:
                raise UnsupportedError(f"{self.op}: {slot.name} of type {slot.dtype} is not available")
        y = b.output("y", shape, zero.dtype).reshape(*matrices)
        result = View.of(y)
        integer_matmul(
            b,
            left,
            right,
            y,
            a_zero=of_rows(b, b.need("a_zero_point"), left),
            w_zero=of_columns(b, b.need("b_zero_point"), right),
            operands={
                "a_scale": of_rows(b, b.need("a_scale"), left),
                "w_scale": of_columns(b, b.need("b_scale"), right),
                "y_scale": of_rows(b, b.need("y_scale"), result),
                "y_zero": of_rows(b, zero, result),
            },
            epilogue=saturated("round(x * (a_scale * w_scale / y_scale)) + y_zero", y.dtype),
            compute=dtypes.float32,
        )


@register("QGemm")
@dataclass(frozen=True, kw_only=True)
class QGemm(Operator):
    """alpha * a_scale * b_scale * (A' @ B' + C) in float32, or quantized where the output has a scale."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0

    def plan(self, b: Builder) -> None:
        left, right, shape = gemm_views(b, b.need("A"), b.need("B"), bool(self.transA), bool(self.transB))
        c, y_scale, y_zero = b.get("C"), b.get("y_scale"), b.get("y_zero_point")
        if c is not None:
            fits = broadcasts(c.shape, shape)
            b.check(fits, "C", f"has shape {c.shape}", f"a shape that broadcasts to {shape}")
        operands: dict[str, Slot | View] = {
            "a_scale": single(b, "a_scale"),
            "w_scale": of_columns(b, b.need("b_scale"), right),
        }
        scale = "a_scale * w_scale" if self.alpha == 1.0 else "u.alpha * a_scale * w_scale"
        if y_scale is None:
            b.check(y_zero is None, "y_zero_point", "is given without y_scale", "both or neither")
            epilogue, dtype = f"x * ({scale})", dtypes.float32
        else:
            operands["y_scale"] = single(b, "y_scale")
            dtype = b.declared.get("Y", dtypes.uint8) if y_zero is None else y_zero.dtype
            epilogue = f"round(x * ({scale} / y_scale))"
            if y_zero is not None:
                operands["y_zero"] = single(b, "y_zero_point")
                epilogue += " + y_zero"
            epilogue = saturated(epilogue, dtype)
        integer_matmul(
            b,
            left,
            right,
            b.output("Y", shape, dtype),
            a_zero=single(b, "a_zero_point"),
            w_zero=of_columns(b, b.need("b_zero_point"), right),
            start=c,
            epilogue=epilogue,
            operands=operands,
            uniforms={} if self.alpha == 1.0 else {"alpha": self.alpha},
            compute=dtypes.float32,
        )
