"""Mixtures of experts, with float and with quantized weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import reference
from .quantized import E2M1, E4M3, unpack

JITTER = 0.01  # of the sparse mixer

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0.0),
    "relu2": lambda x: np.maximum(x, 0.0) ** 2,
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "identity": lambda x: x,
}


def route(
    logits: np.ndarray, k: int, normalize: bool, sparse: bool, mix: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The experts of each token ([tokens, k], the largest logits first) and their weights."""
    logits = logits.astype(np.float64)
    rows = np.arange(len(logits))[:, None]
    picks = np.argsort(-logits, axis=-1, kind="stable")[:, :k]
    if mix is not None:
        weights = mix.astype(np.float64)[rows, picks]
    elif sparse:
        weights = np.empty(picks.shape)
        left = logits.copy()
        for j in range(k):
            top = left.max(-1, keepdims=True)
            size = np.maximum(np.abs(left), top)
            with np.errstate(invalid="ignore", divide="ignore"):
                apart = (top - left) / size > 2 * JITTER
            shares = np.where(apart, 0.0, np.exp(left - top))
            shares[np.isinf(left)] = 0.0
            weights[:, j] = 1.0 / shares.sum(-1)
            left[rows[:, 0], picks[:, j]] = -np.inf
    else:
        shares = np.exp(logits - logits.max(-1, keepdims=True))
        weights = (shares / shares.sum(-1, keepdims=True))[rows, picks]
    if normalize:
        weights = weights / weights.sum(-1, keepdims=True)
    return picks, weights


