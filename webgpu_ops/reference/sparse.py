"""Sparse matrices times dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import reference
from .fused_matmul import narrow, wide


def dense(A: Any) -> np.ndarray:
    """The matrix of COO or CSR arrays, in a type that holds every sum of its values."""
    if A.indices is not None:
        places = [tuple(int(i) for i in index) for index in A.indices]
    else:
        ends = [int(i) for i in A.row_offsets]
        places = [
            (r, int(A.col_indices[i])) for r in range(len(ends) - 1) for i in range(ends[r], ends[r + 1])
        ]
    matrix = wide(np.zeros(A.shape, A.values.dtype))
    for place, value in zip(places, wide(A.values), strict=True):
        matrix[place] += value
    return matrix


@reference("SparseToDenseMatMul")
def sparse_to_dense_mat_mul(
    A: Any, B: np.ndarray, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> tuple[np.ndarray, ...]:
    """alpha * A' @ B'; whole numbers wrap at their own width."""
    left = dense(A).T if transA else dense(A)
    right = np.swapaxes(wide(B), -1, -2) if transB and B.ndim > 1 else wide(B)
    factor = int(alpha) if B.dtype.kind in "iu" else alpha
    return (narrow(factor * np.matmul(left, right), B.dtype),)
