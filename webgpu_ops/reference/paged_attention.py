"""References of the attentions over paged caches.

Packed tokens are ``[tokens, heads, channels]`` in float64; what attention reads is what the cache
holds after rounding or quantization.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from . import reference
from .attention import dequantize, quantize, rms_norm, rotate, softmax

FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)


@dataclass(frozen=True)
class Line:
    """One cache: ``rows [blocks * block_size, heads, width]``, how its elements are encoded, and the
    rows' channels."""

    rows: np.ndarray
    logical: str
    scale: np.ndarray | None
    channels: int

    def encode(self, x: np.ndarray) -> np.ndarray:
        """``x [heads, channels]`` as the cache stores it."""
        if self.scale is None:
            return x.astype(self.rows.dtype)
        if self.logical != "float4e2m1":
            return quantize(x, self._scales, self.rows.dtype)
        codes = np.clip(x / self._scales, -6, 6).astype(np.float32).astype(FLOAT4).view(np.uint8) & 15
        if codes.shape[-1] % 2:
            codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], axis=-1)
        return codes[..., 0::2] | (codes[..., 1::2] << 4)

    def decode(self, rows: np.ndarray) -> np.ndarray:
        """Stored rows ``[n, heads, width]`` as numbers ``[n, heads, channels]``."""
        if not len(rows):
            return np.zeros((0, self.rows.shape[1], self.channels))
        if self.scale is None:
            return rows.astype(np.float64)
        if self.logical != "float4e2m1":
            return dequantize(rows, self._scales, self.channels)
        codes = np.stack([rows & 15, rows >> 4], axis=-1).reshape(*rows.shape[:-1], -1)[..., : self.channels]
        return codes.view(FLOAT4).astype(np.float64) * self._scales

    @property
    def _scales(self) -> np.ndarray:
        """``[1, 1]``, or ``[heads, channels]`` for a scale of shape ``[heads, 1, channels]``."""
        assert self.scale is not None
        flat = self.scale.astype(np.float64)
        return flat.reshape(1, 1) if flat.size == 1 else flat.reshape(flat.shape[0], flat.shape[-1])


def line_of(cache: np.ndarray, logical: str, scale: np.ndarray | None, channels: int) -> Line:
    """A copy of a paged cache ``[blocks, block_size, heads, width]`` as a :class:`Line`."""
    return Line(cache.copy().reshape(-1, *cache.shape[2:]), logical, scale, channels)


@dataclass(frozen=True)
class Tokens:
    """Packed tokens and where they belong: ``q [tokens, H, D]``; ``k`` and ``v [tokens, K, D]``.

    ``sequence`` is -1 where no sequence claims the token or its past length is malformed.
    """

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray | None
    sequence: np.ndarray
    position: np.ndarray
    total: np.ndarray


