"""Matrix products of floats fused with scales, biases and activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from . import reference
from .activation import gelu


def _selu(x: np.ndarray, p: Mapping[str, float]) -> np.ndarray:
    return p["gamma"] * np.where(x < 0, p["alpha"] * np.expm1(np.minimum(x, 0)), x)


def fast_gelu(x: np.ndarray) -> np.ndarray:
    """GELU by tanh."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x))."""
    return np.logaddexp(0.0, x)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.exp(-np.logaddexp(0.0, -x))


Function = Callable[[np.ndarray, Mapping[str, float]], np.ndarray]

# Functions of x and the parameters; ONNX's defaults of those.
ACTIVATIONS: dict[str, tuple[Function, dict[str, float]]] = {
    "Affine": (lambda x, p: p["alpha"] * x + p["beta"], {"alpha": 1.0, "beta": 0.0}),
    "Celu": (
        lambda x, p: np.where(x < 0, p["alpha"] * np.expm1(np.minimum(x, 0) / p["alpha"]), x),
        {"alpha": 1.0},
    ),
    "Clip": (lambda x, p: np.clip(x, p["alpha"], p["beta"]), {"alpha": -math.inf, "beta": math.inf}),
    "Elu": (lambda x, p: np.where(x < 0, p["alpha"] * np.expm1(np.minimum(x, 0)), x), {"alpha": 1.0}),
    "Gelu": (lambda x, p: gelu(x), {}),
    "HardSigmoid": (lambda x, p: np.clip(p["alpha"] * x + p["beta"], 0, 1), {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (lambda x, p: x * np.clip(x / 6 + 0.5, 0, 1), {}),
    "Identity": (lambda x, p: x, {}),
    "LeakyRelu": (lambda x, p: np.where(x < 0, p["alpha"] * x, x), {"alpha": 0.01}),
    "Mish": (lambda x, p: x * np.tanh(softplus(x)), {}),
    "ParametricSoftplus": (
        lambda x, p: p["alpha"] * softplus(p["beta"] * x),
        {"alpha": 1.0, "beta": 1.0},
    ),
    "Relu": (lambda x, p: np.maximum(x, 0), {}),
    "ScaledTanh": (lambda x, p: p["alpha"] * np.tanh(p["beta"] * x), {"alpha": 1.0, "beta": 1.0}),
    "Selu": (_selu, {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Sigmoid": (lambda x, p: sigmoid(x), {}),
    "Softplus": (lambda x, p: softplus(x), {}),
    "Softsign": (lambda x, p: x / (1 + np.abs(x)), {}),
    "Swish": (lambda x, p: x * sigmoid(p["alpha"] * x), {"alpha": 1.0}),
    "Tanh": (lambda x, p: np.tanh(x), {}),
    "ThresholdedRelu": (lambda x, p: np.where(x > p["alpha"], x, 0), {"alpha": 1.0}),
}


def activate(name: str, x: np.ndarray, **parameters: float | None) -> np.ndarray:
    """The activation ``name`` of ``x``; parameters that are None have ONNX's defaults."""
    function, defaults = ACTIVATIONS[name]
    given = {k: v for k, v in parameters.items() if v is not None and k in defaults}
    return np.asarray(function(x, {**defaults, **given}))


def wide(x: np.ndarray) -> np.ndarray:
    """Floats as float64; integers as Python numbers, which never overflow."""
    x = np.asarray(x)
    return x.astype(object) if x.dtype.kind in "iu" else x.astype(np.float64)


def narrow(x: np.ndarray, dtype: Any) -> np.ndarray:
    """``x`` in ``dtype``: whole numbers wrap, as sums in that type would."""
    if np.dtype(dtype).kind in "iu":
        bits = np.iinfo(dtype).bits
        values = [int(v) & ((1 << bits) - 1) for v in np.asarray(x, object).reshape(-1)]
        return np.array(values, f"uint{bits}").view(dtype).reshape(np.shape(x))
    return np.asarray(x, np.float64).astype(dtype)


def _factor(x: np.ndarray, transpose: int, transpose_batch: int) -> np.ndarray:
    if transpose_batch and x.ndim > 2:
        x = np.moveaxis(x, 0, -2)
    return np.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


@reference("FusedMatMul", "TransposeMatMul")
def fused_mat_mul(
    A: np.ndarray,
    B: np.ndarray,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> tuple[np.ndarray, ...]:
    """alpha * A' @ B' with transposed last dimensions, and the first one moved behind the batch."""
    left = _factor(wide(A), transA, transBatchA)
    right = _factor(wide(B), transB, transBatchB)
    return (narrow(alpha * np.matmul(left, right), A.dtype),)


@reference("FusedMatMulActivation")
def fused_mat_mul_activation(
    A: np.ndarray,
    B: np.ndarray,
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    activation_axis: int = -1,
    **product: Any,
) -> tuple[np.ndarray, ...]:
    """FusedMatMul with an activation of the product before it is rounded."""
    (x,) = fused_mat_mul(wide(A), wide(B), **product)
    if activation == "Softmax":
        lines = np.atleast_1d(x)
        power = np.exp(lines - lines.max(axis=activation_axis, keepdims=True, initial=-np.inf))
        y = (power / power.sum(axis=activation_axis, keepdims=True)).reshape(x.shape)
    else:
        y = activate(activation, x, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return (narrow(y, A.dtype),)


@reference("FusedGemm")
def fused_gemm(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> tuple[np.ndarray, ...]:
    """activation(alpha * A' @ B' + beta * C); whole numbers stay exact."""
    whole = A.dtype.kind in "iu"
    factor = (lambda v: int(v)) if whole else float
    x = factor(alpha) * np.matmul(wide(A).T if transA else wide(A), wide(B).T if transB else wide(B))
    if C is not None:
        x = x + factor(beta) * wide(C)
    if whole:  # the sum wraps before the activation sees it
        x = narrow(x, A.dtype).astype(object)
    if activation:
        x = activate(activation, x, alpha=activation_alpha, beta=activation_beta, gamma=activation_gamma)
    return (narrow(x, A.dtype),)


@reference("GemmFastGelu")
def gemm_fast_gelu(X: np.ndarray, W: np.ndarray, bias: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """GELU (by tanh) of X @ W + bias."""
    x = np.matmul(wide(X), wide(W))
    return (narrow(fast_gelu(x if bias is None else x + wide(bias)), X.dtype),)


_RESULTS: dict[int, Any] = {
    1: np.float32,
    10: np.float16,
    16: ml_dtypes.bfloat16,
    17: ml_dtypes.float8_e4m3fn,
    19: ml_dtypes.float8_e5m2,
}


@reference("GemmFloat8")
def gemm_float8(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray | None = None,
    scaleA: np.ndarray | None = None,
    scaleB: np.ndarray | None = None,
    scaleY: np.ndarray | None = None,
    *,
    activation: str = "NONE",
    alpha: float = 1.0,
    beta: float = 0.0,
    dtype: int = 1,
    transA: int = 0,
    transB: int = 0,
) -> tuple[np.ndarray, ...]:
    """cast(scaleY * activation(alpha * scaleA * scaleB * A' @ B' + beta * C)), saturating to float8."""
    scale = alpha * np.prod([float(np.reshape(s, ())) for s in (scaleA, scaleB) if s is not None])
    x = scale * (wide(A).T if transA else wide(A)) @ (wide(B).T if transB else wide(B))
    if C is not None and beta:
        x = x + beta * wide(C)
    x = {"NONE": lambda v: v, "RELU": lambda v: np.maximum(v, 0), "GELU": gelu}[activation](x)
    if scaleY is not None:
        x = x * float(np.reshape(scaleY, ()))
    result = _RESULTS[dtype]
    if dtype in (17, 19):
        largest = float(ml_dtypes.finfo(result).max)
        # By way of float32, as ml_dtypes rounds twice from float64.
        return (np.clip(x, -largest, largest).astype(np.float32).astype(result),)
    return (narrow(x, result),)
