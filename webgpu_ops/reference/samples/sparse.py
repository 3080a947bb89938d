"""Random calls of sparse products."""

from __future__ import annotations

import numpy as np

from ...core.tensor import SparseTensor
from . import Sample, sample
from .fused_matmul import some, uniform

TYPES = (np.float32, np.float64, np.int32, np.uint32, np.int64, np.uint64)


@sample("SparseToDenseMatMul")
def sparse_to_dense_mat_mul(rng: np.random.Generator) -> Sample:
    m, k, n = (int(rng.integers(1, 40)) for _ in range(3))
    trans_a, trans_b = int(rng.integers(2)), int(rng.integers(2))
    dtype = some(rng, TYPES)
    batch = some(rng, [(), (), (2,), (2, 3)])

    def values(shape: tuple[int, ...]) -> np.ndarray:
        if np.dtype(dtype).kind == "f":
            return uniform(rng, shape, dtype)
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)

    shape = (k, m) if trans_a else (m, k)
    count = int(rng.integers(0, m * k // 2 + 2))
    rows, columns = (rng.integers(0, size, count) for size in shape)
    if rng.random() < 0.5:
        coordinates = np.stack([rows, columns], axis=-1)
        flat = rows * shape[1] + columns
        a = SparseTensor.from_coo(values((count,)), some(rng, [coordinates, flat]), shape)
    else:
        offsets = np.searchsorted(np.sort(rows), np.arange(shape[0] + 1))
        a = SparseTensor.from_csr(values((count,)), columns, offsets, shape)
    b = values((k,)) if rng.random() < 0.1 else values((*batch, *((n, k) if trans_b else (k, n))))
    attributes = {"transA": trans_a, "transB": trans_b}
    return Sample({"A": a, "B": b}, attributes | {"alpha": some(rng, [1.0, 3.0])})
