"""State: a sequence in random chunks against one call, captures, in place, IndexShare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, run
from webgpu_ops.core.device import Device
from webgpu_ops.reference.indexer import packed_sparse_attention_indexer

from .calls import CSA, POLICIES, QSA, RATIO, SIZE, WIDE, call, common, state, state_outputs, tokens

DENSE, PACKED = "SparseAttentionIndexer", "PackedSparseAttentionIndexer"


def pieces(rng: np.random.Generator, length: int) -> Iterator[slice]:
    """``length`` positions in random consecutive chunks."""
    at = 0
    while at < length:
        size = int(rng.integers(1, 6))
        yield slice(at, min(at + size, length))
        at += size


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bit for bit."""
    assert got.shape == want.shape and got.tobytes() == want.tobytes()


# A batch


@pytest.mark.parametrize("form", ["growing", "capacity", "in place"])
def test_chunks_of_tokens(device: Device, form: str) -> None:
    """Raw keys; with a mask, whose blocks are not those of positions."""
    rng = np.random.default_rng(1)
    length = 20
    given = tokens(rng, "qsa", 2, length)
    fixed = common(rng, "qsa")
    mask = (rng.random((2, length)) < 0.8).astype(np.int64)
    outputs = ["selected_indices", "present_key"]
    empty = {"past_key": np.zeros((2, 0, SIZE), np.float32)}
    whole = call(DENSE, {**given, **fixed, **empty, "mask": mask}, QSA, outputs, device)
    cache: Any = empty["past_key"]
    if form != "growing":
        cache = Tensor.from_numpy(rng.standard_normal((2, length + 3, SIZE)).astype(np.float32), device)
    beyond = None if form == "growing" else cache.numpy()[:, length:]
    selected = []
    for piece in pieces(rng, length):
        feeds = {name: np.ascontiguousarray(x[:, piece]) for name, x in given.items()}
        feeds |= fixed | {"past_key": cache, "mask": np.ascontiguousarray(mask[:, : piece.stop])}
        if form != "growing":
            feeds["past_sequence_length"] = np.array([piece.start], np.int32)
        bound = {"selected_indices": None, "present_key": cache if form == "in place" else None}
        part, present, *_ = run(DENSE, feeds, QSA, outputs=bound, device=device)
        assert part is not None and present is not None
        assert (present is cache) == (form == "in place")
        cache = present
        selected.append(part.numpy())
    np.testing.assert_array_equal(np.concatenate(selected, axis=1), whole["selected_indices"].numpy())
    same(cache.numpy()[:, :length], whole["present_key"].numpy())
    if beyond is not None:
        same(cache.numpy()[:, length:], beyond)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_chunks_of_windows(device: Device, dtype: type) -> None:
    """Entries and pending tokens come out bit for bit; of 16-bit entries the new ones score unrounded."""
    rng = np.random.default_rng(2)
    length = 23
    given = tokens(rng, "csa", 2, length, dtype=dtype)
    given["position_ids"] = np.tile(np.arange(length), (2, 1))
    fixed = common(rng, "csa", dtype)
    outputs = ["selected_indices", "present_key", "present_proj_buffer"]
    states: dict[str, Any] = {
        "past_key": np.zeros((2, 0, SIZE), dtype),
        "past_proj_buffer": np.zeros((2, 2, 0, WIDE), dtype),
    }
    whole = call(DENSE, {**given, **fixed, **states}, CSA, outputs, device)
    selected = []
    for piece in pieces(rng, length):
        feeds = {name: np.ascontiguousarray(x[:, piece]) for name, x in given.items()}
        found = call(DENSE, {**feeds, **fixed, **states}, CSA, outputs, device)
        states = {"past_key": found["present_key"], "past_proj_buffer": found["present_proj_buffer"]}
        selected.append(found["selected_indices"].numpy())
    if dtype == np.float32:
        np.testing.assert_array_equal(np.concatenate(selected, axis=1), whole["selected_indices"].numpy())
    same(states["past_key"].numpy(), whole["present_key"].numpy())
    same(states["past_proj_buffer"].numpy(), whole["present_proj_buffer"].numpy())
    assert whole["present_key"].shape == (2, length // RATIO, SIZE)


# Packed requests


def packed_chunks(
    rng: np.random.Generator, policy: str, dtype: type, device: Device, bound: bool
) -> tuple[dict[str, Tensor], dict[str, Any], list[np.ndarray], list[np.ndarray]]:
    """Three requests at their own pace: one call's outputs, the threaded state, both selections."""
    lengths = (13, 1, 9)
    total = sum(lengths)
    starts = np.cumsum([0, *lengths])
    given = tokens(rng, policy, total, dtype=dtype)
    if policy == "csa":
        given["position_ids"] = np.concatenate([np.arange(n) for n in lengths])
    fixed = common(rng, policy, dtype)
    first = state(rng, policy, 3, 6, dtype)
    attributes = {**POLICIES[policy], "state_capacity": 6}
    outputs = ["selected_indices", "selected_counts", *state_outputs(policy), "state_status"]
    cu = {"cumulative_sequence_lengths": starts.astype(np.int32)}
    whole = call(PACKED, {**given, **fixed, **first, **cu}, attributes, outputs, device)

    threaded: dict[str, Any] = dict(first)
    if bound:
        threaded |= {
            k: Tensor.from_numpy(v, device) for k, v in first.items() if k != "past_sequence_lengths"
        }
    parts: list[list[np.ndarray]] = [[], [], []]
    done = np.zeros(3, int)
    while (done < lengths).any():
        sizes = np.minimum(rng.integers(0, 5, 3), lengths - done)
        rows = np.concatenate([starts[b] + done[b] + np.arange(sizes[b]) for b in range(3)])
        feeds = {name: x[rows] for name, x in given.items()}
        feeds["cumulative_sequence_lengths"] = np.cumsum([0, *sizes]).astype(np.int32)
        threaded["past_sequence_lengths"] = done.astype(np.int32)
        wanted = {name: None for name in outputs}
        if bound:
            wanted |= {name: threaded[name.replace("present", "past")] for name in state_outputs(policy)}
        results = run(PACKED, {**feeds, **fixed, **threaded}, attributes, outputs=wanted, device=device)
        found = dict(zip(outputs, (r for r in results if r is not None), strict=True))
        assert (found["state_status"].numpy() == 0).all()
        for name in state_outputs(policy):
            threaded[name.replace("present", "past")] = found[name]
        ends = np.cumsum([0, *sizes])
        for b in range(3):
            parts[b].append(found["selected_indices"].numpy()[ends[b] : ends[b + 1]])
        done += sizes
    selected = [whole["selected_indices"].numpy()[starts[b] : starts[b + 1]] for b in range(3)]
    return whole, threaded, selected, [np.concatenate(p) for p in parts]


@pytest.mark.parametrize("policy", ["qsa", "csa"])
@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, False), (np.float32, True), (np.float16, True)])
def test_chunks_of_packed_requests(device: Device, policy: str, dtype: type, bound: bool) -> None:
    whole, threaded, want, got = packed_chunks(np.random.default_rng(3), policy, dtype, device, bound)
    if dtype == np.float32:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    lengths = threaded["past_state_lengths"].numpy()
    same(lengths, whole["present_state_lengths"].numpy())
    for name in state_outputs(policy)[:-1]:
        column = 0 if name == "present_key_state" else 1
        for b in range(3):
            n = lengths[b, column]
            same(threaded[name.replace("present", "past")].numpy()[b, :n], whole[name].numpy()[b, :n])


