"""Random calls of the fused matrix products."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..fused_matmul import ACTIVATIONS
from . import Sample, sample

FLOATS = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16)
INTEGERS = (np.int32, np.uint32, np.int64, np.uint64)


def some(rng: np.random.Generator, choices: Any) -> Any:
    """One of ``choices``."""
    return choices[int(rng.integers(len(choices)))]


def uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers in -1..1, so that sums stay small enough for every float type."""
    return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)


def factors(rng: np.random.Generator, most: int = 40) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of two factors that NumPy's matmul takes: vectors, matrices, and stacks that broadcast."""
    m, k, n = (int(rng.integers(1, most)) for _ in range(3))
    if rng.random() < 0.05:
        k = 0
    kind = rng.random()
    if kind < 0.15:
        return some(rng, [((k,), (k, n)), ((m, k), (k,)), ((k,), (k,))])
    if kind < 0.45:
        return (m, k), (k, n)
    m, n = min(m, 9), min(n, 9)
    batch = tuple(int(rng.integers(1, 4)) for _ in range(int(rng.integers(1, 3))))
    left = tuple(some(rng, [d, d, 1]) for d in batch)
    right = some(rng, [batch, batch[1:], ()])
    return (*left, m, k), (*right, k, n)


def _transposed(shape: tuple[int, ...], last: int, batch: int) -> tuple[int, ...]:
    """The shape of a tensor that is ``shape`` after the operator's own transpositions."""
    if last and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
    if batch and len(shape) > 2:
        shape = (shape[-2], *shape[:-2], shape[-1])
    return shape


def _attributes(rng: np.random.Generator, names: tuple[str, ...]) -> dict[str, Any]:
    chosen: dict[str, Any] = {name: 1 for name in names if rng.random() < 0.4}
    if rng.random() < 0.5:
        chosen["alpha"] = float(np.float32(rng.uniform(-2, 2)))
    return chosen


def _fused(rng: np.random.Generator, names: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    left, right = factors(rng)
    attributes = _attributes(rng, names)
    dtype = some(rng, FLOATS)
    trans = attributes.get
    a = _transposed(left, trans("transA", 0), trans("transBatchA", 0))
    b = _transposed(right, trans("transB", 0), trans("transBatchB", 0))
    return {"A": uniform(rng, a, dtype), "B": uniform(rng, b, dtype)}, attributes


@sample("FusedMatMul")
def fused_mat_mul(rng: np.random.Generator) -> Sample:
    return Sample(*_fused(rng, ("transA", "transB", "transBatchA", "transBatchB")))


@sample("TransposeMatMul")
def transpose_mat_mul(rng: np.random.Generator) -> Sample:
    return Sample(*_fused(rng, ("transA", "transB")))


def _activation(rng: np.random.Generator, names: Any) -> dict[str, Any]:
    name = some(rng, sorted(names))
    chosen: dict[str, Any] = {"activation": name}
    for parameter in ACTIVATIONS[name][1] if name in ACTIVATIONS else ():
        if rng.random() < 0.6:
            low, high = (-1.0, 0.0) if (name, parameter) == ("Clip", "alpha") else (0.1, 1.5)
            chosen[f"activation_{parameter}"] = float(np.float32(rng.uniform(low, high)))
    return chosen


@sample("FusedMatMulActivation")
def fused_mat_mul_activation(rng: np.random.Generator) -> Sample:
    inputs, attributes = _fused(rng, ("transA", "transB", "transBatchA", "transBatchB"))
    attributes |= _activation(rng, [*ACTIVATIONS, "Softmax", "Softmax"])
    if attributes["activation"] == "Softmax" and rng.random() < 0.5:
        rank = _rank_of_product(inputs["A"].ndim, inputs["B"].ndim)
        attributes["activation_axis"] = int(rng.integers(-rank, rank)) if rank else 0
    return Sample(inputs, attributes)


def _rank_of_product(a: int, b: int) -> int:
    return max(a, b, 2) - (a == 1) - (b == 1)


@sample("FusedGemm")
def fused_gemm(rng: np.random.Generator) -> Sample:
    m, k, n = (int(rng.integers(1, 40)) for _ in range(3))
    trans_a, trans_b = int(rng.integers(2)), int(rng.integers(2))
    shapes = [(k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)]
    shapes.append(some(rng, [(m, n), (n,), (m, 1), (1, n), (1,), ()]))
    attributes: dict[str, Any] = {"transA": trans_a, "transB": trans_b}
    whole = rng.random() < 0.4
    if whole:
        dtype = some(rng, INTEGERS)
        limits = np.iinfo(dtype)
        low, high = (-9, 9) if rng.random() < 0.5 else (limits.min // 2, limits.max // 2)
        values = [rng.integers(max(low, limits.min), high, s, dtype) for s in shapes]
        attributes |= {"beta": 3.0} if rng.random() < 0.5 else {}
        attributes |= _activation(rng, ["Relu", "Identity"]) if rng.random() < 0.7 else {}
    else:
        dtype = some(rng, FLOATS[:3])
        values = [uniform(rng, s, dtype) for s in shapes]
        attributes |= {"alpha": 0.5, "beta": float(np.float32(rng.uniform(-2, 2)))}
        attributes |= _activation(rng, ACTIVATIONS) if rng.random() < 0.9 else {}
    inputs = dict(zip("ABC", values, strict=True))
    if rng.random() < 0.3:
        del inputs["C"]
    return Sample(inputs, attributes)


@sample("GemmFastGelu")
def gemm_fast_gelu(rng: np.random.Generator) -> Sample:
    dtype = some(rng, (np.float32, np.float16, ml_dtypes.bfloat16))
    lead = tuple(int(rng.integers(1, 5)) for _ in range(int(rng.integers(1, 4))))
    k, n = int(rng.integers(1, 60)), int(rng.integers(1, 60))
    bias = uniform(rng, (n,), dtype) if rng.random() < 0.7 else None
    return Sample({"X": uniform(rng, (*lead, k), dtype), "W": uniform(rng, (k, n), dtype), "bias": bias})


@sample("GemmFloat8")
def gemm_float8(rng: np.random.Generator) -> Sample:
    m, k, n = (int(rng.integers(1, 40)) for _ in range(3))
    narrow = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    a, b = (some(rng, (*narrow, np.float32, np.float16, ml_dtypes.bfloat16)) for _ in range(2))
    trans_a = 0 if a in narrow else int(rng.integers(2))
    trans_b = 1 if b in narrow else int(rng.integers(2))
    inputs: dict[str, Any] = {
        "A": uniform(rng, (k, m) if trans_a else (m, k), a),
        "B": uniform(rng, (n, k) if trans_b else (k, n), b),
    }
    attributes: dict[str, Any] = {
        "transA": trans_a,
        "transB": trans_b,
        "dtype": some(rng, (1, 10, 16)),
        "activation": some(rng, ("NONE", "RELU", "GELU")),
        "alpha": float(np.float32(rng.uniform(-2, 2))),
    }
    if rng.random() < 0.5:
        inputs["C"] = uniform(rng, (m, n), some(rng, (np.float32, np.float16, ml_dtypes.bfloat16)))
        attributes["beta"] = float(np.float32(rng.uniform(-1, 1)))
    for name in ("scaleA", "scaleB", "scaleY"):
        if rng.random() < 0.5:
            inputs[name] = uniform(rng, some(rng, [(), (1,)]), np.float32)
    return Sample(inputs, attributes)
