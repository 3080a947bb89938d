"""References of the sparse attention indexers: what each query may attend to, and the state behind it.

An entry is a block of ``compress_ratio`` tokens pooled into one key. Everything is float64; an entry
is scored as it was computed, and rounded only where it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import reference

Array = np.ndarray


# Vectors


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight.astype(np.float64)


def rotate_leading(x: Array, cos: Array, sin: Array) -> Array:
    """Half-split rotation of the first ``cos.size`` channels; every channel has its own entry."""
    width = cos.size
    first, second, rest = np.split(x, [width // 2, width], axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    return np.concatenate([np.concatenate([first, second], axis=-1) * cos + turned * sin, rest], axis=-1)


def rotate_trailing(x: Array, cos: Array, sin: Array) -> Array:
    """Rotation of the last ``2 * cos.size`` channels, as pairs of neighbours."""
    start = x.shape[-1] - 2 * cos.size
    pairs = x[..., start:].reshape(*x.shape[:-1], cos.size, 2)
    first, second = pairs[..., 0], pairs[..., 1]
    turned = np.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return np.concatenate([x[..., :start], turned.reshape(*x.shape[:-1], 2 * cos.size)], axis=-1)


class Vectors:
    """Norms and rotations of one request's queries and entries."""

    def __init__(self, policy: str, cos: Array, sin: Array, request: int, epsilon: float) -> None:
        self.turn = rotate_leading if policy == "qsa" else rotate_trailing
        tables = [t.astype(np.float64) for t in (cos, sin)]
        self.cos, self.sin = (t[request] if t.ndim == 3 else t for t in tables)
        self.epsilon = epsilon

    def prepare(self, x: Array, weight: Array, position: int) -> Array:
        """The vectors of one position, normalized and turned; positions outside the tables are clamped."""
        row = min(max(position, 0), len(self.cos) - 1)
        return self.turn(rms_norm(x, weight, self.epsilon), self.cos[row], self.sin[row])


def gated_pool(gates: Array, values: Array) -> Array:
    """Softmax over the slots, channel by channel; a denominator that is no positive number gives 0."""
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(gates - gates.max(axis=0))
        total = weights.sum(axis=0)
        pooled = (weights * values).sum(axis=0) / total
    return np.where(np.isfinite(total) & (total > 0), pooled, 0.0)


# Selection


def scores_of(queries: Array, keys: Sequence[Array], weights: Array | None, scale: float) -> Array:
    """sum over heads of [weight *] scale * ReLU(q . k), for queries [heads, channels]."""
    if not len(keys):
        return np.zeros(0)
    each = scale * np.maximum(queries @ np.stack(keys).T, 0.0)
    return each.sum(axis=0) if weights is None else weights @ each


def best(scores: Array, count: int) -> Array:
    """The highest scoring entries, best first; NaN is below everything, ties go to the smaller index."""
    lost = np.isnan(scores)
    order = np.lexsort((np.arange(scores.size), -np.where(lost, 0.0, scores), lost))
    return order[:count]


