"""Random calls of mixtures of experts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample
from .fused_matmul import some, uniform

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)
SIMPLE = ("relu", "relu2", "gelu", "silu", "identity")
E8M0, E4M3 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn
Values = dict[str, Any]


def _tokens(rng: np.random.Generator) -> int:
    """Mostly few, so that a run compiles few of the larger tiles."""
    return int(rng.integers(1, 40 if rng.random() < 0.1 else 7))


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, size: float) -> np.ndarray:
    return np.asarray(rng.uniform(-size, size, shape)).astype(dtype)


def _routing(rng: np.random.Generator, tokens: int) -> tuple[Values, np.ndarray, Any]:
    """Attributes, router logits, and the type of the call."""
    dtype = some(rng, FLOATS)
    experts = int(rng.integers(1, 12))
    attributes: Values = {"k": int(rng.integers(1, min(experts, 4) + 1))}
    if rng.random() < 0.15:
        # In float32, where no two logits are so near to the threshold that types decide.
        dtype, experts = np.float32, some(rng, (8, 16))
        attributes = {"k": 2, "use_sparse_mixer": 1}
    logits = rng.normal(size=(tokens, experts)) * 2
    if not attributes.get("use_sparse_mixer") and rng.random() < 0.4:
        logits = np.round(logits)  # ties
    if rng.random() < 0.5:
        attributes["normalize_routing_weights"] = 1
    return attributes, logits.astype(dtype), dtype


def _activation(rng: np.random.Generator, attributes: Values) -> tuple[int, bool]:
    """Chooses the activation: how often fc1's rows hold the inner size, and whether there is fc3."""
    if rng.random() < 0.5:
        attributes["activation_type"] = some(rng, SIMPLE)
        return 1, bool(rng.random() < 0.3)
    attributes["activation_type"] = "swiglu"
    fusion = attributes["swiglu_fusion"] = int(rng.integers(3))
    if rng.random() < 0.5:
        attributes |= {"activation_alpha": 1.702, "activation_beta": 1.0}
    if rng.random() < 0.5:
        attributes["swiglu_limit"] = float(np.float32(rng.uniform(0.2, 1.0)))
    return (2, False) if fusion else (1, True)


def _input(rng: np.random.Generator, tokens: int, hidden: int, dtype: Any) -> np.ndarray:
    shape = (tokens // 2, 2, hidden) if tokens % 2 == 0 and rng.random() < 0.4 else (tokens, hidden)
    return uniform(rng, shape, dtype)


def _sizes(
    experts: int, hidden: int, inter: int, fusion: int, third: bool
) -> dict[str, tuple[int, int, int]]:
    """[experts, lines, length] of each projection's weights."""
    sizes = {"fc1": (experts, fusion * inter, hidden), "fc2": (experts, hidden, inter)}
    return sizes | ({"fc3": (experts, inter, hidden)} if third else {})


@sample("MoE")
def moe(rng: np.random.Generator) -> Sample:
    tokens, hidden, inter = _tokens(rng), int(rng.integers(1, 50)), int(rng.integers(1, 40))
    attributes, router, dtype = _routing(rng, tokens)
    fusion, third = _activation(rng, attributes)
    inputs: Values = {"input": _input(rng, tokens, hidden, dtype), "router_probs": router}
    for name, shape in _sizes(router.shape[1], hidden, inter, fusion, third).items():
        inputs[f"{name}_experts_weights"] = _numbers(rng, shape, dtype, shape[2] ** -0.5)
        if rng.random() < 0.5:
            inputs[f"{name}_experts_bias"] = uniform(rng, shape[:2], dtype)
    return Sample(inputs, attributes)


def _bytes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 256, shape, np.uint8)


def _integers(rng: np.random.Generator, attributes: Values, dtype: Any) -> tuple[int, int]:
    """Chooses widths and blocks; then sizes that they divide."""
    attributes["weights_prepacked"] = int(rng.integers(-1, 1))
    bits = attributes["expert_weight_bits"] = int(some(rng, (2, 4, 8)))
    if rng.random() < 0.4:
        for name in ("fc1", "fc2", "fc3"):
            attributes[f"{name}_expert_weight_bits"] = int(some(rng, (2, 4, 8)))
        if attributes.get("swiglu_fusion"):
            del attributes["fc3_expert_weight_bits"]
    if rng.random() < 0.6:
        block = attributes["block_size"] = int(some(rng, (16, 32)))
        return block * int(rng.integers(1, 4)), block * int(rng.integers(1, 3))
    # Whole bytes for weights of each width: 4, 2 or 1 at a time.
    first = 8 // min(attributes.get(f"{name}_expert_weight_bits", bits) for name in ("fc1", "fc3"))
    second = 8 // attributes.get("fc2_expert_weight_bits", bits)
    return first * int(rng.integers(1, 12)), second * int(rng.integers(1, 10))


def _three_bits(rng: np.random.Generator, attributes: Values) -> tuple[int, int]:
    attributes |= {"activation_type": "swiglu", "swiglu_fusion": 1, "weights_prepacked": 0}
    attributes["expert_weight_bits"] = 3
    if rng.random() < 0.5:
        attributes["fc2_expert_weight_bits"] = int(some(rng, (2, 3, 4, 8)))
    block = attributes["block_size"] = int(some(rng, (32, 64)))
    return block * int(rng.integers(1, 3)), block * int(rng.integers(1, 3))


