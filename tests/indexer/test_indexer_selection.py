"""Selection: order, ties and special scores, over many entries and in groups of rows."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from webgpu_ops import api
from webgpu_ops.core.device import Device
from webgpu_ops.families.indexer import core
from webgpu_ops.reference.indexer import packed_sparse_attention_indexer, sparse_attention_indexer

from .calls import QSA, SIZE, call, common, tokens

DENSE, PACKED = "SparseAttentionIndexer", "PackedSparseAttentionIndexer"


def csa_over(keys: np.ndarray, positions: list[int], weights: np.ndarray, top: int) -> dict[str, Any]:
    """Feeds of one request that scores the entries ``keys`` [E, D] as they are, without turning them."""
    entries, size = keys.shape
    rows = len(positions)
    rng = np.random.default_rng(0)
    wide = 2 * size
    return {
        "query": rng.standard_normal((1, rows, weights.shape[-1] * size)).astype(np.float32),
        "key": np.zeros((1, rows, wide), np.float32),
        "gate": np.zeros((1, rows, wide), np.float32),
        "position_bias": np.zeros((4096, wide), np.float32),
        "query_norm_weight": np.ones(size, np.float32),
        "key_norm_weight": np.ones(size, np.float32),
        "cos_cache": np.ones((4096 * (entries + 1), 0), np.float32),
        "sin_cache": np.ones((4096 * (entries + 1), 0), np.float32),
        "past_key": keys[None],
        "past_proj_buffer": np.zeros((2, 1, 0, wide), np.float32),
        "head_weights": np.broadcast_to(weights, (1, rows, weights.shape[-1])).astype(np.float32),
        "position_ids": np.array([positions]),
    }


@pytest.mark.parametrize(("entries", "top"), [(60_000, 2000), (1500, 700), (1500, 1), (257, 300), (64, 16)])
def test_many_equal_scores(any_device: Device, entries: int, top: int) -> None:
    """Few distinct keys, so that nearly every place is decided by the index, and by no luck of threads."""
    rng = np.random.default_rng(entries)
    keys = rng.standard_normal((5, 4)).astype(np.float32)[rng.integers(0, 5, entries)]
    positions = [4096 * n - 1 for n in (entries, entries // 2, 1)] + [4094]
    feeds = csa_over(keys, positions, np.array([1.0, -0.5]), top)
    attributes = {"policy_mode": "csa", "compress_ratio": 4096, "index_topk": top}
    want = sparse_attention_indexer(**feeds, **attributes)[0]
    for _ in range(2):
        found = call(DENSE, feeds, attributes, ["selected_indices"], any_device)
        np.testing.assert_array_equal(found["selected_indices"].numpy(), want)
    assert (want[0, 3] == -1).all() and want[0, 2, 0] == 0


def test_signs_zeros_and_infinities(device: Device) -> None:
    """Zeros of both signs tie; infinite scores go to the ends; NaN is below everything."""
    keys = np.zeros((8, 1), np.float32)
    keys[:, 0] = [0, -0.0, 1, np.inf, -1, 2, np.nan, 0.5]
    feeds = csa_over(keys, [4096 * 8 - 1] * 2, np.array([1.0]), 8)
    feeds["query"] = np.ones((1, 2, 1), np.float32)
    feeds["head_weights"] = np.array([[[1.0], [-1.0]]], np.float32)
    attributes = {"policy_mode": "csa", "compress_ratio": 4096, "index_topk": 8}
    found = call(DENSE, feeds, attributes, ["selected_indices"], device)["selected_indices"].numpy()[0]
    assert found[0].tolist() == [3, 5, 2, 7, 0, 1, 4, 6]
    assert found[1].tolist() == [0, 1, 4, 7, 2, 5, 3, 6]


def test_entries_follow_their_score(device: Device) -> None:
    """Thousands of different scores, of which the order of the best must come out."""
    rng = np.random.default_rng(1)
    angles = rng.permutation(np.linspace(0.1, 1.4, 3000))
    keys = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    feeds = csa_over(keys, [4096 * 3000 - 1], np.array([1.0]), 1000)
    feeds["query"] = np.array([[[1.0, 0.0]]], np.float32)
    attributes = {"policy_mode": "csa", "compress_ratio": 4096, "index_topk": 1000}
    found = call(DENSE, feeds, attributes, ["selected_indices"], device)["selected_indices"].numpy()[0, 0]
    np.testing.assert_array_equal(found, np.argsort(angles)[:1000])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_groups_of_rows(monkeypatch: pytest.MonkeyPatch, device: Device, dtype: type) -> None:
    """Rows that do not fit the scratch together are selected as if they did."""
    rng = np.random.default_rng(2)
    inputs = {**tokens(rng, "qsa", 2, 7, dtype=dtype), **common(rng, "qsa", dtype)}
    inputs["past_key"] = rng.standard_normal((2, 40, SIZE)).astype(dtype)
    inputs["mask"] = (rng.random((2, 47)) < 0.8).astype(np.int64)
    outputs = ["selected_indices"]
    whole = call(DENSE, inputs, QSA, outputs, device)["selected_indices"].numpy()
    monkeypatch.setattr(core, "SCRATCH_BYTES", 500)
    monkeypatch.setattr(api, "_NODES", OrderedDict())  # nodes keep their plans
    before = device.stats.dispatches
    parts = call(DENSE, inputs, QSA, outputs, device)["selected_indices"].numpy()
    assert device.stats.dispatches - before > 3 * 5
    np.testing.assert_array_equal(parts, whole)


def test_new_entries_are_scored_before_they_are_rounded(device: Device) -> None:
    """Entry 1 is new and a hair better than entry 0; as float16 numbers they are equal."""
    wide = {"query_norm_weight": np.array([1.0, 1.0], np.float16), "sin_cache": np.zeros((9, 0), np.float16)}
    new = np.array([[1.0, 0.9995]], np.float16)
    exact = (new / np.sqrt((new.astype(float) ** 2).mean())).astype(np.float64)
    stored = exact.astype(np.float16)
    query = np.array([[1.0, 1.0]], np.float16)
    better = float((exact - stored.astype(float)).sum())
    feeds = {
        **wide,
        "query": query * np.float16(np.sign(better)),
        "key": new,
        "key_norm_weight": np.ones(2, np.float16),
        "cos_cache": np.zeros((9, 0), np.float16),
        "cumulative_sequence_lengths": np.array([0, 1], np.int32),
        "past_sequence_lengths": np.array([1], np.int32),
        "past_key_state": np.concatenate([stored, np.zeros((3, 2), np.float16)])[None],
        "past_kv_buffer": np.zeros((1, 1, 2), np.float16),
        "past_state_lengths": np.array([[1, 0]], np.int32),
    }
    attributes = {
        "policy_mode": "qsa",
        "compress_ratio": 1,
        "token_budget": 1,
        "state_capacity": 4,
        "epsilon": 0.0,
    }
    found = call(PACKED, feeds, attributes, ["selected_indices", "present_key_state"], device)
    want = packed_sparse_attention_indexer(**feeds, **attributes)
    np.testing.assert_array_equal(found["present_key_state"].numpy()[0, :2], np.repeat(stored, 2, axis=0))
    assert better > 0, "the example has to prefer the unrounded entry"
    assert found["selected_indices"].numpy().tolist() == want[0].tolist() == [[1]]
