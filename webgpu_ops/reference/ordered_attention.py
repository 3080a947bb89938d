"""References of the attentions of int8 matrices in cublasLt's memory orders.

Each has a ``real_`` form that also returns everything it rounds on the way, before rounding: whoever
compares with it wants to know what hangs on the last bits.
"""

from __future__ import annotations

import math

import numpy as np

from . import reference
from .attention import merge_heads, softmax, split_heads
from .longformer import attend
from .ordered import from_order, to_order
from .ordered import weight as matrix


def rounded(x: np.ndarray) -> np.ndarray:
    """Half to even, saturated to int8; still float64."""
    return np.clip(np.rint(x), -128, 127)


def number(x: np.ndarray) -> np.ndarray:
    """A scale of all, or of each column, in float64."""
    return np.asarray(x, np.float64).reshape(() if np.size(x) == 1 else -1)


def visible(mask: np.ndarray | None, batch: int, rows: int) -> np.ndarray:
    """Which keys a mask_index shows, ``[batch or 1, rows or 1, rows]``."""
    at = np.arange(rows)
    if mask is None:
        return np.ones((1, 1, rows), bool)
    if mask.ndim == 1:
        starts = mask[batch:, None, None] if mask.size == 2 * batch else 0
        return np.asarray((at < mask[:batch, None, None]) & (at >= starts))
    if mask.ndim == 4:
        return mask[:, 0, :rows, :rows] != 0
    return mask.reshape(batch, -1, rows) != 0


def real_q_ordered_attention(
    input: np.ndarray,
    scale_input: np.ndarray,
    scale_Q_gemm: np.ndarray,
    scale_K_gemm: np.ndarray,
    scale_V_gemm: np.ndarray,
    Q_weight: np.ndarray,
    K_weight: np.ndarray,
    V_weight: np.ndarray,
    scale_Q_weight: np.ndarray,
    scale_K_weight: np.ndarray,
    scale_V_weight: np.ndarray,
    Q_bias: np.ndarray,
    K_bias: np.ndarray,
    V_bias: np.ndarray,
    scale_QKT_gemm: np.ndarray | None = None,
    scale_QKT_softmax: np.ndarray | None = None,
    scale_values_gemm: np.ndarray | None = None,
    mask_index: np.ndarray | None = None,
    past: np.ndarray | None = None,
    attention_bias: np.ndarray | None = None,
    *,
    num_heads: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    qkv_hidden_sizes: list[int] | None = None,
    unidirectional: int = 0,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output before rounding, in row-major order, and what was rounded on the way."""
    assert past is None and attention_bias is None and scale_values_gemm is not None
    x = from_order(input, order_input).astype(np.float64)
    batch, rows, _ = x.shape
    before: list[np.ndarray] = []

    def to_int8(real: np.ndarray, scale: np.ndarray | None) -> np.ndarray:
        if scale is None:
            return real
        before.append(real / number(scale))
        return rounded(before[-1]) * number(scale)

    q, k, v = (
        split_heads(
            to_int8(
                x @ matrix(w, order_weight).astype(np.float64) * (number(scale_input) * number(s))
                + c.astype(np.float64),
                gemm,
            ),
            num_heads,
        )
        for w, s, c, gemm in (
            (Q_weight, scale_Q_weight, Q_bias, scale_Q_gemm),
            (K_weight, scale_K_weight, K_bias, scale_K_gemm),
            (V_weight, scale_V_weight, V_bias, scale_V_gemm),
        )
    )
    scores = to_int8(q @ k.swapaxes(-1, -2), scale_QKT_gemm) / math.sqrt(q.shape[-1])
    seen = visible(mask_index, batch, rows)
    if unidirectional:
        seen = seen & (np.arange(rows) <= np.arange(rows)[:, None])
    shares = to_int8(softmax(np.where(seen[:, None], scores, -np.inf)), scale_QKT_softmax)
    return merge_heads(shares @ v) / number(scale_values_gemm), before


@reference("QOrderedAttention")
def q_ordered_attention(
    *inputs: np.ndarray | None, order_output: int, **named: object
) -> tuple[np.ndarray, ...]:
    """Inputs and attributes as :func:`real_q_ordered_attention` has them."""
    y, _ = real_q_ordered_attention(*inputs, order_output=order_output, **named)  # type: ignore[arg-type]
    return (to_order(rounded(y).astype(np.int8), order_output),)


def real_q_ordered_longformer_attention(
    input: np.ndarray,
    scale_input: np.ndarray,
    weight: np.ndarray,
    scale_weight: np.ndarray,
    bias: np.ndarray,
    scale_bias: np.ndarray,
    scale_qkv_gemm: np.ndarray,
    mask: np.ndarray,
    global_weight: np.ndarray,
    scale_global_weight: np.ndarray,
    global_bias: np.ndarray,
    scale_global_gemm: np.ndarray,
    global_: np.ndarray,
    scale_output: np.ndarray,
    *,
    num_heads: int,
    order_global_weight: int,
    order_input: int,
    order_output: int,
    order_weight: int,
    window: int,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The output before rounding, in row-major order, and the projections before theirs."""
    x = from_order(input, order_input).astype(np.float64)

    def before(w: np.ndarray, order: int, scale: np.ndarray, c: np.ndarray, gemm: np.ndarray) -> np.ndarray:
        factor = number(scale_input) * number(scale) / number(gemm)
        return x @ matrix(w, order).astype(np.float64) * factor + c.astype(np.float64)

    local = before(weight, order_weight, scale_weight, bias, scale_qkv_gemm)
    everywhere = before(
        global_weight, order_global_weight, scale_global_weight, global_bias, scale_global_gemm
    )
    y = attend(
        rounded(local) * number(scale_qkv_gemm),
        rounded(everywhere) * number(scale_global_gemm),
        mask,
        global_,
        num_heads,
        window,
    )
    return y / number(scale_output), [local, everywhere]


@reference("QOrderedLongformerAttention")
def q_ordered_longformer_attention(
    *inputs: np.ndarray, order_output: int, **named: object
) -> tuple[np.ndarray, ...]:
    """Inputs and attributes as :func:`real_q_ordered_longformer_attention` has them; biases are in units
    of the gemm's scale."""
    y, _ = real_q_ordered_longformer_attention(*inputs, order_output=order_output, **named)  # type: ignore
    return (to_order(rounded(y).astype(np.int8), order_output),)
