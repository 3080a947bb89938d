"""Random calls of the attentions over paged caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..paged_attention import Line
from . import Sample, sample
from .attention import FLOAT8, WORK, _chance, _normal, _turns

Array = np.ndarray
Rng = np.random.Generator
HALVES = (np.float16, np.float16, np.float16, ml_dtypes.bfloat16)
STORAGE = {
    "int8": np.dtype(np.int8),
    "float8e4m3fn": FLOAT8,
    "int4": np.dtype(np.uint8),
    "float4e2m1": np.dtype(np.uint8),
}


def head_size(rng: Rng) -> int:
    """Few sizes, so that a run compiles few kernels."""
    return int(rng.choice([16, 64])) if _chance(rng, 0.85) else int(rng.choice([7, 72]))


@dataclass
class Pages:
    """Sequences over a paged cache: lengths, tables, and the slots that the new tokens go to."""

    past: Array
    counts: Array
    table: Array
    slots: Array
    blocks: int
    block_size: int

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())

    def inputs(self) -> dict[str, Array]:
        return {
            "cumulative_sequence_length": np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int32),
            "past_seqlens": self.past.astype(np.int32),
            "block_table": self.table.astype(np.int32),
        }


def _pages(rng: Rng, most: int) -> Pages:
    """A few sequences of up to ``most`` rows, their pages anywhere; some pages and lengths are wrong."""
    batch = int(rng.integers(1, 5))
    decode = _chance(rng, 0.4)
    counts = np.ones(batch, int) if decode else rng.integers(0, max(2, min(24, most // 2)), batch)
    counts[0] = max(1, counts[0])
    past = rng.integers(0, max(1, most - int(counts.max())) + 1, batch)
    block_size = int(rng.choice([4, 16, 16, 32]))
    width = -(-int((past + counts).max()) // block_size) + int(rng.integers(0, 2))
    used = -(-(past + counts) // block_size)
    blocks = int(used.sum()) + int(rng.integers(1, 4))
    free = rng.permutation(blocks)
    table = np.full((batch, width), -1)
    for b in range(batch):
        table[b, : used[b]], free = free[: used[b]], free[used[b] :]
    if _chance(rng, 0.25):
        gone = rng.random(table.shape) < 0.2
        table = np.where(gone, rng.choice([-1, -7, blocks, blocks + 5], table.shape), table)

    slots = []
    for b in range(batch):
        position = past[b] + np.arange(counts[b])
        page = table[b, position // block_size]
        known = (page >= 0) & (page < blocks)
        slots.append(np.where(known, page * block_size + position % block_size, -1))
    flat = np.concatenate(slots)
    dropped = rng.choice([-1, -9, blocks * block_size, 2**31 - 1], flat.size)
    flat = np.where(rng.random(flat.size) < 0.2, dropped, flat)
    if batch > 1 and _chance(rng, 0.2):
        past[int(rng.integers(1, batch))] = int(rng.choice([-1, -5, width * block_size + 1, 2**31 - 1]))
    return Pages(past, counts, table, flat, blocks, block_size)


def _cache(
    rng: Rng, pages: Pages, heads: int, size: int, dtype: Any, logical: str, quant_type: str
) -> tuple[Array, Array | None, Array]:
    """A cache of random rows, its scale if it has one, and new rows ``[tokens, heads, size]`` that float32
    and float64 quantize alike."""
    fresh = (pages.tokens, heads, size)
    if quant_type == "NONE":
        cache = _normal(rng, (pages.blocks, pages.block_size, heads, size), dtype)
        return cache, None, rng.standard_normal(fresh).astype(dtype)
    shape = (1,) if quant_type == "PER_TENSOR" else (heads, 1, size)
    scale = rng.uniform(0.02, 0.1, shape).astype(np.float32)
    storage = STORAGE[logical]
    width = -(-size // 2) if storage == np.uint8 else size
    rows = np.zeros((pages.blocks * pages.block_size, heads, width), storage)
    line = Line(rows, logical, scale, size)
    largest = {"int8": 30, "float8e4m3fn": 60, "int4": 9, "float4e2m1": 7}[logical]

    def near(n: int) -> Array:
        """Stored rows, as numbers that lie well inside what rounds to them."""
        factor = scale.reshape(-1, shape[-1]) if scale.size > 1 else scale
        raw = rng.uniform(-largest, largest, (n, heads, size)) * factor
        exact = line.decode(np.stack([line.encode(x) for x in raw])) if n else raw
        floats = logical.startswith("float")
        wide = exact * rng.uniform(0.99, 1.01, exact.shape) if floats else exact
        return wide if floats else exact + factor * rng.uniform(-0.3, 0.3, exact.shape)

    for row, x in enumerate(near(len(rows))):
        rows[row] = line.encode(x)
    cache = rows.reshape(pages.blocks, pages.block_size, heads, width)
    return cache, scale, near(pages.tokens).astype(dtype)


def _rotary(
    rng: Rng, size: int, rows: int, dtype: Any, quarters: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tables and attributes of a rotation of some channels."""
    offset = 8 * int(rng.integers(0, size // 8)) if size >= 16 and _chance(rng, 0.4) else 0
    pairs = (size - offset) // 2 if _chance(rng, 0.6) else int(rng.integers(1, (size - offset) // 2 + 1))
    attributes = {
        "do_rotary": 1,
        "rotary_interleaved": int(_chance(rng, 0.4)),
        "rotary_offset": offset,
    }
    return _turns(rng, rows, pairs, dtype, quarters), attributes


def _norms(rng: Rng, size: int, dtype: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    weights = {f"{x}_norm_weight": _normal(rng, (size,), dtype) for x in "qk"}
    return weights, {"qk_norm_epsilon": float(np.float32(rng.uniform(1e-6, 0.1)))}


@dataclass
class Drawn:
    """A call of either operator, as far as they agree."""

    inputs: dict[str, Any]
    attributes: dict[str, Any]
    pages: Pages
    dtype: Any
    heads: int
    kv_heads: int
    size: int


def _draw(rng: Rng, logical: str, latent: bool = False) -> Drawn:
    dtype = HALVES[rng.integers(len(HALVES))]
    kv = 1 if latent else int(rng.integers(1, 4))
    heads = kv * int(rng.choice([1, 2, 3, 4]))
    size = head_size(rng)
    pages = _pages(rng, max(8, min(200, WORK // (heads * size * 64))))
    inputs: dict[str, Any] = pages.inputs()
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": kv}
    new = []
    for x, name in (("k", "key"), ("v", "value"))[: 1 if latent else 2]:
        quant_type = "NONE" if not logical else str(rng.choice(["PER_TENSOR", "PER_CHANNEL"]))
        cache, scale, fresh = _cache(rng, pages, kv, size, dtype, logical, quant_type)
        attributes[f"{x}_quant_type"] = quant_type
        inputs |= {f"{name}_cache": cache, f"{x}_scale": scale}
        new.append(fresh.reshape(pages.tokens, kv * size))
    query = _normal(rng, (pages.tokens, heads * size), dtype)
    if not latent and _chance(rng, 0.3):
        inputs["query"] = np.concatenate([query, *new], axis=1)
    else:
        inputs |= {"query": query, **dict(zip(("key", "value"), new, strict=False))}
    if _chance(rng, 0.3):
        inputs["slot_mapping"] = pages.slots.astype(np.int32)
    # Rotation moves values to other channels, where they would be ties of another scale.
    if size >= 8 and attributes["k_quant_type"] != "PER_CHANNEL" and _chance(rng, 0.4):
        rows = int((pages.past + pages.counts).clip(0, 10_000).max()) + 1
        tables, turned = _rotary(rng, size, rows, dtype, quarters=bool(logical))
        inputs |= tables
        attributes |= turned
    if not logical and _chance(rng, 0.3):
        weights, epsilon = _norms(rng, size, dtype)
        inputs |= weights
        attributes |= epsilon
    if _chance(rng, 0.3):
        inputs["head_sink"] = _normal(rng, (heads,), dtype)
    if _chance(rng, 0.4):
        attributes["local_window_size"] = int(rng.integers(1, 40))
    if _chance(rng, 0.25):
        attributes["is_causal"] = 0
    if _chance(rng, 0.3):
        attributes["softcap"] = float(np.float32(rng.uniform(1, 20)))
    if latent or _chance(rng, 0.3):
        attributes["scale"] = float(np.float32(rng.uniform(0.05, 0.5)))
    return Drawn(inputs, attributes, pages, dtype, heads, kv, size)


def _finish(rng: Rng, call: Drawn) -> Sample:
    """The call with its caches as outputs, or as inputs that are updated."""
    aliases: dict[str, str] = {}
    if _chance(rng, 0.7):
        aliases = {f"{n}_out": n for n in ("key_cache", "value_cache") if n in call.inputs}
    inputs = {name: value for name, value in call.inputs.items() if value is not None}
    return Sample(inputs, call.attributes, ("output", *aliases), aliases=aliases)


@sample("PagedAttention")
def paged_attention(rng: Rng) -> Sample:
    logical = str(rng.choice(list(STORAGE))) if _chance(rng, 0.5) else ""
    latent = _chance(rng, 0.2)
    call = _draw(rng, logical, latent)
    for x in "kv"[: 1 if latent else 2]:
        if logical in ("int4", "float4e2m1") or _chance(rng, 0.3):
            name = call.inputs["key_cache"].dtype.name
            call.attributes[f"{x}_cache_dtype"] = logical or name
    if latent:
        call.attributes |= {"kv_cache_layout": "LATENT", "v_head_size": int(rng.integers(1, call.size + 1))}
    if _chance(rng, 0.3):
        longest = int((call.pages.past + call.pages.counts).clip(0, 10_000).max())
        bounds = [int(call.pages.counts.max()), longest, 0][: int(rng.integers(2, 4))]
        call.inputs["attention_metadata"] = np.array(bounds, np.int32) * int(rng.integers(0, 2))
    return _finish(rng, call)


def _selection(rng: Rng, tokens: int, lengths: Array) -> dict[str, Array]:
    """A choice for each token of entries below its ``lengths``, now and then one that is out of range."""
    most = int(rng.integers(1, 40))
    indices, counts = np.full((tokens, most), -1), np.zeros(tokens, int)
    for t in range(tokens):
        chosen = rng.permutation(int(lengths[t]))[: int(rng.integers(0, most + 1))]
        counts[t] = len(chosen)
        indices[t, : len(chosen)] = chosen
    if _chance(rng, 0.3):
        wild = rng.random(indices.shape) < 0.1
        indices = np.where(wild, rng.choice([-1, -4, 5000, 2**31 - 1], indices.shape), indices)
    return {"selected_indices": indices.astype(np.int32), "selected_counts": counts.astype(np.int32)}


@sample("SparsePagedAttention")
def sparse_paged_attention(rng: Rng) -> Sample:
    call = _draw(rng, "int8" if _chance(rng, 0.4) else "")
    pages, batch = call.pages, len(call.pages.counts)
    sequence = np.repeat(np.arange(batch), pages.counts)
    lengths = (pages.past + pages.counts).clip(1, 1000)[sequence]
    call.attributes["attention_mode"] = str(rng.choice(["selected_only", "local_plus_selected"]))
    if _chance(rng, 0.5):
        call.attributes["selected_kv_source"] = "auxiliary"
        capacity = int(rng.integers(1, 60))
        shape = (batch, capacity, call.kv_heads if _chance(rng, 0.7) else 1, call.size)
        call.inputs["auxiliary_key"] = _normal(rng, shape, call.dtype)
        if _chance(rng, 0.3):
            call.attributes["auxiliary_kv_shared"] = 1
        else:
            call.inputs["auxiliary_value"] = _normal(rng, shape, call.dtype)
        if _chance(rng, 0.6):
            call.inputs["auxiliary_lengths"] = rng.integers(0, capacity + 1, batch).astype(np.int32)
        lengths = np.full(pages.tokens, capacity)
    call.inputs |= _selection(rng, pages.tokens, lengths)
    if _chance(rng, 0.3):
        call.inputs["attention_metadata"] = np.zeros(5, np.int32)
    return _finish(rng, call)
