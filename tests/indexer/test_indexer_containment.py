"""Malformed metadata on the device: never read back, no access out of range, the stated status codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, run
from webgpu_ops.core.device import Device
from webgpu_ops.reference.indexer import packed_sparse_attention_indexer

from .calls import POLICIES, RATIO, SIZE, common, state, state_outputs, tokens

PACKED = "PackedSparseAttentionIndexer"
BATCH, TOKENS, CAPACITY = 3, 9, 5
LOWEST, HIGHEST = -(2**31), 2**31 - 1
SOUND = {
    "cumulative_sequence_lengths": [0, 4, 4, 9],
    "past_sequence_lengths": [4, 0, 8],
    "past_state_lengths": [[1, 1], [0, 0], [2, 2]],
}


def feeds_of(policy: str, dtype: type, changes: dict[str, Any]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    made = {**tokens(rng, policy, TOKENS, dtype=dtype), **common(rng, policy, dtype)}
    made |= state(rng, policy, BATCH, CAPACITY, dtype)
    made |= {name: np.array(value, np.int32) for name, value in {**SOUND, **changes}.items()}
    if policy == "csa":
        made["position_ids"] = np.array([4, 5, 6, 7, 8, 9, 10, 11, 12])
    else:
        made["state_update_capture_count"] = np.array([HIGHEST, LOWEST, 3], np.int32)
    return made


def run_bound(
    feeds: dict[str, np.ndarray], attributes: dict[str, Any], names: list[str], device: Device
) -> dict[str, np.ndarray]:
    """The outputs, bound into the middle of buffers of set bits, whose other bits have to stay."""
    size = attributes.get("index_topk") or attributes["token_budget"] + RATIO - 1
    shapes = {
        "selected_indices": ((TOKENS, size), np.int32),
        "selected_counts": ((TOKENS,), np.int32),
        "state_update": ((BATCH, attributes.get("state_update_capacity", 0), SIZE), feeds["query"].dtype),
        "state_status": ((BATCH,), np.int32),
    }
    for name in state_outputs(attributes["policy_mode"]):
        past = feeds[name.replace("present", "past")]
        shapes[name] = (past.shape, past.dtype)
    backings, bound = {}, {}
    for name in names:
        shape, dtype = shapes[name]
        filler = np.full((int(np.prod(shape)) + 10) * np.dtype(dtype).itemsize, 0xFF, np.uint8)
        backings[name] = Tensor.from_numpy(filler.view(dtype), device)
        bound[name] = backings[name].view(shape, 5)
    metadata = {name: Tensor.from_numpy(feeds[name], device) for name in SOUND}
    downloads = device.stats.downloads
    run(PACKED, {**feeds, **metadata}, attributes, outputs=bound, device=device)
    assert device.stats.downloads == downloads
    for name, backing in backings.items():
        flat = backing.numpy()
        assert (flat[:5].view(np.uint8) == 0xFF).all() and (flat[-5:].view(np.uint8) == 0xFF).all(), name
    return {name: tensor.numpy() for name, tensor in bound.items()}


@pytest.mark.parametrize("policy", ["qsa", "csa"])
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, [0, 0, 0]),
        ({"cumulative_sequence_lengths": [1, 4, 4, 9]}, [1, 1, 1]),
        ({"cumulative_sequence_lengths": [0, 4, 4, 8]}, [1, 1, 1]),
        ({"cumulative_sequence_lengths": [LOWEST, HIGHEST, LOWEST, HIGHEST]}, [1, 1, 1]),
        ({"cumulative_sequence_lengths": [0, -1, 4, 9]}, [1, 1, 0]),
        ({"cumulative_sequence_lengths": [0, LOWEST, 4, 9]}, [1, 1, 0]),
        ({"cumulative_sequence_lengths": [0, 4, 10, 9]}, [0, 1, 1]),
        ({"cumulative_sequence_lengths": [0, HIGHEST, HIGHEST, 9]}, [1, 1, 1]),
        ({"past_sequence_lengths": [-1, 0, LOWEST]}, [1, 0, 1]),
        ({"past_state_lengths": [[-1, 1], [0, 0], [2, 2]]}, [1, 0, 0]),
        ({"past_state_lengths": [[1, LOWEST], [HIGHEST, 0], [2, HIGHEST]]}, [1, 1, 1]),
        ({"past_state_lengths": [[1, 1], [0, 2 * RATIO], [CAPACITY + 1, 2]]}, [0, 1, 1]),
        # Too much for the capacity, and metadata that are wrong besides: 1 wins.
        ({"past_state_lengths": [[1, 1], [0, 0], [4, 2]], "past_sequence_lengths": [4, 0, 14]}, [0, 0, 2]),
        ({"past_state_lengths": [[1, 1], [0, 0], [4, 2]], "past_sequence_lengths": [4, 0, -14]}, [0, 0, 1]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_malformed_requests(
    device: Device, policy: str, changes: dict[str, Any], status: list[int], dtype: type
) -> None:
    """A refused request keeps its payloads, clamps its lengths, selects and captures nothing."""
    feeds = feeds_of(policy, dtype, changes)
    attributes = {**POLICIES[policy], "state_capacity": CAPACITY}
    names = ["selected_indices", "selected_counts", *state_outputs(policy), "state_status"]
    if policy == "qsa":
        attributes["state_update_capacity"] = 2
        names.append("state_update")
    got = run_bound(feeds, attributes, names, device)
    assert got["state_status"].tolist() == status
    want = dict(zip(ORDER, packed_sparse_attention_indexer(**feeds, **attributes), strict=True))
    for name in ("selected_indices", "selected_counts", "present_state_lengths"):
        np.testing.assert_array_equal(got[name], want[name], name)
    most = (RATIO if policy == "qsa" else 2 * RATIO) - 1
    for b in np.flatnonzero(status):
        for name in state_outputs(policy)[:-1]:
            assert got[name][b].tobytes() == feeds[name.replace("present", "past")][b].tobytes(), name
        lengths = np.clip(feeds["past_state_lengths"][b], 0, [CAPACITY, most])
        np.testing.assert_array_equal(got["present_state_lengths"][b], lengths)
        if policy == "qsa":
            assert (got["state_update"][b] == 0).all()
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    for name in [*state_outputs(policy)[:-1], *(["state_update"] if policy == "qsa" else [])]:
        np.testing.assert_allclose(
            got[name].astype(float), want[name].astype(float), tolerance, tolerance, err_msg=name
        )


ORDER = (
    "selected_indices",
    "selected_counts",
    "present_key_state",
    "present_kv_buffer",
    "present_gate_buffer",
    "present_state_lengths",
    "state_update",
    "indexshare_status",
    "state_status",
)


@pytest.mark.parametrize(
    "lengths", [[[1, 0], [0, 0], [2, 2]], [[1, 1], [0, 1], [2, 1]], [[1, 2], [0, 0], [1, 2]]]
)
def test_lengths_that_contradict_the_past(device: Device, lengths: list[list[int]]) -> None:
    """qsa's lengths are the quotient and the rest of the past; csa's windows tell nothing about it."""
    for policy in ("qsa", "csa"):
        feeds = feeds_of(policy, np.float32, {"past_state_lengths": lengths})
        attributes = {**POLICIES[policy], "state_capacity": CAPACITY}
        got = run_bound(feeds, attributes, ["selected_indices", "state_status"], device)
        expected = [int(lengths[b] != SOUND["past_state_lengths"][b]) for b in range(BATCH)]
        assert got["state_status"].tolist() == (expected if policy == "qsa" else [0, 0, 0])


def test_capture_counts_are_clamped(device: Device) -> None:
    """To the request's tokens and the capacity; without the gate nothing is captured at all."""
    feeds = feeds_of("qsa", np.float32, {})
    attributes = {**POLICIES["qsa"], "state_capacity": CAPACITY, "state_update_capacity": 8}
    names = ["selected_indices", "state_update"]
    update = run_bound(feeds, attributes, names, device)["state_update"]
    filled = (update != 0).any(axis=2).sum(axis=1)
    assert filled.tolist() == [4, 0, 3]
    for active in (0, 1, -7):
        feeds["state_update_active"] = np.array([active], np.int32)
        again = run_bound(feeds, attributes, names, device)["state_update"]
        np.testing.assert_array_equal(again, update if active else np.zeros_like(update))


