"""Floats to narrow types and back, by scales and zero points."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import reference

# ONNX's element types that quantization gives and takes.
TYPES: dict[int, Any] = {
    1: np.float32,
    2: np.uint8,
    3: np.int8,
    4: np.uint16,
    5: np.int16,
    10: np.float16,
    16: ml_dtypes.bfloat16,
    17: ml_dtypes.float8_e4m3fn,
    18: ml_dtypes.float8_e4m3fnuz,
    19: ml_dtypes.float8_e5m2,
    20: ml_dtypes.float8_e5m2fnuz,
    21: ml_dtypes.uint4,
    22: ml_dtypes.int4,
    23: ml_dtypes.float4_e2m1fn,
}


def limits(dtype: Any) -> tuple[float, float]:
    """The smallest and the largest value of a narrow type."""
    name = np.dtype(dtype).name
    info = (ml_dtypes.iinfo if "int" in name else ml_dtypes.finfo)(dtype)
    return float(info.min), float(info.max)


def saturated(x: np.ndarray, dtype: Any) -> np.ndarray:
    """x in a narrow type: rounded half to even, clipped to what the type holds."""
    x = np.clip(x, *limits(dtype))
    whole = "int" in np.dtype(dtype).name
    # Narrow floats by way of float32, as ml_dtypes rounds twice from float64.
    return (np.rint(x) if whole else x.astype(np.float32)).astype(dtype)


def spread(values: np.ndarray, x: np.ndarray, axis: int, block_size: int) -> np.ndarray:
    """Scales or zero points in float64, one for each element of ``x``."""
    wide = values.astype(np.float64)
    if values.size == 1 and (not block_size or values.ndim != x.ndim):
        return wide.reshape(())
    if block_size:
        repeated = np.repeat(wide, block_size, axis)
        return np.take(repeated, np.arange(x.shape[axis]), axis)
    return wide.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


@reference("QuantizeLinear", domain="")
def quantize_linear(
    x: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
    precision: int = 0,
) -> tuple[np.ndarray, ...]:
    """x / y_scale, the quotient in float32, plus y_zero_point, saturated."""
    dtype = np.dtype(np.uint8) if y_zero_point is None else y_zero_point.dtype
    dtype = np.dtype(TYPES[output_dtype]) if output_dtype else dtype
    scale = spread(y_scale, x, axis, block_size).astype(np.float32)
    quotient = (x.astype(np.float32) / scale).astype(np.float64)
    if "int" in dtype.name:
        quotient = np.rint(quotient)
    zero = 0.0 if y_zero_point is None else spread(y_zero_point, x, axis, block_size)
    return (saturated(quotient + zero, dtype),)


@reference("DequantizeLinear", domain="")
def dequantize_linear(
    x: np.ndarray,
    x_scale: np.ndarray,
    x_zero_point: np.ndarray | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> tuple[np.ndarray, ...]:
    """(x - x_zero_point) * x_scale."""
    zero = 0.0 if x_zero_point is None else spread(x_zero_point, x, axis, block_size)
    y = (x.astype(np.float64) - zero) * spread(x_scale, x, axis, block_size)
    return (y.astype(TYPES[output_dtype] if output_dtype else x_scale.dtype),)


@reference("DynamicQuantizeLinear", domain="")
def dynamic_quantize_linear(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """x in uint8, its scale and its zero point; the range contains 0."""
    low, high = np.float32(x.min(initial=0.0)), np.float32(x.max(initial=0.0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero = saturated(np.asarray(-low / scale), np.uint8)
    return saturated(np.rint(x / scale) + float(zero), np.uint8), np.asarray(scale), zero
