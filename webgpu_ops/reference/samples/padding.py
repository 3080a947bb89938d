"""Random calls of the operators that remove and restore padding."""

from __future__ import annotations

import numpy as np

from . import Sample, sample


def draw_counts(rng: np.random.Generator, batch: int, sequence: int) -> np.ndarray:
    """Real tokens of each sequence; now and then all or none."""
    low, high = ((0, sequence), (sequence, sequence), (0, 0))[rng.choice(3, p=[0.8, 0.1, 0.1])]
    return rng.integers(low, high + 1, batch).astype(np.int32)


def token_offset(counts: np.ndarray, sequence: int) -> np.ndarray:
    """Places of the real tokens, then those of the padding."""
    real = (np.arange(sequence) < counts[:, None]).reshape(-1)
    place = np.concatenate([np.flatnonzero(real), np.flatnonzero(~real)])
    return place.reshape(len(counts), sequence).astype(np.int32)


@sample("RemovePadding")
def remove_padding(rng: np.random.Generator) -> Sample:
    batch, sequence, hidden = (int(rng.integers(1, n)) for n in (7, 12, 20))
    inputs = {
        "input": rng.standard_normal((batch, sequence, hidden)).astype(rng.choice(["f4", "f2"])),
        "sequence_token_count": draw_counts(rng, batch, sequence),
    }
    outputs = ("output", "token_offset", "cumulated_seq_len", "max_seq_len")
    return Sample(inputs, {}, outputs, exact=True)


@sample("RestorePadding")
def restore_padding(rng: np.random.Generator) -> Sample:
    batch, sequence, hidden = (int(rng.integers(1, n)) for n in (7, 12, 20))
    counts = draw_counts(rng, batch, sequence)
    inputs = {
        "input": rng.standard_normal((int(counts.sum()), hidden)).astype(rng.choice(["f4", "f2"])),
        "token_offset": token_offset(counts, sequence),
    }
    return Sample(inputs, {}, ("output",), exact=True)
