"""Any routing and any sizes of mixtures of experts against the NumPy reference, in both modes.

The draws are the same from run to run. ``WEBGPU_OPS_EXAMPLES=500 pytest tests/experts/test_properties.py``
draws that many others for each test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webgpu_ops import Device
from webgpu_ops.conformance import check_sample
from webgpu_ops.reference.samples import Sample
from webgpu_ops.reference.samples.experts import packed

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("experts-properties")

# How the logits of a call lie: apart, with many ties, all alike, or so that few experts get all tokens.
ROUTERS = ("apart", "ties", "alike", "few")


def check(device: Device, op: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    outcome = check_sample(op, Sample(inputs, attributes), device)
    assert outcome.passed, outcome.message


def logits(rng: np.random.Generator, tokens: int, experts: int, router: str) -> np.ndarray:
    x = rng.normal(size=(tokens, experts))
    if router == "ties":
        x = np.round(x)
    elif router == "alike":
        x = np.full_like(x, 0.5)
    elif router == "few":
        x += 9.0 * (np.arange(experts) % 7 == 3)
    return x.astype(np.float32)


def uniform(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@example(tokens=1, experts=1, share=1.0, router="alike", hidden=1, inter=1, normalize=1, mix=False)
@example(tokens=90, experts=64, share=0.0, router="few", hidden=20, inter=9, normalize=0, mix=False)
@given(
    tokens=st.integers(1, 90),
    experts=st.integers(1, 70),
    share=st.floats(0, 1),
    router=st.sampled_from(ROUTERS),
    hidden=st.integers(1, 70),
    inter=st.integers(1, 70),
    normalize=st.integers(0, 1),
    mix=st.booleans(),
)
def test_routing(
    device: Device,
    tokens: int,
    experts: int,
    share: float,
    router: str,
    hidden: int,
    inter: int,
    normalize: int,
    mix: bool,
) -> None:
    """From one expert a token to all of them; with ``mix``, QMoE with weights of their own for the sum."""
    rng = np.random.default_rng((tokens, experts))
    k = max(1, min(experts, round(share**3 * experts)))
    attributes: dict[str, Any] = {"k": k, "normalize_routing_weights": normalize, "activation_type": "silu"}
    inputs = {"input": uniform(rng, tokens, hidden), "router_probs": logits(rng, tokens, experts, router)}
    for name, lines, length in (("fc1", inter, hidden), ("fc2", hidden, inter)):
        inputs[f"{name}_experts_bias"] = uniform(rng, experts, lines)
        if mix:
            inputs[f"{name}_experts_weights"] = rng.integers(0, 256, (experts, lines, length), np.uint8)
            inputs[f"{name}_scales"] = rng.uniform(0.2, 1, (experts, lines)).astype(np.float32) / 128
        else:
            inputs[f"{name}_experts_weights"] = uniform(rng, experts, lines, length)
    if mix:
        inputs["router_weights"] = rng.uniform(0.1, 1, (tokens, experts)).astype(np.float32)
        attributes["expert_weight_bits"] = 8
    check(device, "QMoE" if mix else "MoE", inputs, attributes)


@given(tokens=st.integers(1, 20), experts=st.sampled_from([8, 16]), router=st.sampled_from(ROUTERS))
def test_sparse_mixer(device: Device, tokens: int, experts: int, router: str) -> None:
    rng = np.random.default_rng(tokens)
    inputs = {"input": uniform(rng, tokens, 6), "router_probs": logits(rng, tokens, experts, router)}
    inputs["fc1_experts_weights"] = uniform(rng, experts, 5, 6)
    inputs["fc2_experts_weights"] = uniform(rng, experts, 6, 5)
    check(device, "MoE", inputs, {"k": 2, "use_sparse_mixer": 1})


@given(
    tokens=st.integers(1, 40),
    experts=st.integers(1, 20),
    widths=st.tuples(*[st.sampled_from([2, 4, 8])] * 2),
    block=st.sampled_from([0, 16, 32, 64]),
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    zeros=st.booleans(),
    fusion=st.sampled_from([None, 1, 2]),
)
def test_integers(
    device: Device,
    tokens: int,
    experts: int,
    widths: tuple[int, int],
    block: int,
    blocks: tuple[int, int],
    zeros: bool,
    fusion: int | None,
) -> None:
    """Every width, block and kind of zero points, with and without gates."""
    rng = np.random.default_rng((tokens, experts))
    hidden, inter = ((block or 8) * count for count in blocks)
    inputs: dict[str, Any] = {
        "input": uniform(rng, tokens, hidden),
        "router_probs": logits(rng, tokens, experts, "apart"),
    }
    attributes: dict[str, Any] = {"k": min(experts, 3), "normalize_routing_weights": 1}
    attributes |= {"fc1_expert_weight_bits": widths[0], "fc2_expert_weight_bits": widths[1]}
    if block:
        attributes["block_size"] = block
    if fusion:
        attributes |= {"activation_type": "swiglu", "swiglu_fusion": fusion, "swiglu_limit": 2.0}
    sizes = (("fc1", inter * (2 if fusion else 1), hidden), ("fc2", hidden, inter))
    for (name, lines, length), bits in zip(sizes, widths, strict=True):
        shape = (experts, lines, length * bits // 8)
        inputs[f"{name}_experts_weights"] = rng.integers(0, 256, shape, np.uint8)
        counts = (experts, lines, length // block) if block else (experts, lines)
        scale = rng.uniform(0.3, 1, counts) / (2.0 ** (bits - 1) * length**0.5)
        inputs[f"{name}_scales"] = scale.astype(np.float32)
        if zeros:
            inputs[f"{name}_zero_points"] = packed(rng.integers(0, 1 << bits, counts), bits)
    check(device, "QMoE", inputs, attributes)
