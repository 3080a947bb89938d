"""Random calls of the recurrent operators."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from . import Sample, sample

Array = np.ndarray


def _lengths(rng: np.random.Generator, batch: int, ragged: bool) -> list[int]:
    """Tokens of each request; now and then enough of them for the chunked path."""
    longest = int(rng.choice([1, 5, 20, 90]))
    if not ragged:
        return [int(rng.integers(1, longest + 1))] * batch
    return [int(rng.integers(0, longest + 1)) for _ in range(batch - 1)] + [longest]


def _unit(x: Array) -> Array:
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


@sample("GatedDeltaNet")
def gated_delta_net(rng: np.random.Generator) -> Sample:
    def maybe(p: float) -> bool:
        return bool(rng.random() < p)

    dtype = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)[rng.choice(4)]
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta", "gated_delta"]))
    decays, retrieves = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")
    batch, hk, sharing = (int(rng.integers(1, n)) for n in (4, 4, 4))
    hv, dk, dv = hk * sharing, int(rng.integers(1, 41)), int(rng.integers(1, 25))
    layout = str(rng.choice(["ragged", "uniform", "batched"]))
    packed, stateful = maybe(0.3), maybe(0.8)
    lengths = _lengths(rng, batch, layout == "ragged")
    tokens = sum(lengths)
    lead = (batch, lengths[0]) if layout == "batched" else (tokens,)

    query, key = (rng.standard_normal((tokens, hk, dk)) for _ in range(2))
    value = rng.standard_normal((tokens, hv, dv))
    norm = maybe(0.4)
    if not norm:
        query, key = _unit(query), _unit(key)
    inputs: dict[str, Any] = {}
    if packed:
        columns = [x.reshape(tokens, -1) for x in (query, key, value)]
        inputs["query"] = np.concatenate(columns, axis=1).reshape(*lead, -1).astype(dtype)
    else:
        for name, x in (("query", query), ("key", key), ("value", value)):
            inputs[name] = x.reshape(*lead, *x.shape[1:]).astype(dtype)
    if layout == "ragged":
        inputs["cu_seqlens"] = np.cumsum([0, *lengths]).astype(np.int32)
    if packed or stateful or layout == "uniform":
        inputs["initial_state"] = rng.standard_normal((batch, hv, dv, dk)).astype(np.float32)

    attributes: dict[str, Any] = {
        "update_rule": rule,
        "qk_l2_norm": int(norm),
        "chunk_size": int(rng.choice([16, 32, 64])),
    }
    if maybe(0.3):
        attributes["scale"] = 0.5
    per_key = decays and maybe(0.25)
    if decays:
        shape = (*lead, hv, dk) if per_key else (*lead, hv)
        if maybe(0.5):
            attributes["gate_activation"] = "qwen"
            inputs["decay"] = rng.standard_normal(shape).astype(np.float32)
            inputs["a_log"] = rng.uniform(-2, 1, hv).astype(np.float32)
            inputs["dt_bias"] = rng.standard_normal(hv).astype(np.float32)
        else:
            inputs["decay"] = -rng.exponential(0.5, shape).astype(np.float32)
    if retrieves:
        if maybe(0.5):
            attributes["beta_activation"] = "sigmoid"
            inputs["beta"] = rng.standard_normal((*lead, hv)).astype(np.float32)
        else:
            inputs["beta"] = rng.uniform(0, 1, (*lead, hv)).astype(np.float32)

    outputs: tuple[str, ...] = ("output",)
    aliases: dict[str, str] = {}
    if maybe(0.8):
        outputs += ("final_state",)
        if "initial_state" in inputs and maybe(0.5):
            aliases["final_state"] = "initial_state"
    unspecified: dict[str, Array] = {}
    if not per_key and maybe(0.4):
        capacity = int(rng.integers(1, 9))
        counts = rng.integers(-2, capacity + 3, batch).astype(np.int32)
        attributes["state_update_capacity"] = capacity
        inputs["capture_count"] = counts
        if maybe(0.4):
            inputs["state_update_active"] = rng.integers(0, 2, 1).astype(np.int32)
        outputs += ("state_update",)
        if int(inputs.get("state_update_active", [1])[0]):
            kept = np.clip(counts, 0, np.minimum(capacity, lengths))
            loose = np.arange(capacity) >= kept[:, None]
            unspecified["state_update"] = np.concatenate(
                [np.repeat(loose, width, axis=1) for width in (hv, hk * dk, hv * dv)], axis=1
            )
    return Sample(inputs, attributes, outputs, unspecified=unspecified, aliases=aliases)


@sample("LinearAttention")
def linear_attention(rng: np.random.Generator) -> Sample:
    types = (np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
    dtype = types[rng.choice(4)]
    rule = str(rng.choice(["linear", "gated", "delta", "gated_delta", "gated_delta"]))
    batch, fewer, sharing = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    length, window = int(rng.choice([1, 5, 20, 90])), int(rng.choice([0, 0, 1, 3, 8]))
    hq, hkv = (fewer, fewer * sharing) if rng.random() < 0.5 else (fewer * sharing, fewer)
    dk, dv = int(rng.integers(1, 41)), int(rng.integers(1, 25))
    lead = (batch, length)

    def packed(x: Array) -> Array:
        return x.reshape(*lead, -1).astype(dtype)

    inputs: dict[str, Any] = {
        "query": packed(_unit(rng.standard_normal((*lead, hq, dk)))),
        "key": packed(_unit(rng.standard_normal((*lead, hkv, dk)))),
        "value": packed(rng.standard_normal((*lead, hkv, dv))),
    }
    if rule in ("gated", "gated_delta"):
        width = hkv * dk if rng.random() < 0.3 else hkv
        inputs["decay"] = packed(-rng.exponential(0.5, (*lead, width)))
    if rule in ("delta", "gated_delta"):
        inputs["beta"] = packed(rng.uniform(0, 1, (*lead, 1 if rng.random() < 0.3 else hkv)))
    aliases: dict[str, str] = {}
    if rng.random() < 0.7:
        slots = (window,) if window else ()
        state = rng.standard_normal((*slots, batch, hkv, dk, dv))
        inputs["past_state"] = state.astype(types[rng.choice(4)])
        if rng.random() < 0.4:
            aliases["present_state"] = "past_state"
    attributes = {
        "q_num_heads": hq,
        "kv_num_heads": hkv,
        "update_rule": rule,
        "state_window": window,
        "chunk_size": int(rng.choice([16, 32, 64])),
        "scale": float(rng.choice([0.0, 0.5])),
    }
    return Sample(inputs, attributes, ("output", "present_state"), aliases=aliases)


@sample("LinearAttentionGate")
def linear_attention_gate(rng: np.random.Generator) -> Sample:
    dtype = (np.float32, np.float16, ml_dtypes.bfloat16)[rng.choice(3)]
    shape = tuple(int(n) for n in rng.integers(1, 9, 3))
    inputs: dict[str, Any] = {
        "a": (10 * rng.standard_normal(shape)).astype(dtype),
        "dt_bias": rng.standard_normal(shape[2]).astype(np.float32),
        "decay_scale": -rng.uniform(0.1, 4, shape[2]).astype(np.float32),
    }
    outputs: tuple[str, ...] = ("decay",)
    if rng.random() < 0.7:
        inputs["b"] = (10 * rng.standard_normal(shape)).astype(dtype)
        if rng.random() < 0.8:
            outputs += ("beta",)
    return Sample(inputs, {}, outputs)


@sample("GatedDeltaNetStateReplay")
def gated_delta_net_state_replay(rng: np.random.Generator) -> Sample:
    hv, dv, dk, hk, capacity = (int(rng.integers(1, n)) for n in (6, 9, 20, 6, 9))
    kept = int(rng.integers(1, capacity + 1))
    source_at, destination_at, capsule_at = (int(x) for x in rng.integers(0, 9, 3))
    size, sections = hv * dv * dk, [capacity * hv, capacity * hk * dk, capacity * hv * dv]
    offsets, end = [0, 0, 0], capsule_at
    for section in rng.permutation(3):
        offsets[section] = end
        end += sections[section] + int(rng.integers(0, 3))

    def backing(elements: int) -> Array:
        return rng.standard_normal(elements + int(rng.integers(0, 6))).astype(np.float32)

    capsule = backing(end)
    capsule[offsets[0] : offsets[0] + sections[0]] = rng.uniform(0, 1, sections[0])
    metadata = [source_at, destination_at, *offsets, hv, dv, dk, hk, capacity, kept]
    inputs = {
        "source_backing": backing(source_at + size),
        "capsule_backing": capsule,
        "destination_backing": backing(destination_at + size),
        "metadata": np.array(metadata, np.int64),
    }
    return Sample(inputs, outputs=("destination_out",), aliases={"destination_out": "destination_backing"})


@sample("ConvStateReplay")
def conv_state_replay(rng: np.random.Generator) -> Sample:
    bits, dtype = ((np.uint32, np.float32), (np.uint16, np.float16))[rng.choice(2)]
    batch, channels, width, capacity = (
        int(rng.integers(low, n)) for low, n in ((0, 4), (1, 9), (0, 6), (0, 7))
    )
    kept = int(rng.integers(0, capacity + 1))
    starts = [int(x) for x in rng.integers(0, 9, 3)]

    def backing(start: int, elements: int) -> Array:
        """Any bits at all: NaN payloads and signed zeros have to survive."""
        size = start + elements + int(rng.integers(0, 6))
        return rng.integers(0, np.iinfo(bits).max, size, bits, endpoint=True).view(dtype)

    itemsize = np.dtype(dtype).itemsize
    metadata = [*(s * itemsize for s in starts), batch, channels, width, capacity, kept]
    inputs = {
        "source_backing": backing(starts[0], batch * channels * width),
        "destination_backing": backing(starts[1], batch * channels * width),
        "capture_backing": backing(starts[2], batch * capacity * channels),
        "metadata": np.array(metadata, np.int64),
    }
    return Sample(
        inputs,
        outputs=("destination_out",),
        aliases={"destination_out": "destination_backing"},
        exact=True,
    )
