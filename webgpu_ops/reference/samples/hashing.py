"""Random calls of the hashes."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Sample, sample

LETTERS = "abc XYZ019,.-äßçñ漢字🙂\0"


def _tables(rng: np.random.Generator, dtype: type, order: int, heads: int) -> dict[str, Any]:
    """Multipliers (from small to wrapping), vocabulary sizes and offsets of one call."""
    limits = np.iinfo(dtype)
    bound = int(rng.choice([1000, limits.max]))
    width = (order - 1) * heads
    return {
        "multipliers": rng.integers(-bound, bound, order + int(rng.integers(0, 2)), dtype=dtype),
        "vocab_sizes": rng.integers(1, int(rng.choice([5, 1000, limits.max])), width, dtype=dtype),
        "head_offsets": rng.integers(-bound, bound, width, dtype=dtype) if rng.random() < 0.4 else None,
    }


def _ids(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    """Token ids, few enough that the end-of-sequence id 3 comes up."""
    if rng.random() < 0.3:
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype)
    return rng.integers(0, 8, shape, dtype=dtype)


@sample("NGramHashMapping")
def ngram_hash_mapping(rng: np.random.Generator) -> Sample:
    dtype = (np.int32, np.int64)[rng.choice(2)]
    order, heads = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    batch, sequence = int(rng.integers(1, 4)), int(rng.integers(0 if rng.random() < 0.1 else 1, 12))
    inputs = {
        "input_ids": _ids(rng, dtype, batch, sequence),
        "past_ids": _ids(rng, dtype, batch, order - 1) if rng.random() < 0.5 else None,
        "eos_token_id": np.array(3, dtype) if rng.random() < 0.6 else None,
        "segment_ids": rng.integers(0, 2, (batch, sequence), dtype=np.int32) if rng.random() < 0.4 else None,
        **_tables(rng, dtype, order, heads),
    }
    attributes = {
        "max_ngram_size": order,
        "n_head_per_ngram": heads,
        "pad_id": int(rng.integers(-5, 50)),
        "reset_on_eos": int(rng.integers(0, 2)),
    }
    outputs = ("hash_ids", "present_ids") if rng.random() < 0.7 else ("hash_ids",)
    aliases = {}
    if inputs["past_ids"] is not None and "present_ids" in outputs and rng.random() < 0.5:
        aliases = {"present_ids": "past_ids"}
    return Sample(inputs, attributes, outputs, aliases=aliases)


@sample("VarlenNGramHashMapping")
def varlen_ngram_hash_mapping(rng: np.random.Generator) -> Sample:
    dtype = (np.int32, np.int64)[rng.choice(2)]
    order, heads = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    batch, capacity = int(rng.integers(1, 6)), int(rng.integers(0, 9)) if rng.random() < 0.5 else 0
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, batch))]).astype(np.int32)
    total = int(offsets[-1])
    segmented, continued = rng.random() < 0.5, rng.random() < 0.5

    def segments(*shape: int) -> np.ndarray:
        return rng.integers(0, 2, shape, dtype=np.int32)

    inputs = {
        "input_ids": _ids(rng, dtype, total),
        "cumulative_sequence_length": offsets,
        "past_ids": _ids(rng, dtype, batch, order - 1) if continued else None,
        "eos_token_id": np.array([3], dtype) if rng.random() < 0.6 else None,
        "segment_ids": segments(total) if segmented else None,
        "past_segment_ids": segments(batch, order - 1) if segmented and rng.random() < 0.5 else None,
        "capture_count": rng.integers(-2, 12, batch, dtype=np.int32) if capacity else None,
        **_tables(rng, dtype, order, heads),
    }
    attributes = {
        "max_ngram_size": order,
        "n_head_per_ngram": heads,
        "pad_id": int(rng.integers(-5, 50)),
        "reset_on_eos": int(rng.integers(0, 2)),
        "state_update_capacity": capacity,
    }
    outputs = ["hash_ids"]
    outputs += ["present_ids"] * (rng.random() < 0.7)
    outputs += ["present_segment_ids"] * bool(segmented and rng.random() < 0.7)
    outputs += ["state_update"] * (capacity > 0)
    aliases = {}
    if continued and "present_ids" in outputs and rng.random() < 0.5:
        aliases = {"present_ids": "past_ids"}
    return Sample(inputs, attributes, tuple(outputs), aliases=aliases)


@sample("MurmurHash3")
def murmur_hash3(rng: np.random.Generator) -> Sample:
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 4)))
    kinds = (np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64, str)
    kind = kinds[rng.choice(len(kinds))]
    x: np.ndarray
    if kind is str:
        x = np.empty(shape, object)
        for at in np.ndindex(shape):
            x[at] = "".join(rng.choice(list(LETTERS), rng.integers(0, 12)))
    else:
        size = np.dtype(kind).itemsize
        x = np.frombuffer(rng.bytes(size * int(np.prod(shape))), kind).reshape(shape)
    attributes = {"positive": int(rng.integers(0, 2)), "seed": int(rng.integers(0, 1 << 32))}
    return Sample({"X": x}, attributes)
