"""Random calls of the products with quantized weights and of lookups in quantized tables."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample

FLOATS = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
NARROW = (np.float16, ml_dtypes.bfloat16)
E4M3 = ml_dtypes.float8_e4m3fn
# Bounds the work of one call, so that a software adapter and the reference take moments.
WORK = 1_500_000


def _chance(rng: np.random.Generator, p: float) -> bool:
    return bool(rng.random() < p)


def _size(rng: np.random.Generator, most: int = 601) -> int:
    """Any size, often a multiple of what tiles and words like."""
    n = int(rng.integers(1, most if _chance(rng, 0.4) else 80))
    return max(8, n // 8 * 8) if _chance(rng, 0.4) else n


def _block_size(rng: np.random.Generator) -> int:
    return int(rng.choice([16, 16, 32, 32, 64, 128, 256]))


def _rows(rng: np.random.Generator, width: int, work: int) -> tuple[int, ...]:
    """The shape of A: a vector, one row, a few or many, in one to four dimensions."""
    many = max(1, min(140, WORK // max(1, work)))
    rows = int(rng.choice([1, int(rng.integers(1, 5)), int(rng.integers(1, many + 1))], p=[0.4, 0.4, 0.2]))
    lead: tuple[int, ...] = (rows,)
    if rows == 1 and _chance(rng, 0.3):
        lead = ()
    elif _chance(rng, 0.4):
        lead = (1, rows) if _chance(rng, 0.5) else (int(rng.integers(1, 4)), 1, -(-rows // 3))
    return (*lead, width)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def _scales(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, k: int, bits: int) -> np.ndarray:
    """Scales that keep results near 1, so that absolute tolerances mean something."""
    unit = 1.0 / (2.0 ** (bits - 1) * np.sqrt(k))
    return (rng.uniform(0.2, 1.0, shape) * unit).astype(dtype)


def _n_bits(rng: np.random.Generator, dtype: Any, k: int, n: int, bits: int, block: int) -> dict[str, Any]:
    blocks = -(-k // block)
    return {
        "B": _bytes(rng, n, blocks, block * bits // 8),
        "scales": _scales(rng, (n, blocks), dtype, k, bits),
    }


@sample("MatMulNBits")
def mat_mul_n_bits(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    k, n = _size(rng), _size(rng)
    bits, block = int(rng.choice([2, 3, 4, 4, 5, 6, 7, 8])), _block_size(rng)
    blocks = -(-k // block)
    zeros: np.ndarray | None = None
    form = rng.choice(["none", "packed", "float"])
    if form == "packed":
        zeros = _bytes(rng, n, -(-blocks * bits // 8))
    elif form == "float":
        middle = 2.0 ** (bits - 1)
        zeros = (middle * rng.uniform(0.7, 1.3, (n, blocks))).astype(dtype)
    groups = rng.integers(0, blocks, k).astype(np.int32) if _chance(rng, 0.25) else None
    inputs = {
        "A": _normal(rng, _rows(rng, k, k * n), dtype),
        **_n_bits(rng, dtype, k, n, bits, block),
        "zero_points": zeros,
        "g_idx": groups,
        "bias": _normal(rng, (n,), dtype) if _chance(rng, 0.5) else None,
    }
    level = int(rng.integers(0, 5))
    return Sample(inputs, {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level})


def _fused(rng: np.random.Generator, widths: dict[str, int], k: int, normed: bool) -> Sample:
    """Inputs and attributes that the operators over several matrices share."""
    dtype = FLOATS[rng.integers(len(FLOATS))]
    bits, block = int(rng.choice([2, 3, 4, 4, 5, 6, 8])), _block_size(rng)
    a = _normal(rng, _rows(rng, k, k * sum(widths.values())), dtype)
    skip = normed and _chance(rng, 0.5)
    inputs: dict[str, Any] = {
        "A": a,
        "skip": _normal(rng, a.shape, dtype) if skip else None,
        "norm_scale": rng.uniform(0.5, 1.5, k).astype(dtype) if normed else None,
    }
    for name, n in widths.items():
        weights = _n_bits(rng, dtype, k, n, bits, block)
        inputs |= {f"{name}_{part}": value for part, value in weights.items()}
        inputs[f"{name}_bias"] = _normal(rng, (n,), dtype) if _chance(rng, 0.5) else None
    attributes: dict[str, Any] = {"K": k, "bits": bits, "block_size": block}
    if _chance(rng, 0.5):
        attributes["epsilon"] = float(rng.choice([1e-6, 1e-2]))
    extra = ("input_skip_bias_sum",) if skip and _chance(rng, 0.6) else ()
    return Sample(inputs, attributes, extra)


@sample("MatMulNBitsMlp")
def mat_mul_n_bits_mlp(rng: np.random.Generator) -> Sample:
    k, n = _size(rng, 300), _size(rng, 200)
    drawn = _fused(rng, {"gate": n, "up": n}, k, normed=_chance(rng, 0.7))
    attributes = {**drawn.attributes, "N": n, "activation": "silu"}
    return Sample(drawn.inputs, attributes, ("Y", *drawn.outputs))


@sample("MatMulNBitsQkv")
def mat_mul_n_bits_qkv(rng: np.random.Generator) -> Sample:
    k, nq, nkv = _size(rng, 300), _size(rng, 200), _size(rng, 80)
    drawn = _fused(rng, {"q": nq, "k": nkv, "v": nkv}, k, normed=True)
    return Sample(drawn.inputs, {**drawn.attributes, "Nq": nq, "Nkv": nkv}, ("Q", "K", "V", *drawn.outputs))


@sample("MatMulBnb4")
def mat_mul_bnb4(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    k, n, block = _size(rng, 400), _size(rng, 400), _block_size(rng)
    transposed = int(rng.integers(2))
    inner = k if transposed else n
    inputs = {
        "A": _normal(rng, _rows(rng, inner, k * n), dtype),
        "B": _bytes(rng, -(-k * n // 2)),
        "absmax": _scales(rng, (-(-k * n // block),), dtype, inner, 1),
    }
    attributes = {
        "K": k,
        "N": n,
        "block_size": block,
        "quant_type": int(rng.integers(2)),
        "transB": transposed,
    }
    return Sample(inputs, attributes)


@sample("MatMulFpQ4")
def mat_mul_fp_q4(rng: np.random.Generator) -> Sample:
    k, n, kind = _size(rng), _size(rng), int(rng.integers(3))
    size = 64 if kind == 2 else 32
    blocks = -(-k // size)
    scales = _scales(rng, (n, blocks, 1), np.float32, k, 4).view(np.uint8)
    zeros = rng.integers(0, 16, (n, blocks, 1 if kind == 1 else 0)).astype(np.uint8)
    blob = np.concatenate([scales, zeros, _bytes(rng, n, blocks, size // 2)], -1)
    a = _normal(rng, _rows(rng, k, k * n), np.float32)
    inputs = {"A": a, "B": blob.reshape(-1), "B_shape": np.array([k, n], np.int64)}
    return Sample(inputs, {"blk_quant_type": kind})


def _number(rng: np.random.Generator, value: float) -> np.ndarray:
    return np.full((1,) if _chance(rng, 0.5) else (), value, np.float32)


@sample("MatMulBlockQuantizedFp4Weight")
def mat_mul_block_quantized_fp4_weight(rng: np.random.Generator) -> Sample:
    dtype = NARROW[rng.integers(2)]
    k, n, block = 2 * _size(rng, 300), _size(rng), int(rng.choice([16, 16, 8, 32, 12, 5]))
    scale = rng.uniform(0.5, 4.0, (n, -(-k // block))) * rng.choice([-1, 1], (n, 1))
    inputs = {
        "A": _normal(rng, _rows(rng, k, k * n), dtype),
        "B": _bytes(rng, n, k // 2),
        "weight_scale": scale.astype(E4M3).view(np.uint8),
        "weight_scale_2": _number(rng, float(rng.uniform(0.1, 0.3) / np.sqrt(k))),
        "input_scale": _number(rng, 3.0) if _chance(rng, 0.3) else None,
        "bias": _normal(rng, (n,), dtype) if _chance(rng, 0.5) else None,
    }
    return Sample(inputs, {"block_size": block})


@sample("MatMulBlockQuantizedFp8Weight")
def mat_mul_block_quantized_fp8_weight(rng: np.random.Generator) -> Sample:
    dtype = NARROW[rng.integers(2)]
    k, n, block = _size(rng), _size(rng), int(rng.choice([128, 128, 16, 32, 20, 7]))
    a = _normal(rng, _rows(rng, k, k * n), dtype)
    a_scale = None
    if _chance(rng, 0.5):
        # Quotients well inside the interval that rounds to them: float32 must not round a tie apart.
        a_scale = _number(rng, float(rng.uniform(0.01, 0.5)))
        codes = (a.astype(np.float64) / float(a_scale.reshape(()))).clip(-448, 448).astype(E4M3)
        a = (codes.astype(np.float64) * float(a_scale.reshape(()))).astype(dtype)
    inputs = {
        "A": a,
        "B": rng.uniform(-2, 2, (n, k)).astype(E4M3),
        "b_scale": _scales(rng, (n, -(-k // block)), np.float32, k, 1),
        "a_scale": a_scale,
        "bias": _normal(rng, (n,), dtype) if _chance(rng, 0.5) else None,
    }
    return Sample(inputs, {"block_size": block})


FLOAT_TABLES = tuple(
    getattr(ml_dtypes, name)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
)


@sample("GatherBlockQuantized")
def gather_block_quantized(rng: np.random.Generator) -> Sample:
    kind = rng.choice(["nibbles", "bytes", "packed", "float"])
    rank = int(rng.integers(2 if kind == "packed" else 1, 4))
    shape = [int(rng.integers(1, 40 if d == rank - 1 else 12)) for d in range(rank)]
    gather = 0 if kind in ("bytes", "packed") else int(rng.integers(rank))
    axis = int(rng.integers(1, rank)) if kind == "packed" else int(rng.integers(rank))
    shape[axis] = int(rng.integers(1, 100))
    bits = int(rng.choice([2, 4])) if kind == "packed" else 8 if kind == "bytes" else 4
    if kind == "packed":
        shape[-1] = -(-shape[-1] * bits // 8) * 8 // bits
    block = 0 if kind == "float" and _chance(rng, 0.3) else int(rng.choice([16, 32, 64]))
    scale_shape = list(shape)
    scale_shape[axis] = -(-shape[axis] // block) if block else 1
    zeros: np.ndarray | None = None
    if kind == "float":
        storage = FLOAT_TABLES[rng.integers(len(FLOAT_TABLES))]
        data = rng.uniform(-3, 3, shape).astype(storage)
        scale_shape = [1 if d != axis and _chance(rng, 0.2) else s for d, s in enumerate(scale_shape)]
    elif kind == "nibbles":
        storage = (ml_dtypes.int4, ml_dtypes.uint4)[rng.integers(2)]
        low, high = (-8, 8) if storage is ml_dtypes.int4 else (0, 16)
        data = rng.integers(low, high, shape).astype(storage)
        zeros = rng.integers(low, high, scale_shape).astype(storage)
    else:
        data = _bytes(rng, *shape[:-1], shape[-1] * bits // 8)
        zeros = _bytes(rng, *scale_shape[:-1], -(-scale_shape[-1] * bits // 8))
    size = shape[gather]
    picked = [int(rng.integers(1, 5)) for _ in range(int(rng.integers(3)))]
    indices = rng.integers(-size - 2, size + 2, picked).astype((np.int32, np.int64)[rng.integers(2)])
    inputs = {
        "data": data,
        "indices": indices,
        "scales": (rng.uniform(0.1, 1.0, scale_shape) / 2.0**bits).astype(FLOATS[rng.integers(len(FLOATS))]),
        "zero_points": zeros if zeros is not None and _chance(rng, 0.5) else None,
    }
    negative = _chance(rng, 0.3)
    attributes = {
        "bits": bits,
        "block_size": block,
        "gather_axis": gather - rank if negative else gather,
        "quantize_axis": axis - rank if negative else axis,
    }
    return Sample(inputs, attributes)
