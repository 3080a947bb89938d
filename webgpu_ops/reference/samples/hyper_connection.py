"""Random calls of the hyper-connections."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import Sample, sample
from .gating import any_float, leading


@sample("HyperConnectionPreMix")
def hyper_connection_pre_mix(rng: np.random.Generator) -> Sample:
    flat, lead = rng.random() < 0.5, leading(rng)
    branches, width = int(rng.integers(1, 7)), int(rng.integers(1, 40))
    forms = [(branches,), (branches, 1), (branches, width)] + [(branches * width,)] * flat
    streams = rng.standard_normal((*lead, *((branches * width,) if flat else (branches, width))))
    mix = rng.standard_normal((*lead, *forms[rng.choice(len(forms))]))
    attributes = {"num_branches": branches if flat else 0, "reduction_scale": float(rng.choice([1.0, 0.25]))}
    inputs = {"streams": streams.astype(any_float(rng)), "pre_mix": mix.astype(any_float(rng))}
    return Sample(inputs, attributes)


@sample("HyperConnectionPostMix")
def hyper_connection_post_mix(rng: np.random.Generator) -> Sample:
    flat, lead = rng.random() < 0.5, leading(rng)
    branches, width = int(rng.integers(1, 7)), int(rng.integers(1, 40))
    dtype, gates = any_float(rng), any_float(rng)
    forms = [(branches,), (branches, 1), (branches, width)]
    mix = rng.standard_normal((*lead, branches, branches)).astype(gates) if rng.random() < 0.5 else None
    last = (branches * width,) if flat else (branches, width)
    inputs = {
        "streams": rng.standard_normal((*lead, *last)).astype(dtype),
        "block_output": rng.standard_normal((*lead, width)).astype(dtype),
        "post_mix": rng.standard_normal((*lead, *forms[rng.choice(3)])).astype(gates),
        "stream_mix": mix,
    }
    aliases = {"output": "streams"} if rng.random() < 0.4 else {}
    return Sample(inputs, {"num_branches": branches if flat else 0}, aliases=aliases)


@sample("HyperConnectionLowRankMix")
def hyper_connection_low_rank_mix(rng: np.random.Generator) -> Sample:
    dtype, lead = any_float(rng), leading(rng)
    branches, width, rank = (int(rng.integers(1, n)) for n in (6, 40, 12))
    total = branches * width

    def draw(*of: int, size: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(of) * size).astype(dtype)

    prologue = rng.random() < 0.6
    inputs = {
        "streams": draw(*lead, total),
        "norm_scale": draw(total),
        "down_weight": draw(total, rank, size=total**-0.5),
        "up_weight": draw(rank, total, size=rank**-0.5),
        "inject_weight": draw(total, branches, size=total**-0.5),
        "prev_block_output": draw(*lead, width) if prologue else None,
        "prev_post_gate": draw(*lead, branches) if prologue else None,
    }
    names = ("epsilon", "gate_div", "gate_mul", "reduction_scale", "silu_alpha")
    attributes = {name: float(np.float32(rng.uniform(0.3, 2.0))) for name in names if rng.random() < 0.5}
    outputs = ("pre_output", "post_gate", "streams_out")[: int(rng.integers(2, 4))]
    aliases = {"streams_out": "streams"} if len(outputs) == 3 and rng.random() < 0.4 else {}
    # A sum made in float32 may round to the other neighbour than the reference's; later steps keep that.
    steps = {np.float32: (1e-4, 1e-5), np.float16: (3e-3, 3e-3), ml_dtypes.bfloat16: (2e-2, 2e-2)}
    return Sample(
        inputs, {"num_branches": branches, **attributes}, outputs, tolerance=steps[dtype], aliases=aliases
    )
