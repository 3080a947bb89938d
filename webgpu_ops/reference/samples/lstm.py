"""Random calls of the LSTM operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..lstm import Rounding, attn_lstm, dynamic_quantize_lstm, lstm
from . import Sample, sample

Array = np.ndarray

_ACTIVATIONS = [
    "Relu",
    "Tanh",
    "Sigmoid",
    "Affine",
    "LeakyRelu",
    "ThresholdedRelu",
    "ScaledTanh",
    "HardSigmoid",
    "Elu",
    "Softsign",
    "Softplus",
]


class _Draw:
    """Sizes and the inputs and attributes that all LSTM operators share."""

    def __init__(self, rng: np.random.Generator, dtype: Any) -> None:
        self.rng, self.dtype = rng, dtype
        self.direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
        self.dirs = 2 if self.direction == "bidirectional" else 1
        self.steps, self.batch, self.width = (int(rng.integers(1, n)) for n in (9, 8, 9))
        self.hidden = int(rng.choice([3, 8, 13]))

    def maybe(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def array(self, *shape: int, scale: float = 1.0) -> Array:
        return (self.rng.uniform(-1, 1, shape) * scale).astype(self.dtype)

    def lengths(self, most: int) -> Array:
        return self.rng.integers(0, most + 1, self.batch).astype(np.int32)

    def optional(self, batch_first: bool = False) -> dict[str, Array]:
        """B, sequence_lens, the initial states and P, each now and then."""
        state = (self.dirs, self.batch, self.hidden)
        if batch_first:
            state = (self.batch, self.dirs, self.hidden)
        inputs: dict[str, Array] = {}
        if self.maybe(0.7):
            inputs["B"] = self.array(self.dirs, 8 * self.hidden)
        if self.maybe(0.5):
            inputs["sequence_lens"] = self.lengths(self.steps)
        if self.maybe(0.5):
            inputs["initial_h"] = self.array(*state)
        if self.maybe(0.5):
            inputs["initial_c"] = self.array(*state)
        if self.maybe(0.4):
            inputs["P"] = self.array(self.dirs, 3 * self.hidden)
        return inputs

    def attributes(self) -> dict[str, Any]:
        attributes: dict[str, Any] = {"direction": self.direction}
        if self.maybe(0.8):
            attributes["hidden_size"] = self.hidden
        if self.maybe(0.3):
            attributes["clip"] = float(np.float32(self.rng.uniform(0.3, 2)))
        if self.maybe(0.3):
            attributes["input_forget"] = 1
        if self.maybe(0.3):
            attributes["activations"] = [str(a) for a in self.rng.choice(_ACTIVATIONS, 3 * self.dirs)]
            for name in ("activation_alpha", "activation_beta"):
                count = int(self.rng.integers(0, 4))
                if count:
                    attributes[name] = [float(np.float32(v)) for v in self.rng.uniform(0.1, 0.9, count)]
        return attributes

    def outputs(self) -> tuple[str, ...]:
        names = tuple(n for n in ("Y", "Y_h", "Y_c") if self.maybe(0.8))
        return names or ("Y",)


def _small(values: tuple[Array, ...]) -> bool:
    return all(np.all(np.abs(v.astype(np.float64)) < 1e3) for v in values)


def _tame(rng: np.random.Generator, function: Callable[..., Any], draw: Callable[..., Sample]) -> Sample:
    """A call whose values stay small: some activations let them grow from step to step, out of any type."""
    while True:
        call = draw(rng)
        with np.errstate(all="ignore"):
            found = function(**call.inputs, **call.attributes)
        if _small(found):
            return call


@sample("LSTM", domain="")
def lstm_call(rng: np.random.Generator) -> Sample:
    return _tame(rng, lstm, _lstm)


def _lstm(rng: np.random.Generator) -> Sample:
    types = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
    dtype = types[rng.choice(4, p=(0.6, 0.2, 0.1, 0.1))]
    d = _Draw(rng, dtype)
    layout = int(d.maybe(0.3))
    lead = (d.batch, d.steps) if layout else (d.steps, d.batch)
    scale = 1 / np.sqrt(d.hidden + d.width)
    inputs = {
        "X": d.array(*lead, d.width),
        "W": d.array(d.dirs, 4 * d.hidden, d.width, scale=scale),
        "R": d.array(d.dirs, 4 * d.hidden, d.hidden, scale=scale),
        **d.optional(bool(layout)),
    }
    attributes = d.attributes() | ({"layout": 1} if layout else {})
    opset = 22 if dtype == ml_dtypes.bfloat16 else int(rng.choice([14, 22]))
    return Sample(inputs, attributes, d.outputs(), domain="", opset=opset)


@sample("AttnLSTM")
def attn_lstm_call(rng: np.random.Generator) -> Sample:
    return _tame(rng, attn_lstm, _attn_lstm)


def _attn_lstm(rng: np.random.Generator) -> Sample:
    d = _Draw(rng, np.float64 if rng.random() < 0.1 else np.float32)
    query, depth, memory = (int(rng.integers(1, n)) for n in (7, 7, 12))
    layer = int(rng.integers(1, 7)) if d.maybe(0.6) else 0
    attention = layer or depth
    scale = 1 / np.sqrt(d.hidden + d.width + attention)
    inputs = {
        "X": d.array(d.steps, d.batch, d.width),
        "W": d.array(d.dirs, 4 * d.hidden, d.width + attention, scale=scale),
        "R": d.array(d.dirs, 4 * d.hidden, d.hidden, scale=scale),
        **d.optional(),
        "QW": d.array(d.dirs, d.hidden, query),
        "MW": d.array(d.dirs, depth, query),
        "V": d.array(d.dirs, query),
        "M": d.array(d.batch, memory, depth),
    }
    if d.maybe(0.5):
        inputs["memory_seq_lens"] = d.lengths(memory)
    if layer:
        inputs["AW"] = d.array(d.dirs, depth + d.hidden, layer)
    return Sample(inputs, d.attributes(), d.outputs())


@sample("DynamicQuantizeLSTM")
def dynamic_quantize_lstm_call(rng: np.random.Generator) -> Sample:
    """Drawn again until no value is so close to a rounding tie that float32 might cross it."""
    while True:
        d = _Draw(rng, np.float32)
        weights = np.int8 if d.maybe(0.6) else np.uint8
        low, high = np.iinfo(weights).min, np.iinfo(weights).max + 1
        inputs: dict[str, Any] = {"X": d.array(d.steps, d.batch, d.width), **d.optional()}
        for name, rows in (("W", d.width), ("R", d.hidden)):
            shape = (d.dirs, 4 * d.hidden) if d.maybe(0.4) else (d.dirs,)
            inputs[name] = rng.integers(low, high, (d.dirs, rows, 4 * d.hidden)).astype(weights)
            inputs[f"{name}_scale"] = (rng.uniform(0.5, 1, shape) / (128 * np.sqrt(rows))).astype(np.float32)
            middle = 0 if weights == np.int8 else 128
            inputs[f"{name}_zero_point"] = (middle + rng.integers(-9, 10, shape)).astype(weights)
        attributes = d.attributes()
        rounding = Rounding()
        with np.errstate(all="ignore"):
            found = dynamic_quantize_lstm(**inputs, **attributes, rounding=rounding)
        if rounding.margin > 2e-4 and _small(found):
            return Sample(inputs, attributes, d.outputs())
