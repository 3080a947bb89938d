"""Layer normalization and its fusions."""

from __future__ import annotations

import numpy as np

from . import reference


def layer_norm(x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x - mean) / std over the last dimension, the mean and 1 / std, in float64."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = x.sum(-1, keepdims=True) / x.shape[-1] if x.shape[-1] else np.full((*x.shape[:-1], 1), np.nan)
        off = x - mean
        variance = (off * off).sum(-1, keepdims=True) / max(1, x.shape[-1])
        inverse = 1.0 / np.sqrt(variance + epsilon)
    return off * inverse, mean, inverse


@reference("SkipLayerNormalization")
def skip_layer_normalization(
    input: np.ndarray,
    skip: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[np.ndarray, ...]:
    """LayerNorm(input + skip + bias) * gamma + beta, mean, 1 / std and the sum."""
    total = input.astype(np.float64) + skip.astype(np.float64)
    if bias is not None:
        total = total + bias.astype(np.float64)
    normal, mean, inverse = layer_norm(total, epsilon)
    result = normal * gamma.astype(np.float64)
    if beta is not None:
        result = result + beta.astype(np.float64)
    return (
        result.astype(input.dtype),
        mean.astype(np.float32),
        inverse.astype(np.float32),
        total.astype(input.dtype),
    )
