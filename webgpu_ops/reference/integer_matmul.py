"""Matrix products of quantized factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import reference
from .linear_quantization import dynamic_quantize_linear, saturated

Array = np.ndarray | None


def offset(x: np.ndarray, zero: Array) -> np.ndarray:
    """x - zero without overflow."""
    return x.astype(np.int64) - (0 if zero is None else np.asarray(zero).astype(np.int64))


def wrapped(x: np.ndarray, dtype: Any) -> np.ndarray:
    """Sums as 32-bit accumulators leave them."""
    return (x & 0xFFFFFFFF).astype(np.uint32).view(dtype)


def by_rows(value: Array) -> Array:
    """A parameter of all, or one for each row given as a vector."""
    return value[:, None] if value is not None and value.ndim == 1 and value.size > 1 else value


@reference("MatMulInteger", domain="")
def mat_mul_integer(
    A: np.ndarray, B: np.ndarray, a_zero_point: Array = None, b_zero_point: Array = None
) -> tuple[np.ndarray, ...]:
    """(A - a_zero_point) @ (B - b_zero_point) in int32."""
    return (wrapped(np.matmul(offset(A, by_rows(a_zero_point)), offset(B, b_zero_point)), np.int32),)


@reference("MatMulInteger16")
def mat_mul_integer16(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, ...]:
    """A @ B: uint32 if both are unsigned, else int32."""
    unsigned = A.dtype.kind == B.dtype.kind == "u"
    return (wrapped(np.matmul(offset(A, None), offset(B, None)), np.uint32 if unsigned else np.int32),)


@reference("MatMulIntegerToFloat")
def mat_mul_integer_to_float(
    A: np.ndarray,
    B: np.ndarray,
    a_scale: np.ndarray,
    b_scale: np.ndarray,
    a_zero_point: Array = None,
    b_zero_point: Array = None,
    bias: Array = None,
) -> tuple[np.ndarray, ...]:
    """What A and B stand for, multiplied, plus bias; parameters of all or of a column."""
    left = offset(A, a_zero_point) * a_scale.astype(np.float64)
    y = np.matmul(left, offset(B, b_zero_point) * b_scale.astype(np.float64))
    return ((y if bias is None else y + bias.astype(np.float64)).astype(a_scale.dtype),)


@reference("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(
    A: np.ndarray,
    B: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: Array = None,
    bias: Array = None,
) -> tuple[np.ndarray, ...]:
    """A, quantized over its own range, times what B stands for, plus bias."""
    quantized, scale, zero = dynamic_quantize_linear(A)
    return mat_mul_integer_to_float(quantized, B, scale, b_scale, zero, b_zero_point, bias)


def real_q_linear_mat_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
) -> np.ndarray:
    """QLinearMatMul before rounding, without the output's zero point."""
    rows, columns, result = (np.asarray(s, np.float64) for s in (a_scale, b_scale, y_scale))
    left = offset(a, by_rows(a_zero_point)) * by_rows(rows)
    return np.matmul(left, offset(b, b_zero_point) * columns) / by_rows(result)


@reference("QLinearMatMul", domain="")
def q_linear_mat_mul(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    y_scale: np.ndarray,
    y_zero_point: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """The product of what a and b stand for, quantized."""
    x = real_q_linear_mat_mul(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point)
    zero = np.asarray(by_rows(y_zero_point), np.float64)
    return (saturated(np.rint(x) + zero, y_zero_point.dtype),)


def real_q_gemm(
    A: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    B: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    C: Array = None,
    y_scale: Array = None,
    y_zero_point: Array = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> np.ndarray:
    """QGemm in float64, divided by the output's scale but not rounded."""
    left = offset(A.T if transA else A, a_zero_point)
    x = np.matmul(left, offset(B.T if transB else B, b_zero_point))
    if C is not None:
        x = x + C
    y = x * (alpha * a_scale.astype(np.float64) * b_scale.astype(np.float64))
    return y if y_scale is None else y / y_scale.astype(np.float64)


@reference("QGemm")
def q_gemm(
    A: np.ndarray,
    a_scale: np.ndarray,
    a_zero_point: np.ndarray,
    B: np.ndarray,
    b_scale: np.ndarray,
    b_zero_point: np.ndarray,
    C: Array = None,
    y_scale: Array = None,
    y_zero_point: Array = None,
    **attributes: Any,
) -> tuple[np.ndarray, ...]:
    """alpha * a_scale * b_scale * (A' @ B' + C) in float32, or quantized where the output has a scale."""
    x = real_q_gemm(
        A, a_scale, a_zero_point, B, b_scale, b_zero_point, C, y_scale, y_zero_point, **attributes
    )
    if y_scale is None:
        return (x.astype(np.float32),)
    if y_zero_point is None:
        return (saturated(x, np.uint8),)
    return (saturated(np.rint(x) + float(y_zero_point.reshape(())), y_zero_point.dtype),)