def _integer_weights(
    rng: np.random.Generator, attributes: Values, name: str, shape: tuple[int, int, int], dtype: Any
) -> Values:
    experts, lines, length = shape
    bits: int = attributes.get(f"{name}_expert_weight_bits") or attributes["expert_weight_bits"]
    block: int = attributes.get("block_size") or 0
    blocks = length // block if block else 1
    size = 1.5 / (2 ** (bits - 1) * length**0.5)
    scales = rng.uniform(0.5 * size, size, (experts, lines, blocks))
    inputs: Values = {
        f"{name}_experts_weights": _bytes(rng, (experts, lines, length * bits // 8)),
        f"{name}_scales": (scales if block else scales[..., 0]).astype(dtype),
    }
    if rng.random() < 0.5:
        counts = (experts, lines, blocks) if block else (experts, lines)
        codes = np.full(counts, 4) if bits == 3 else rng.integers(0, 1 << bits, counts)
        inputs[f"{name}_zero_points"] = packed(codes, bits)
    return inputs


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes as a stream of bits along the last axis, the lowest first, in whole bytes."""
    stream = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(stream.reshape(*codes.shape[:-1], -1).astype(np.uint8), axis=-1, bitorder="little")


def _float_weights(
    rng: np.random.Generator, attributes: Values, name: str, shape: tuple[int, int, int], dtype: Any
) -> Values:
    """Weights of 8- or 4-bit floats. Scales are powers of two, so that sums of few terms are exact."""
    experts, lines, length = shape
    kind = attributes["quant_type"]
    inputs: Values = {}
    gain = 2.0 ** rng.integers(-2, 1, experts)
    if kind == "fp8":
        inputs[f"{name}_experts_weights"] = _numbers(rng, shape, E4M3, 2 * length**-0.5)
        block = attributes.get("block_size", 0)
        if block:
            counts = (experts, -(-lines // block), -(-length // block))
            inputs[f"{name}_scales"] = rng.uniform(0.5, 1.0, counts).astype(dtype)
    else:
        across = kind == "nvfp4"
        counts = (experts, length, lines // 2) if across else (experts, lines, length // 2)
        inputs[f"{name}_experts_weights"] = _bytes(rng, counts)
        size, of = (16, E4M3) if across else (32, E8M0)
        scales = 2.0 ** rng.integers(-5, -2, (experts, lines, length // size))
        inputs[f"{name}_scales"] = scales.astype(of)
    if name != "fc3" and not attributes.get("block_size"):
        inputs[f"{name}_global_scale"] = gain.astype(np.float32)
    return inputs


@sample("QMoE")
def q_moe(rng: np.random.Generator) -> Sample:
    tokens = _tokens(rng)
    attributes, router, dtype = _routing(rng, tokens)
    kind = some(rng, ("int", "int", "int3", "fp8", "fp4", "nvfp4", "wfp4afp8"))
    fusion, third = _activation(rng, attributes)
    weights = _float_weights
    if kind in ("int", "int3"):
        weights = _integer_weights
        if kind == "int3" and dtype == np.float32:
            dtype = np.float16
        hidden, inter = _three_bits(rng, attributes) if kind == "int3" else _integers(rng, attributes, dtype)
        fusion, third = (2, False) if kind == "int3" else (fusion, third)
    else:
        attributes["quant_type"] = kind
        hidden, inter = 32 * int(rng.integers(1, 3)), 32 * int(rng.integers(1, 3))
        if kind == "fp8":
            attributes["expert_weight_bits"] = 8
            hidden, inter = int(rng.integers(1, 60)), int(rng.integers(1, 40))
            if rng.random() < 0.6:
                attributes["block_size"] = int(some(rng, (12, 16, 128)))
        if kind == "nvfp4":
            attributes["weights_prepacked"] = int(rng.integers(-1, 2))
    if kind == "wfp4afp8":
        # Exact up to the second projection, so that rounding to 8 bits finds the same numbers.
        attributes["activation_type"] = some(rng, ("relu", "identity"))
        for name in [n for n in attributes if n.startswith(("swiglu", "activation_a", "activation_b"))]:
            del attributes[name]
        fusion, third = 1, False
    inputs: Values = {
        "input": _input(rng, tokens, hidden, dtype),
        "router_probs": router.astype(dtype),
    }
    experts = router.shape[1]
    for name, shape in _sizes(experts, hidden, inter, fusion, third).items():
        inputs |= weights(rng, attributes, name, shape, dtype)
        if rng.random() < 0.5:
            bias = rng.integers(-8, 9, shape[:2]) / 8
            inputs[f"{name}_experts_bias"] = bias.astype(dtype)
    if kind == "wfp4afp8":
        inputs |= _activation_scales(rng, tokens, experts, {"fc1": hidden, "fc2": inter})
    if rng.random() < 0.3:
        inputs["router_weights"] = rng.uniform(0.1, 1.5, router.shape).astype(dtype)
    return Sample(inputs, attributes)


def _activation_scales(rng: np.random.Generator, tokens: int, experts: int, widths: dict[str, int]) -> Values:
    inputs: Values = {}
    for name, width in widths.items():
        if rng.random() < 0.7:
            scales = 2.0 ** rng.integers(-2, 2, some(rng, (1, experts)))
            inputs[f"{name}_act_scale"] = scales.astype(np.float32)
        if rng.random() < 0.4:
            shape = (some(rng, (1, experts)), some(rng, (1, tokens)), width // 32)
            inputs[f"{name}_act_block_scale"] = (2.0 ** rng.integers(-2, 2, shape)).astype(E8M0)
    return inputs
