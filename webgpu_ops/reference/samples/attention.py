"""Random calls of the attention operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..attention import FLOAT8, dequantize, quantize, resident
from . import Sample, sample

FLOATS = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
# Sizes of a head: what models use, and what tiles do not like.
SIZES = (8, 16, 32, 64, 64, 80, 128)
# Bounds the work of one call, so that a software adapter and the reference take moments.
WORK = 3_000_000


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def _chance(rng: np.random.Generator, p: float) -> bool:
    return bool(rng.random() < p)


def _head_size(rng: np.random.Generator) -> int:
    return int(rng.choice(SIZES)) if _chance(rng, 0.7) else int(rng.integers(1, 261))


def _length(rng: np.random.Generator, most: int) -> int:
    """Mostly a short length, now and then any up to ``most``."""
    return int(rng.integers(1, max(2, most if _chance(rng, 0.3) else min(most, 40))))


def _bias(rng: np.random.Generator, shape: tuple[int, int, int, int], dtype: Any) -> np.ndarray:
    """An additive bias that may broadcast over batch and heads, with a few -inf."""
    batch, heads = (n if _chance(rng, 0.5) else 1 for n in shape[:2])
    bias = rng.standard_normal((batch, heads, *shape[2:]))
    return np.where(rng.random(bias.shape) < 0.05, -np.inf, bias).astype(dtype)


def _scale(rng: np.random.Generator, quant_type: str, kv: int, size: int) -> np.ndarray:
    if quant_type == "PER_TENSOR":
        return rng.uniform(0.02, 0.1, (1,)).astype(np.float32)
    return rng.uniform(0.02, 0.1, (1, kv, 1, size if _chance(rng, 0.7) else 1)).astype(np.float32)


def _stored(
    rng: np.random.Generator, shape: tuple[int, int, int, int], scale: np.ndarray, storage: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Random cache rows ``[B, K, L, D]`` in ``storage``, and values that lie well inside the interval
    that rounds to them: float32 and float64 must not round a tie apart."""
    raw = rng.uniform(-9, 9, shape) if storage == np.uint8 else rng.normal(0, 40, shape)
    rows = quantize(raw * scale, scale.astype(np.float64), storage)
    exact = dequantize(rows, scale.astype(np.float64), shape[-1])
    if storage == FLOAT8:
        return rows, exact * rng.uniform(0.99, 1.01, shape)
    return rows, exact + scale * rng.uniform(-0.3, 0.3, shape)


def _turns(rng: np.random.Generator, rows: int, pairs: int, dtype: Any, quarters: bool) -> dict[str, Any]:
    """Rotary tables; by quarter turns the rotation is exact."""
    angle = rng.integers(0, 4, (rows, pairs)) * (np.pi / 2) if quarters else rng.uniform(-4, 4, (rows, pairs))
    cos, sin = np.cos(angle), np.sin(angle)
    if quarters:
        cos, sin = np.rint(cos), np.rint(sin)
    return {"cos_cache": cos.astype(dtype), "sin_cache": sin.astype(dtype)}