@pytest.mark.parametrize("policy", ["qsa", "csa"])
def test_positions_beyond_the_tables_are_contained(device: Device, policy: str) -> None:
    """A position on the device that no table row has is clamped to the last one."""
    feeds = feeds_of(policy, np.float32, {"past_sequence_lengths": [4, 0, 8]})
    for name in ("cos_cache", "sin_cache"):
        feeds[name] = feeds[name][:5]
    attributes = {**POLICIES[policy], "state_capacity": CAPACITY}
    names = ["selected_indices", "selected_counts", *state_outputs(policy), "state_status"]
    ids: dict[str, Any] = {}
    if policy == "csa":
        wild = [-1, -(2**63), 2**63 - 1, 2**32, 2**31, 5, 10**12, 0, 3]
        feeds["position_ids"] = np.array(wild)
        ids["position_ids"] = Tensor.from_numpy(feeds["position_ids"], device)
    got = run_bound({**feeds, **ids}, attributes, names, device)
    want = dict(zip(ORDER, packed_sparse_attention_indexer(**feeds, **attributes), strict=True))
    np.testing.assert_array_equal(got["selected_counts"], want["selected_counts"])
    np.testing.assert_array_equal(got["selected_indices"], want["selected_indices"])
    np.testing.assert_allclose(got["present_key_state"], want["present_key_state"], 1e-4, 1e-5)


