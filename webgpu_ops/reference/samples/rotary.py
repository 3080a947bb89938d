"""Random calls of the rotary embeddings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


def _tables(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    angle = rng.uniform(-np.pi, np.pi, shape)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


def _heads(rng: np.random.Generator) -> tuple[int, int, int, int, int]:
    """batch, heads, sequence, head size (even) and how many channels turn."""
    batch, heads, sequence = (int(rng.integers(1, n)) for n in (4, 5, 12))
    size = 2 * int(rng.choice([1, 3, 4, 8, 16, int(rng.integers(1, 40))]))
    turned = size if rng.random() < 0.5 else 2 * int(rng.integers(1, size // 2 + 1))
    return batch, heads, sequence, size, turned


def _input(rng: np.random.Generator, dims: tuple[int, int, int, int], rank: int, dtype: Any) -> np.ndarray:
    batch, heads, sequence, size = dims
    shape = (batch, heads, sequence, size) if rank == 4 else (batch, sequence, heads * size)
    return rng.standard_normal(shape).astype(dtype)


@sample("RotaryEmbedding")
def rotary_embedding(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.choice(3)]
    batch, heads, sequence, size, turned = _heads(rng)
    attributes: dict[str, Any] = {"interleaved": int(rng.choice([0, 1]))}
    if turned < size:
        attributes |= {"num_heads": heads, "rotary_embedding_dim": turned}
    elif rng.random() < 0.5:
        attributes["num_heads"] = heads
    rows = sequence + int(rng.integers(0, 20))
    if rng.random() < 0.4:
        ids = rng.integers(0, rows - sequence + 1, 1)
    else:
        ids = rng.integers(0, rows, (batch, sequence))
    # Tables of a whole head may come with a partial rotation; the first columns are used.
    columns = size // 2 if rng.random() < 0.2 else turned // 2
    cos, sin = _tables(rng, (rows, columns), dtype)
    x = _input(rng, (batch, heads, sequence, size), int(rng.choice([3, 4])), dtype)
    return Sample({"input": x, "position_ids": ids, "cos_cache": cos, "sin_cache": sin}, attributes)


@sample("RotaryEmbedding", domain="")
def standard_rotary_embedding(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.choice(3)]
    batch, heads, sequence, size, turned = _heads(rng)
    rank = int(rng.choice([3, 4]))
    attributes: dict[str, Any] = {"interleaved": int(rng.choice([0, 1]))}
    if turned < size:
        attributes["rotary_embedding_dim"] = turned
    if rank == 3:
        attributes["num_heads"] = heads
    rows = int(rng.integers(1, 20))
    ids = rng.integers(0, rows, (batch, sequence)) if rng.random() < 0.6 else None
    lead = (batch, sequence) if ids is None else (rows,)
    cos, sin = _tables(rng, (*lead, turned // 2), dtype)
    x = _input(rng, (batch, heads, sequence, size), rank, dtype)
    inputs = {"X": x, "cos_cache": cos, "sin_cache": sin, "position_ids": ids}
    return Sample(inputs, attributes, domain="", opset=23)


@sample("MRotaryEmbedding")
def m_rotary_embedding(rng: np.random.Generator) -> Sample:
    dtype = FLOATS[rng.choice(3)]
    batch, heads, sequence, size, turned = _heads(rng)
    pairs = turned // 2
    cuts = sorted(int(c) for c in rng.integers(0, pairs + 1, 2))
    attributes: dict[str, Any] = {
        "interleaved": int(rng.choice([0, 1])),
        "is_packed_batching": int(rng.choice([0, 1])),
        "mrope_layout": int(rng.choice([0, 1])),
        "mrope_section": [cuts[0], cuts[1] - cuts[0], pairs - cuts[1]],
    }
    if turned < size:
        attributes |= {"num_heads": heads, "rotary_embedding_dim": turned}
    rows = int(rng.integers(1, 30))
    cos, sin = _tables(rng, (rows, pairs), dtype)
    inputs = {
        "input": _input(rng, (batch, heads, sequence, size), int(rng.choice([3, 4])), dtype),
        "position_ids": rng.integers(0, rows, (3, batch, sequence)),
        "cos_cache": cos,
        "sin_cache": sin,
    }
    return Sample(inputs, attributes)


@sample("GemmaRotaryEmbedding")
def gemma_rotary_embedding(rng: np.random.Generator) -> Sample:
    """Angles grow to tens of thousands of radians: positions times the first frequency, 1."""
    batch, heads, sequence, dim = (int(rng.integers(1, n)) for n in (4, 5, 12, 40))
    reach = float(rng.choice([3.0, 3e3, 5e4]))
    inputs = {"emb": rng.uniform(-reach, reach, (batch, sequence, dim)).astype(np.float32)}
    # Below 1, so that a step of float16 in sine or cosine stays one in the result.
    for name in ("q", "q_rot", "k", "k_rot"):
        inputs[name] = rng.uniform(-1, 1, (batch, heads, sequence, dim)).astype(np.float16)
    return Sample(inputs, {}, ("output1", "output2"))


@sample("RMSNormRotary")
def rms_norm_rotary(rng: np.random.Generator) -> Sample:
    batch, sequence, heads = (int(rng.integers(1, n)) for n in (4, 9, 5))
    width = int(rng.choice([2, 16, 64, 256, int(rng.integers(2, 90))]))
    start, tail = (int(rng.integers(0, 9)) if rng.random() < 0.4 else 0 for _ in range(2))
    turned = 2 * int(rng.integers(1, width // 2 + 1))
    attributes: dict[str, Any] = {
        "epsilon": float(rng.choice([1e-6, 1e-2])),
        "flatten_batch": int(rng.choice([0, 1])),
        "rotary_embedding_dim": turned,
        "use_fp32_arithmetic": int(rng.choice([0, 1])),
    }
    if start or tail or rng.random() < 0.3:
        attributes |= {"input_start": start, "input_width": width}
    rows = batch * sequence + int(rng.integers(0, 9))
    one = rng.random() < 0.4
    ids = rng.integers(0, rows - batch * sequence + 1, 1) if one else rng.integers(0, rows, (batch, sequence))
    cos, sin = _tables(rng, (rows, turned // 2), ml_dtypes.bfloat16)
    x = rng.uniform(-1, 1, (batch, sequence, heads, start + width + tail))
    inputs = {
        "X": x.astype(ml_dtypes.bfloat16),
        "scale": rng.uniform(0.5, 1.0, width).astype(np.float32),
        "position_ids": ids,
        "cosine": cos,
        "sine": sin,
        "prefill_numerics": np.array(rng.choice([0, 1]), np.int32) if rng.random() < 0.6 else None,
    }
    outputs = ("Y", "normalized_fp32") if rng.random() < 0.6 else ("Y",)
    # The normalized values were rounded to bfloat16, whatever the type that holds them.
    return Sample(inputs, attributes, outputs, tolerance=(8e-3, 8e-3))