@sample("GroupQueryAttention")
def group_query_attention(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    kv = int(rng.integers(1, 4))
    heads = kv * int(rng.choice([1, 1, 2, 3, 4, 8]))
    size = _head_size(rng)
    mode = str(rng.choice(["prompt", "decode", "chunk", "window"]))
    batch = 1 if mode == "chunk" else int(rng.integers(1, 4))
    most = max(4, min(700, WORK // (batch * heads * size)))
    had = 0 if mode == "prompt" else _length(rng, most)
    rows = 1
    if mode in ("prompt", "chunk") or (mode == "window" and batch == 1):
        rows = _length(rng, max(4, min(most, WORK // (batch * heads * size * (had + 8)), 300)))
        if mode == "prompt":
            rows = min(rows, int((WORK / (batch * heads * size)) ** 0.5) + 3)
    total = had + rows
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv}

    # Ragged: lengths of the entries, the longest of which is the total.
    lengths = np.full(batch, total)
    if batch > 1 and _chance(rng, 0.6):
        lengths[1:] = rng.integers(1 if mode == "prompt" else rows, total + 1, batch - 1)
    past = np.zeros(batch, int) if mode == "prompt" else lengths - rows

    window, capacity = -1, 0
    if mode == "window":
        window = int(rng.integers(1, max(2, total)))
        capacity = window + int(rng.integers(0, 6))
        attributes |= {"sliding_window_cache": 1, "local_window_size": window}
    elif _chance(rng, 0.3):
        window = int(rng.integers(1, total + 3))
        attributes["local_window_size"] = window
    elif _chance(rng, 0.25):
        attributes["causal"] = 0
    if mode in ("decode", "chunk"):
        longest = int(past.max())
        capacity = longest if _chance(rng, 0.4) else total + int(rng.integers(0, 10))
    elif mode == "prompt" and _chance(rng, 0.4):
        capacity = int(rng.integers(0, total + 10))

    # The caches' type, and new keys and values that round the same way everywhere.
    storage = dtype
    quantized = capacity > 0 and _chance(rng, 0.4)
    shape = (batch, kv, capacity, size)
    fresh = (batch, kv, rows, size)
    inputs: dict[str, Any] = {}
    new = []
    if quantized:
        storage = [np.dtype(np.int8), np.dtype(np.uint8), FLOAT8][rng.integers(3)]
        attributes["kv_cache_bit_width"] = 4 if storage == np.uint8 else 8
        for x, name in (("k", "key"), ("v", "value")):
            quant_type = str(rng.choice(["PER_TENSOR", "PER_CHANNEL"]))
            attributes[f"{x}_quant_type"] = quant_type
            scale = _scale(rng, quant_type, kv, size)
            inputs[f"{x}_scale"] = scale
            inputs[f"past_{name}"] = _stored(rng, shape, scale, storage)[0]
            new.append(_stored(rng, fresh, scale, storage)[1])
    else:
        if capacity or mode != "prompt":
            inputs |= {"past_key": _normal(rng, shape, dtype), "past_value": _normal(rng, shape, dtype)}
        new = [rng.standard_normal(fresh) for _ in range(2)]
    if quantized and dtype is not np.float32:
        dtype = np.float32  # a 16-bit value may lie on a tie
    key, value = (x.transpose(0, 2, 1, 3).reshape(batch, rows, kv * size).astype(dtype) for x in new)
    query = _normal(rng, (batch, rows, heads * size), dtype)
    if _chance(rng, 0.3):
        inputs["query"] = np.concatenate([query, key, value], axis=-1)
    else:
        inputs |= {"query": query, "key": key, "value": value}
    inputs["seqlens_k"] = (lengths - 1).astype(np.int32).reshape((-1, 1) if _chance(rng, 0.2) else -1)
    inputs["total_sequence_length"] = np.array(total, np.int32).reshape((1,) if _chance(rng, 0.3) else ())

    if size >= 2 and _chance(rng, 0.5):
        pairs = size // 2 if _chance(rng, 0.6) else int(rng.integers(1, size // 2 + 1))
        inputs |= _turns(rng, total + int(rng.integers(0, 9)), pairs, dtype, quarters=quantized)
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(_chance(rng, 0.4))}
        if quantized and np.unique(inputs["k_scale"]).size > 1:
            # Rotation moves values to other channels, where they would be ties of another scale.
            inputs["cos_cache"], inputs["sin_cache"] = (
                np.ones_like(inputs["cos_cache"]),
                np.zeros_like(inputs["sin_cache"]),
            )
        if _chance(rng, 0.4):
            ids = rng.integers(0, len(inputs["cos_cache"]), (batch, rows))
            inputs["position_ids"] = ids[:1, :1] // 2 if _chance(rng, 0.3) else ids
    if not quantized and _chance(rng, 0.25):
        inputs |= {
            "q_norm_weight": _normal(rng, (size,), dtype),
            "k_norm_weight": _normal(rng, (size,), dtype),
        }
        if _chance(rng, 0.5):
            attributes |= {"qk_norm_epsilon": 0.01, "q_norm_epsilon": 0.1}
    if _chance(rng, 0.3):
        inputs["attention_bias"] = _bias(rng, (batch, heads, rows, total), dtype)
    if _chance(rng, 0.3):
        inputs["head_sink"] = _normal(rng, (heads,), dtype)
    if _chance(rng, 0.2):
        attributes["smooth_softmax"] = 1
    if _chance(rng, 0.25):
        attributes["softcap"] = float(rng.uniform(1, 30))
    if _chance(rng, 0.25):
        attributes["scale"] = float(rng.uniform(0.02, 0.5))

    outputs = ["output"]
    if _chance(rng, 0.8):
        outputs += ["present_key", "present_value"]
    if _chance(rng, 0.25):
        outputs.append("output_qk")
        attributes["qk_output"] = int(rng.integers(1, 3))
    aliases = {}
    room = capacity >= total or mode == "window"
    if "present_key" in outputs and "past_key" in inputs and room and _chance(rng, 0.5):
        aliases = {"present_key": "past_key", "present_value": "past_value"}

    padding = np.arange(rows) >= (lengths - past)[:, None]
    present_rows = capacity if mode == "window" else max(capacity, total)
    kept = [resident(int(n), capacity, window) for n in lengths] if mode == "window" else lengths
    unused = np.arange(present_rows) >= np.asarray(kept)[:, None]
    width = -(-size // 2) if storage == np.uint8 else size
    idle = np.broadcast_to(unused[:, None, :, None], (batch, kv, present_rows, width))
    unspecified = {
        "output": np.broadcast_to(padding[..., None], query.shape),
        "present_key": idle,
        "present_value": idle,
        "output_qk": np.broadcast_to(padding[:, None, :, None], (batch, heads, rows, total)),
    }
    return Sample(
        inputs,
        attributes,
        tuple(outputs),
        unspecified={name: unspecified[name] for name in outputs},
        aliases=aliases,
    )


@sample("Attention")
def attention(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    heads = int(rng.integers(1, 5))
    size = _head_size(rng)
    batch = int(rng.integers(1, 4))
    rotary = size % 2 == 0 and _chance(rng, 0.25)
    most = max(4, int((WORK / (batch * heads * size)) ** 0.5))
    rows = _length(rng, min(most, 300))
    hidden = int(rng.integers(1, 65))
    attributes: dict[str, Any] = {"num_heads": heads, "unidirectional": int(_chance(rng, 0.5))}
    inputs: dict[str, Any] = {"input": _normal(rng, (batch, rows, hidden), dtype)}
    outputs = ["output"]
    unspecified: dict[str, np.ndarray] = {}
    aliases: dict[str, str] = {}
    value_size, had = size, 0
    if _chance(rng, 0.5):
        had = int(rng.integers(0, 3)) if _chance(rng, 0.3) else _length(rng, most)
        outputs.append("present")
        room = had
        if _chance(rng, 0.5):
            room = had + rows + int(rng.integers(0, 6))
            attributes["past_present_share_buffer"] = 1
            inputs["past_sequence_length"] = np.array([had], np.int32)
            idle = np.arange(room)[:, None] >= had + rows
            unspecified["present"] = np.broadcast_to(idle, (2, batch, heads, room, size))
            if _chance(rng, 0.6):
                aliases["present"] = "past"
        inputs["past"] = _normal(rng, (2, batch, heads, room, size), dtype)
    elif _chance(rng, 0.4):
        value_size = _head_size(rng)
    elif _chance(rng, 0.4):
        outputs.append("present")
    total = had + rows
    sizes = [heads * size, heads * size, heads * value_size]
    if value_size != size or _chance(rng, 0.2):
        attributes["qkv_hidden_sizes"] = sizes
    weights = rng.standard_normal((hidden, sum(sizes))) / np.sqrt(hidden)
    inputs["weights"] = weights.astype(dtype)
    if _chance(rng, 0.7):
        inputs["bias"] = _normal(rng, (sum(sizes),), dtype)
    if rotary:
        attributes["do_rotary"] = 1
        dims = [d for d in (32, 64, 128) if d <= size]
        if dims and _chance(rng, 0.5):
            attributes["rotary_embedding_dim"] = int(rng.choice(dims))
    if _chance(rng, 0.6):
        inputs["mask_index"] = _mask(rng, batch, rows, had, total)
    if _chance(rng, 0.3):
        inputs["attention_bias"] = _bias(rng, (batch, heads, rows, total), dtype)
    if "mask_index" in inputs:
        # Where a row may see nothing but masked keys, -10000 would leave float32 no digits of the scores.
        mask = inputs["mask_index"]
        ends = mask.ndim == 1 and mask.size != 2 * batch and "attention_bias" not in inputs
        if not ends or _chance(rng, 0.3):
            attributes["mask_filter_value"] = float(rng.uniform(-20, -1))
    if _chance(rng, 0.3):
        attributes["scale"] = float(rng.uniform(0.02, 0.5))
    return Sample(inputs, attributes, tuple(outputs), unspecified=unspecified, aliases=aliases)


def _mask(rng: np.random.Generator, batch: int, rows: int, had: int, total: int) -> np.ndarray:
    """One of the six forms of mask_index."""
    form = int(rng.integers(6))
    ends = rng.integers(1, total + 1, batch)
    if form == 0:
        mask: np.ndarray = ends
    elif form == 1:
        mask = np.concatenate([ends, rng.integers(0, ends)])
    elif form == 2:
        starts = np.concatenate([[0], np.cumsum(ends)])
        mask = np.concatenate([ends, starts, starts])
    else:
        side = total + int(rng.integers(0, 5))
        shape = {3: (batch, total), 4: (batch, rows, total), 5: (batch, 1, side, side)}[form]
        mask = rng.random(shape) < 0.8
    return mask.astype(np.int32)
