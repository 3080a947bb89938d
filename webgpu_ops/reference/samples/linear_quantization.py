"""Random calls of linear quantization."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..linear_quantization import TYPES, limits, spread
from . import Sample, sample
from .fused_matmul import some
from .integer_matmul import near_ties, on_a_grid

WHOLE = (2, 3, 4, 5, 21, 22)
NARROW = (17, 18, 19, 20)
REAL = (np.float32, np.float16, ml_dtypes.bfloat16)


def _grain(rng: np.random.Generator, x: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The shape of scales for a tensor of shape ``x``, and the attributes that go with it."""
    kind = some(rng, ["all", "axis", "block"])
    if kind == "all":
        return some(rng, [(), (1,)]), {}
    axis = int(rng.integers(len(x)))
    attributes = {"axis": axis - len(x) if rng.random() < 0.3 else axis}
    if kind == "axis":
        return (x[axis],), attributes
    block = int(rng.integers(1, x[axis] + 1))
    return (*x[:axis], -(-x[axis] // block), *x[axis + 1 :]), attributes | {"block_size": block}


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(rng.integers(1, 9)) for _ in range(int(rng.integers(1, 5))))


def _any_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    low, high = limits(dtype)
    return np.asarray(rng.integers(int(low), int(high) + 1, shape)).astype(dtype)


@sample("QuantizeLinear", domain="")
def quantize_linear(rng: np.random.Generator) -> Sample:
    shape = _shape(rng)
    grain, attributes = _grain(rng, shape)
    code = some(rng, (*WHOLE, *NARROW))
    low, high = limits(TYPES[code])
    real = some(rng, REAL)
    x = np.asarray(rng.uniform(1.2 * low, 1.2 * high, shape) * 0.01).astype(real)
    x = x if np.isfinite(x.astype(np.float32)).all() else np.ones_like(x)
    scale = np.asarray(rng.uniform(0.005, 0.02, grain)).astype(real)
    inputs = {"x": x, "y_scale": scale}
    whole = code in WHOLE
    if whole and rng.random() < 0.7:
        inputs["y_zero_point"] = _any_of(rng, grain, TYPES[code])
    elif not whole and rng.random() < 0.5:
        inputs["y_zero_point"] = np.zeros(grain, TYPES[code])
    else:
        attributes["output_dtype"] = code
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    quotient = x.astype(np.float64) / spread(scale, x, axis, block)
    ties = near_ties(quotient) if whole else np.zeros(shape, bool)
    return Sample(inputs, attributes, domain="", opset=21, unspecified={"y": ties})


@sample("DequantizeLinear", domain="")
def dequantize_linear(rng: np.random.Generator) -> Sample:
    shape = _shape(rng)
    grain, attributes = _grain(rng, shape)
    code = some(rng, (*WHOLE, *NARROW, 6))
    scale = np.asarray(rng.uniform(0.005, 0.02, grain)).astype(some(rng, REAL))
    if code == 6:
        return Sample(
            {"x": rng.integers(-(2**31), 2**31 - 1, shape, np.int32), "x_scale": scale.astype(np.float32)},
            attributes,
            domain="",
            opset=21,
        )
    dtype = TYPES[code]
    x = _any_of(rng, shape, dtype) if code in WHOLE else np.asarray(rng.uniform(-9, 9, shape)).astype(dtype)
    inputs = {"x": x, "x_scale": scale}
    if code in WHOLE and rng.random() < 0.7:
        inputs["x_zero_point"] = _any_of(rng, grain, dtype)
    return Sample(inputs, attributes, domain="", opset=21)


@sample("DynamicQuantizeLinear", domain="")
def dynamic_quantize_linear(rng: np.random.Generator) -> Sample:
    outputs = ("y", "y_scale", "y_zero_point")
    shape = some(rng, [_shape(rng), (int(rng.integers(2000, 9000)),)])
    return Sample({"x": on_a_grid(rng, shape)}, outputs=outputs, domain="", opset=11, tolerance=(1e-6, 0.0))
