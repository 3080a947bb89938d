"""Random calls of the causal convolutions."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample

TYPES = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)


def _activation(rng: np.random.Generator) -> str:
    return str(rng.choice(["none", "silu", "swish"]))


@sample("CausalConvWithState")
def causal_conv_with_state(rng: np.random.Generator) -> Sample:
    dtype = TYPES[rng.choice(4)]
    ndim, last = int(rng.choice([1, 1, 2, 3])), 0
    batch, taps, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
    length, window = int(rng.choice([1, 2, 7, 30])), int(rng.choice([0, 0, 1, 3, 8]))
    channels: tuple[int, ...] = (int(rng.integers(1, 10)),)
    others = tuple(int(n) for n in rng.integers(1, 5, ndim - 1))
    if ndim == 1 and rng.random() < 0.5:
        last, channels = 1, tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(1, 4))))
    count, history = math.prod(channels), (taps - 1) * dilation

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    def rows(positions: int) -> tuple[int, ...]:
        return (batch, positions, *channels) if last else (batch, *channels, *others, positions)

    around = tuple(int(k) for k in rng.choice([1, 3], ndim - 1))
    inputs: dict[str, Any] = {"input": draw(*rows(length)), "weight": draw(count, 1, *around, taps)}
    if rng.random() < 0.6:
        inputs["bias"] = draw(count)
    aliases: dict[str, str] = {}
    if rng.random() < 0.7:
        inputs["past_state"] = draw(*((window,) if window else ()), *rows(history))
        if history and rng.random() < 0.4:
            aliases["present_state"] = "past_state"
    attributes = {
        "activation": _activation(rng),
        "channels_last": last,
        "dilation": dilation,
        "ndim": ndim,
        "state_window": window,
    }
    return Sample(inputs, attributes, ("output", "present_state"), aliases=aliases)


@sample("VarlenCausalConvWithState")
def varlen_causal_conv_with_state(rng: np.random.Generator) -> Sample:
    dtype = TYPES[rng.choice(4)]
    lengths = [int(n) for n in rng.integers(1, int(rng.choice([2, 6, 30])), int(rng.integers(1, 6)))]
    tokens, batch, channels = sum(lengths), len(lengths), int(rng.integers(1, 10))
    taps, dilation = int(rng.integers(1, 6)), int(rng.integers(1, 4))

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    inputs: dict[str, Any] = {
        "input": draw(tokens, channels),
        "weight": draw(channels, 1, taps),
        "cumulative_sequence_length": np.cumsum([0, *lengths]).astype(np.int32),
        "initial_state": draw(batch, channels, (taps - 1) * dilation),
    }
    if rng.random() < 0.6:
        inputs["bias"] = draw(channels)
    attributes: dict[str, Any] = {"activation": _activation(rng), "dilation": dilation}
    outputs: tuple[str, ...] = ("output", "final_state")
    if rng.random() < 0.5:
        capacity = int(rng.integers(1, 9))
        attributes["state_update_capacity"] = capacity
        inputs["capture_count"] = rng.integers(-2, capacity + 3, batch).astype(np.int32)
        outputs += ("state_update",)
    in_place = taps > 1 and rng.random() < 0.4
    aliases = {"final_state": "initial_state"} if in_place else {}
    return Sample(inputs, attributes, outputs, aliases=aliases)