def mixture(
    x: np.ndarray,
    router: np.ndarray,
    weights: Mapping[str, np.ndarray],
    biases: Mapping[str, np.ndarray | None],
    attributes: Mapping[str, Any],
    *,
    mix: np.ndarray | None = None,
    through: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """Each token through its experts: float64 ``weights`` [experts, out, in] of fc1, fc2 and perhaps fc3.

    ``through["fc1"](rows, tokens, expert)`` is what a projection sees of its input.
    """
    tokens = x.reshape(len(router), x.shape[-1]).astype(np.float64)
    picks, shares = route(
        router,
        attributes["k"],
        bool(attributes["normalize_routing_weights"]),
        bool(attributes["use_sparse_mixer"]),
        mix,
    )
    swiglu = attributes["activation_type"] == "swiglu"
    fusion = attributes["swiglu_fusion"] if swiglu else 0
    y = np.zeros(tokens.shape)
    for e in range(router.shape[1]):
        chosen, place = np.nonzero(picks == e)

        def project(name: str, rows: np.ndarray, e: int = e, chosen: np.ndarray = chosen) -> np.ndarray:
            seen = through["fc2" if name == "fc2" else "fc1"](rows, chosen, e) if through else rows
            bias = biases.get(name)
            return seen @ weights[name][e].T + (0.0 if bias is None else bias[e].astype(np.float64))

        rows = tokens[chosen]
        h = project("fc1", rows)
        if fusion:
            gate, up = (h[:, ::2], h[:, 1::2]) if fusion == 1 else np.split(h, 2, -1)
        else:
            gate, up = h, project("fc3", rows) if "fc3" in weights else np.ones(())
        if swiglu:
            limit = attributes["swiglu_limit"]
            if limit is not None:
                gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
            h = gate / (1.0 + np.exp(-attributes["activation_alpha"] * gate))
            h = h * (up + attributes["activation_beta"])
        else:
            h = ACTIVATIONS[attributes["activation_type"]](gate) * up
        y[chosen] += shares[chosen, place][:, None] * project("fc2", h)
    return y.reshape(x.shape).astype(x.dtype)


@reference("MoE")
def moe(
    input: np.ndarray,
    router_probs: np.ndarray,
    fc1_experts_weights: np.ndarray,
    fc1_experts_bias: np.ndarray | None = None,
    fc2_experts_weights: np.ndarray | None = None,
    fc2_experts_bias: np.ndarray | None = None,
    fc3_experts_weights: np.ndarray | None = None,
    fc3_experts_bias: np.ndarray | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> tuple[np.ndarray, ...]:
    """Softmax over all experts, the k largest, and the weighted sum of what those make of the token."""
    attributes = {
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
        "activation_type": activation_type,
        "k": k,
        "normalize_routing_weights": normalize_routing_weights,
        "swiglu_fusion": swiglu_fusion,
        "swiglu_limit": swiglu_limit,
        "use_sparse_mixer": use_sparse_mixer,
    }
    given = {"fc1": fc1_experts_weights, "fc2": fc2_experts_weights, "fc3": fc3_experts_weights}
    weights = {name: w.astype(np.float64) for name, w in given.items() if w is not None}
    biases = {"fc1": fc1_experts_bias, "fc2": fc2_experts_bias, "fc3": fc3_experts_bias}
    return (mixture(input, router_probs, weights, biases, attributes),)


def along(scales: np.ndarray, axis: int, block: int, length: int) -> np.ndarray:
    """Scales of blocks as scales of elements."""
    return np.take(scales, np.arange(length) // block, axis)


def integers(
    codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int, length: int, block: int
) -> np.ndarray:
    """(code - zero) * scale, by blocks along the rows or (``block`` 0) by rows."""
    experts, lines = codes.shape[:2]
    values = unpack(codes, bits, length).astype(np.float64)
    count = length // block if block else 1
    zero = np.full((experts, lines, count), float(1 << (bits - 1)))
    if zeros is not None and block:
        zero = unpack(zeros, bits, count).astype(np.float64)
    elif zeros is not None:
        zero = unpack(zeros, bits, lines).astype(np.float64)[..., None]
    each = block or max(1, length)
    scale = scales.astype(np.float64).reshape(experts, lines, count)
    return (values - along(zero, -1, each, length)) * along(scale, -1, each, length)


def per_expert(scale: np.ndarray | None) -> np.ndarray | float:
    return 1.0 if scale is None else scale.astype(np.float64).reshape(-1, 1, 1)


@reference("QMoE")
def q_moe(
    input: np.ndarray,
    router_probs: np.ndarray,
    fc1_experts_weights: np.ndarray,
    fc1_scales: np.ndarray | None = None,
    fc1_experts_bias: np.ndarray | None = None,
    fc2_experts_weights: np.ndarray | None = None,
    fc2_scales: np.ndarray | None = None,
    fc2_experts_bias: np.ndarray | None = None,
    fc3_experts_weights: np.ndarray | None = None,
    fc3_scales: np.ndarray | None = None,
    fc3_experts_bias: np.ndarray | None = None,
    fc1_zero_points: np.ndarray | None = None,
    fc2_zero_points: np.ndarray | None = None,
    fc3_zero_points: np.ndarray | None = None,
    router_weights: np.ndarray | None = None,
    fc1_global_scale: np.ndarray | None = None,
    fc2_global_scale: np.ndarray | None = None,
    fc1_act_scale: np.ndarray | None = None,
    fc2_act_scale: np.ndarray | None = None,
    fc1_act_block_scale: np.ndarray | None = None,
    fc2_act_block_scale: np.ndarray | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> tuple[np.ndarray, ...]:
    """MoE with dequantized weights; the activations stay as they are but for wfp4afp8."""
    attributes = {
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
        "activation_type": activation_type,
        "k": k,
        "normalize_routing_weights": normalize_routing_weights,
        "swiglu_fusion": swiglu_fusion,
        "swiglu_limit": swiglu_limit,
        "use_sparse_mixer": use_sparse_mixer,
    }
    hidden = input.shape[-1]
    rows = fc1_experts_weights.shape[1]
    if quant_type == "nvfp4":
        rows = 2 * fc1_experts_weights.shape[2]
    inter = rows // 2 if activation_type == "swiglu" and swiglu_fusion else rows
    block = max(0, block_size)

    def dequantized(
        codes: np.ndarray,
        scales: np.ndarray | None,
        zeros: np.ndarray | None,
        gain: np.ndarray | None,
        bits: int | None,
        length: int,
    ) -> np.ndarray:
        if quant_type == "int":
            assert scales is not None
            return integers(codes, scales, zeros, bits or expert_weight_bits, length, block)
        if quant_type == "fp8":
            values = codes.astype(np.float64)
            if block:
                assert scales is not None
                by_rows = along(scales.astype(np.float64), 1, block, codes.shape[1])
                return values * along(by_rows, 2, block, length)
            return values * per_expert(gain)
        assert scales is not None
        size = 16 if quant_type == "nvfp4" else 32
        if quant_type != "nvfp4":
            values = unpack(codes, 4, length)
        elif weights_prepacked == 1:
            values = unpack(codes.reshape(len(codes), -1, length // 2), 4, length)
        else:
            values = unpack(codes, 4, 2 * codes.shape[2]).swapaxes(1, 2)
        return E2M1[values] * along(scales.astype(np.float64), 2, size, length) * per_expert(gain)

    weights = {
        "fc1": dequantized(
            fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_global_scale, fc1_expert_weight_bits, hidden
        )
    }
    assert fc2_experts_weights is not None
    weights["fc2"] = dequantized(
        fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_global_scale, fc2_expert_weight_bits, inter
    )
    if fc3_experts_weights is not None:
        weights["fc3"] = dequantized(
            fc3_experts_weights, fc3_scales, fc3_zero_points, None, fc3_expert_weight_bits, hidden
        )
    through = None
    if quant_type == "wfp4afp8":
        through = {
            "fc1": eight_bits(fc1_act_scale, fc1_act_block_scale),
            "fc2": eight_bits(fc2_act_scale, fc2_act_block_scale),
        }
    biases = {"fc1": fc1_experts_bias, "fc2": fc2_experts_bias, "fc3": fc3_experts_bias}
    y = mixture(input, router_probs, weights, biases, attributes, mix=router_weights, through=through)
    return (y,)


def eight_bits(scale: np.ndarray | None, blocks: np.ndarray | None) -> Any:
    """Rows through float8e4m3fn: by a scale of all or of an expert, and by scales of blocks of 32.

    The latter are [experts or 1, tokens or 1, length / 32].
    """

    def through(rows: np.ndarray, tokens: np.ndarray, expert: int) -> np.ndarray:
        by = np.ones(rows.shape)
        if scale is not None:
            by *= float(scale[expert if scale.size > 1 else 0])
        if blocks is not None:
            own = blocks[expert if len(blocks) > 1 else 0].astype(np.float64)
            own = own[tokens] if len(own) > 1 else own
            by *= along(own, -1, 32, rows.shape[-1])
        return np.clip(rows / by, -448.0, 448.0).astype(E4M3).astype(np.float64) * by

    return through
