"""References of the biases that depend on the distance between two positions."""

from __future__ import annotations

import numpy as np

from . import reference


@reference("RelativePositionBias")
def relative_position_bias(
    bias_table: np.ndarray,
    query_length: np.ndarray,
    key_length: np.ndarray,
    *,
    max_distance: int,
    is_bidirectional: int = 0,
) -> tuple[np.ndarray]:
    """T5's buckets: one for each small distance, then logarithmic up to ``max_distance``.

    The table's memory is column-major: bucket k of head h is element ``h * buckets + k``.
    """
    buckets, heads = bias_table.shape
    query, key = np.arange(query_length.item()), np.arange(key_length.item())
    relative = key[None, :] - query[:, None]
    base = np.zeros_like(relative)
    if is_bidirectional:
        buckets //= 2
        base, distance = np.where(relative > 0, buckets, 0), np.abs(relative)
    else:
        distance = np.maximum(-relative, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, exact) / exact) / np.log(max_distance / exact)
    far = np.minimum(exact + np.floor(ratio * (buckets - exact)).astype(int), buckets - 1)
    bucket = base + np.where(distance < exact, distance, far)
    return (bias_table.reshape(heads, -1)[:, bucket][None],)


@reference("GatedRelativePositionBias")
def gated_relative_position_bias(
    query_layer: np.ndarray,
    query_bias: np.ndarray,
    rel_pos: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eco_a: np.ndarray,
    token_offset: np.ndarray | None = None,
    *,
    num_heads: int,
) -> tuple[np.ndarray]:
    """Packed tokens go to their places first; rows of padding queries, unspecified, are zeros here."""
    q = query_layer.astype(np.float64) + query_bias.astype(np.float64)
    tokens = q.reshape(-1, num_heads, q.shape[-1] // num_heads)
    product = tokens @ weight.astype(np.float64) + bias.astype(np.float64)
    logits = product.reshape(*product.shape[:2], 2, weight.shape[1] // 2).sum(axis=-1)
    u, r = np.moveaxis(np.exp(-np.logaddexp(0.0, -logits)), -1, 0)
    gate = u * (r * eco_a.astype(np.float64).reshape(num_heads) - 1.0) + 2.0  # [tokens, heads]
    if query_layer.ndim == 3:
        batch, sequence = query_layer.shape[:2]
    else:
        assert token_offset is not None
        batch, sequence = token_offset.shape
        packed, gate = gate, np.zeros((batch * sequence, num_heads))
        gate[token_offset.reshape(-1)[: len(packed)]] = packed
    rows = gate.reshape(batch, sequence, num_heads).swapaxes(1, 2)
    return ((rows[..., None] * rel_pos.astype(np.float64)).astype(query_layer.dtype),)
