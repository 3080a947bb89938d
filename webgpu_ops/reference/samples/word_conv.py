"""Random calls of WordConvEmbedding."""

from __future__ import annotations

import numpy as np

from . import Sample, sample


@sample("WordConvEmbedding")
def word_conv_embedding(rng: np.random.Generator) -> Sample:
    length, window, width, filters = (int(rng.integers(1, n)) for n in (10, 6, 9, 12))
    characters = int(rng.integers(1, 30))
    words = tuple(int(rng.integers(1, 5)) for _ in range(rng.integers(0, 3)))
    sequence = rng.integers(0, characters, (*words, length))
    # Words of every length: what follows the first 0 does not count.
    sequence[rng.random(sequence.shape) < 0.1] = 0
    attributes = {"embedding_size": filters, "conv_window_size": window, "char_embedding_size": width}
    return Sample(
        {
            "Sequence": sequence.astype(np.int32),
            "W": rng.standard_normal((filters, 1, window, width)).astype(np.float32),
            "B": rng.standard_normal(filters).astype(np.float32),
            "C": rng.standard_normal((characters, width)).astype(np.float32) * 0.5,
        },
        {name: size for name, size in attributes.items() if rng.random() < 0.5},
    )
