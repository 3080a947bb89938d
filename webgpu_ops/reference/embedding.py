"""Embedding lookups."""

from __future__ import annotations

import numpy as np

from . import reference
from .norm import layer_norm


@reference("EmbedLayerNormalization")
def embed_layer_normalization(
    input_ids: np.ndarray,
    word_embedding: np.ndarray,
    position_embedding: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    segment_ids: np.ndarray | None = None,
    segment_embedding: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    position_ids: np.ndarray | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
) -> tuple[np.ndarray, ...]:
    """LayerNorm(word + position + segment), non-zeros in each mask row, and the sum."""
    batch, sequence = input_ids.shape
    places = np.arange(sequence)[None] if position_ids is None else position_ids
    total = word_embedding.astype(np.float64)[input_ids] + position_embedding.astype(np.float64)[places]
    if segment_embedding is not None:
        total = total + segment_embedding.astype(np.float64)[segment_ids]
    normal, _, _ = layer_norm(total, epsilon)
    result = normal * gamma.astype(np.float64) + beta.astype(np.float64)
    lengths = np.zeros(batch) if mask is None else (mask != 0).sum(-1)
    return result.astype(gamma.dtype), lengths.astype(np.int32), total.astype(gamma.dtype)
