"""References of the attentions over a contiguous cache that see only a part of it."""

from __future__ import annotations

import math

import numpy as np

from . import reference
from .attention import merge_heads, rms_norm, rotate, scores_of, softmax, split_heads, weighted
from .paged_attention import attended


def separated(
    query: np.ndarray, key: np.ndarray | None, value: np.ndarray | None, heads: int, kv_heads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, K and V as ``[B, heads, S, D]``, of three inputs or of packed QKV."""
    if key is None or value is None:
        d = query.shape[-1] // (heads + 2 * kv_heads)
        query, key, value = np.split(query, [heads * d, (heads + kv_heads) * d], axis=-1)
    return split_heads(query, heads), split_heads(key, kv_heads), split_heads(value, kv_heads)


@reference("DynamicSparseAttention")
def dynamic_sparse_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    auxiliary_key: np.ndarray | None = None,
    auxiliary_value: np.ndarray | None = None,
    selected_indices: np.ndarray | None = None,
    selected_counts: np.ndarray | None = None,
    seqlens_k: np.ndarray | None = None,
    total_sequence_length: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    local_window_size: int = 0,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``query [B, S, H * D]`` (or packed QKV) over selected rows of a cache ``[B, K, C, D]``."""
    assert selected_indices is not None and selected_counts is not None
    assert seqlens_k is not None and total_sequence_length is not None
    t = query.dtype
    q, k, v = separated(query, key, value, num_heads, kv_num_heads)
    batch, _, rows, d = q.shape
    totals = seqlens_k.reshape(-1).astype(np.int64) + 1
    position = totals[:, None] - rows + np.arange(rows)
    if q_norm_weight is not None and k_norm_weight is not None:
        q, k = rms_norm(q, q_norm_weight, qk_norm_epsilon), rms_norm(k, k_norm_weight, qk_norm_epsilon)
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None
        at = np.clip(position if position_ids is None else position_ids, 0, len(cos_cache) - 1)
        for x in (q, k):
            x[..., rotary_offset:] = rotate(
                x[..., rotary_offset:], cos_cache[at], sin_cache[at], bool(rotary_interleaved)
            )

    if past_key is None or past_value is None:
        shape = (batch, kv_num_heads, int(np.asarray(total_sequence_length).reshape(())), d)
        past_key, past_value = np.zeros(shape, t), np.zeros(shape, t)
    present_key, present_value = past_key.copy(), past_value.copy()
    for b, total in enumerate(totals):
        present_key[b, :, total - rows : total] = k[b].astype(t)
        present_value[b, :, total - rows : total] = v[b].astype(t)

    sink = head_sink
    if sink is None and smooth_softmax:
        sink = np.zeros(num_heads)
    y = np.zeros((batch, rows, num_heads, d))
    for b in range(batch):
        for i in range(rows):
            p, at_row = int(position[b, i]), b * rows + i
            chosen = selected_indices[at_row, : max(0, int(selected_counts[at_row]))]
            local: list[int] = []
            if attention_mode == "local_plus_selected":
                local = list(range(max(0, p - local_window_size + 1), p + 1))
            if selected_kv_source == "main":
                local += [j for j in chosen.tolist() if 0 <= j <= p and j not in local]
            keys = present_key[b][:, local].astype(np.float64)
            values = present_value[b][:, local].astype(np.float64)
            if selected_kv_source == "auxiliary":
                assert auxiliary_key is not None
                aux_value = auxiliary_key if auxiliary_value is None else auxiliary_value
                picked = [j for j in chosen.tolist() if 0 <= j < auxiliary_key.shape[2]]
                keys = np.concatenate([keys, auxiliary_key[b][:, picked].astype(np.float64)], axis=1)
                values = np.concatenate([values, aux_value[b][:, picked].astype(np.float64)], axis=1)
            y[b, i] = attended(
                q[b, :, i],
                keys.swapaxes(0, 1),
                values.swapaxes(0, 1),
                scale or 1 / math.sqrt(d),
                0.0,
                sink,
            )
    return y.reshape(batch, rows, num_heads * d).astype(t), present_key, present_value


@reference("SparseAttention")
def sparse_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    block_row_indices: np.ndarray | None = None,
    block_col_indices: np.ndarray | None = None,
    total_sequence_length: np.ndarray | None = None,
    key_total_sequence_lengths: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``query [B, S, H * D]`` (or packed QKV) over the blocks of a cache ``[B, K, C, D]`` that the
    head's layout names, and never over what comes after the query."""
    assert past_key is not None and past_value is not None and total_sequence_length is not None
    assert block_row_indices is not None and block_col_indices is not None
    assert key_total_sequence_lengths is not None
    t = query.dtype
    q, k, v = separated(query, key, value, num_heads, kv_num_heads)
    batch, _, rows, d = q.shape
    totals = key_total_sequence_lengths.astype(np.int64)
    past = np.maximum(totals - rows, 0)
    position = past[:, None] + np.arange(rows)
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None
        at = np.clip(position, 0, len(cos_cache) - 1)
        q, k = (rotate(x, cos_cache[at], sin_cache[at], bool(rotary_interleaved)) for x in (q, k))
    present_key, present_value = past_key.copy(), past_value.copy()
    for b, had in enumerate(past):
        present_key[b, :, had : had + rows] = k[b].astype(t)
        present_value[b, :, had : had + rows] = v[b].astype(t)

    layouts, count = block_row_indices.shape
    dense = np.zeros((layouts, count - 1, count - 1), bool)
    for layout in range(layouts):
        for row in range(count - 1):
            first, end = block_row_indices[layout, row : row + 2]
            dense[layout, row, block_col_indices[layout, first:end]] = True
    length = present_key.shape[2]
    j = np.arange(length)
    visible = np.zeros((batch, num_heads, rows, length), bool)
    for b in range(batch):
        i = position[b][:, None]
        row, column = i // sparse_block_size, j // sparse_block_size
        known = (row < count - 1) & (column < count - 1) & (j <= i) & (j < totals[b])
        row, column = np.minimum(row, count - 2), np.minimum(column, count - 2)
        for h in range(num_heads):
            visible[b, h] = dense[h % layouts, row, column] & known
    s = scores_of(q, present_key.astype(np.float64), scale or 1 / math.sqrt(d))
    y = weighted(softmax(np.where(visible, s, -np.inf)), present_value.astype(np.float64))
    return merge_heads(y).astype(t), present_key, present_value
