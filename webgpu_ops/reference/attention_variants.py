"""References of the attention operators around one multi-head attention.

They differ in where queries, keys and values come from, in how a cache is kept and in their masks;
``attend`` is what they share. Arrays are ``[batch, heads, rows, channels]`` in float64 throughout;
keys and values that came through a cache have its precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import reference
from .attention import biased, merge_heads, rotate, scores_of, softmax, split_heads, weighted


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    scale: float | None,
    mask: np.ndarray | float = 0.0,
    attention_bias: np.ndarray | None = None,
    visible: np.ndarray | bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The output ``[B, H, S, D]``, and the scores before softmax, -inf where they are not ``visible``.

    ``scale`` of None or 0 stands for ``1 / sqrt(channels)``.
    """
    s = scores_of(q, k, scale or 1 / math.sqrt(q.shape[-1])) + mask
    if attention_bias is not None:
        s = biased(s, attention_bias.astype(np.float64))
    s = np.where(visible, s, -np.inf)
    return weighted(softmax(s), v), s


def to_past(rows: int, total: int, had: int) -> np.ndarray:
    """Which keys ``[rows, total]`` lie at or before a query, where ``had`` keys came first."""
    return np.arange(total) <= had + np.arange(rows)[:, None]


def filtered(keep: np.ndarray, value: float) -> np.ndarray:
    """``value`` where ``keep`` says no, 0 elsewhere."""
    return np.where(keep, 0.0, value)


