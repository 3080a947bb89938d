"""Random ragged calls of GatedDeltaNet."""

from __future__ import annotations

from typing import Any

import numpy as np


def draw(
    rng: np.random.Generator,
    lengths: list[int],
    *,
    rule: str = "gated_delta",
    hk: int = 1,
    hv: int = 2,
    dk: int = 16,
    dv: int = 8,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Ragged inputs by schema name; keys are of unit length, as the delta rules need."""
    tokens, batch = sum(lengths), len(lengths)

    def unit(*shape: int) -> np.ndarray:
        x = rng.standard_normal(shape)
        return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(dtype)

    inputs = {
        "query": unit(tokens, hk, dk),
        "key": unit(tokens, hk, dk),
        "value": rng.standard_normal((tokens, hv, dv)).astype(dtype),
        "cu_seqlens": np.cumsum([0, *lengths]).astype(np.int32),
        "initial_state": rng.standard_normal((batch, hv, dv, dk)).astype(np.float32),
    }
    if rule in ("gated", "gated_delta"):
        inputs["decay"] = -rng.exponential(0.3, (tokens, hv)).astype(np.float32)
    if rule in ("delta", "gated_delta"):
        inputs["beta"] = rng.uniform(0, 1, (tokens, hv)).astype(np.float32)
    return inputs
