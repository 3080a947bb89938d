"""Random calls of the sparse attention indexers and of the merge of selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..indexer import (
    packed_sparse_attention_indexer,
    request_status,
    sparse_attention_indexer,
)
from . import Sample, sample

Array = np.ndarray
Rng = np.random.Generator


def _steady(function: Callable[..., tuple[Any, ...]], call: Sample, rng: Rng) -> bool:
    """Whether the selection survives queries that differ by more than float32 arithmetic does."""
    inputs, options = dict(call.inputs), call.attributes
    found = function(**inputs, **options)[0]
    query = inputs["query"].astype(np.float64)
    inputs["query"] = query * (1 + 3e-4 * rng.standard_normal(query.shape))
    return np.array_equal(found, function(**inputs, **options)[0])


def _drawn(
    rng: Rng, function: Callable[..., tuple[Any, ...]], draw: Callable[[Rng, str, Any], Sample]
) -> Sample:
    """A call of either policy, in any type, whose selection does not hang on the last bits of a score."""
    policy = str(rng.choice(["qsa", "csa"]))
    dtype = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)[rng.choice(4)]
    call = draw(rng, policy, dtype)
    while not _steady(function, call, rng):
        call = draw(rng, policy, dtype)
    return call


def _attributes(rng: Rng, policy: str, ratio: int) -> dict[str, Any]:
    """What both indexers take."""
    made: dict[str, Any] = {"policy_mode": policy, "compress_ratio": ratio}
    if rng.random() < 0.3:
        made["scale"] = float(rng.choice([0.0, 0.4, -1.0]))
    if rng.random() < 0.2:
        made["epsilon"] = 0.125
    if policy == "qsa":
        return made | {"token_budget": ratio * int(rng.integers(1, 9))}
    if rng.random() < 0.2:
        made["head_weight_scale"] = 2.0
    return made | {"index_topk": int(rng.integers(1, 12))}


def _tables(rng: Rng, policy: str, size: int, batch: int, rows: int, dtype: Any) -> dict[str, Array]:
    """Any numbers at all: nothing says that they are cosines."""
    width = int(rng.integers(0, size // 2 + 1)) * (2 if policy == "qsa" else 1)
    shape = (batch, rows, width) if rng.random() < 0.5 else (rows, width)
    return {name: rng.standard_normal(shape).astype(dtype) for name in ("cos_cache", "sin_cache")}


def _weights(rng: Rng, size: int, dtype: Any) -> dict[str, Array]:
    names = ("query_norm_weight", "key_norm_weight")
    return {name: rng.uniform(0.5, 1.5, size).astype(dtype) for name in names}


@sample("SparseAttentionIndexer")
def sparse_attention(rng: Rng) -> Sample:
    return _drawn(rng, sparse_attention_indexer, _batch)


def _batch(rng: Rng, policy: str, dtype: Any) -> Sample:
    batch, heads, ratio, length = (int(rng.integers(1, n)) for n in (4, 6, 6, 9))
    size, past = int(rng.integers(1, 21)), int(rng.choice([0, 1, 7, 40]))
    attributes = _attributes(rng, policy, ratio)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(dtype)

    pending = int(rng.integers(0, 2 * ratio)) if policy == "csa" else 0
    added = (pending + length) // ratio - (pending >= ratio) if policy == "csa" else length
    rows = (past + added) * (ratio if policy == "csa" else 1) + int(rng.integers(1, 5))
    inputs: dict[str, Any] = {
        "past_key": normal(batch, past, size),
        **_weights(rng, size, dtype),
        **_tables(rng, policy, size, batch, rows, dtype),
    }
    if policy == "qsa":
        query, key = normal(batch, length, heads * size), normal(batch, length, size)
        if rng.random() < 0.3:
            inputs["query"] = np.concatenate([query, key], axis=-1)
        else:
            inputs |= {"query": query, "key": key}
        if rng.random() < 0.5:
            shown = rng.random((batch, past + length)) < rng.choice([0.0, 0.7, 1.0])
            inputs["mask"] = np.where(shown, 1 << 40, 0)
    else:
        wide = 2 * size
        inputs |= {
            "query": normal(batch, length, heads * size),
            "key": normal(batch, length, wide),
            "gate": normal(batch, length, wide),
            "position_bias": normal(ratio, wide),
            "head_weights": normal(batch, length, heads),
            "position_ids": rng.integers(0, rows, (batch, length)),
            "past_proj_buffer": normal(2, batch, pending, wide),
        }
    aliases = {}
    if rng.random() < 0.4:
        inputs["past_key"] = normal(batch, past + added + int(rng.integers(0, 4)), size)
        inputs["past_sequence_length"] = np.array([past], np.int32)
        if rng.random() < 0.5:
            aliases["present_key"] = "past_key"
    outputs = ["selected_indices", "present_key"] + ["present_proj_buffer"] * (policy == "csa")
    return Sample(inputs, attributes, tuple(outputs), aliases=aliases)


@sample("PackedSparseAttentionIndexer")
def packed_sparse_attention(rng: Rng) -> Sample:
    return _drawn(rng, packed_sparse_attention_indexer, _packed)


def _packed(rng: Rng, policy: str, dtype: Any) -> Sample:
    batch, heads, ratio = (int(rng.integers(1, n)) for n in (5, 6, 6))
    size, qsa = int(rng.integers(1, 21)), policy == "qsa"
    attributes = _attributes(rng, policy, ratio)
    mode = str(rng.choice(["", "", "", "refresh", "reuse"]))

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(dtype)

    entries = rng.integers(0, 9, batch)
    pending = rng.integers(0, ratio if qsa else 2 * ratio, batch)
    lengths = rng.integers(0, 8, batch) if mode != "reuse" else np.ones(batch, int)
    # Now and then one request has no room.
    closed = (pending + lengths) // ratio - (pending >= ratio)
    capacity = int(max(1, (entries + closed).max() - (rng.random() < 0.3)))
    past = entries * ratio + pending
    cu = np.cumsum([0, *lengths])
    tokens = int(cu[-1])
    if rng.random() < 0.3:
        _spoil(rng, cu, past, entries, pending)

    outputs = ["selected_indices", "selected_counts", "present_key_state", "present_kv_buffer"]
    outputs += ["present_gate_buffer"] * (not qsa) + ["present_state_lengths"]
    attributes["state_capacity"] = capacity
    inputs: dict[str, Any] = {}
    held = False
    if mode:
        width = attributes.get("index_topk") or attributes["token_budget"] + ratio - 1
        attributes["max_output_entries"] = width = int(width + rng.integers(0, 4))
        attributes["indexshare_state_policy"] = rule = str(rng.choice(["default", "hold", "advance"]))
        held = mode == "reuse" and (rule == "hold" or (rule == "default" and qsa))
        merged = batch if mode == "reuse" else 0
        inputs |= {
            "indexshare_mode": np.array([mode == "reuse"], np.int32),
            "merged_indices": rng.integers(-1, 90, (merged, width)).astype(np.int32),
            "merged_counts": rng.integers(0, width + 1, merged).astype(np.int32),
            "merged_status": rng.integers(0, 3, merged).astype(np.int32),
        }
        outputs.append("indexshare_status")
    new, queries = 0 if held else tokens, 0 if mode == "reuse" else tokens
    rows = int((entries.max(initial=0) + 12) * ratio + 12)
    columns = size if qsa else 2 * size
    buffer = (batch, 2 * ratio - 1, columns)
    query, key = normal(queries, heads * size), normal(new, columns)
    if qsa and queries == new and rng.random() < 0.3:
        inputs["query"] = np.concatenate([query, key], axis=-1)
    else:
        inputs |= {"query": query, "key": key}
    inputs |= {
        **_weights(rng, size, dtype),
        **_tables(rng, policy, size, batch, rows, dtype),
        "cumulative_sequence_lengths": cu.astype(np.int32),
        "past_sequence_lengths": past.astype(np.int32),
        "past_key_state": normal(batch, capacity, size),
        "past_kv_buffer": normal(*buffer),
        "past_state_lengths": np.stack([entries, pending], axis=1).astype(np.int32),
    }
    if not qsa:
        inputs |= {
            "gate": normal(new, columns),
            "position_bias": normal(ratio, columns),
            "head_weights": normal(queries, heads),
            "position_ids": rng.integers(0, rows, new),
            "past_gate_buffer": normal(*buffer),
        }
    elif rng.random() < 0.5:
        attributes["state_update_capacity"] = updates = int(rng.integers(1, 9))
        inputs["state_update_capture_count"] = rng.integers(-2, updates + 3, batch).astype(np.int32)
        if rng.random() < 0.4:
            inputs["state_update_active"] = rng.integers(0, 2, 1).astype(np.int32)
        outputs.append("state_update")
    if rng.random() < 0.7:
        outputs.append("state_status")
    aliases = {}
    if rng.random() < 0.4:
        states = ["key_state", "kv_buffer", "state_lengths"] + ["gate_buffer"] * (not qsa)
        aliases = {f"present_{name}": f"past_{name}" for name in states}
    made = Sample(inputs, attributes, tuple(outputs), aliases=aliases)
    if queries:
        made.unspecified = _claimed_twice(made, tokens)
    return made


def _spoil(rng: Rng, cu: Array, past: Array, entries: Array, pending: Array) -> None:
    """Make some of the metadata contradict the rest, in place."""
    for array, values in (
        (cu, [-3, 1, 5, 99]),
        (past, [-1, 3, 70]),
        (entries, [-2, 90]),
        (pending, [-1, 77]),
    ):
        if rng.random() < 0.4:
            array[rng.integers(0, array.size)] = rng.choice(values)


def _claimed_twice(call: Sample, tokens: int) -> dict[str, Array]:
    """The rows of a selection that several sound requests claim."""
    given, options = call.inputs, call.attributes
    cu, numbers = given["cumulative_sequence_lengths"], given["past_state_lengths"]
    claims = np.zeros(tokens, int)
    for b, past in enumerate(given["past_sequence_lengths"]):
        policy, ratio, capacity = (options[k] for k in ("policy_mode", "compress_ratio", "state_capacity"))
        if request_status(policy, ratio, capacity, tokens, cu, int(past), numbers[b], b) == 0:
            claims[cu[b] : cu[b + 1]] += 1
    width = options.get("max_output_entries") or options.get("index_topk")
    width = width or options["token_budget"] + options["compress_ratio"] - 1
    twice = claims > 1
    return {"selected_indices": np.repeat(twice[:, None], width, axis=1), "selected_counts": twice}


@sample("PackedSparseAttentionIndexerMerge")
def merge(rng: Rng) -> Sample:
    rows, columns, queries = (int(rng.integers(low, high)) for low, high in ((0, 5), (0, 40), (0, 9)))
    width, top = int(rng.integers(1, 70)), int(rng.choice([5, 60, 2**31 - 1]))

    def numbers(low: int, high: int, *shape: int) -> Array:
        """Mostly in range; now and then beyond it."""
        drawn = rng.integers(low, high, shape, endpoint=True)
        return np.where(rng.random(shape) < 0.02, -1, drawn).astype(np.int32)

    inputs: dict[str, Any] = {
        "base_indices": numbers(0, top, rows, columns),
        "base_counts": numbers(0, columns, rows),
        "base_row_indices": numbers(0, max(0, rows - 1), queries),
    }
    mode = str(rng.choice(["append_range", "append_indices"]))
    if mode == "append_range":
        starts = rng.integers(0, top, queries)
        ends = np.minimum(starts + rng.integers(-1, 40, queries), 2**31 - 1)
        inputs |= {"range_starts": starts.astype(np.int32), "range_ends": ends.astype(np.int32)}
    else:
        added = int(rng.integers(0, 40))
        inputs["additional_indices"] = numbers(0, top, queries, added)
        inputs["additional_counts"] = numbers(0, added, queries)
    return Sample(inputs, {"policy_mode": mode, "max_output_entries": width})
