"""References of the attention family: one softmax, and what each operator does around it.

Queries, keys and values are ``[batch, heads, rows, channels]`` in float64 throughout; the cache is
the exception, since what attention reads is what the cache holds after rounding or quantization.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from . import reference

FLOAT8 = np.dtype(ml_dtypes.float8_e4m3fn)


def split_heads(x: np.ndarray, heads: int) -> np.ndarray:
    """``[B, L, heads * D]`` as float64 ``[B, heads, L, D]``."""
    b, rows, width = x.shape
    return x.astype(np.float64).reshape(b, rows, heads, width // heads).transpose(0, 2, 1, 3)


def merge_heads(x: np.ndarray) -> np.ndarray:
    """``[B, H, L, D]`` as ``[B, L, H * D]``."""
    b, heads, rows, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, rows, heads * width)


def scores_of(q: np.ndarray, k: np.ndarray, scale: float, softcap: float = 0.0) -> np.ndarray:
    """Scaled, softcapped products ``[B, H, S, T]``; K's heads are shared by equal groups of Q's."""
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    s = scale * (q @ k.swapaxes(-1, -2))
    return softcap * np.tanh(s / softcap) if softcap else s


def softmax(scores: np.ndarray, sink: np.ndarray | None = None) -> np.ndarray:
    """Softmax over the last axis; -inf is masked, ``sink`` an extra logit without a value.

    A row without any visible key gives zeros.
    """
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        top = np.maximum(top, sink)
    top = np.where(np.isneginf(top), 0.0, top)
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - top)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0)


def weighted(p: np.ndarray, v: np.ndarray) -> np.ndarray:
    """``p @ v`` with V's heads shared by equal groups; a key of weight 0 adds nothing, not even a NaN."""
    v = np.repeat(v, p.shape[1] // v.shape[1], axis=1)
    tame = np.isfinite(v)
    y = p @ np.where(tame, v, 0.0)
    if tame.all():
        return y
    terms = p[..., None] * np.where(tame, 0.0, v)[..., None, :, :]
    return y + np.where(p[..., None] > 0, terms, 0.0).sum(axis=-2)


def biased(s: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """``s + bias``; a bias of -inf hides the key, whatever its score."""
    return np.where(np.isneginf(bias), -np.inf, s + bias)


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """RMS normalization of the last axis."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight.astype(np.float64)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool = False) -> np.ndarray:
    """Rotate the first ``2 * cos.shape[-1]`` channels of ``[B, H, S, D]``; the others are copied.

    ``cos`` and ``sin`` are ``[B or 1, S, pairs]``; a pair is (i, i + pairs), or (2i, 2i + 1).
    """
    pairs = cos.shape[-1]
    c, s = cos[:, None].astype(np.float64), sin[:, None].astype(np.float64)
    first = np.s_[..., 0 : 2 * pairs : 2] if interleaved else np.s_[..., :pairs]
    second = np.s_[..., 1 : 2 * pairs : 2] if interleaved else np.s_[..., pairs : 2 * pairs]
    out = x.copy()
    out[first] = x[first] * c - x[second] * s
    out[second] = x[first] * s + x[second] * c
    return out


def quantize(x: np.ndarray, scale: np.ndarray, storage: np.dtype) -> np.ndarray:
    """``x / scale`` in a cache's type: int8, float8e4m3fn, or uint8 holding two int4 (value + 8)."""
    y = x / scale
    if storage == FLOAT8:
        return np.clip(y, -448.0, 448.0).astype(np.float32).astype(FLOAT8)
    if storage == np.int8:
        return np.clip(np.rint(y), -128, 127).astype(np.int8)
    nibbles = (np.clip(np.rint(y), -8, 7) + 8).astype(np.uint8)
    if nibbles.shape[-1] % 2:
        nibbles = np.concatenate([nibbles, np.full_like(nibbles[..., :1], 8)], axis=-1)
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << 4)


def dequantize(x: np.ndarray, scale: np.ndarray, channels: int) -> np.ndarray:
    """The float64 values of a quantized cache."""
    if x.dtype == np.uint8:
        nibbles = np.stack([x & 15, x >> 4], axis=-1).reshape(*x.shape[:-1], -1)[..., :channels]
        return (nibbles.astype(np.float64) - 8) * scale
    return x.astype(np.float64) * scale


def resident(total: int, capacity: int, window: int) -> int:
    """L(T): the rows a window-sized cache holds after ``total`` tokens."""
    if total <= capacity:
        return total
    stride = capacity - window + 1
    return total - stride * -(-(total - capacity) // stride)


@reference("GroupQueryAttention")
def group_query_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    past_key: np.ndarray | None = None,
    past_value: np.ndarray | None = None,
    seqlens_k: np.ndarray | None = None,
    total_sequence_length: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_norm_epsilon: float | None = None,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int | None = None,
    local_window_size: int = -1,
    q_norm_epsilon: float | None = None,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """``query [B, S, H * D]`` (or packed QKV) over a cache ``[B, K, C, D]`` and the new keys."""
    assert seqlens_k is not None and total_sequence_length is not None
    t = query.dtype
    if key is None or value is None:
        d = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        query, key, value = np.split(query, [num_heads * d, (num_heads + kv_num_heads) * d], axis=-1)
    q, k, v = split_heads(query, num_heads), split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    batch, _, rows, d = q.shape
    new = k.shape[2]
    total = int(np.asarray(total_sequence_length).reshape(()))
    lengths = seqlens_k.reshape(-1).astype(np.int64) + 1
    prompt = new == total
    past = np.zeros(batch, np.int64) if prompt else lengths - new
    start = past + new - rows  # position of the first query

    if q_norm_weight is not None and k_norm_weight is not None:
        q_epsilon = qk_norm_epsilon if q_norm_epsilon is None else q_norm_epsilon
        k_epsilon = qk_norm_epsilon if k_norm_epsilon is None else k_norm_epsilon
        q, k = rms_norm(q, q_norm_weight, q_epsilon), rms_norm(k, k_norm_weight, k_epsilon)
    if do_rotary:
        assert cos_cache is not None and sin_cache is not None

        def positions(first: np.ndarray, count: int) -> np.ndarray:
            if position_ids is None:
                at = first[:, None] + np.arange(count)
            elif prompt or position_ids.size == 1:
                at = np.broadcast_to(position_ids.reshape(-1)[0] + np.arange(count), (batch, count))
            else:
                at = position_ids
            return np.clip(at, 0, len(cos_cache) - 1)

        at = positions(start, rows)
        q = rotate(q, cos_cache[at], sin_cache[at], bool(rotary_interleaved))
        at = positions(past, new)
        k = rotate(k, cos_cache[at], sin_cache[at], bool(rotary_interleaved))

    if past_key is not None:
        storage = past_key.dtype
    elif k_quant_type == "NONE":
        storage = t
    else:
        storage = np.dtype(np.uint8 if kv_cache_bit_width == 4 else np.int8)

    def store(x: np.ndarray, quant_type: str, s: np.ndarray | None) -> np.ndarray:
        if quant_type == "NONE":
            return x.astype(t)
        assert s is not None
        return quantize(x, s.astype(np.float64), storage)

    def read(x: np.ndarray, quant_type: str, s: np.ndarray | None) -> np.ndarray:
        if quant_type == "NONE":
            return x.astype(np.float64)
        assert s is not None
        return dequantize(x, s.astype(np.float64), d)

    k_new, v_new = store(k, k_quant_type, k_scale), store(v, v_quant_type, v_scale)
    capacity = 0 if past_key is None else past_key.shape[2]
    present_length = capacity if sliding_window_cache else max(capacity, total)
    shape = (batch, kv_num_heads, present_length, k_new.shape[-1])
    present_key, present_value = np.zeros(shape, storage), np.zeros(shape, storage)
    if past_key is not None and past_value is not None:
        present_key[:, :, :capacity], present_value[:, :, :capacity] = past_key, past_value

    # What each query can read, at its absolute position; evicted positions stay invisible.
    keys = np.zeros((batch, kv_num_heads, total, d))
    values = np.zeros_like(keys)
    visible = np.zeros((batch, 1, rows, total), bool)
    for b in range(batch):
        had, length, first = int(past[b]), int(lengths[b]), 0
        if sliding_window_cache:
            held = resident(had, capacity, local_window_size)
            first = had - held
            line_k = np.concatenate([present_key[b, :, :held], k_new[b, :, : length - had]], axis=1)
            line_v = np.concatenate([present_value[b, :, :held], v_new[b, :, : length - had]], axis=1)
            keep = resident(length, capacity, local_window_size)
            present_key[b, :, :keep] = line_k[:, line_k.shape[1] - keep :]
            present_value[b, :, :keep] = line_v[:, line_v.shape[1] - keep :]
        else:
            present_key[b, :, had : had + new] = k_new[b]
            present_value[b, :, had : had + new] = v_new[b]
            line_k, line_v = present_key[b, :, :length], present_value[b, :, :length]
        keys[b, :, first:length] = read(line_k[None], k_quant_type, k_scale)[0]
        values[b, :, first:length] = read(line_v[None], v_quant_type, v_scale)[0]
        j, i = np.arange(total), int(start[b]) + np.arange(rows)[:, None]
        seen = (j >= first) & (j < length)
        if causal:
            seen = seen & (j <= i)
        if local_window_size > 0:
            seen = seen & (j > i - local_window_size)
        visible[b, 0] = seen

    s = scores_of(q, keys, scale or 1 / math.sqrt(d), softcap)
    if attention_bias is not None:
        s = biased(s, attention_bias.astype(np.float64))
    sink = None
    if head_sink is not None:
        sink = head_sink.astype(np.float64)[None, :, None, None]
    elif smooth_softmax == 1:
        sink = np.zeros((1, 1, 1, 1))
    p = softmax(np.where(visible, s, -np.inf), sink)
    output = merge_heads(weighted(p, values)).astype(t)
    output_qk = {1: np.where(visible, s, -np.inf), 2: p}.get(qk_output)
    return output, present_key, present_value, None if output_qk is None else output_qk.astype(t)


@reference("Attention")
def attention(
    input: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    past: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    past_sequence_length: np.ndarray | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[np.ndarray, np.ndarray | None]:
    """``input [B, S, I]`` projected by ``weights [I, Q + K + V]``, then multi-head attention."""
    t = input.dtype
    batch, rows, _ = input.shape
    third = weights.shape[1] // 3
    sizes = list(qkv_hidden_sizes) if qkv_hidden_sizes else [third] * 3
    qkv = input.astype(np.float64) @ weights.astype(np.float64)
    if bias is not None:
        qkv = qkv + bias.astype(np.float64)
    q, k, v = (split_heads(x, num_heads) for x in np.split(qkv, np.cumsum(sizes)[:2], axis=-1))
    d = q.shape[-1]

    had = 0
    if past is not None:
        had = past.shape[3]
        if past_present_share_buffer and past_sequence_length is not None:
            had = int(past_sequence_length.reshape(()))
    if do_rotary:
        dim = rotary_embedding_dim or d
        angle = (had + np.arange(rows))[:, None] / 10000.0 ** (2 * np.arange(dim // 2) / dim)
        cos, sin = np.cos(angle)[None], np.sin(angle)[None]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    total = had + rows

    present = None
    if k.shape[-1] == v.shape[-1]:
        new = np.stack([k, v]).astype(t)
        if past is None:
            present = new
        elif past_present_share_buffer:
            present = past.copy()
            present[:, :, :, had:total] = new
        else:
            present = np.concatenate([past, new], axis=3)
        if past is not None:
            k, v = present[:, :, :, :total].astype(np.float64)

    s = scores_of(q, k, scale or 1 / math.sqrt(d))
    if mask_index is not None:
        j = np.arange(total)
        if mask_index.ndim == 1:
            ends = mask_index[:batch, None, None]
            starts = mask_index[batch : 2 * batch, None, None] if mask_index.size == 2 * batch else 0
            keep = (j < ends) & (j >= starts)
        elif mask_index.ndim == 4:
            keep = mask_index[:, 0, had:total, :total] != 0
        else:
            keep = mask_index.reshape(batch, -1, total) != 0
        s = np.where(keep[:, None], s, s + mask_filter_value)
    if attention_bias is not None:
        s = biased(s, attention_bias.astype(np.float64))
    if unidirectional:
        s = np.where(np.arange(total) <= had + np.arange(rows)[:, None], s, -np.inf)
    return merge_heads(weighted(softmax(s), v)).astype(t), present
