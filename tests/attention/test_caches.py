"""Caches: updated in place or copied, held by a device, and lengths that lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.errors import ShapeError
from webgpu_ops.reference.attention import group_query_attention, resident
from webgpu_ops.reference.samples import Sample, draw_of

NAMES = ("output", "present_key", "present_value")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def call(
    device: Device, inputs: dict[str, Any], attributes: dict[str, Any], bound: Any = NAMES
) -> list[np.ndarray]:
    results = run("GroupQueryAttention", inputs, attributes, outputs=bound, device=device)
    return [r.numpy() for r in results if r is not None]


@pytest.mark.parametrize("windowed", [False, True], ids=["whole", "windowed"])
def test_in_place_equals_copied(device: Device, windowed: bool) -> None:
    """The same bytes in every row that the text defines, and in those it leaves alone."""
    kv, size, capacity, past = 2, 20, 12, 7 if not windowed else 19
    attributes = {"num_heads": 4, "kv_num_heads": kv}
    if windowed:
        attributes |= {"sliding_window_cache": 1, "local_window_size": 9}
    for rows in (1, 4):
        caches = {
            "past_key": normal(1, 1, kv, capacity, size),
            "past_value": normal(2, 1, kv, capacity, size),
        }
        inputs = {
            "query": normal(3, 1, rows, 4 * size),
            "key": normal(4, 1, rows, kv * size),
            "value": normal(5, 1, rows, kv * size),
            "seqlens_k": np.array([past + rows - 1], np.int32),
            "total_sequence_length": np.array(past + rows, np.int32),
        }
        copied = call(device, inputs | caches, attributes)
        shared = {name: Tensor.from_numpy(value, device) for name, value in caches.items()}
        bound = {"output": None, "present_key": shared["past_key"], "present_value": shared["past_value"]}
        in_place = call(device, inputs | shared, attributes, bound)
        for name, a, b in zip(NAMES, copied, in_place, strict=True):
            assert a.tobytes() == b.tobytes(), f"{name} differs at {rows} rows"
        np.testing.assert_array_equal(shared["past_key"].numpy(), copied[1])


def test_a_cache_too_short_for_its_past_is_refused(device: Device) -> None:
    """Whoever forgets to feed the present caches back is told, instead of attending made up keys."""
    caches = {"past_key": normal(1, 1, 2, 4, 16), "past_value": normal(2, 1, 2, 4, 16)}
    inputs = {
        "query": normal(3, 1, 1, 64),
        "key": normal(4, 1, 1, 32),
        "value": normal(5, 1, 1, 32),
        "seqlens_k": np.array([8], np.int32),
        "total_sequence_length": np.array(9, np.int32),
    }
    expected = "at least 8 rows because of 9 tokens in total 1 are new"
    with pytest.raises(ShapeError, match=rf"past_key has shape \(1, 2, 4, 16\); expected {expected}"):
        call(device, inputs | caches, {"num_heads": 4, "kv_num_heads": 2})


def test_a_window_sized_cache_forgets_what_the_formula_says(device: Device) -> None:
    """Tokens one at a time and in chunks leave the same layout, and attend as a full cache does."""
    kv, size, capacity, window, total = 1, 8, 7, 4, 23
    q, k, v = (normal(seed, 1, total, n * size) for seed, n in ((1, 2), (2, kv), (3, kv)))
    attributes = {"num_heads": 2, "kv_num_heads": kv, "local_window_size": window}
    want = group_query_attention(
        q, k, v, seqlens_k=np.array([total - 1]), total_sequence_length=np.array(total), **attributes
    )[0]
    layouts = []
    for step in (1, 5):
        caches = [np.zeros((1, kv, capacity, size), np.float32)] * 2
        done = 0
        while done < total:
            rows = slice(done, min(done + step, total))
            done = rows.stop
            inputs = {
                "query": q[:, rows],
                "key": k[:, rows],
                "value": v[:, rows],
                "past_key": caches[0],
                "past_value": caches[1],
                "seqlens_k": np.array([done - 1], np.int32),
                "total_sequence_length": np.array(done, np.int32),
            }
            y, *caches = call(device, inputs, attributes | {"sliding_window_cache": 1})
            np.testing.assert_allclose(y, want[:, rows], rtol=1e-4, atol=1e-5)
        held = resident(total, capacity, window)
        np.testing.assert_array_equal(caches[0][0, 0, :held], k[0, total - held :])
        layouts.append(caches[0][:, :, :held].tobytes())
    assert layouts[0] == layouts[1]


@pytest.mark.parametrize("length", [-5, 100, 2**31 - 1])
def test_lengths_on_the_device_are_contained(device: Device, length: int) -> None:
    """A device input cannot be refused; what it may spoil ends with its own rows."""
    kv, size, capacity = 1, 8, 6
    backing = Tensor.from_numpy(np.full(4 * kv * capacity * size, 7, np.float32), device)
    past = [backing.view((2, kv, capacity, size), at * kv * capacity * size) for at in (0, 2)]
    lengths = Tensor.from_numpy(np.array([length, 3], np.int32), device)
    lengths.host = None
    inputs = {
        "query": normal(1, 2, 1, 2 * size),
        "key": normal(2, 2, 1, size),
        "value": normal(3, 2, 1, size),
        "past_key": past[0],
        "past_value": past[1],
        "seqlens_k": lengths,
        "total_sequence_length": np.array(4, np.int32),
    }
    attributes = {"num_heads": 2, "kv_num_heads": 1}
    bound = {"output": None, "present_key": past[0], "present_value": past[1]}
    y, key, _ = call(device, inputs, attributes, bound)
    assert np.isfinite(y).all()
    np.testing.assert_array_equal(key[1, 0, 3], inputs["key"][1, 0])
    untouched = np.full((kv, capacity, size), 7, np.float32)
    untouched[0, 3] = key[1, 0, 3]
    np.testing.assert_array_equal(key[1], untouched)


@pytest.mark.parametrize("first", [2**32 + 1, 2**31, 2**62, -3, -(2**33), 6])
def test_positions_on_the_device_are_clamped(device: Device, first: int) -> None:
    """An id is an int64: one far outside of the tables is not one inside them."""
    rows = 4
    inputs = {
        "query": normal(1, 1, rows, 16),
        "key": normal(2, 1, rows, 8),
        "value": normal(3, 1, rows, 8),
        "seqlens_k": np.array([rows - 1], np.int32),
        "total_sequence_length": np.array(rows, np.int32),
        "cos_cache": normal(4, 8, 4),
        "sin_cache": normal(5, 8, 4),
        "position_ids": np.array([[first]]),
    }
    attributes = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}
    want = group_query_attention(**inputs, **attributes)
    ids = Tensor.from_numpy(inputs["position_ids"], device, keep_host=False)
    got = call(device, inputs | {"position_ids": ids}, attributes)
    for a, b in zip(got, want[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_decode_leaves_device_lengths_on_the_device(device: Device) -> None:
    size = 8
    cache = [Tensor.from_numpy(normal(s, 1, 1, 16, size), device) for s in (1, 2)]
    lengths = [Tensor.from_numpy(np.array([n], np.int32), device) for n in range(4, 8)]
    for tensor in lengths:
        tensor.host = None
    inputs = [normal(s, 1, 1, size) for s in (3, 4, 5)]
    before = device.stats.downloads
    for n, tensor in enumerate(lengths, 5):
        run(
            "GroupQueryAttention",
            [*inputs, *cache, tensor, np.array(n, np.int32)],
            {"num_heads": 1, "kv_num_heads": 1},
            outputs={"output": None, "present_key": cache[0], "present_value": cache[1]},
            device=device,
        )
    assert device.stats.downloads == before


@pytest.mark.parametrize("size", [1, 7, 260])
@pytest.mark.parametrize("rows", [1, 37])
def test_head_sizes(any_device: Device, size: int, rows: int) -> None:
    """Sizes that no tile likes, with neighbours that must not leak into a ragged row."""
    heads, kv, past = 3, 1, 70
    sample = Sample(
        {
            "query": normal(1, 1, rows, heads * size),
            "key": normal(2, 1, rows, kv * size),
            "value": normal(3, 1, rows, kv * size),
            "past_key": normal(4, 1, kv, past, size),
            "past_value": normal(5, 1, kv, past, size),
            "seqlens_k": np.array([past + rows - 1], np.int32),
            "total_sequence_length": np.array(past + rows, np.int32),
        },
        {"num_heads": heads, "kv_num_heads": kv},
        NAMES,
    )
    outcome = check_sample("GroupQueryAttention", sample, any_device)
    assert outcome.passed, outcome.message


@pytest.mark.parametrize("value", [-np.inf, np.finfo(np.float32).min, np.nan])
def test_rows_without_a_visible_key(any_device: Device, value: float) -> None:
    """All -inf gives zeros, all lowest an average, NaN stays NaN: never one for another."""
    size, total = 8, 40
    bias = np.zeros((1, 1, total, total), np.float32)
    bias[0, 0, 3] = value
    inputs = {
        "query": normal(1, 1, total, size),
        "key": normal(2, 1, total, size),
        "value": normal(3, 1, total, size),
        "seqlens_k": np.array([total - 1], np.int32),
        "total_sequence_length": np.array(total, np.int32),
        "attention_bias": bias,
    }
    results = run(
        "GroupQueryAttention", inputs, {"num_heads": 1, "kv_num_heads": 1, "causal": 0}, device=any_device
    )
    assert results[0] is not None
    y = results[0].numpy()[0]
    if np.isnan(value):
        assert np.isnan(y[3]).all()
    else:
        want = np.zeros(size) if np.isinf(value) else inputs["value"][0].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(y[3], want, rtol=1e-4, atol=1e-5)
    assert np.isfinite(np.delete(y, 3, axis=0)).all()


def test_draws_reach_every_feature() -> None:
    """The random calls are only worth something if they vary."""
    draw = draw_of("GroupQueryAttention")
    assert draw is not None
    drawn = [draw(np.random.default_rng((0, i))) for i in range(200)]
    for name in ("position_ids", "attention_bias", "head_sink", "k_scale", "q_norm_weight", "past_key"):
        assert sum(name in s.inputs for s in drawn) >= 5, name
    for name in ("softcap", "smooth_softmax", "causal", "local_window_size", "sliding_window_cache"):
        assert sum(name in s.attributes for s in drawn) >= 5, name
    assert {s.inputs["query"].dtype.name for s in drawn} == {"float32", "float16", "bfloat16"}
    stored = {s.inputs["past_key"].dtype.name for s in drawn if "past_key" in s.inputs}
    assert stored >= {"int8", "uint8", "float8_e4m3fn", "float32", "float16", "bfloat16"}
    assert sum(bool(s.aliases) for s in drawn) >= 20
