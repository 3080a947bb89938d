"""Random calls of the attentions over a contiguous cache that see only a part of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample, sample
from .attention import FLOATS, WORK, _chance, _normal, _turns
from .paged_attention import _norms, _rotary, _selection, head_size

Array = np.ndarray
Rng = np.random.Generator


def _new(rng: Rng, batch: int, rows: int, heads: int, kv: int, size: int, dtype: Any) -> dict[str, Array]:
    """Query, key and value, or packed QKV."""
    q, k, v = (_normal(rng, (batch, rows, n * size), dtype) for n in (heads, kv, kv))
    if _chance(rng, 0.3):
        return {"query": np.concatenate([q, k, v], axis=-1)}
    return {"query": q, "key": k, "value": v}


@sample("DynamicSparseAttention")
def dynamic_sparse_attention(rng: Rng) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    kv = int(rng.integers(1, 4))
    heads = kv * int(rng.choice([1, 2, 3, 4]))
    size = head_size(rng)
    batch = int(rng.integers(1, 4))
    rows = 1 if _chance(rng, 0.4) else int(rng.integers(2, 16))
    had = 0 if _chance(rng, 0.2) else int(rng.integers(1, 150))
    lengths = np.full(batch, had + rows)
    if had and batch > 1:
        lengths[1:] = rng.integers(rows, had + rows + 1, batch - 1)
    capacity = had + rows + (int(rng.integers(0, 9)) if had else 0)
    inputs: dict[str, Any] = _new(rng, batch, rows, heads, kv, size, dtype)
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv}
    shape = (batch, kv, capacity, size)
    outputs, aliases = ["output"], {}
    if _chance(rng, 0.8):
        outputs += ["present_key", "present_value"]
    if had:
        inputs |= {"past_key": _normal(rng, shape, dtype), "past_value": _normal(rng, shape, dtype)}
        if len(outputs) > 1 and _chance(rng, 0.6):
            aliases = {"present_key": "past_key", "present_value": "past_value"}
    inputs["seqlens_k"] = (lengths - 1).astype(np.int32)
    inputs["total_sequence_length"] = np.array(had + rows, np.int32).reshape(
        (1,) if _chance(rng, 0.3) else ()
    )
    seen = np.repeat(lengths, rows)
    if _chance(rng, 0.5):
        attributes |= {
            "attention_mode": "local_plus_selected",
            "selected_kv_source": "auxiliary",
            "local_window_size": int(rng.integers(1, 30)),
        }
        others = int(rng.integers(1, 60))
        inputs["auxiliary_key"] = _normal(rng, (batch, kv, others, size), dtype)
        if _chance(rng, 0.3):
            attributes["auxiliary_kv_shared"] = 1
        else:
            inputs["auxiliary_value"] = _normal(rng, (batch, kv, others, size), dtype)
        seen = np.full(batch * rows, others)
    inputs |= _selection(rng, batch * rows, seen)
    if size >= 8 and _chance(rng, 0.4):
        tables, turned = _rotary(rng, size, capacity, dtype, quarters=False)
        inputs |= tables
        attributes |= turned
        if _chance(rng, 0.4):
            inputs["position_ids"] = rng.integers(0, capacity, (batch, rows))
    if _chance(rng, 0.3):
        weights, epsilon = _norms(rng, size, dtype)
        inputs |= weights
        attributes |= epsilon
    if _chance(rng, 0.3):
        inputs["head_sink"] = _normal(rng, (heads,), dtype)
    if _chance(rng, 0.3):
        attributes["smooth_softmax"] = 1
    if _chance(rng, 0.3):
        attributes["scale"] = float(np.float32(rng.uniform(0.05, 0.5)))
    return Sample(inputs, attributes, tuple(outputs), aliases=aliases)


@sample("SparseAttention")
def sparse_attention(rng: Rng) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    kv = int(rng.integers(1, 4))
    heads = kv * int(rng.choice([1, 2, 4]))
    size = head_size(rng)
    block = int(rng.choice([16, 16, 32, 64]))
    blocks = int(rng.integers(1, 8))
    room = block * blocks
    batch = int(rng.integers(1, 4))
    prompt = _chance(rng, 0.5)
    most = max(1, min(room, int((WORK / (batch * heads * size)) ** 0.5)))
    rows = int(rng.integers(1, most + 1)) if prompt else 1 if _chance(rng, 0.7) else min(3, room)
    total = rows if prompt else int(rng.integers(rows, room + 1))
    lengths = np.full(batch, total)
    if batch > 1:
        lengths[1:] = rng.integers(1 if prompt else rows, total + 1, batch - 1)
    capacity = total + int(rng.integers(0, 20))

    layouts = int(rng.choice([n for n in range(1, heads + 1) if heads % n == 0]))
    dense = np.tril(rng.random((layouts, blocks, blocks)) < rng.choice([0.2, 0.5, 1.0]))
    starts = np.concatenate([np.zeros((layouts, 1), int), dense.sum(-1).cumsum(-1)], axis=-1)
    columns = np.full((layouts, max(1, int(starts.max()))), -1)
    for layout in range(layouts):
        found = np.nonzero(dense[layout])[1]
        columns[layout, : len(found)] = found
    inputs: dict[str, Any] = _new(rng, batch, rows, heads, kv, size, dtype)
    shape = (batch, kv, capacity, size)
    inputs |= {
        "past_key": _normal(rng, shape, dtype),
        "past_value": _normal(rng, shape, dtype),
        "block_row_indices": starts.astype(np.int32),
        "block_col_indices": columns.astype(np.int32),
        "total_sequence_length": np.array(total, np.int32),
        "key_total_sequence_lengths": lengths.astype(np.int32),
    }
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv, "sparse_block_size": block}
    if size >= 8 and _chance(rng, 0.5):
        inputs |= _turns(rng, total + int(rng.integers(0, 9)), size // 2, dtype, quarters=False)
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(_chance(rng, 0.4))}
    if _chance(rng, 0.3):
        attributes["scale"] = float(np.float32(rng.uniform(0.05, 0.5)))
    past = np.maximum(lengths - rows, 0)
    padding = np.arange(rows) >= (lengths - past)[:, None]
    idle = np.arange(capacity) >= lengths[:, None]
    unspecified = {
        "output": np.broadcast_to(padding[..., None], (batch, rows, heads * size)),
        "present_key": np.broadcast_to(idle[:, None, :, None], shape),
        "present_value": np.broadcast_to(idle[:, None, :, None], shape),
    }
    aliases = {"present_key": "past_key", "present_value": "past_value"} if _chance(rng, 0.6) else {}
    return Sample(
        inputs,
        attributes,
        ("output", "present_key", "present_value"),
        unspecified=unspecified,
        aliases=aliases,
    )
