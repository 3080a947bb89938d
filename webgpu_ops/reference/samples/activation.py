"""Random calls of the activations."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import Sample, sample

FLOATS = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16)


def shape_of(rng: np.random.Generator, least: int = 0, most: int = 5) -> tuple[int, ...]:
    """A random shape of ``least`` to ``most`` dimensions, now and then with an empty one."""
    rank = int(rng.integers(least, most + 1))
    return tuple(int(rng.integers(0 if rng.random() < 0.05 else 1, 9)) for _ in range(rank))


@sample("BiasGelu")
def bias_gelu(rng: np.random.Generator) -> Sample:
    dtype = rng.choice(len(FLOATS))
    shape = (*shape_of(rng, 0, 4), int(rng.integers(1, 40)))
    a = (rng.standard_normal(shape) * 3).astype(FLOATS[dtype])
    return Sample({"A": a, "B": rng.standard_normal(shape[-1]).astype(FLOATS[dtype])})