def test_packed_requests_select_like_a_batch_of_their_own(device: Device) -> None:
    rng = np.random.default_rng(4)
    lengths = (5, 11)
    given = tokens(rng, "qsa", sum(lengths))
    fixed = common(rng, "qsa")
    cu = np.array([0, 5, 16], np.int32)
    feeds = {**given, **fixed, **state(rng, "qsa", 2, 6), "cumulative_sequence_lengths": cu}
    found = call(PACKED, feeds, {**QSA, "state_capacity": 6}, ["selected_indices", "selected_counts"], device)
    for b in range(2):
        own = {name: x[None, cu[b] : cu[b + 1]] for name, x in given.items()}
        own["past_key"] = np.zeros((1, 0, SIZE), np.float32)
        alone = call(DENSE, {**own, **fixed}, QSA, ["selected_indices"], device)["selected_indices"].numpy()[
            0
        ]
        np.testing.assert_array_equal(found["selected_indices"].numpy()[cu[b] : cu[b + 1]], alone)
        counts = found["selected_counts"].numpy()[cu[b] : cu[b + 1]]
        np.testing.assert_array_equal(counts, (alone >= 0).sum(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_captured_transition_is_what_a_shorter_run_does(device: Device, dtype: type) -> None:
    """Rolling back: the state of before with the first captured payloads applied in order."""
    rng = np.random.default_rng(5)
    past = np.array([4, 2], np.int32)
    before = state(rng, "qsa", 2, 6, dtype) | {"past_sequence_lengths": past}
    before["past_state_lengths"] = np.stack(np.divmod(past, RATIO), axis=1).astype(np.int32)
    given = tokens(rng, "qsa", 14, dtype=dtype)
    fixed = common(rng, "qsa", dtype)
    attributes = {**QSA, "state_capacity": 6, "state_update_capacity": 8}
    feeds = {**given, **fixed, **before, "cumulative_sequence_lengths": np.array([0, 7, 14], np.int32)}
    feeds["state_update_capture_count"] = np.array([99, 7], np.int32)
    update = call(PACKED, feeds, attributes, ["selected_indices", "state_update"], device)[
        "state_update"
    ].numpy()
    assert (update[:, 7:] == 0).all()
    for kept in range(8):
        state_, buffer = before["past_key_state"].copy(), before["past_kv_buffer"].copy()
        for b in range(2):
            for i in range(kept):
                block, slot = divmod(int(past[b]) + i, RATIO)
                if slot == RATIO - 1:
                    state_[b, block] = update[b, i]
                else:
                    buffer[b, slot] = update[b, i]
        rows = np.concatenate([np.arange(kept), 7 + np.arange(kept)])
        short = {**{name: x[rows] for name, x in given.items()}, **fixed, **before}
        short["cumulative_sequence_lengths"] = np.array([0, kept, 2 * kept], np.int32)
        outputs = state_outputs("qsa")
        found = call(PACKED, short, {**QSA, "state_capacity": 6}, outputs, device)
        same(found["present_key_state"].numpy(), state_)
        for b in range(2):
            n = found["present_state_lengths"].numpy()[b, 1]
            assert n == (past[b] + kept) % RATIO
            same(found["present_kv_buffer"].numpy()[b, :n], buffer[b, :n])


@pytest.mark.parametrize("packed_keys", [False, True])
def test_reuse_can_advance_qsa(device: Device, packed_keys: bool) -> None:
    """One token a request goes into the state, captured as usual; the selection is the merged one."""
    rng = np.random.default_rng(6)
    before = state(rng, "qsa", 3, 6)
    before["past_sequence_lengths"] = past = np.array([2, 3, 18], np.int32)
    before["past_state_lengths"] = np.stack(np.divmod(past, RATIO), axis=1).astype(np.int32)
    before["past_state_lengths"][2] = 6, 1  # contradicts the past
    given = tokens(rng, "qsa", 3)
    feeds = {**common(rng, "qsa"), **before, "cumulative_sequence_lengths": np.arange(4, dtype=np.int32)}
    if packed_keys:
        feeds["query"] = np.concatenate([given["query"], given["key"]], axis=1)
    else:
        feeds |= {"query": given["query"][:0], "key": given["key"]}
    feeds |= {
        "state_update_capture_count": np.ones(3, np.int32),
        "indexshare_mode": np.array([1], np.int32),
        "merged_indices": rng.integers(-1, 90, (3, 10)).astype(np.int32),
        "merged_counts": np.array([3, 0, 7], np.int32),
        "merged_status": np.array([0, 2, 1], np.int32),
    }
    attributes = {**QSA, "state_capacity": 6, "state_update_capacity": 2, "max_output_entries": 10}
    attributes["indexshare_state_policy"] = "advance"
    outputs = ["selected_indices", "selected_counts", *state_outputs("qsa")]
    outputs += ["state_update", "indexshare_status", "state_status"]
    found = call(PACKED, feeds, attributes, outputs, device)
    for name, source in (
        ("selected_indices", "merged_indices"),
        ("selected_counts", "merged_counts"),
        ("indexshare_status", "merged_status"),
    ):
        same(found[name].numpy(), feeds[source])
    assert found["state_status"].numpy().tolist() == [0, 0, 1]
    assert found["present_state_lengths"].numpy().tolist() == [[1, 0], [1, 1], [6, 1]]
    same(found["present_key_state"].numpy()[2], before["past_key_state"][2])
    same(found["present_kv_buffer"].numpy()[1, 0], given["key"][1])
    same(found["state_update"].numpy()[0, 0], found["present_key_state"].numpy()[0, 0])
    same(found["state_update"].numpy()[1, 0], given["key"][1])
    assert (found["state_update"].numpy()[2] == 0).all() and (found["state_update"].numpy()[:, 1] == 0).all()


def test_a_held_state_takes_no_part(device: Device) -> None:
    """Whatever the metadata say, a held state is passed on as it is, with status 0 and zero captures."""
    rng = np.random.default_rng(7)
    before = state(rng, "qsa", 2, 6)
    before["past_state_lengths"][:] = 77
    given = tokens(rng, "qsa", 0)
    feeds = {**given, **common(rng, "qsa"), **before}
    feeds |= {
        "cumulative_sequence_lengths": np.array([5, -1, 2], np.int32),
        "state_update_capture_count": np.ones(2, np.int32),
        "indexshare_mode": np.array([1], np.int32),
        "merged_indices": np.full((2, 10), -1, np.int32),
        "merged_counts": np.zeros(2, np.int32),
        "merged_status": np.zeros(2, np.int32),
    }
    attributes = {**QSA, "state_capacity": 6, "state_update_capacity": 2, "max_output_entries": 10}
    outputs = [*state_outputs("qsa"), "state_update", "state_status"]
    found = call(PACKED, feeds, attributes, outputs, device)
    for name in state_outputs("qsa"):
        same(found[name].numpy(), before[name.replace("present", "past")])
    assert (found["state_status"].numpy() == 0).all() and (found["state_update"].numpy() == 0).all()


def test_growing_lengths_compile_nothing_new(device: Device) -> None:
    rng = np.random.default_rng(8)
    fixed = common(rng, "csa")
    made = None
    for length, capacity in ((4, 8), (9, 16), (17, 64), (2, 8)):
        given = tokens(rng, "csa", length)
        given["position_ids"] = np.arange(length)
        cu = {"cumulative_sequence_lengths": np.array([0, length], np.int32)}
        feeds = {**given, **fixed, **state(rng, "csa", 1, capacity), **cu}
        call(PACKED, feeds, {**CSA, "state_capacity": capacity}, ["selected_indices"], device)
        assert made in (None, len(device.programs))
        made = len(device.programs)


def test_new_entries_beyond_the_scratch_still_reach_the_state(device: Device) -> None:
    """Ranges that overlap, of requests that are each sound, complete more entries than tokens could."""
    rng = np.random.default_rng(9)
    batch, length = 9, 12
    cu = np.array([0, *([length, 0] * 4), length], np.int32)  # every second request is all of the tokens
    attributes = {"policy_mode": "qsa", "compress_ratio": 1, "token_budget": 2, "state_capacity": length}
    given = tokens(rng, "qsa", length, dtype=np.float16)
    before = state(rng, "qsa", batch, length, np.float16)
    before["past_kv_buffer"] = np.zeros((batch, 1, SIZE), np.float16)
    feeds = {**given, **common(rng, "qsa", np.float16), **before, "cumulative_sequence_lengths": cu}
    outputs = ["selected_indices", "present_key_state", "present_state_lengths", "state_status"]
    found = call(PACKED, feeds, attributes, outputs, device)
    assert found["state_status"].numpy().tolist() == [0, 1] * 4 + [0]
    got = found["present_key_state"].numpy()
    same(got[1::2], before["past_key_state"][1::2])
    for b in range(2, batch, 2):
        same(got[b], got[0])
    want = packed_sparse_attention_indexer(**feeds, **attributes)
    np.testing.assert_allclose(got[0].astype(float), want[2][0].astype(float), 2e-3, 2e-3)
