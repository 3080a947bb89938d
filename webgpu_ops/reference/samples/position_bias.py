"""Random calls of the relative position biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample, sample
from .padding import draw_counts, token_offset


@sample("RelativePositionBias")
def relative_position_bias(rng: np.random.Generator) -> Sample:
    dtype = (np.float32, np.float16)[rng.choice(2)]
    bidirectional = int(rng.choice([0, 1]))
    buckets, heads = int(rng.integers(4, 40)), int(rng.integers(1, 5))
    exact = buckets // (4 if bidirectional else 2)
    length = np.array([int(rng.choice([1, 5, int(rng.integers(1, 70))]))], np.int64)
    inputs = {
        "bias_table": rng.standard_normal((buckets, heads)).astype(dtype),
        "query_length": length,
        "key_length": length.copy(),
    }
    attributes = {
        "is_bidirectional": bidirectional,
        "max_distance": exact + int(rng.choice([1, 10, 128])),
    }
    return Sample(inputs, attributes, ("output",), exact=True)


@sample("GatedRelativePositionBias")
def gated_relative_position_bias(rng: np.random.Generator) -> Sample:
    dtype = (np.float32, np.float16)[rng.choice(2)]
    batch, heads, sequence = (int(rng.integers(1, n)) for n in (4, 4, 20))
    size, columns = int(rng.integers(1, 40)), 2 * int(rng.integers(1, 6))

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    inputs: dict[str, Any] = {
        "query_bias": draw(heads * size),
        "rel_pos": draw(1, heads, sequence, sequence),
        "weight": (draw(size, columns) / np.sqrt(size * columns)).astype(dtype),
        "bias": draw(columns),
        "eco_a": draw(1, heads, 1, 1),
    }
    unspecified = {}
    if rng.random() < 0.5:
        counts = draw_counts(rng, batch, sequence)
        inputs["query_layer"] = draw(int(counts.sum()), heads * size)
        inputs["token_offset"] = token_offset(counts, sequence)
        padding = np.arange(sequence) >= counts[:, None]
        rows = padding[:, None, :, None]
        unspecified["output"] = np.broadcast_to(rows, (batch, heads, sequence, sequence)).copy()
    else:
        inputs["query_layer"] = draw(batch, sequence, heads * size)
    return Sample(inputs, {"num_heads": heads}, ("output",), unspecified=unspecified)