@pytest.mark.parametrize("policy", ["qsa", "csa"])
def test_two_claims_on_one_row(device: Device, policy: str) -> None:
    """Both requests are sound, so both states advance; which of them selects for the row is open."""
    feeds = feeds_of(policy, np.float32, {"cumulative_sequence_lengths": [0, 6, 3, 9]})
    attributes = {**POLICIES[policy], "state_capacity": CAPACITY}
    names = ["selected_indices", "selected_counts", *state_outputs(policy), "state_status"]
    got = run_bound(feeds, attributes, names, device)
    want = dict(zip(ORDER, packed_sparse_attention_indexer(**feeds, **attributes), strict=True))
    assert got["state_status"].tolist() == [0, 1, 0]
    once = [0, 1, 2, 6, 7, 8]
    np.testing.assert_array_equal(got["selected_indices"][once], want["selected_indices"][once])
    np.testing.assert_array_equal(got["present_state_lengths"], want["present_state_lengths"])
    for name in state_outputs(policy)[:-1]:
        np.testing.assert_allclose(got[name], want[name], 1e-4, 1e-5)


def test_rows_find_their_request_among_many(device: Device) -> None:
    """Most requests are empty, and some with tokens are refused."""
    batch, lengths = 70_000, {17: 2, 40_000: 3, 40_001: 1, 69_999: 2}
    counts = np.zeros(batch, int)
    counts[list(lengths)] = list(lengths.values())
    rng = np.random.default_rng(12)
    feeds = {
        **tokens(rng, "qsa", int(counts.sum())),
        **common(rng, "qsa"),
        "cumulative_sequence_lengths": np.cumsum([0, *counts]).astype(np.int32),
        "past_sequence_lengths": np.zeros(batch, np.int32),
        "past_state_lengths": np.zeros((batch, 2), np.int32),
        "past_key_state": np.zeros((batch, 2, SIZE), np.float32),
        "past_kv_buffer": np.zeros((batch, 2 * RATIO - 1, SIZE), np.float32),
    }
    feeds["past_sequence_lengths"][40_000] = -1
    (selected, selected_counts) = (
        t.numpy()
        for t in run(
            PACKED,
            feeds,
            {**POLICIES["qsa"], "state_capacity": 2, "state_update_capacity": 0},
            outputs=["selected_indices", "selected_counts"],
            device=device,
        )
        if t is not None
    )
    assert selected_counts.tolist() == [1, 2, 0, 0, 0, 1, 1, 2]
    np.testing.assert_array_equal(
        np.sort(selected, axis=1)[:, -2:],
        [[-1, 0], [0, 1], [-1, -1], [-1, -1], [-1, -1], [-1, 0], [-1, 0], [0, 1]],
    )
