"""Reference of Longformer attention."""

from __future__ import annotations

import math

import numpy as np

from . import reference
from .attention import merge_heads, scores_of, softmax, split_heads, weighted


def attend(
    local: np.ndarray, everywhere: np.ndarray, mask: np.ndarray, flags: np.ndarray, heads: int, window: int
) -> np.ndarray:
    """Attention ``[B, S, H]`` of two merged projections ``[B, S, 3 * H]``.

    ``local`` serves tokens that see their neighbours up to ``window`` away and all global tokens,
    ``everywhere`` the global tokens, which see all. A token whose mask is negative is seen by none, and
    its own row is 0.
    """
    masked, chosen = mask < 0, flags != 0
    at = np.arange(mask.shape[1])
    near = np.abs(at[:, None] - at) <= window
    outputs = []
    for qkv, seen in ((local, near | chosen[:, None, :]), (everywhere, np.array(True))):
        q, k, v = (split_heads(x, heads) for x in np.split(qkv, 3, axis=-1))
        visible = (seen & ~masked[:, None, :])[:, None]
        s = np.where(visible, scores_of(q, k, 1 / math.sqrt(q.shape[-1])), -np.inf)
        outputs.append(merge_heads(weighted(softmax(s), v)))
    y = np.where(chosen[..., None], outputs[1], outputs[0])
    return np.where(masked[..., None], 0.0, y)


@reference("LongformerAttention")
def longformer_attention(
    input: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    mask: np.ndarray,
    global_weight: np.ndarray,
    global_bias: np.ndarray,
    global_: np.ndarray,
    *,
    num_heads: int,
    window: int,
) -> tuple[np.ndarray, ...]:
    """``input [B, S, H]`` projected by ``weight`` and by ``global_weight``, both ``[H, 3 * H]``."""
    x = input.astype(np.float64)
    local, everywhere = (
        x @ w.astype(np.float64) + c.astype(np.float64)
        for w, c in ((weight, bias), (global_weight, global_bias))
    )
    return (attend(local, everywhere, mask, global_, num_heads, window).astype(input.dtype),)