def rotate_from(x: np.ndarray, position: int) -> np.ndarray:
    """Half-split rotation of whole heads with base 10000; the first row is at ``position``."""
    d = x.shape[-1]
    angle = (position + np.arange(x.shape[2]))[:, None] / 10000.0 ** (2 * np.arange(d // 2) / d)
    return rotate(x, np.cos(angle)[None], np.sin(angle)[None])


# ONNX


@reference("Attention", domain="")
def onnx_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    attn_mask: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    nonpad_kv_seqlen: np.ndarray | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``Q [B, H, S, D]`` or ``[B, S, H * D]`` over past and new keys.

    The softmax is made in float64, whatever ``softmax_precision`` asks for. A mask of one column stands
    for all keys, as in opset 23; any other short one is padded.
    """
    t = Q.dtype
    flat = Q.ndim == 3
    if flat:
        assert q_num_heads is not None and kv_num_heads is not None
        q, k, v = split_heads(Q, q_num_heads), split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)
    else:
        q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    rows, offset = q.shape[2], np.zeros((1, 1, 1, 1))
    if past_key is not None and past_value is not None:
        k = np.concatenate([past_key.astype(np.float64), k], axis=2)
        v = np.concatenate([past_value.astype(np.float64), v], axis=2)
        offset = offset + past_key.shape[2]
    total = k.shape[2]
    j, i = np.arange(total), np.arange(rows)[:, None]
    seen = np.ones((1, 1, rows, total), bool)
    if nonpad_kv_seqlen is not None:
        lengths = nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
        offset, seen = lengths - rows, seen & (j < lengths)
    if is_causal:
        seen = seen & (j <= i + offset)
    if left_window_size >= 0:
        seen = seen & (j >= i + offset - left_window_size)
    if right_window_size >= 0:
        seen = seen & (j <= i + offset + right_window_size)

    raw = scores_of(q, k, 1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    capped = softcap * np.tanh(raw / softcap) if softcap > 0 else raw
    masked = capped
    if attn_mask is not None:
        short = total - attn_mask.shape[-1] if attn_mask.ndim and attn_mask.shape[-1] != 1 else 0
        additive = filtered(attn_mask, -np.inf) if attn_mask.dtype == bool else attn_mask.astype(np.float64)
        pads = [(0, 0)] * (attn_mask.ndim - 1) + [(0, short)] * (attn_mask.ndim > 0)
        masked = biased(capped, np.pad(additive, pads, constant_values=-np.inf))
    masked = np.where(seen, masked, -np.inf)
    p = softmax(masked)
    y = weighted(p, v)
    stage = (raw, capped, masked, p)[qk_matmul_output_mode]
    return (merge_heads(y) if flat else y).astype(t), k.astype(t), v.astype(t), stage.astype(t)


# Caches


def reordered(x: np.ndarray) -> np.ndarray:
    """``[B, N, M, D]`` whose memory holds ``[B, N, D / x, M, x]``, with x elements in 16 bytes."""
    b, n, m, d = x.shape
    lane = 16 // x.dtype.itemsize
    return x.reshape(b, n, m, d // lane, lane).swapaxes(2, 3).reshape(x.shape)


def in_order(x: np.ndarray) -> np.ndarray:
    """The inverse of :func:`reordered`."""
    b, n, m, d = x.shape
    lane = 16 // x.dtype.itemsize
    return x.reshape(b, n, d // lane, m, lane).swapaxes(2, 3).reshape(x.shape)


def from_beams(x: np.ndarray, indirection: np.ndarray, had: int) -> np.ndarray:
    """``[batch * beams, N, T, D]`` with past token k of beam j taken from beam ``indirection[i, j, k]``."""
    batch, beams, _ = indirection.shape
    out = x.copy()
    for r in range(batch * beams):
        for k in range(had):
            out[r, :, k] = x[r // beams * beams + indirection[r // beams, r % beams, k], :, k]
    return out


@dataclass(frozen=True)
class Kept:
    """Keys or values after a call: what attention reads, and what the cache holds."""

    line: np.ndarray
    present: np.ndarray


def keep(
    new: np.ndarray,
    past: np.ndarray | None,
    had: int,
    t: np.dtype,
    *,
    share: bool = False,
    reorder: bool = False,
    indirection: np.ndarray | None = None,
) -> Kept:
    """``new`` behind the ``had`` rows of ``past``; with ``share`` inside its capacity."""
    if past is None:
        return Kept(new, new.astype(t))
    rows = new.shape[2]
    if share:
        held = in_order(past) if reorder else past.copy()
        held[:, :, had : had + rows] = new.astype(t)
        present = reordered(held) if reorder else held
    else:
        held = present = np.concatenate([past, new.astype(t)], axis=2)
    line = held[:, :, : had + rows].astype(np.float64)
    if indirection is not None:
        line = from_beams(line, indirection, had)
    return Kept(line, present)


# Projected by the caller


@reference("MultiHeadAttention")
def multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    key_padding_mask: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``query [B, S, N * D]``, or packed ``[B, S, N, 3, D]``, over the keys of the call and of a past.

    ``qk`` has the type of ``query``.
    """
    t = query.dtype
    projected = False
    if query.ndim == 5:
        q, k, v = query.astype(np.float64).transpose(3, 0, 2, 1, 4)
    elif key is not None and key.ndim == 5:
        q, (k, v) = split_heads(query, num_heads), key.astype(np.float64).transpose(3, 0, 2, 1, 4)
    else:
        assert key is not None and value is not None
        projected = key.ndim == 4
        q = split_heads(query, num_heads)
        k, v = (x.astype(np.float64) if projected else split_heads(x, num_heads) for x in (key, value))
    q, k, v = _biased(q, k, v, bias, query_only=projected)
    share = past_sequence_length is not None
    had = 0 if past_key is None else past_key.shape[2]
    if past_sequence_length is not None:
        had = int(past_sequence_length.reshape(()))
    keys, values = (
        keep(x, past, had, t, share=share, indirection=cache_indirection)
        for x, past in ((k, past_key), (v, past_value))
    )
    batch, _, rows, _ = q.shape
    total = keys.line.shape[2]
    mask: np.ndarray | float = 0.0
    if key_padding_mask is not None:
        if key_padding_mask.ndim == 1:
            shown = np.arange(total) < key_padding_mask[:batch, None, None]
        else:
            shown = key_padding_mask.reshape(batch, -1, key_padding_mask.shape[-1]) != 0
            gap = total - shown.shape[-1]
            shown = np.pad(shown, [(0, 0), (0, 0), (gap, 0)], constant_values=True)
        mask = filtered(shown[:, None], mask_filter_value)
    visible = to_past(rows, total, had) if unidirectional else True
    y, s = attend(
        q, keys.line, values.line, scale=scale, mask=mask, attention_bias=attention_bias, visible=visible
    )
    return merge_heads(y).astype(t), keys.present, values.present, s.astype(t)


@reference("DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    beam_width: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One query a batch row over a cache, or over given keys and values ``[B, N, T, D]``.

    ``qk`` has the type of ``query``.
    """
    t = query.dtype
    cross = key is not None and key.ndim == 4
    if key is None or value is None:
        hidden = query.shape[-1] // 3 if past_key is None else num_heads * past_key.shape[-1]
        q, k, v = (split_heads(x, num_heads) for x in np.split(query, [hidden, 2 * hidden], axis=-1))
    else:
        q = split_heads(query, num_heads)
        k, v = (x.astype(np.float64) if cross else split_heads(x, num_heads) for x in (key, value))
    q, k, v = _biased(q, k, v, bias, query_only=cross)
    share = past_present_share_buffer == 1 and not cross
    had = 0 if past_key is None or cross else past_key.shape[2]
    if share and past_sequence_length is not None:
        had = int(past_sequence_length.reshape(()))
    keys, values = (
        keep(x, None if cross else past, had, t, share=share, reorder=reorder, indirection=cache_indirection)
        for x, past, reorder in ((k, past_key, True), (v, past_value, False))
    )
    mask = 0.0 if mask_index is None else filtered(mask_index[:, None, None] != 0, mask_filter_value)
    y, s = attend(q, keys.line, values.line, scale=scale, mask=mask, attention_bias=attention_bias)
    return merge_heads(y).astype(t), keys.present, values.present, s.astype(t)


def _biased(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray | None, query_only: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each plus its part of ``bias [hidden + hidden + v_hidden]``."""
    if bias is None:
        return q, k, v
    heads, d = q.shape[1], q.shape[-1]
    parts = [x.reshape(heads, 1, -1) for x in np.split(bias.astype(np.float64), [heads * d, 2 * heads * d])]
    return (q + parts[0], k, v) if query_only else (q + parts[0], k + parts[1], v + parts[2])


# Projected here


def projected(
    x: np.ndarray, weights: np.ndarray, bias: np.ndarray | None, sizes: list[int] | None = None
) -> list[np.ndarray]:
    """Q, K and V ``[..., hidden]`` of a merged projection."""
    qkv = x.astype(np.float64) @ weights.astype(np.float64)
    if bias is not None:
        qkv = qkv + bias.astype(np.float64)
    third = weights.shape[1] // 3
    return np.split(qkv, np.cumsum(sizes or [third] * 3)[:2], axis=-1)


@reference("DecoderMaskedSelfAttention")
def decoder_masked_self_attention(
    input: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    mask_index: np.ndarray | None = None,
    past: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    beam_width: np.ndarray | None = None,
    cache_indirection: np.ndarray | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """``input [B, 1, I]``, projected, over the cache ``past [2, B, N, L, D]``."""
    assert past is not None and past_sequence_length is not None
    t = input.dtype
    q, k, v = (split_heads(x, num_heads) for x in projected(input, weights, bias))
    share = past_present_share_buffer == 1
    had = int(past_sequence_length.reshape(())) if share else past.shape[3]
    if do_rotary:
        q, k = rotate_from(q, had), rotate_from(k, had)
    keys, values = (
        keep(x, held, had, t, share=share, reorder=reorder, indirection=cache_indirection)
        for x, held, reorder in ((k, past[0], True), (v, past[1], False))
    )
    mask = 0.0 if mask_index is None else filtered(mask_index[:, None, None] != 0, mask_filter_value)
    y, _ = attend(q, keys.line, values.line, scale=scale, mask=mask, attention_bias=attention_bias)
    return merge_heads(y).astype(t), np.stack([keys.present, values.present])


NO = np.array(False)


@reference("DecoderAttention")
def decoder_attention(
    query: np.ndarray,
    key: np.ndarray,
    q_weight: np.ndarray,
    kv_weight: np.ndarray,
    bias: np.ndarray,
    key_padding_mask: np.ndarray | None = None,
    key_cache: np.ndarray | None = None,
    value_cache: np.ndarray | None = None,
    static_kv: np.ndarray = NO,
    use_past: np.ndarray = NO,
    has_layer_state: np.ndarray = NO,
    has_key_padding_mask: np.ndarray = NO,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``query [S, B, H]`` over itself or over ``key [T, B, H]``; a true key_padding_mask hides a key."""
    t = query.dtype
    hidden = query.shape[-1]
    cached = bool(use_past.reshape(())) and bool(has_layer_state.reshape(()))
    cross = bool(static_kv.reshape(()))
    b = bias.astype(np.float64)
    q = query.astype(np.float64) @ q_weight.astype(np.float64) + b[:hidden]
    source = (key if cross else query).astype(np.float64)
    kv = source @ kv_weight.astype(np.float64) + b[hidden:]
    q, k, v = (split_heads(x.swapaxes(0, 1), num_heads) for x in (q, kv[..., :hidden], kv[..., hidden:]))
    if cached and cross:
        assert key_cache is not None and value_cache is not None
        keys, values = (Kept(x.astype(np.float64), x) for x in (key_cache, value_cache))
    else:
        held = (key_cache, value_cache) if cached else (None, None)
        had = 0 if held[0] is None else held[0].shape[2]
        keys, values = keep(k, held[0], had, t), keep(v, held[1], had, t)
    visible: np.ndarray | bool = True
    if key_padding_mask is not None and has_key_padding_mask.reshape(()):
        visible = ~key_padding_mask[:, None, None]
    y, _ = attend(q, keys.line, values.line, scale=None, visible=visible)
    return merge_heads(y).swapaxes(0, 1).astype(t), keys.present, values.present


@reference("QAttention")
def q_attention(
    input: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    input_scale: np.ndarray,
    weight_scale: np.ndarray,
    mask_index: np.ndarray | None = None,
    input_zero_point: np.ndarray | None = None,
    weight_zero_point: np.ndarray | None = None,
    past: np.ndarray | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """``input [B, S, I]``, an exact integer projection, then multi-head attention."""
    t = bias.dtype
    batch, rows, _ = input.shape

    def centred(x: np.ndarray, zero_point: np.ndarray | None) -> np.ndarray:
        return x.astype(np.int64) - (0 if zero_point is None else zero_point.astype(np.int64))

    product = centred(input, input_zero_point) @ centred(weight, weight_zero_point)
    scales = input_scale.astype(np.float64) * weight_scale.astype(np.float64)
    qkv = product * scales + bias.astype(np.float64)
    q, k, v = (split_heads(x, num_heads) for x in np.split(qkv, 3, axis=-1))
    had = 0 if past is None else past.shape[3]
    total = had + rows
    if do_rotary:
        q, k = rotate_from(q, had), rotate_from(k, had)
    keys, values = (keep(x, None if past is None else past[n], had, t) for n, x in enumerate((k, v)))
    mask: np.ndarray | float = 0.0
    if mask_index is not None:
        if mask_index.ndim == 1:
            ends = mask_index[:batch, None, None]
            starts = mask_index[batch : 2 * batch, None, None] if mask_index.size == 2 * batch else 0
            shown = (np.arange(total) < ends) & (np.arange(total) >= starts)
        elif mask_index.ndim == 4:
            shown = mask_index[:, 0, had:total, :total] != 0
        else:
            shown = mask_index.reshape(batch, -1, total) != 0
        mask = filtered(shown[:, None], mask_filter_value)
    visible = to_past(rows, total, had) if unidirectional else True
    y, _ = attend(q, keys.line, values.line, scale=scale, mask=mask, visible=visible)
    return merge_heads(y).astype(t), np.stack([keys.present, values.present])


# Packed


def _sequences(lengths: np.ndarray) -> Iterator[tuple[int, slice]]:
    """(batch entry, its tokens) of a cumulative_sequence_length."""
    for b in range(len(lengths) - 1):
        yield b, slice(int(lengths[b]), int(lengths[b + 1]))


def _attend_packed(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    lengths: np.ndarray,
    attention_bias: np.ndarray | None,
    heads: int,
    scale: float,
) -> np.ndarray:
    """``[tokens, hidden]`` each; every token attends to its own sequence."""
    out = np.zeros(v.shape)
    for b, span in _sequences(lengths):
        rows = span.stop - span.start
        bias = None
        if attention_bias is not None:
            bias = attention_bias[b % len(attention_bias)][None, :, :rows, :rows]
        y, _ = attend(
            *(split_heads(x[None, span], heads) for x in (q, k, v)), scale=scale, attention_bias=bias
        )
        out[span] = merge_heads(y)[0]
    return out


@reference("PackedAttention")
def packed_attention(
    input: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    token_offset: np.ndarray,
    cumulative_sequence_length: np.ndarray,
    attention_bias: np.ndarray | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: list[int] | None = None,
    scale: float = 0.0,
) -> tuple[np.ndarray]:
    """``input [tokens, I]``: sequences one after the other, projected and attended each by itself."""
    q, k, v = projected(input, weights, bias, qkv_hidden_sizes)
    y = _attend_packed(q, k, v, cumulative_sequence_length, attention_bias, num_heads, scale)
    return (y.astype(input.dtype),)


@reference("PackedMultiHeadAttention")
def packed_multi_head_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    token_offset: np.ndarray | None = None,
    cumulative_sequence_length: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float = 0.0,
) -> tuple[np.ndarray]:
    """``query [tokens, hidden]`` with key and value, or packed ``[tokens, N, 3, D]``."""
    assert cumulative_sequence_length is not None
    t = query.dtype
    if key is None or value is None:
        query, key, value = query.transpose(2, 0, 1, 3).reshape(3, len(query), -1)
    q, k, v = (x.astype(np.float64) for x in (query, key, value))
    if bias is not None:
        hidden = q.shape[-1]
        parts = np.split(bias.astype(np.float64), [hidden, 2 * hidden])
        q, k, v = q + parts[0], k + parts[1], v + parts[2]
    y = _attend_packed(q, k, v, cumulative_sequence_length, attention_bias, num_heads, scale)
    return (y.astype(t),)
