"""Random calls of Longformer attention and of the attentions of ordered int8 matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ordered import COL, COL4_4R2_8C, COL32, COL32_2R_4R4, ROW
from ..ordered_attention import real_q_ordered_attention, real_q_ordered_longformer_attention
from . import Sample, sample

Call = dict[str, Any]


def tokens(rng: np.random.Generator, most: int) -> tuple[int, int]:
    """A window, and a sequence length that is a multiple of twice that."""
    window = int(rng.integers(1, rng.choice([4, most // 2 + 1])))
    return window, 2 * window * int(rng.integers(1, most // (2 * window) + 1))


def marks(rng: np.random.Generator, batch: int, rows: int, dtype: Any) -> Call:
    """A mask with padding at the right or here and there, and flags of none, a few or all tokens."""
    ends = rng.integers(1, rows + 1, (batch, 1))
    masked = np.arange(rows) >= ends if rng.random() < 0.5 else rng.random((batch, rows)) < 0.2
    flags = rng.random((batch, rows)) < rng.choice([0.0, 0.02, 0.2, 1.0])
    low = rng.choice([-1.0, -10000.0])
    return {"mask": np.where(masked, low, 0.0).astype(dtype), "global": flags.astype(np.int32)}


@sample("LongformerAttention")
def longformer_attention(rng: np.random.Generator) -> Sample:
    dtype = np.float32 if rng.random() < 0.5 else np.float16
    window, rows = tokens(rng, 260 if rng.random() < 0.3 else 40)
    batch, heads = (int(n) for n in rng.integers(1, 4, 2))
    hidden = heads * int(rng.choice([1, 3, 8, 20, 33, 64]))

    def normal(*shape: int, spread: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * spread).astype(dtype)

    inputs = {
        "input": normal(batch, rows, hidden),
        "weight": normal(hidden, 3 * hidden, spread=hidden**-0.5),
        "bias": normal(3 * hidden),
        "global_weight": normal(hidden, 3 * hidden, spread=hidden**-0.5),
        "global_bias": normal(3 * hidden),
    }
    inputs |= marks(rng, batch, rows, dtype)
    return Sample(inputs, {"num_heads": heads, "window": window})


# The int8 attentions. What they round on the way must not lie between two numbers: float32 and float64
# would go different ways, and what is made of it would differ by more than a step.


def orders(rng: np.random.Generator) -> tuple[int, int]:
    """A memory order of inputs and outputs, and one of weights that goes with it."""
    if rng.random() < 0.5:
        return ROW, COL
    return COL32, int(rng.choice([COL4_4R2_8C, COL32_2R_4R4]))


def widths(rng: np.random.Generator, outer: int, count: int) -> list[int]:
    return [
        int(n) * (32 if outer == COL32 else 1) for n in rng.integers(1, 3 if outer == COL32 else 60, count)
    ]


def bytes_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def weight_scale(rng: np.random.Generator, inner: int, columns: int) -> np.ndarray:
    """Of all columns or of each, so that products of random bytes, with an input scale of 0.02, have a
    spread of about 1."""
    shape = () if rng.random() < 0.5 else (columns,)
    return np.asarray(rng.uniform(0.7, 1.3, shape) / (0.02 * inner**0.5 * 74**2), np.float32)


def number(x: float) -> np.ndarray:
    return np.asarray(x, np.float32)


def clear(
    rng: np.random.Generator,
    draw: Callable[[np.random.Generator], tuple[Call, Call]],
    real: Callable[..., Any],
) -> Sample:
    """A call that rounds no number on the way that lies between two."""
    while True:
        inputs, attributes = draw(rng)
        named = {name + "_" * (name == "global"): x for name, x in inputs.items()}
        _, before = real(**named, **attributes)
        if not any((np.abs(np.abs(x - np.trunc(x)) - 0.5) < 2e-6 * (1 + np.abs(x))).any() for x in before):
            return Sample(inputs, attributes, tolerance=(0.0, 1.0))


@sample("QOrderedAttention")
def q_ordered_attention(rng: np.random.Generator) -> Sample:
    return clear(rng, _q_ordered_attention, real_q_ordered_attention)


def _q_ordered_attention(rng: np.random.Generator) -> tuple[Call, Call]:
    outer, order = orders(rng)
    inner, hidden = widths(rng, outer, 2)
    heads = int(rng.choice([n for n in (1, 2, 3, 4) if hidden % n == 0]))
    batch, rows = int(rng.integers(1, 3)), int(rng.integers(1, 24))
    inputs: Call = {"input": bytes_of(rng, batch, rows, inner), "scale_input": number(0.02)}
    for x in "QKV":
        inputs |= {
            f"scale_{x}_gemm": number(rng.uniform(0.02, 0.04)),
            f"{x}_weight": bytes_of(rng, inner, hidden),
            f"scale_{x}_weight": weight_scale(rng, inner, hidden),
            f"{x}_bias": rng.standard_normal(hidden).astype(np.float32),
        }
    if rng.random() < 0.8:
        inputs["scale_QKT_gemm"] = number(rng.uniform(0.03, 0.06) * (hidden / heads) ** 0.5)
    if rng.random() < 0.8:
        inputs["scale_QKT_softmax"] = number(rng.uniform(0.007, 0.009))
    inputs["scale_values_gemm"] = number(rng.uniform(0.01, 0.02))
    form = rng.integers(6)
    side = rows + int(rng.integers(0, 4))
    shapes = [None, (batch, rows), (batch, rows, rows), (batch, 1, side, side)]
    if form == 4:
        inputs["mask_index"] = rng.integers(0, rows + 1, batch).astype(np.int32)
    elif form == 5:
        starts = rng.integers(0, rows + 1, batch)
        inputs["mask_index"] = np.concatenate([rng.integers(starts, rows + 1), starts]).astype(np.int32)
    elif (shape := shapes[form]) is not None:
        inputs["mask_index"] = (rng.random(shape) < 0.7).astype(np.int32)
    attributes: Call = {
        "num_heads": heads,
        "order_input": outer,
        "order_output": outer,
        "order_weight": order,
        "unidirectional": int(rng.integers(2)),
    }
    if rng.random() < 0.5:
        attributes["qkv_hidden_sizes"] = [hidden] * 3
    return inputs, attributes


@sample("QOrderedLongformerAttention")
def q_ordered_longformer_attention(rng: np.random.Generator) -> Sample:
    return clear(rng, _q_ordered_longformer_attention, real_q_ordered_longformer_attention)


def _q_ordered_longformer_attention(rng: np.random.Generator) -> tuple[Call, Call]:
    outer, order = orders(rng)
    (hidden,) = widths(rng, outer, 1)
    heads = int(rng.choice([n for n in (1, 2, 3, 4) if hidden % n == 0]))
    window, rows = tokens(rng, 24)
    batch = int(rng.integers(1, 3))
    inputs: Call = {"input": bytes_of(rng, batch, rows, hidden), "scale_input": number(0.02)}
    for prefix, gemm in (("", "scale_qkv_gemm"), ("global_", "scale_global_gemm")):
        inputs |= {
            f"{prefix}weight": bytes_of(rng, hidden, 3 * hidden),
            f"scale_{prefix}weight": weight_scale(rng, hidden, 3 * hidden),
            f"{prefix}bias": rng.normal(0, 20, 3 * hidden).astype(np.float32),
            gemm: number(rng.uniform(0.02, 0.04)),
        }
    inputs |= {"scale_bias": number(1), "scale_output": number(rng.uniform(0.01, 0.02))}
    inputs |= marks(rng, batch, rows, np.float16)
    attributes = {
        "num_heads": heads,
        "window": window,
        "order_input": outer,
        "order_output": outer,
        "order_weight": order,
        "order_global_weight": order,
    }
    return inputs, attributes