def tokens_of(blocks: Iterable[int], visible: Sequence[int], ratio: int) -> list[int]:
    """The tokens of the selected blocks of ``visible``, then those of its incomplete last block."""
    chosen = [visible[block * ratio + i] for block in blocks for i in range(ratio)]
    return chosen + list(visible[len(visible) // ratio * ratio :])


def default_scale(scale: float | None, size: int) -> float:
    return 1.0 / np.sqrt(size) if scale is None else scale


class Compressor:
    """The pending tokens of a csa request; a window closes with every ``compress_ratio``-th token.

    Tokens are (key, gate) pairs of 2 * head_size channels: the Ca half, then the Cb half.
    """

    def __init__(self, buffered: Sequence[tuple[Array, Array]], bias: Array, vectors: Vectors) -> None:
        self.bias, self.vectors, ratio = bias.astype(np.float64), vectors, len(bias)
        whole = len(buffered) >= ratio
        self.previous = list(buffered[:ratio]) if whole else []
        self.current = list(buffered[ratio:]) if whole else list(buffered)

    def append(self, token: tuple[Array, Array], weight: Array, entries: int) -> Array | None:
        """The entry that ``token`` completes, number ``entries`` of its request, or None."""
        self.current.append(token)
        ratio, size = len(self.bias), self.bias.shape[1] // 2
        if len(self.current) < ratio:
            return None
        halves = [(self.previous, slice(0, size)), (self.current, slice(size, 2 * size))]
        slots = [(w[i], self.bias[i], c) for w, c in halves for i in range(len(w))]
        gates = [token[1].astype(np.float64)[c] + bias[c] for token, bias, c in slots]
        values = [token[0].astype(np.float64)[c] for token, _, c in slots]
        self.previous, self.current = self.current, []
        pooled = gated_pool(np.stack(gates), np.stack(values))
        return self.vectors.prepare(pooled, weight, entries * ratio)

    @property
    def buffered(self) -> list[tuple[Array, Array]]:
        return self.previous + self.current


# A batch


@reference("SparseAttentionIndexer")
def sparse_attention_indexer(
    *,
    query: Array,
    query_norm_weight: Array,
    key_norm_weight: Array,
    cos_cache: Array,
    sin_cache: Array,
    past_key: Array,
    key: Array | None = None,
    mask: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_sequence_length: Array | None = None,
    past_proj_buffer: Array | None = None,
    policy_mode: str,
    compress_ratio: int,
    token_budget: int = 0,
    index_topk: int = 0,
    epsilon: float = 1e-6,
    scale: float | None = None,
    head_weight_scale: float | None = None,
) -> tuple[Array, Array, Array | None]:
    """Selection [B, S, width], present_key and (csa) present_proj_buffer [2, B, L, 2 * D]."""
    batch, length, _ = query.shape
    size, ratio = query_norm_weight.size, compress_ratio
    if key is None:
        query, key = query[..., :-size], query[..., -size:]
    heads = query.reshape(batch, length, query.shape[-1] // size, size).astype(np.float64)
    past = past_key.shape[1] if past_sequence_length is None else int(past_sequence_length.item())
    width = index_topk or token_budget + ratio - 1
    selected = np.full((batch, length, width), -1, np.int32)
    factor = default_scale(scale, size)
    grown: list[Array] = []
    buffers: list[list[Array]] = []
    for b in range(batch):
        vectors = Vectors(policy_mode, cos_cache, sin_cache, b, epsilon)
        if policy_mode == "qsa":
            grown.append(key[b])
            raw = np.concatenate([past_key[b, :past], key[b]]).astype(np.float64)
            for s in range(length):
                visible = [t for t in range(past + s + 1) if mask is None or mask[b, t]]
                blocks = [visible[i : i + ratio] for i in range(0, len(visible) - ratio + 1, ratio)]
                keys = [vectors.prepare(raw[t].mean(axis=0), key_norm_weight, t[0]) for t in blocks]
                queries = vectors.prepare(heads[b, s], query_norm_weight, past + s)
                chosen = best(scores_of(queries, keys, None, factor), token_budget // ratio)
                tokens = tokens_of(chosen, visible, ratio)
                selected[b, s, : len(tokens)] = tokens
            continue
        assert gate is not None and position_bias is not None and past_proj_buffer is not None
        assert head_weights is not None and position_ids is not None
        buffered = list(zip(past_proj_buffer[0, b], past_proj_buffer[1, b], strict=True))
        windows = Compressor(buffered, position_bias, vectors)
        keys = list(past_key[b, :past].astype(np.float64))
        for token in zip(key[b], gate[b], strict=True):
            entry = windows.append(token, key_norm_weight, len(keys))
            keys += [] if entry is None else [entry]
        grown.append(np.reshape(keys[past:], (-1, size)))
        empty = np.zeros((0, 2 * size), key.dtype)
        buffers.append(
            [np.reshape([t[plane] for t in windows.buffered] or empty, (-1, 2 * size)) for plane in (0, 1)]
        )
        weighted = head_weights[b].astype(np.float64) * default_scale(head_weight_scale, heads.shape[2])
        for s in range(length):
            position = int(position_ids[b, s])
            visible_keys = keys[: max(0, (position + 1) // ratio)]
            queries = vectors.prepare(heads[b, s], query_norm_weight, position)
            chosen = best(scores_of(queries, visible_keys, weighted[s], factor), index_topk)
            selected[b, s, : len(chosen)] = chosen
    added = np.stack(grown).astype(query.dtype) if grown else np.zeros((0, length, size), query.dtype)
    if past_sequence_length is None:
        present = np.concatenate([past_key, added], axis=1)
    else:
        present = past_key.copy()
        present[:, past : past + added.shape[1]] = added
    proj = np.stack(buffers, axis=1).astype(query.dtype) if buffers else past_proj_buffer
    return selected, present, proj


# Packed requests


def request_status(
    policy: str, ratio: int, capacity: int, tokens: int, cu: Array, past: int, lengths: Array, b: int
) -> int:
    """0, or 1 for metadata that contradicts itself, or 2 for a state that would not fit."""
    begin, end, entries, pending = (int(v) for v in (cu[b], cu[b + 1], *lengths))
    most = ratio if policy == "qsa" else 2 * ratio
    if cu[0] != 0 or cu[-1] != tokens or not 0 <= begin <= end <= tokens:
        return 1
    if past < 0 or not 0 <= entries <= capacity or not 0 <= pending < most:
        return 1
    if policy == "qsa" and (entries, pending) != divmod(past, ratio):
        return 1
    closed = (pending + end - begin) // ratio - (pending >= ratio)
    return 2 if entries + closed > capacity else 0


@reference("PackedSparseAttentionIndexer")
def packed_sparse_attention_indexer(
    *,
    query: Array,
    query_norm_weight: Array,
    key_norm_weight: Array,
    cos_cache: Array,
    sin_cache: Array,
    cumulative_sequence_lengths: Array,
    past_sequence_lengths: Array,
    past_key_state: Array,
    past_kv_buffer: Array,
    past_state_lengths: Array,
    key: Array | None = None,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_gate_buffer: Array | None = None,
    state_update_capture_count: Array | None = None,
    state_update_active: Array | None = None,
    indexshare_mode: Array | None = None,
    merged_indices: Array | None = None,
    merged_counts: Array | None = None,
    merged_status: Array | None = None,
    policy_mode: str,
    compress_ratio: int,
    state_capacity: int,
    token_budget: int = 0,
    index_topk: int = 0,
    epsilon: float = 1e-6,
    scale: float | None = None,
    head_weight_scale: float | None = None,
    state_update_capacity: int = 0,
    max_output_entries: int = 0,
    indexshare_state_policy: str = "default",
) -> tuple[Any, ...]:
    """All nine outputs. Pending rows behind the length keep what the past had there.

    Of several requests that claim a row the last one selects for it; the text leaves that open.
    """
    size, ratio, cu = query_norm_weight.size, compress_ratio, cumulative_sequence_lengths
    if key is None:
        query, key = query[:, :-size], query[:, -size:]
    qsa, reuse = policy_mode == "qsa", indexshare_mode is not None and indexshare_mode.item() == 1
    held = reuse and (indexshare_state_policy == "hold" or (indexshare_state_policy == "default" and qsa))
    batch, tokens = len(cu) - 1, len(key)
    width = max_output_entries or index_topk or token_budget + ratio - 1
    selected = np.full((len(query), width), -1, np.int32)
    counts = np.zeros(len(query), np.int32)
    state, kv_buffer, lengths = past_key_state.copy(), past_kv_buffer.copy(), past_state_lengths.copy()
    gate_buffer = None if past_gate_buffer is None else past_gate_buffer.copy()
    update = np.zeros((batch, state_update_capacity, size), key.dtype)
    status = np.zeros(batch, np.int32)
    heads = query.reshape(len(query), query.shape[-1] // size, size).astype(np.float64)
    factor = default_scale(scale, size)

    for b in [] if held else range(batch):
        past, numbers = int(past_sequence_lengths[b]), past_state_lengths[b]
        status[b] = request_status(policy_mode, ratio, state_capacity, tokens, cu, past, numbers, b)
        if status[b]:
            lengths[b] = np.clip(numbers, 0, [state_capacity, (ratio if qsa else 2 * ratio) - 1])
            continue
        vectors = Vectors(policy_mode, cos_cache, sin_cache, b, epsilon)
        begin, end, entries, pending = (int(v) for v in (cu[b], cu[b + 1], *numbers))
        keys = list(past_key_state[b, :entries].astype(np.float64))
        captured = 0
        if state_update_capture_count is not None and (
            state_update_active is None or state_update_active.item()
        ):
            captured = min(max(int(state_update_capture_count[b]), 0), state_update_capacity)
        if qsa:
            waiting = list(past_kv_buffer[b, :pending])
            for t in range(begin, end):
                waiting.append(key[t])
                representative = key[t]
                if len(waiting) == ratio:
                    pooled = np.stack(waiting).astype(np.float64).mean(axis=0)
                    keys.append(vectors.prepare(pooled, key_norm_weight, len(keys) * ratio))
                    representative, waiting = keys[-1].astype(key.dtype), []
                if t - begin < captured:
                    update[b, t - begin] = representative
                if len(query):
                    position = past + t - begin
                    queries = vectors.prepare(heads[t], query_norm_weight, position)
                    chosen = best(scores_of(queries, keys, None, factor), token_budget // ratio)
                    found = tokens_of(chosen, range(position + 1), ratio)
                    selected[t, : len(found)], counts[t] = found, len(found)
            rows: list[tuple[Array, ...]] = [(w,) for w in waiting]
        else:
            assert gate is not None and position_bias is not None and gate_buffer is not None
            assert head_weights is not None and position_ids is not None
            buffered = zip(past_kv_buffer[b, :pending], gate_buffer[b, :pending].copy(), strict=True)
            windows = Compressor(list(buffered), position_bias, vectors)
            for t in range(begin, end):
                entry = windows.append((key[t], gate[t]), key_norm_weight, len(keys))
                keys += [] if entry is None else [entry]
            rows = list(windows.buffered)
            for t in range(begin, end) if len(query) else ():
                position = int(position_ids[t])
                visible = keys[: max(0, (position + 1) // ratio)]
                queries = vectors.prepare(heads[t], query_norm_weight, position)
                weights = head_weights[t].astype(np.float64) * default_scale(
                    head_weight_scale, heads.shape[1]
                )
                found = best(scores_of(queries, visible, weights, factor), index_topk).tolist()
                selected[t, : len(found)], counts[t] = found, len(found)
        for e in range(entries, len(keys)):
            state[b, e] = keys[e].astype(state.dtype)
        for buffer, plane in zip((kv_buffer, gate_buffer), range(1 if qsa else 2), strict=False):
            assert buffer is not None
            for i, row in enumerate(rows):
                buffer[b, i] = row[plane]
        lengths[b] = len(keys), len(rows)

    share = None if indexshare_mode is None else np.zeros(len(query), np.int32)
    if reuse:
        selected, counts, share = merged_indices, merged_counts, merged_status  # type: ignore[assignment]
    return selected, counts, state, kv_buffer, gate_buffer, lengths, update, share, status


@reference("PackedSparseAttentionIndexerMerge")
def packed_sparse_attention_indexer_merge(
    *,
    base_indices: Array,
    base_counts: Array,
    base_row_indices: Array,
    range_starts: Array | None = None,
    range_ends: Array | None = None,
    additional_indices: Array | None = None,
    additional_counts: Array | None = None,
    policy_mode: str,
    max_output_entries: int,
) -> tuple[Array, Array, Array]:
    """Selection [N, width], counts [N] and status [N]."""
    rows, columns = base_indices.shape
    queries = base_row_indices.size
    selected = np.full((queries, max_output_entries), -1, np.int32)
    counts, status = np.zeros(queries, np.int32), np.zeros(queries, np.int32)
    for n in range(queries):
        row = int(base_row_indices[n])
        if not 0 <= row < rows or not 0 <= base_counts[row] <= columns:
            status[n] = 1
            continue
        chosen = dict.fromkeys(base_indices[row, : base_counts[row]].tolist())
        valid = all(v >= 0 for v in chosen)
        if policy_mode == "append_range":
            assert range_starts is not None and range_ends is not None
            start, end = int(range_starts[n]), int(range_ends[n])
            valid = valid and 0 <= start <= end
            total = len(chosen) + end - start - sum(start <= v < end for v in chosen)
            more: Iterable[int] = range(start, end)
        else:
            assert additional_indices is not None and additional_counts is not None
            count = int(additional_counts[n])
            valid = valid and 0 <= count <= additional_indices.shape[1]
            more = additional_indices[n, : max(count, 0)].tolist()
            valid = valid and all(v >= 0 for v in more)
            total = len(chosen | dict.fromkeys(more))
        if not valid or total > max_output_entries:
            status[n] = 2 if valid else 1
            continue
        merged = list(chosen | dict.fromkeys(more))
        selected[n, :total], counts[n] = merged, total
    return selected, counts, status