def tokens_of(
    query: np.ndarray,
    key: np.ndarray | None,
    value: np.ndarray | None,
    heads: int,
    kv_heads: int,
    cumulative: np.ndarray,
    past: np.ndarray,
    limit: int,
) -> Tokens:
    """The packed tokens of a call; ``limit`` rows are all a sequence may have."""
    count = len(query)
    if key is None:
        d = query.shape[-1] // (heads + 2 * kv_heads)
        query, key, value = np.split(query, [heads * d, (heads + kv_heads) * d], axis=-1)
    q = query.astype(np.float64).reshape(count, heads, query.shape[1] // heads)
    k = key.astype(np.float64).reshape(count, kv_heads, key.shape[1] // kv_heads)
    v = (
        None
        if value is None
        else value.astype(np.float64).reshape(count, kv_heads, value.shape[1] // kv_heads)
    )
    sequence, position = np.full(count, -1), np.zeros(count, np.int64)
    total = np.zeros(len(past), np.int64)
    for b, had in enumerate(past.astype(np.int64)):
        first, end = int(cumulative[b]), int(cumulative[b + 1])
        if had < 0 or had + end - first > limit:
            continue
        sequence[first:end] = b
        position[first:end] = had + np.arange(end - first)
        total[b] = had + end - first
    return Tokens(q, k, v, sequence, position, total)


def turned(
    x: np.ndarray,
    positions: np.ndarray,
    norm: np.ndarray | None,
    epsilon: float,
    cos: np.ndarray | None,
    sin: np.ndarray | None,
    interleaved: bool,
    offset: int,
) -> np.ndarray:
    """``x [tokens, heads, channels]``, normalized, then rotated from channel ``offset`` on."""
    if norm is not None:
        x = rms_norm(x, norm, epsilon)
    if cos is None or sin is None:
        return x
    at = np.clip(positions, 0, len(cos) - 1)
    y = x.copy()
    y[..., offset:] = rotate(x[..., offset:][:, :, None], cos[at][:, None], sin[at][:, None], interleaved)[
        :, :, 0
    ]
    return y


def place(block_table: np.ndarray, b: int, position: int, blocks: int, block_size: int) -> int:
    """The cache row of a position of sequence ``b``, -1 where its page is unmapped."""
    page = int(block_table[b, position // block_size])
    return page * block_size + position % block_size if 0 <= page < blocks else -1


def append(
    tokens: Tokens,
    k: np.ndarray,
    lines: list[Line],
    block_table: np.ndarray,
    slot_mapping: np.ndarray | None,
    blocks: int,
    block_size: int,
) -> None:
    """Write the new keys and values to the caches."""
    for t, b in enumerate(tokens.sequence):
        if b < 0:
            continue
        if slot_mapping is None:
            row = place(block_table, b, int(tokens.position[t]), blocks, block_size)
        else:
            row = int(slot_mapping[t])
        if 0 <= row < blocks * block_size:
            for line, new in zip(lines, (k[t], None if tokens.v is None else tokens.v[t]), strict=False):
                assert new is not None
                line.rows[row] = line.encode(new)


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    softcap: float,
    sink: np.ndarray | None,
) -> np.ndarray:
    """One token's ``q [H, D]`` over ``k [n, K, D]`` and ``v [n, K, E]``: ``[H, E]``."""
    group = len(q) // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    s = scale * np.einsum("hd,nhd->hn", q, k)
    if softcap:
        s = softcap * np.tanh(s / softcap)
    p = softmax(s, None if sink is None else sink.astype(np.float64)[:, None])
    return np.einsum("hn,nhe->he", p, v)


@reference("PagedAttention")
def paged_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    key_cache: np.ndarray | None = None,
    value_cache: np.ndarray | None = None,
    cumulative_sequence_length: np.ndarray | None = None,
    past_seqlens: np.ndarray | None = None,
    block_table: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    slot_mapping: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    attention_metadata: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """``query [tokens, H * D]`` (or packed QKV) over caches ``[blocks, block_size, K, width]``."""
    assert key_cache is not None and cumulative_sequence_length is not None
    assert past_seqlens is not None and block_table is not None
    blocks, block_size = key_cache.shape[:2]
    limit = block_table.shape[1] * block_size
    x = tokens_of(query, key, value, num_heads, kv_num_heads, cumulative_sequence_length, past_seqlens, limit)
    d = x.q.shape[-1]
    tables: list[Any] = [cos_cache, sin_cache] if do_rotary else [None, None]
    tables += [bool(rotary_interleaved), rotary_offset]
    q = turned(x.q, x.position, q_norm_weight, qk_norm_epsilon, *tables)
    k = turned(x.k, x.position, k_norm_weight, qk_norm_epsilon, *tables)
    lines = [line_of(key_cache, k_cache_dtype, k_scale, d)]
    if value_cache is not None:
        lines.append(line_of(value_cache, v_cache_dtype, v_scale, d))
    append(x, k, lines, block_table, slot_mapping, blocks, block_size)

    width = v_head_size or d
    y = np.zeros((len(query), num_heads, width))
    for t, b in enumerate(x.sequence):
        if b < 0:
            continue
        p = int(x.position[t])
        first = max(0, p - local_window_size + 1) if local_window_size > 0 else 0
        seen = range(first, p + 1 if is_causal else int(x.total[b]))
        rows = [place(block_table, b, j, blocks, block_size) for j in seen]
        rows = [row for row in rows if row >= 0]
        keys = lines[0].decode(lines[0].rows[rows])
        values = keys[..., :width] if value_cache is None else lines[1].decode(lines[1].rows[rows])
        y[t] = attended(q[t], keys, values, scale or 1 / math.sqrt(d), softcap, head_sink)
    output = y.reshape(len(query), y.shape[1] * y.shape[2]).astype(query.dtype)
    caches = [line.rows.reshape(key_cache.shape) for line in lines]
    return output, caches[0], caches[1] if value_cache is not None else None


@reference("SparsePagedAttention")
def sparse_paged_attention(
    query: np.ndarray,
    key: np.ndarray | None = None,
    value: np.ndarray | None = None,
    key_cache: np.ndarray | None = None,
    value_cache: np.ndarray | None = None,
    cumulative_sequence_length: np.ndarray | None = None,
    past_seqlens: np.ndarray | None = None,
    block_table: np.ndarray | None = None,
    slot_mapping: np.ndarray | None = None,
    selected_indices: np.ndarray | None = None,
    selected_counts: np.ndarray | None = None,
    auxiliary_key: np.ndarray | None = None,
    auxiliary_value: np.ndarray | None = None,
    auxiliary_lengths: np.ndarray | None = None,
    cos_cache: np.ndarray | None = None,
    sin_cache: np.ndarray | None = None,
    head_sink: np.ndarray | None = None,
    q_norm_weight: np.ndarray | None = None,
    k_norm_weight: np.ndarray | None = None,
    k_scale: np.ndarray | None = None,
    v_scale: np.ndarray | None = None,
    attention_metadata: np.ndarray | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``query [tokens, H * D]`` (or packed QKV) over selected rows, and a local window if asked."""
    assert key_cache is not None and value_cache is not None and cumulative_sequence_length is not None
    assert past_seqlens is not None and block_table is not None
    assert selected_indices is not None and selected_counts is not None
    blocks, block_size = key_cache.shape[:2]
    limit = block_table.shape[1] * block_size
    x = tokens_of(query, key, value, num_heads, kv_num_heads, cumulative_sequence_length, past_seqlens, limit)
    d = x.q.shape[-1]
    tables: list[Any] = [cos_cache, sin_cache] if do_rotary else [None, None]
    tables += [bool(rotary_interleaved), rotary_offset]
    q = turned(x.q, x.position, q_norm_weight, qk_norm_epsilon, *tables)
    k = turned(x.k, x.position, k_norm_weight, qk_norm_epsilon, *tables)
    lines = [line_of(key_cache, "", k_scale, d), line_of(value_cache, "", v_scale, d)]
    append(x, k, lines, block_table, slot_mapping, blocks, block_size)
    aux_value = auxiliary_key if auxiliary_kv_shared else auxiliary_value

    y = np.zeros((len(query), num_heads, d))
    for t, b in enumerate(x.sequence):
        if b < 0:
            continue
        p, total = int(x.position[t]), int(x.total[b])
        end = p + 1 if is_causal else total
        chosen = selected_indices[t, : max(0, int(selected_counts[t]))].tolist()
        main: list[int] = []
        if attention_mode == "local_plus_selected":
            main += range(max(0, p - local_window_size + 1) if local_window_size > 0 else 0, end)
        if selected_kv_source == "main":
            main += [j for j in dict.fromkeys(chosen) if 0 <= j < end and j not in main]
        rows = [place(block_table, b, j, blocks, block_size) for j in main]
        rows = [row for row in rows if row >= 0]
        keys, values = (line.decode(line.rows[rows]) for line in lines)
        if selected_kv_source == "auxiliary":
            assert auxiliary_key is not None and aux_value is not None
            valid = auxiliary_key.shape[1] if auxiliary_lengths is None else int(auxiliary_lengths[b])
            picked = [j for j in chosen if 0 <= j < min(valid, auxiliary_key.shape[1])]
            extra = [
                np.broadcast_to(a[b, picked].astype(np.float64), (len(picked), kv_num_heads, d))
                for a in (auxiliary_key, aux_value)
            ]
            keys, values = np.concatenate([keys, extra[0]]), np.concatenate([values, extra[1]])
        y[t] = attended(q[t], keys, values, scale or 1 / math.sqrt(d), softcap, head_sink)
    output = y.reshape(len(query), y.shape[1] * y.shape[2]).astype(query.dtype)
    key_out, value_out = (line.rows.reshape(key_cache.shape) for line in lines)
    return output, key_out, value_out
