"""References of gates: a value scaled by what a small network or a sigmoid says."""

from __future__ import annotations

import numpy as np

from . import reference

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def wide(x: Array) -> Array:
    return np.asarray(x).astype(np.float64)


def rounded(x: Array, like: Array) -> Array:
    """``x`` rounded once to the type of ``like``, in float64 again."""
    return wide(x.astype(like.dtype))


def inverse_rms(x: Array, epsilon: float) -> Array:
    return 1.0 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon)


@reference("EngramGate")
def engram_gate(
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Array, Array | None]:
    """Everything in float64; each output is rounded once."""
    k, q, v = wide(key), wide(query), wide(value)[..., None, :]
    k = k * inverse_rms(k, epsilon) * wide(key_norm_scale)
    q = q * inverse_rms(q, epsilon) * wide(query_norm_scale)
    dot = np.sum(k * q, axis=-1, keepdims=True) / np.sqrt(key.shape[-1])
    gated = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6))) * v
    normed = None
    if conv_norm_scale is not None:
        normed = (gated * inverse_rms(gated, epsilon) * wide(conv_norm_scale)).astype(key.dtype)
    return gated.astype(key.dtype), normed


@reference("BranchwiseRMSNorm")
def branchwise_rms_norm(
    X: Array, scale: Array | None = None, *, epsilon: float = 1e-5, num_branches: int = 0
) -> tuple[Array]:
    branches = num_branches or X.shape[-2]
    width = X.shape[-1] // num_branches if num_branches else X.shape[-1]
    x = wide(X).reshape(-1, branches, width)
    y = x * inverse_rms(x, epsilon)
    if scale is not None:
        y = y * wide(scale).reshape(-1, width)
    return (y.reshape(X.shape).astype(X.dtype),)


@reference("GatedRMSNorm")
def gated_rms_norm(
    X: Array, scale: Array, gate: Array, *, activation: str = "silu", epsilon: float = 1e-5
) -> tuple[Array]:
    width = scale.size
    x, z = wide(X).reshape(-1, width), wide(gate).reshape(-1, width)
    factor = sigmoid(z) if activation == "sigmoid" else z * sigmoid(z)
    y = x * inverse_rms(x, epsilon) * wide(scale) * factor
    return (y.reshape(X.shape).astype(X.dtype),)


@reference("GatedAdd")
def gated_add(X: Array, Y: Array, gate: Array) -> tuple[Array]:
    return ((wide(X) + rounded(wide(Y) * wide(gate), X)).astype(X.dtype),)


@reference("ScaledSiLU")
def scaled_silu(X: Array, scale: Array | None = None, *, alpha: float = 1.0) -> tuple[Array]:
    factor = np.float64(np.float32(alpha)) if scale is None else wide(scale).reshape(())
    z = rounded(factor * wide(X), X)
    return ((z * rounded(sigmoid(z), X)).astype(X.dtype),)
