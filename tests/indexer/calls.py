"""Calls of the indexers at a glance: inputs by schema name, drawn from one generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from webgpu_ops import Tensor, run
from webgpu_ops.core.device import Device

HEADS, SIZE, RATIO, ROWS = 2, 6, 3, 200
WIDE = 2 * SIZE
QSA: dict[str, Any] = {"policy_mode": "qsa", "compress_ratio": RATIO, "token_budget": 2 * RATIO}
CSA: dict[str, Any] = {"policy_mode": "csa", "compress_ratio": RATIO, "index_topk": 3}
POLICIES = {"qsa": QSA, "csa": CSA}


def common(rng: np.random.Generator, policy: str, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """Weights and tables; the tables turn every channel that they can."""
    width = SIZE if policy == "qsa" else SIZE // 2
    made = {name: rng.standard_normal((ROWS, width)) for name in ("cos_cache", "sin_cache")}
    for name in ("query_norm_weight", "key_norm_weight"):
        made[name] = rng.uniform(0.5, 1.5, SIZE)
    if policy == "csa":
        made["position_bias"] = rng.standard_normal((RATIO, WIDE))
    return {name: x.astype(dtype) for name, x in made.items()}


def tokens(
    rng: np.random.Generator, policy: str, *lead: int, dtype: Any = np.float32
) -> dict[str, np.ndarray]:
    """What new tokens bring, without their positions."""
    widths = {"query": HEADS * SIZE, "key": SIZE}
    if policy == "csa":
        widths |= {"key": WIDE, "gate": WIDE, "head_weights": HEADS}
    return {name: rng.standard_normal((*lead, w)).astype(dtype) for name, w in widths.items()}


def state(
    rng: np.random.Generator, policy: str, batch: int, capacity: int, dtype: Any = np.float32
) -> dict[str, np.ndarray]:
    """State of packed requests with random numbers in it, and lengths of 0."""
    columns = SIZE if policy == "qsa" else WIDE
    shapes = {"past_key_state": (batch, capacity, SIZE), "past_kv_buffer": (batch, 2 * RATIO - 1, columns)}
    if policy == "csa":
        shapes["past_gate_buffer"] = shapes["past_kv_buffer"]
    made = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    return made | {
        "past_state_lengths": np.zeros((batch, 2), np.int32),
        "past_sequence_lengths": np.zeros(batch, np.int32),
    }


def state_outputs(policy: str) -> list[str]:
    names = ["present_key_state", "present_kv_buffer"] + ["present_gate_buffer"] * (policy == "csa")
    return [*names, "present_state_lengths"]


def call(
    op: str, inputs: dict[str, Any], attributes: dict[str, Any], outputs: list[str], device: Device
) -> dict[str, Tensor]:
    """The wanted outputs by name."""
    results = [r for r in run(op, inputs, attributes, outputs=outputs, device=device) if r is not None]
    order = OUTPUTS[op]
    return dict(zip(sorted(outputs, key=order.index), results, strict=True))


OUTPUTS = {
    "SparseAttentionIndexer": ["selected_indices", "present_key", "present_proj_buffer"],
    "PackedSparseAttentionIndexer": [
        "selected_indices",
        "selected_counts",
        "present_key_state",
        "present_kv_buffer",
        "present_gate_buffer",
        "present_state_lengths",
        "state_update",
        "indexshare_status",
        "state_status",
    ],
}
