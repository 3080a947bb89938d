"""Elementwise arithmetic, comparisons, logic and conversions: one expression each."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot, uniform_of
from ...errors import UnsupportedError
from ..elementwise import elementwise
from ..layout import View, axis_of, broadcast_shapes
from ..registry import Operator, register

_UNARY = {
    "Abs": "abs(x)",
    "Ceil": "ceil(x)",
    "Cos": "cos(x)",
    "Erf": "erf(x)",
    "Exp": "exp(x)",
    "Floor": "floor(x)",
    "Log": "log(x)",
    "Neg": "-x",
    "Not": "not x",
    "Reciprocal": "1 / x",
    "Relu": "0 if x < 0 else x",
    "Round": "round(x)",
    "Sigmoid": "sigmoid(x)",
    "Sign": "x if is_nan(x) else sign(x)",
    "Sin": "sin(x)",
    "Softplus": "softplus(x)",
    "Sqrt": "sqrt(x)",
    "Tanh": "tanh(x)",
}

_BINARY = {
    "Add": "a + b",
    "Sub": "a - b",
    "Mul": "a * b",
    "Div": "a / b",
    "And": "a and b",
    "Or": "a or b",
    "Xor": "a ^ b",
    "Equal": "a == b",
    "Greater": "a > b",
    "GreaterOrEqual": "a >= b",
    "Less": "a < b",
    "LessOrEqual": "a <= b",
}
_COMPARISONS = frozenset(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])

# A NaN on either side wins, as in NumPy.
_EXTREMES = {
    "Max": "a if a > b or is_nan(a) else b",
    "Min": "a if a < b or is_nan(a) else b",
}


def _only_input(b: Builder) -> Slot:
    return b.need(next(iter(b.inputs)))


def _only_output(b: Builder) -> str:
    return b.output_names[0]


@register(*_UNARY, domain="")
@dataclass(frozen=True, kw_only=True)
class Unary(Operator):
    """One tensor in, one of the same shape and type out."""

    def plan(self, b: Builder) -> None:
        x = _only_input(b)
        elementwise(b, _UNARY[self.op], b.output(_only_output(b), x.shape, x.dtype), {"x": x})


def _aligned(b: Builder, a: Slot, other: Slot, opset: int, broadcast: int, axis: int | None) -> Slot | View:
    """The second operand so that NumPy's broadcasting applies; before opset 7 ``axis`` placed it."""
    if opset >= 7:
        return other
    if not broadcast:
        b.check(
            a.shape == other.shape, other.name, f"has shape {other.shape}", f"{a.shape}, as broadcast is 0"
        )
        return other
    first = a.rank - other.rank if axis is None else axis_of(b, axis, a.rank)
    trailing = a.rank - other.rank - first
    b.check(trailing >= 0, other.name, f"has shape {other.shape}", f"at most {a.rank - first} dimensions")
    return other.reshape(*other.shape, *(1,) * trailing)


@register(*_BINARY, domain="")
@dataclass(frozen=True, kw_only=True)
class Binary(Operator):
    """Two tensors that broadcast (before opset 7: as the attributes say)."""

    broadcast: int = 0
    axis: int | None = None

    def plan(self, b: Builder) -> None:
        a, second = (b.need(name) for name in b.inputs)
        other = _aligned(b, a, second, self.opset, self.broadcast, self.axis)
        shape = broadcast_shapes(b, [(a.name, a.shape), (second.name, other.shape)])
        out = b.output(_only_output(b), shape, dtypes.bool_ if self.op in _COMPARISONS else a.dtype)
        expression = _BINARY[self.op]
        if self.op == "Equal" and a.dtype.kind == "bool":
            expression = "not (a ^ b)"
        elementwise(b, expression, out, {"a": a, "b": other}, compute=a.dtype)


@register("Pow", domain="")
@dataclass(frozen=True, kw_only=True)
class Pow(Operator):
    """X ** Y in X's type; an integer to a float power is computed in the power's type."""

    broadcast: int = 0
    axis: int | None = None

    def plan(self, b: Builder) -> None:
        x, second = b.need("X"), b.need("Y")
        y = _aligned(b, x, second, self.opset, self.broadcast, self.axis)
        out = b.output("Z", broadcast_shapes(b, [("X", x.shape), ("Y", y.shape)]), x.dtype)
        operands = {"x": x, "y": y}
        if x.dtype.is_float:
            elementwise(b, "x ** y", out, operands)
        elif second.dtype.is_float:
            elementwise(b, "x ** y", out, operands, compute=second.dtype, cast=True)
        else:
            elementwise(b, "power(x, y)", out, operands, library="standard/power.wgsl")


