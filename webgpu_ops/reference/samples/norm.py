"""Random calls of the norms."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import Sample, sample


@sample("SkipLayerNormalization")
def skip_layer_normalization(rng: np.random.Generator) -> Sample:
    dtype = (np.float32, np.float16, ml_dtypes.bfloat16)[rng.choice(3)]
    batch, sequence, hidden = (int(rng.integers(1, n)) for n in (4, 7, 90))
    shape = (batch, sequence, hidden)

    def draw(*of: int) -> np.ndarray:
        return rng.standard_normal(of).astype(dtype)

    inputs = {
        "input": draw(*shape) + dtype(rng.choice([0, 4])),
        "skip": draw(*(shape, (1, *shape[1:]), shape[1:])[rng.choice(3)]),
        "gamma": draw(hidden),
        "beta": draw(hidden) if rng.random() < 0.7 else None,
        "bias": draw(hidden) if rng.random() < 0.5 else None,
    }
    extra = tuple(n for n in ("mean", "inv_std_var", "input_skip_bias_sum") if rng.random() < 0.5)
    # With one column the deviation is rounding noise alone, so epsilon has to be felt.
    epsilon = 1e-3 if hidden < 8 else float(rng.choice([1e-5, 1e-3]))
    return Sample(inputs, {"epsilon": epsilon}, ("output", *extra))
