"""Random calls of the embedding lookups."""

from __future__ import annotations

import numpy as np

from . import Sample, sample


@sample("EmbedLayerNormalization")
def embed_layer_normalization(rng: np.random.Generator) -> Sample:
    dtype = (np.float32, np.float16)[rng.choice(2)]
    batch, sequence, hidden = (int(rng.integers(1, n)) for n in (4, 7, 90))
    words, positions, segments = int(rng.integers(1, 30)), sequence + int(rng.integers(0, 5)), 2

    def draw(*of: int) -> np.ndarray:
        return rng.standard_normal(of).astype(dtype)

    def ids(below: int, *of: int) -> np.ndarray:
        return rng.integers(0, below, of).astype(np.int32)

    segmented = rng.random() < 0.6
    inputs = {
        "input_ids": ids(words, batch, sequence),
        "segment_ids": ids(segments, batch, sequence) if segmented else None,
        "word_embedding": draw(words, hidden),
        "position_embedding": draw(positions, hidden),
        "segment_embedding": draw(segments, hidden) if segmented else None,
        "gamma": draw(hidden),
        "beta": draw(hidden),
        "mask": ids(3, batch, sequence) if rng.random() < 0.6 else None,
        "position_ids": ids(positions, int(rng.choice([1, batch])), sequence) if rng.random() < 0.5 else None,
    }
    extra = tuple(n for n in ("mask_index", "embedding_sum") if rng.random() < 0.6)
    return Sample(inputs, {"epsilon": 1e-3 if hidden < 8 else 1e-5}, ("output", *extra))
