"""Random calls of gates and of the norms in front of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


def any_float(rng: np.random.Generator) -> Any:
    return FLOATS[rng.choice(len(FLOATS))]


def leading(rng: np.random.Generator, most: int = 3) -> tuple[int, ...]:
    """Up to ``most`` leading dimensions, now and then with an empty one."""
    return tuple(
        int(rng.integers(0 if rng.random() < 0.05 else 1, 5)) for _ in range(rng.integers(0, most + 1))
    )


@sample("EngramGate")
def engram_gate(rng: np.random.Generator) -> Sample:
    dtype = any_float(rng)
    batch, sequence, streams = (int(n) for n in rng.integers(1, 4, 3))
    hidden = int(rng.integers(1, 300))
    shape = (batch, sequence, streams, hidden)

    def draw(*of: int) -> np.ndarray:
        return rng.standard_normal(of).astype(dtype)

    normed = rng.random() < 0.6
    inputs = {
        "key": draw(*shape),
        "query": draw(*shape),
        "value": draw(batch, sequence, hidden),
        "key_norm_scale": draw(streams, hidden),
        "query_norm_scale": draw(streams, hidden),
        "conv_norm_scale": draw(streams, hidden) if normed or rng.random() < 0.2 else None,
    }
    outputs = ("output", "gated_value_normed") if normed else ("output",)
    return Sample(inputs, {"epsilon": float(rng.choice([1e-5, 0.1]))}, outputs)


@sample("BranchwiseRMSNorm")
def branchwise_rms_norm(rng: np.random.Generator) -> Sample:
    dtype, flat = any_float(rng), rng.random() < 0.5
    branches, width = int(rng.integers(1, 6)), int(rng.integers(1, 150))
    last = (branches * width,) if flat else (branches, width)
    x = rng.standard_normal((*leading(rng), *last)) * rng.choice([1e-3, 1.0, 30.0])
    form = ((branches * width,), (branches, width), (width,))[rng.choice(3)]
    scale = rng.standard_normal(form).astype(any_float(rng)) if rng.random() < 0.7 else None
    attributes = {"epsilon": float(rng.choice([1e-5, 0.5])), "num_branches": branches if flat else 0}
    return Sample({"X": x.astype(dtype), "scale": scale}, attributes)


@sample("GatedRMSNorm")
def gated_rms_norm(rng: np.random.Generator) -> Sample:
    dtype, width = any_float(rng), int(rng.integers(1, 150))
    shape = (*leading(rng), width * int(rng.integers(1, 4)))
    inputs = {
        "X": rng.standard_normal(shape).astype(dtype),
        "scale": rng.standard_normal(width).astype(dtype),
        "gate": (rng.standard_normal(shape) * 3).astype(dtype),
    }
    activation = str(rng.choice(["silu", "swish", "sigmoid"]))
    return Sample(inputs, {"activation": activation, "epsilon": float(rng.choice([1e-5, 0.5]))})


@sample("GatedAdd")
def gated_add(rng: np.random.Generator) -> Sample:
    dtype, lead = any_float(rng), leading(rng)
    shape = (*lead, int(rng.integers(1, 40)))
    inputs = {
        "X": rng.standard_normal(shape).astype(dtype),
        "Y": rng.standard_normal(shape).astype(dtype),
        "gate": rng.standard_normal((*lead, 1)).astype(dtype),
    }
    return Sample(inputs, aliases={"output": "X"} if rng.random() < 0.3 else {})


@sample("ScaledSiLU")
def scaled_silu(rng: np.random.Generator) -> Sample:
    x = (rng.standard_normal(leading(rng, 4)) * rng.choice([0.1, 2.0, 20.0])).astype(any_float(rng))
    form = ((), (1,))[rng.choice(2)]
    scale = rng.standard_normal(form).astype(any_float(rng)) if rng.random() < 0.5 else None
    attributes = {"alpha": float(np.float32(rng.standard_normal()))} if rng.random() < 0.5 else {}
    return Sample({"X": x, "scale": scale}, attributes)
