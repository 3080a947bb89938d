"""Relative position biases: refusals, T5's buckets one by one, packed queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, plan, reference, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, ShapeError


def floats(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.float32)


def number(value: int) -> np.ndarray:
    return np.array([value], np.int64)


GATED = {
    "query_layer": floats(2, 5, 12),
    "query_bias": floats(12),
    "rel_pos": floats(1, 3, 5, 5),
    "weight": floats(4, 8),
    "bias": floats(8),
    "eco_a": floats(1, 3, 1, 1),
}


@pytest.mark.parametrize(
    ("inputs", "attributes", "text"),
    [
        ([floats(8), number(3), number(3)], {}, "bias_table has shape (8,)"),
        ([floats(8, 2), number(3), number(4)], {}, "key_length is 4; expected 3"),
        ([floats(8, 2), number(-1), number(-1)], {}, "query_length is -1"),
        ([floats(8, 2), np.array([3, 3]), number(3)], {}, "query_length has shape (2,)"),
        ([floats(8, 2), number(2**40), number(2**40)], {}, "query_length is 1099511627776, which makes"),
        ([floats(1, 2), number(3), number(3)], {}, "has 1 buckets"),
        ([floats(3, 2), number(3), number(3)], {"is_bidirectional": 1}, "has 3 bidirectional buckets"),
        ([floats(32, 2), number(3), number(3)], {"max_distance": 16}, "expected more than 16"),
        ([floats(32, 2), number(3), number(3)], {"max_distance": 0}, "max_distance is 0"),
        ([floats(32, 2), number(3), number(3)], {"is_bidirectional": 2}, "is_bidirectional is 2"),
    ],
)
def test_relative_refusals(inputs: list[Any], attributes: dict[str, int], text: str) -> None:
    with pytest.raises((LimitError, ShapeError, SchemaError), match=r"^RelativePositionBias: ") as caught:
        plan("RelativePositionBias", inputs, {"max_distance": 128} | attributes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "attributes", "text"),
    [
        ({"query_layer": floats(60)}, {}, "query_layer has shape (60,)"),
        ({}, {"num_heads": 5}, "divisible by num_heads=5"),
        ({}, {"num_heads": 0}, "num_heads is 0"),
        ({"query_bias": floats(11)}, {}, "query_bias has shape (11,)"),
        ({"weight": floats(5, 8)}, {}, "weight has shape (5, 8); expected (4, columns)"),
        ({"weight": floats(4, 7), "bias": floats(7)}, {}, "weight has 7 columns"),
        ({"bias": floats(7)}, {}, "bias has shape (7,); expected (8,)"),
        ({"eco_a": floats(3)}, {}, "eco_a has shape (3,)"),
        ({"rel_pos": floats(2, 3, 5, 5)}, {}, "rel_pos has shape (2, 3, 5, 5); expected (1, 3, 5, 5)"),
        ({"query_layer": floats(7, 12)}, {}, "token_offset is missing"),
        (
            {"query_layer": floats(11, 12), "token_offset": TensorSpec((2, 5), dtypes.int32)},
            {},
            "query_layer has 11 tokens; expected at most 10",
        ),
        ({"token_offset": TensorSpec((2, 4), dtypes.int32)}, {}, "token_offset has shape (2, 4)"),
    ],
)
def test_gated_refusals(changes: dict[str, Any], attributes: dict[str, int], text: str) -> None:
    with pytest.raises((ShapeError, SchemaError), match=r"^GatedRelativePositionBias: ") as caught:
        plan("GatedRelativePositionBias", GATED | changes, {"num_heads": 3} | attributes)
    assert text in str(caught.value)


def bucket(relative: int, buckets: int, max_distance: int, bidirectional: bool) -> int:
    """T5's bucket of one relative position (key - query), by the definition and in whole numbers.

    A far distance d is in bucket ``exact + floor(n * log(d / exact) / log(max / exact))``, where n
    buckets are left: the largest k with (max / exact)^k <= (d / exact)^n.
    """
    base = 0
    if bidirectional:
        buckets //= 2
        base, distance = (buckets if relative > 0 else 0), abs(relative)
    else:
        distance = max(0, -relative)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    n = buckets - exact
    k = 0
    while k < n - 1 and max_distance ** (k + 1) * exact ** (n - k - 1) <= distance**n:
        k += 1
    return base + exact + k


@pytest.mark.parametrize("bidirectional", [0, 1])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 50), (9, 200), (64, 256), (4, 3)])
def test_every_bucket(device: Device, buckets: int, max_distance: int, bidirectional: int) -> None:
    """Powers of two on a bucket's edge included."""
    length = 150
    memory = np.arange(2 * buckets, dtype=np.float32)  # head-major, whatever the declared shape
    table = memory.reshape(buckets, 2)
    attributes = {"max_distance": max_distance, "is_bidirectional": bidirectional}
    (y,) = run("RelativePositionBias", [table, number(length), number(length)], attributes, device=device)
    line = {r: bucket(r, buckets, max_distance, bool(bidirectional)) for r in range(1 - length, length)}
    want = np.array([[line[j - i] for j in range(length)] for i in range(length)])
    np.testing.assert_array_equal(y.numpy()[0, 0], want)
    np.testing.assert_array_equal(y.numpy()[0, 1], want + buckets)


