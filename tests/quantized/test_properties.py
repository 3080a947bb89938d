"""Any sizes from 1 to 600 and any form of weights against the NumPy reference, in both modes.

The draws are the same from run to run. ``WEBGPU_OPS_EXAMPLES=500 pytest tests/quantized/test_properties.py``
draws that many others for each test.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgpu_ops import Device
from webgpu_ops.conformance import check_sample
from webgpu_ops.reference.samples import Sample

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("quantized-properties")

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
E4M3 = ml_dtypes.float8_e4m3fn

sizes = st.integers(1, 600)
blocks = st.sampled_from([16, 32, 64, 128, 256])
rows = st.sampled_from([1, 2, 19])


def check(device: Device, op: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    outcome = check_sample(op, Sample(inputs, attributes), device)
    assert outcome.passed, outcome.message


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.standard_normal(shape).astype(TYPES[dtype])


def scales(rng: np.random.Generator, shape: tuple[int, ...], k: int, largest: float) -> np.ndarray:
    """Scales with which a product of ``k`` weights of at most ``largest`` is about 1."""
    return rng.uniform(0.3, 1.0, shape) / (largest * k**0.5)


@given(
    k=sizes,
    n=sizes,
    m=rows,
    bits=st.integers(2, 8),
    block=blocks,
    zeros=st.sampled_from(["none", "packed", "float"]),
    groups=st.sampled_from(["none", "none", "codes", "blocks"]),
    bias=st.booleans(),
    dtype=st.sampled_from(list(TYPES)),
)
def test_n_bits(
    device: Device,
    k: int,
    n: int,
    m: int,
    bits: int,
    block: int,
    zeros: str,
    groups: str,
    bias: bool,
    dtype: str,
) -> None:
    rng = np.random.default_rng((k, n))
    count = -(-k // block)
    inputs = {
        "A": numbers(rng, (m, k), dtype),
        "B": rng.integers(0, 256, (n, count, block * bits // 8), np.uint8),
        "scales": scales(rng, (n, count), k, 2.0 ** (bits - 1)).astype(TYPES[dtype]),
    }
    if zeros == "packed":
        inputs["zero_points"] = rng.integers(0, 256, (n, -(-count * bits // 8)), np.uint8)
    if zeros == "float":
        inputs["zero_points"] = rng.uniform(0, 2.0**bits - 1, (n, count)).astype(TYPES[dtype])
    if groups != "none":
        # One number for each row of B, or, with what fills its last block, for each code.
        size = k if groups == "codes" else count * block
        inputs["g_idx"] = rng.integers(0, count, size).astype(np.int32)
    if bias:
        inputs["bias"] = numbers(rng, (n,), dtype)
    check(device, "MatMulNBits", inputs, {"K": k, "N": n, "bits": bits, "block_size": block})


@given(k=sizes, n=sizes, m=rows, block=blocks, kind=st.integers(0, 1), transposed=st.integers(0, 1))
def test_bnb4(device: Device, k: int, n: int, m: int, block: int, kind: int, transposed: int) -> None:
    rng = np.random.default_rng((k, n))
    inner = k if transposed else n
    inputs = {
        "A": numbers(rng, (m, inner), "float32"),
        "B": rng.integers(0, 256, -(-k * n // 2), np.uint8),
        "absmax": scales(rng, (-(-k * n // block),), inner, 1.0).astype(np.float32),
    }
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": kind, "transB": transposed}
    check(device, "MatMulBnb4", inputs, attributes)


@given(k=sizes, n=sizes, m=rows, kind=st.integers(0, 2))
def test_fp_q4(device: Device, k: int, n: int, m: int, kind: int) -> None:
    rng = np.random.default_rng((k, n))
    size = 64 if kind == 2 else 32
    count = -(-k // size)
    heads = [scales(rng, (n, count, 1), k, 8.0).astype(np.float32).view(np.uint8)]
    if kind == 1:
        heads.append(rng.integers(0, 16, (n, count, 1), np.uint8))
    blob = np.concatenate([*heads, rng.integers(0, 256, (n, count, size // 2), np.uint8)], -1)
    inputs = {"A": numbers(rng, (m, k), "float32"), "B": blob.reshape(-1), "B_shape": np.array([k, n])}
    check(device, "MatMulFpQ4", inputs, {"blk_quant_type": kind})


@given(k=sizes, n=sizes, m=rows, block=st.integers(1, 140), dtype=st.sampled_from(["float16", "bfloat16"]))
def test_float_blocks(device: Device, k: int, n: int, m: int, block: int, dtype: str) -> None:
    rng = np.random.default_rng((k, n))
    k += k % 2
    count = -(-k // block)
    a, bias = numbers(rng, (m, k), dtype), numbers(rng, (n,), dtype)
    inputs = {
        "A": a,
        "B": rng.integers(0, 256, (n, k // 2), np.uint8),
        "weight_scale": rng.uniform(0.5, 4.0, (n, count)).astype(E4M3).view(np.uint8),
        "weight_scale_2": np.float32(1 / (24 * k**0.5)),
        "bias": bias,
    }
    check(device, "MatMulBlockQuantizedFp4Weight", inputs, {"block_size": block})
    inputs = {
        "A": a,
        "B": rng.uniform(-2, 2, (n, k)).astype(E4M3),
        "b_scale": scales(rng, (n, count), k, 2.0).astype(np.float32),
        "bias": bias,
    }
    check(device, "MatMulBlockQuantizedFp8Weight", inputs, {"block_size": block})
