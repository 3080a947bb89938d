"""References of the rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from . import reference
from .attention import merge_heads, rotate, split_heads

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def round_bfloat16(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 values, as float64."""
    return x.astype(np.float32).astype(BFLOAT16).astype(np.float64)


def rotate_input(
    x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: int, num_heads: int, rotary_dim: int
) -> np.ndarray:
    """Rotate ``[B, S, heads * D]`` or ``[B, heads, S, D]`` by ``[B, S, pairs]`` cosines and sines."""
    if x.ndim == 4:
        wide = x.astype(np.float64)
    else:
        heads = num_heads or x.shape[2] // (rotary_dim or 2 * cos.shape[-1])
        wide = split_heads(x, heads)
    pairs = (rotary_dim or wide.shape[3]) // 2
    y = rotate(wide, cos[..., :pairs], sin[..., :pairs], bool(interleaved))
    return (y if x.ndim == 4 else merge_heads(y)).astype(x.dtype)


@reference("RotaryEmbedding")
def rotary_embedding(
    input: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> tuple[np.ndarray]:
    """A lone position is that of the first token; packed batches differ in what is checked alone."""
    batch, sequence = input.shape[0], input.shape[-2]
    if position_ids.size == 1:
        position_ids = np.tile(position_ids.reshape(1, 1) + np.arange(sequence), (batch, 1))
    y = rotate_input(
        input,
        cos_cache[position_ids],
        sin_cache[position_ids],
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_dim=rotary_embedding_dim,
    )
    return (y,)


@reference("RotaryEmbedding", domain="")
def standard_rotary_embedding(
    X: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    position_ids: np.ndarray | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> tuple[np.ndarray]:
    """Without positions the tables hold a row for each token."""
    y = rotate_input(
        X,
        cos_cache if position_ids is None else cos_cache[position_ids],
        sin_cache if position_ids is None else sin_cache[position_ids],
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_dim=rotary_embedding_dim,
    )
    return (y,)


@reference("MRotaryEmbedding")
def m_rotary_embedding(
    input: np.ndarray,
    position_ids: np.ndarray,
    cos_cache: np.ndarray,
    sin_cache: np.ndarray,
    *,
    mrope_section: Sequence[int],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> tuple[np.ndarray]:
    """Each pair takes its angle at the position of one stream: temporal, height or width."""
    if mrope_layout == 0:
        stream = np.repeat(np.arange(3), mrope_section)
    else:
        stream = np.zeros(sum(mrope_section), int)
        for k in (1, 2):
            stream[k : 3 * mrope_section[k] : 3] = k
    positions = np.moveaxis(position_ids[stream], 0, -1)  # [B, S, pairs]
    pair = np.arange(len(stream))
    y = rotate_input(
        input,
        cos_cache[positions, pair],
        sin_cache[positions, pair],
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_dim=rotary_embedding_dim or 2 * len(stream),
    )
    return (y,)


@reference("GemmaRotaryEmbedding")
def gemma_rotary_embedding(
    emb: np.ndarray, q: np.ndarray, q_rot: np.ndarray, k: np.ndarray, k_rot: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The text is a program in float16: its casts, products and sums round one by one."""
    wide = emb.astype(np.float64)[:, None]
    sin, cos = np.sin(wide).astype(np.float16), np.cos(wide).astype(np.float16)
    return q * cos + q_rot * sin, k * cos + k_rot * sin


@reference("RMSNormRotary")
def rms_norm_rotary(
    X: np.ndarray,
    scale: np.ndarray,
    position_ids: np.ndarray,
    cosine: np.ndarray,
    sine: np.ndarray,
    prefill_numerics: np.ndarray | None = None,
    *,
    rotary_embedding_dim: int,
    epsilon: float = 1e-6,
    flatten_batch: int = 0,
    input_start: int = 0,
    input_width: int = 0,
    use_fp32_arithmetic: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """The normalized slice is rounded to bfloat16, then rotated.

    The rotation rounds once, or in bfloat16 arithmetic each product and then the sum.
    """
    batch, sequence, heads, stride = X.shape
    width = input_width or stride
    x = X[..., input_start : input_start + width].astype(np.float64)
    inverse = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)
    normalized = round_bfloat16(x * inverse * scale.astype(np.float64))

    if position_ids.size == 1:
        steps = np.arange(batch * sequence).reshape(batch, sequence)
        position_ids = position_ids.reshape(1, 1) + (steps if flatten_batch else steps % sequence)
    c, s = (t[position_ids][:, :, None].astype(np.float64) for t in (cosine, sine))
    prefill = prefill_numerics is not None and bool(prefill_numerics)
    narrow = round_bfloat16 if prefill or not use_fp32_arithmetic else np.asarray
    pairs = rotary_embedding_dim // 2
    first, second = normalized[..., :pairs], normalized[..., pairs : 2 * pairs]
    y = normalized.copy()
    y[..., :pairs] = narrow(first * c) - narrow(second * s)
    y[..., pairs : 2 * pairs] = narrow(second * c) + narrow(first * s)
    lead = (1, batch * sequence) if flatten_batch else (batch, sequence)
    return y.reshape(*lead, heads * width).astype(X.dtype), normalized.astype(np.float32)
