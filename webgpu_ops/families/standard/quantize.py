"""Linear quantization: floats to narrow integers and back, by scales and zero points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import MAX_ROUNDS, Builder, Shape, Slot
from ...errors import UnsupportedError
from ..layout import axis_of
from ..registry import Operator, register


def saturated(expression: str, dtype: DType) -> str:
    """``expression``, a whole float, clamped to what the integer type ``dtype`` holds."""
    limits = {"int4": (-8, 7), "uint4": (0, 15)}.get(dtype.name)
    low, high = limits or (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    return f"clamp({expression}, {low}, {high})"


def quantized(
    b: Builder, x: Slot, y: Slot, scale: Slot, zero: Slot | None, *, axis: int = 0, block: int = 0
) -> None:
    """Append y = x / scale + zero, rounded half to even and saturated to y's type.

    ``scale`` and ``zero`` have one element, or one for each place on ``axis``, or with ``block`` x's
    shape with one for each ``block`` places on ``axis``. The quotient is made in float32.
    """
    quotient = "round(x / scale)" if y.dtype.is_integer else "x / scale"
    if zero is not None:
        quotient += " + zero"
    expression = saturated(quotient, y.dtype) if y.dtype.is_integer else quotient
    _linear(b, expression, x, y, scale, zero, axis, block)


def dequantized(
    b: Builder, x: Slot, y: Slot, scale: Slot, zero: Slot | None, *, axis: int = 0, block: int = 0
) -> None:
    """Append y = (x - zero) * scale; scales and zero points as in :func:`quantized`."""
    expression = "x * scale" if zero is None else "(x - zero) * scale"
    _linear(b, expression, x, y, scale, zero, axis, block)


def _linear(
    b: Builder,
    expression: str,
    x: Slot,
    y: Slot,
    scale: Slot,
    zero: Slot | None,
    axis: int,
    block: int,
) -> None:
    many = scale.size != 1
    places = {}
    if many:
        inner = math.prod(x.shape[axis + 1 :])
        steps = (scale.shape[axis] * inner, inner, 1) if block else (0, 1, 0)
        places = {
            "width": x.shape[axis],
            "inner": inner,
            "block": max(1, block),
            "outer_step": steps[0],
            "axis_step": steps[1],
            "inner_step": steps[2],
        }
    b.dispatch(
        "quantize/linear",
        reads={"x": x, "scale": scale, "zero": zero},
        writes={"y": y},
        uniforms={"size": x.size, **places},
        constants={"expression": expression, "many": many, "compute": dtypes.float32},
        threads=-(-x.size // 4),
    )


def grain(b: Builder, x: Slot, scale: Slot, zero: Slot | None, axis: int, block: int) -> tuple[int, int]:
    """The axis and the block size of a call's scales; refuses shapes that do not fit."""
    if block < 0:
        raise b.refuse("block_size", f"is {block}", "a positive number, or 0 for none")
    if zero is not None:
        same = zero.shape == scale.shape or zero.size == scale.size == 1
        b.check(same, zero.name, f"has shape {zero.shape}", f"{scale.shape} because {scale.name} has it")
    if scale.size == 1 and (not block or scale.rank != x.rank):
        return 0, 0
    axis = axis_of(b, axis, x.rank)
    expected: Shape = (x.shape[axis],)
    if block:
        expected = (*x.shape[:axis], -(-x.shape[axis] // block), *x.shape[axis + 1 :])
    b.check(
        scale.shape == expected,
        scale.name,
        f"has shape {scale.shape}",
        f"one element or {expected} because {x.name} has shape {x.shape} (axis={axis}, block_size={block})",
    )
    return axis, block


@register("QuantizeLinear", domain="")
@dataclass(frozen=True, kw_only=True)
class QuantizeLinear(Operator):
    """x / y_scale + y_zero_point in a narrow type: one scale, one an axis place, or one a block."""

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0
    saturate: int = 1
    precision: int = 0

    def plan(self, b: Builder) -> None:
        x, scale, zero = b.need("x"), b.need("y_scale"), b.get("y_zero_point")
        dtype = dtypes.uint8 if zero is None else zero.dtype
        if self.output_dtype:
            asked = dtypes.from_onnx(self.output_dtype)
            fits = zero is None or asked == dtype
            b.check(fits, "output_dtype", f"is {asked}", f"{dtype} because y_zero_point has it")
            dtype = asked
        if dtype.name.startswith("float8") and not self.saturate:
            raise UnsupportedError(f"{self.op}: {dtype} with saturate=0 is not available on the device")
        axis, block = grain(b, x, scale, zero, self.axis, self.block_size)
        quantized(b, x, b.output("y", x.shape, dtype), scale, zero, axis=axis, block=block)


@register("DequantizeLinear", domain="")
@dataclass(frozen=True, kw_only=True)
class DequantizeLinear(Operator):
    """(x - x_zero_point) * x_scale in the scale's type, or in the one asked for."""

    axis: int = 1
    block_size: int = 0
    output_dtype: int = 0

    def plan(self, b: Builder) -> None:
        x, scale, zero = b.need("x"), b.need("x_scale"), b.get("x_zero_point")
        dtype = dtypes.from_onnx(self.output_dtype) if self.output_dtype else scale.dtype
        known = dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16)
        b.check(known, "output_dtype", f"is {dtype}", "float32, float16 or bfloat16")
        axis, block = grain(b, x, scale, zero, self.axis, self.block_size)
        # An int32 zero point is 0 by definition, and float32 could not hold the difference.
        zero = None if x.dtype == dtypes.int32 else zero
        dequantized(b, x, b.output("y", x.shape, dtype), scale, zero, axis=axis, block=block)


def dynamically_quantized(b: Builder, x: Slot, y: Slot, scale: Slot, zero: Slot) -> None:
    """Append y = x in uint8 with the scale and zero point by which x's range, 0 included, fills it."""
    lanes = 8 if b.caps.device_class == "cpu" else 64
    parts = max(1, min(64, x.size // (lanes * 16)), -(-5 * x.size // (4 * lanes * MAX_ROUNDS)))
    ends = b.scratch("range", (parts, 2), dtypes.float32)
    b.dispatch(
        "quantize/range",
        reads={"x": x},
        writes={"y": ends},
        uniforms={"size": x.size, "parts": parts},
        constants={"last": False},
        groups=parts,
        workgroup=lanes,
    )
    b.dispatch(
        "quantize/range",
        reads={"x": ends},
        writes={"scale": scale, "zero": zero},
        uniforms={"parts": parts},
        constants={"last": True},
        groups=1,
        workgroup=lanes,
    )
    quantized(b, x, y, scale, zero)


@register("DynamicQuantizeLinear", domain="")
@dataclass(frozen=True, kw_only=True)
class DynamicQuantizeLinear(Operator):
    """x in uint8, its scale and its zero point."""

    def plan(self, b: Builder) -> None:
        x = b.need("x")
        y = b.output("y", x.shape, dtypes.uint8)
        scale = b.output("y_scale", (), dtypes.float32)
        zero = b.output("y_zero_point", (), dtypes.uint8)
        dynamically_quantized(b, x, y, scale, zero)
