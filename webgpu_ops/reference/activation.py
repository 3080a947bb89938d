"""Activations."""

from __future__ import annotations

import math

import numpy as np

from . import reference

_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x: np.ndarray) -> np.ndarray:
    """x * P(Z <= x) for a standard normal Z, in float64."""
    x = np.asarray(x, np.float64)
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))) if x.size else x


@reference("BiasGelu")
def bias_gelu(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, ...]:
    """GELU of A + B along A's last dimension."""
    return (gelu(A.astype(np.float64) + B.astype(np.float64)).astype(A.dtype),)