def test_growing_lengths_share_pipelines(device: Device) -> None:
    table = np.random.default_rng(0).standard_normal((32, 3)).astype(np.float16)
    function = reference.find("RelativePositionBias")
    created = None
    for length in (0, 1, 2, 3, 30, 31, 32, 33, 100):
        inputs = [table, number(length), number(length)]
        (y,) = run("RelativePositionBias", inputs, {"max_distance": 128}, device=device)
        (want,) = function(*inputs, max_distance=128)
        assert y.numpy().dtype == want.dtype and y.numpy().shape == want.shape
        np.testing.assert_array_equal(y.numpy(), want)
        if length == 3:
            created = device.stats.pipelines_created
    assert device.stats.pipelines_created == created


def test_lengths_may_live_on_the_device(device: Device) -> None:
    table = np.random.default_rng(0).standard_normal((8, 1)).astype(np.float32)
    for n in (4, 6):
        length = Tensor.from_numpy(np.array(n), device)
        (y,) = run("RelativePositionBias", [table, length, length], {"max_distance": 9}, device=device)
        (want,) = reference.find("RelativePositionBias")(table, number(n), number(n), max_distance=9)
        np.testing.assert_array_equal(y.numpy(), want)


def test_packed_queries_equal_padded_ones(device: Device) -> None:
    rng = np.random.default_rng(6)
    batch, sequence, heads, size, columns = 3, 6, 2, 5, 4
    counts = np.array([6, 2, 4], np.int32)
    query = rng.standard_normal((batch, sequence, heads * size)).astype(np.float32)
    shared = {
        "query_bias": rng.standard_normal(heads * size).astype(np.float32),
        "rel_pos": rng.standard_normal((1, heads, sequence, sequence)).astype(np.float32),
        "weight": rng.standard_normal((size, columns)).astype(np.float32),
        "bias": rng.standard_normal(columns).astype(np.float32),
        "eco_a": rng.standard_normal((1, heads, 1, 1)).astype(np.float32),
    }
    attributes = {"num_heads": heads}
    (padded,) = run("GatedRelativePositionBias", {"query_layer": query, **shared}, attributes, device=device)
    tokens, offset, *_ = run(
        "RemovePadding", [query, counts], outputs=("output", "token_offset"), device=device
    )
    packed_inputs = {"query_layer": tokens, "token_offset": offset, **shared}
    (packed,) = run("GatedRelativePositionBias", packed_inputs, attributes, device=device)
    for b, count in enumerate(counts):
        np.testing.assert_array_equal(packed.numpy()[b, :, :count], padded.numpy()[b, :, :count])
    (want,) = reference.find("GatedRelativePositionBias")(query_layer=query, **shared, **attributes)
    np.testing.assert_allclose(padded.numpy(), want, rtol=1e-4, atol=1e-5)


def test_a_wide_weight(device: Device) -> None:
    """The columns of a half count to the last."""
    rng = np.random.default_rng(7)
    size, columns = 4, 50_000
    inputs = {
        "query_layer": rng.standard_normal((1, 2, size)).astype(np.float32),
        "query_bias": rng.standard_normal(size).astype(np.float32),
        "rel_pos": rng.standard_normal((1, 1, 2, 2)).astype(np.float32),
        "weight": (rng.standard_normal((size, columns)) / 100).astype(np.float32),
        "bias": (rng.standard_normal(columns) / 100).astype(np.float32),
        "eco_a": np.ones((1, 1, 1, 1), np.float32),
    }
    inputs["weight"][:, -5000:] += 2e-4
    (y,) = run("GatedRelativePositionBias", inputs, {"num_heads": 1}, device=device)
    (want,) = reference.find("GatedRelativePositionBias")(**inputs, num_heads=1)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)


def test_saturated_gates(device: Device) -> None:
    """Logits of +-1e4 and sums beyond float16 keep the gate between 1 and 2 + eco_a's reach."""
    query = np.full((1, 2, 64), 200.0, np.float16)
    inputs = {
        "query_layer": query,
        "query_bias": np.zeros(64, np.float16),
        "rel_pos": np.ones((1, 1, 2, 2), np.float16),
        "weight": np.tile(np.array([[100.0, -100.0]], np.float16), (64, 1)),
        "bias": np.zeros(2, np.float16),
        "eco_a": np.full((1, 1, 1, 1), 3.0, np.float16),
    }
    (y,) = run("GatedRelativePositionBias", inputs, {"num_heads": 1}, device=device)
    assert math.isclose(float(y.numpy().flat[0]), 1.0)
    np.testing.assert_array_equal(y.numpy(), np.ones((1, 1, 2, 2)))
