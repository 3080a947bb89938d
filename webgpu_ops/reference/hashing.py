"""References of the hashes: n-gram ids of Engram embeddings, and MurmurHash3."""

from __future__ import annotations

import struct

import numpy as np

from . import reference

Array = np.ndarray


def _ngram_hashes(
    ids: Array, past: Array, segments: Array, multipliers: Array, vocab: Array, fill: int, eos: int | None
) -> Array:
    """Hash ids [n, orders * heads] of one sequence of n ids that continues ``past``.

    ``segments`` are those of past and ids together. History before a segment's first position, or
    up to an ``eos`` before the current position, counts as ``fill``.
    """
    before = len(past)
    whole = np.concatenate([past, ids])
    orders = before
    heads = vocab.size // max(1, orders)
    out = np.zeros((len(ids), vocab.size), ids.dtype)
    for t in range(len(ids)):
        at = before + t
        mix = whole[at] * multipliers[0]
        cut = False
        for k in range(1, before + 1):
            cut = (
                cut or segments[at - k + 1] != segments[at - k] or (eos is not None and whole[at - k] == eos)
            )
            shifted = ids.dtype.type(fill) if cut else whole[at - k]
            mix = mix ^ (shifted * multipliers[k])
            for head in range((k - 1) * heads, k * heads):
                out[t, head] = mix % vocab[head] if vocab[head] > 0 else 0
    return out


@reference("NGramHashMapping")
def ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
) -> tuple[Array, Array]:
    """All sequences of a batch, packed one after the other."""
    batch, sequence = input_ids.shape
    hashes, present, _, _ = varlen_ngram_hash_mapping(
        input_ids.reshape(-1),
        multipliers,
        vocab_sizes,
        np.arange(batch + 1, dtype=np.int32) * sequence,
        past_ids,
        head_offsets,
        eos_token_id,
        None if segment_ids is None else segment_ids.reshape(-1),
        max_ngram_size=max_ngram_size,
        n_head_per_ngram=n_head_per_ngram,
        pad_id=pad_id,
        reset_on_eos=reset_on_eos,
    )
    return hashes.reshape(batch, sequence, hashes.shape[1]), present


@reference("VarlenNGramHashMapping")
def varlen_ngram_hash_mapping(
    input_ids: Array,
    multipliers: Array,
    vocab_sizes: Array,
    cumulative_sequence_length: Array,
    past_ids: Array | None = None,
    head_offsets: Array | None = None,
    eos_token_id: Array | None = None,
    segment_ids: Array | None = None,
    past_segment_ids: Array | None = None,
    capture_count: Array | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    state_update_capacity: int = 0,
) -> tuple[Array, Array, Array, Array]:
    """Request by request. Ranges are clamped into the packed buffer; tokens outside of all give 0."""
    total, dtype = len(input_ids), input_ids.dtype
    batch, before = len(cumulative_sequence_length) - 1, max_ngram_size - 1
    fill = pad_id if eos_token_id is None else int(np.asarray(eos_token_id).reshape(()))
    eos = fill if eos_token_id is not None and reset_on_eos else None
    hashes = np.zeros((total, before * n_head_per_ngram), dtype)
    present = np.zeros((batch, before), dtype)
    present_segments = np.zeros((batch, before), np.int32)
    update = np.full((batch, state_update_capacity, before), pad_id, dtype)
    with np.errstate(over="ignore"):
        for r in range(batch):
            start = int(np.clip(cumulative_sequence_length[r], 0, total))
            end = int(np.clip(cumulative_sequence_length[r + 1], start, total))
            ids = input_ids[start:end]
            past = np.full(before, fill, dtype) if past_ids is None else past_ids[r]
            own = np.zeros(end - start, np.int32) if segment_ids is None else segment_ids[start:end]
            first = own[:1] if end > start else np.zeros(1, np.int32)
            earlier = np.repeat(first, before) if past_segment_ids is None else past_segment_ids[r]
            segments = np.concatenate([earlier, own])
            found = _ngram_hashes(ids, past, segments, multipliers, vocab_sizes, fill, eos)
            hashes[start:end] = found if head_offsets is None else found + head_offsets
            whole = np.concatenate([past, ids])
            present[r], present_segments[r] = whole[end - start :], segments[end - start :]
            count = 0 if capture_count is None else int(capture_count[r])
            for c in range(min(count, end - start, state_update_capacity)):
                update[r, c] = whole[c + 1 : c + 1 + before]
    return hashes, present, present_segments, update


def _murmur3(data: bytes, seed: int) -> int:
    def scramble(k: int) -> int:
        k = k * 0xCC9E2D51 & 0xFFFFFFFF
        k = (k << 15 | k >> 17) & 0xFFFFFFFF
        return k * 0x1B873593 & 0xFFFFFFFF

    h = seed
    blocks = len(data) // 4
    for (k,) in struct.iter_unpack("<I", data[: blocks * 4]):
        h ^= scramble(k)
        h = (h << 13 | h >> 19) & 0xFFFFFFFF
        h = (h * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= scramble(int.from_bytes(data[blocks * 4 :], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


@reference("MurmurHash3")
def murmur_hash3(X: Array, *, positive: int = 1, seed: int = 0) -> tuple[Array]:
    """MurmurHash3_x86_32 of each element's bytes (UTF-8 for strings)."""
    flat = X.reshape(-1)
    texts = X.dtype.kind in "OUST"
    keys = [str(v).encode() for v in flat] if texts else [v.tobytes() for v in flat]
    hashes = np.array([_murmur3(key, seed & 0xFFFFFFFF) for key in keys], np.uint32).reshape(X.shape)
    return (hashes if positive == 1 else hashes.view(np.int32),)