@register("Max", "Min", "Sum", "Mean", domain="")
@dataclass(frozen=True, kw_only=True)
class Variadic(Operator):
    """Any number of tensors that broadcast, folded from the first on."""

    def plan(self, b: Builder) -> None:
        slots = [b.need(name) for name in b.inputs]
        out = b.output(
            _only_output(b), broadcast_shapes(b, [(s.name, s.shape) for s in slots]), slots[0].dtype
        )
        step = _EXTREMES.get(self.op, "a + b")
        last = "(a + b) / u.count" if self.op == "Mean" else step
        if len(slots) == 1:
            elementwise(b, "a", out, {"a": slots[0]})
            return
        # Partial results stay in the type that sums them, so that they are rounded once.
        wide = dtypes.float32 if out.dtype.is_float and out.dtype.bits < 32 else out.dtype
        values = {"count": uniform_of(len(slots), wide)} if self.op == "Mean" else {}
        result = slots[0]
        for i, slot in enumerate(slots[1:], 2):
            final = i == len(slots)
            shape = broadcast_shapes(b, [(s.name, s.shape) for s in slots[:i]])
            target = out if final else b.scratch(f"partial_{i}", shape, wide)
            elementwise(
                b,
                last if final else step,
                target,
                {"a": result, "b": slot},
                uniforms=values if final else {},
            )
            result = target


@register("Where", domain="")
@dataclass(frozen=True, kw_only=True)
class Where(Operator):
    """X where the condition holds, else Y, bit for bit."""

    def plan(self, b: Builder) -> None:
        condition, x, y = b.need("condition"), b.need("X"), b.need("Y")
        shape = broadcast_shapes(b, [(s.name, s.shape) for s in (condition, x, y)])
        bits = x.dtype.as_bits()
        out = b.output("output", shape, x.dtype)
        operands = {"c": condition, "x": x.as_bits(), "y": y.as_bits()}
        elementwise(b, "select(y, x, c)", out.as_bits(), operands, compute=bits)


@register("Clip", domain="")
@dataclass(frozen=True, kw_only=True)
class Clip(Operator):
    """min(max(x, low), high); bounds are attributes before opset 11 and scalar inputs since."""

    min: float | None = None
    max: float | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        operands: dict[str, Slot | View] = {"x": x}
        values = {}
        expression = "x"
        # Comparisons keep a NaN, which WGSL's own min and max may drop.
        for name, sign in (("min", "<"), ("max", ">")):
            bound = b.get(name) if name in b.inputs else None
            attribute = self.min if name == "min" else self.max
            if bound is not None:
                b.check(bound.size == 1, name, f"has shape {bound.shape}", "a scalar")
                operands[f"{name}_in"] = bound.reshape()
                limit = f"{name}_in"
            elif attribute is not None:
                values[name] = uniform_of(attribute, x.dtype)
                limit = f"u.{name}"
            else:
                continue
            expression = f"({limit} if {expression} {sign} {limit} else {expression})"
        elementwise(b, expression, b.output("output", x.shape, x.dtype), operands, uniforms=values)


@register("Cast", "CastLike", domain="")
@dataclass(frozen=True, kw_only=True)
class Cast(Operator):
    """Conversion between number types.

    ``saturate`` (opset 19) tells what float8 makes of values beyond its range: the largest value,
    or without it infinity or NaN.
    """

    to: int = 0
    saturate: int = 1

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        dtype = b.need("target_type").dtype if self.op == "CastLike" else dtypes.from_onnx(self.to)
        if "string" in (x.dtype.kind, dtype.kind) or "complex" in (x.dtype.kind, dtype.kind):
            raise UnsupportedError(f"{self.op}: {x.dtype} to {dtype} is not available on the device")
        if dtype.name.startswith("float8") and not self.saturate:
            raise UnsupportedError(f"{self.op}: {dtype} with saturate=0 is not available on the device")
        out = b.output("output", x.shape, dtype)
        if dtype == x.dtype:
            b.copy(x, out)
        elif x.dtype == dtypes.float64 and dtype.is_float and dtype.bits < 32:
            elementwise(b, "narrowed(x)", out, {"x": x}, compute=x.dtype, library="standard/narrow.wgsl")
        else:
            elementwise(b, "x", out, {"x": x}, compute=x.dtype, cast=True)
