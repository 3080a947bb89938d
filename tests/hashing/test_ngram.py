"""n-gram hashes: refusals, chunks threaded through state, malformed request offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, ShapeError, UnsupportedError
from webgpu_ops.reference.hashing import ngram_hash_mapping, varlen_ngram_hash_mapping

ORDER, HEADS = 4, 2
WIDTH = (ORDER - 1) * HEADS
ATTRIBUTES = {"max_ngram_size": ORDER, "n_head_per_ngram": HEADS, "pad_id": 7}
POISON = 0x5A


def tables(rng: np.random.Generator, dtype: type) -> dict[str, np.ndarray]:
    top = np.iinfo(dtype).max
    return {
        "multipliers": rng.integers(-top, top, ORDER, dtype=dtype),
        "vocab_sizes": rng.integers(1, top, WIDTH, dtype=dtype),
        "head_offsets": rng.integers(-top, top, WIDTH, dtype=dtype),
    }


def call(op: str, inputs: dict[str, Any], outputs: list[str], device: Device, **more: Any) -> list[Tensor]:
    results = run(op, inputs, {**ATTRIBUTES, **more}, outputs=outputs, device=device)
    return [r for r in results if r is not None]


def pieces(rng: np.random.Generator, length: int) -> Iterator[slice]:
    """``length`` positions in random consecutive chunks."""
    at = 0
    while at < length:
        size = int(rng.integers(1, 6))
        yield slice(at, min(at + size, length))
        at += size


# Refusals


def specs(**changes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "input_ids": (2, 5),
        "multipliers": (ORDER,),
        "vocab_sizes": (WIDTH,),
    } | changes
    types = {"segment_ids": dtypes.int32}
    return {k: TensorSpec(v, types.get(k, dtypes.int64)) for k, v in shapes.items()}


def varlen_specs(**changes: Any) -> dict[str, Any]:
    made = specs(**{"input_ids": (9,), "cumulative_sequence_length": (3,)} | changes)
    int32 = ("cumulative_sequence_length", "segment_ids", "past_segment_ids", "capture_count")
    return {k: TensorSpec(v.shape, dtypes.int32 if k in int32 else v.dtype) for k, v in made.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": (5,)}, r"input_ids has shape \(5,\)"),
        ({"multipliers": (3,)}, r"multipliers has shape \(3,\); expected at least 4"),
        ({"vocab_sizes": (5,)}, r"vocab_sizes has shape \(5,\); expected \(6,\)"),
        ({"head_offsets": (2, 3)}, "head_offsets has shape"),
        ({"past_ids": (2, 4)}, r"past_ids has shape \(2, 4\); expected \(2, 3\)"),
        ({"eos_token_id": (2,)}, r"eos_token_id has shape \(2,\); expected one id"),
        ({"segment_ids": (2, 4)}, r"segment_ids has shape \(2, 4\); expected \(2, 5\)"),
    ],
)
def test_shapes_of_a_batch(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=f"NGramHashMapping: {message}"):
        plan("NGramHashMapping", specs(**changes), ATTRIBUTES)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"max_ngram_size": 1}, "max_ngram_size is 1"),
        ({"n_head_per_ngram": 0}, "n_head_per_ngram is 0"),
        ({"state_update_capacity": 9}, "state_update_capacity is 9; expected 0 to 8"),
    ],
)
def test_attributes(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(SchemaError, match=f"VarlenNGramHashMapping: {message}"):
        plan("VarlenNGramHashMapping", varlen_specs(), {**ATTRIBUTES, **attributes})


def test_a_pad_id_has_to_fit_the_ids() -> None:
    inputs = {k: TensorSpec(v.shape, dtypes.int32) for k, v in specs().items()}
    with pytest.raises(ShapeError, match=f"pad_id is {1 << 31}; expected a value of int32"):
        plan("NGramHashMapping", inputs, {**ATTRIBUTES, "pad_id": 1 << 31})


@pytest.mark.parametrize(
    ("changes", "attributes", "outputs", "message"),
    [
        ({"cumulative_sequence_length": (1,)}, {}, [], "at least 2 because input_ids has 9 tokens"),
        ({"capture_count": (2,)}, {}, [], "capture_count is given; expected it exactly where"),
        ({}, {"state_update_capacity": 2}, [], "capture_count is missing; expected it exactly where"),
        ({"past_segment_ids": (2, 3)}, {}, [], "segment_ids is missing"),
        ({}, {}, ["present_segment_ids"], "segment_ids is missing"),
        ({"past_ids": (3, 3)}, {}, [], r"past_ids has shape \(3, 3\); expected \(2, 3\)"),
        ({"segment_ids": (8,)}, {}, [], r"segment_ids has shape \(8,\); expected \(9,\)"),
    ],
)
def test_packed_requests(changes: dict, attributes: dict, outputs: list[str], message: str) -> None:
    with pytest.raises(ShapeError, match=f"VarlenNGramHashMapping: .*{message}"):
        plan(
            "VarlenNGramHashMapping",
            varlen_specs(**changes),
            {**ATTRIBUTES, **attributes},
            outputs=["hash_ids", *outputs],
        )


def test_device_metadata_is_not_needed_for_the_plan() -> None:
    made = plan(
        "VarlenNGramHashMapping",
        varlen_specs(capture_count=(2,), past_ids=(2, 3)),
        {**ATTRIBUTES, "state_update_capacity": 2},
        outputs=["hash_ids", "present_ids", "state_update"],
    )
    assert not made.host_read
    assert [d.template for d in made.dispatches] == ["hashing/ngram", "hashing/ngram_state"]
    only = plan("VarlenNGramHashMapping", varlen_specs(), ATTRIBUTES)
    assert [d.template for d in only.dispatches] == ["hashing/ngram"]


# Chunks


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("reset", [0, 1])
def test_chunks_of_a_batch_give_what_the_whole_gives(device: Device, dtype: type, reset: int) -> None:
    rng = np.random.default_rng(reset)
    ids = rng.integers(0, 5, (3, 23), dtype=dtype)
    inputs: dict[str, Any] = {**tables(rng, dtype), "eos_token_id": np.array(2, dtype)}
    outputs = ["hash_ids", "present_ids"]
    whole, last = call("NGramHashMapping", {"input_ids": ids, **inputs}, outputs, device, reset_on_eos=reset)
    parts = []
    for piece in pieces(rng, ids.shape[1]):
        chunk = {"input_ids": np.ascontiguousarray(ids[:, piece]), **inputs}
        hashes, state = call("NGramHashMapping", chunk, outputs, device, reset_on_eos=reset)
        inputs["past_ids"] = state
        parts.append(hashes.numpy())
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole.numpy())
    np.testing.assert_array_equal(state.numpy(), last.numpy())


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_chunks_of_packed_requests_give_what_the_whole_gives(device: Device, dtype: type) -> None:
    """Every request goes on at its own pace; ids, segments and states return bit for bit."""
    rng = np.random.default_rng(5)
    sequences = [rng.integers(0, 5, n, dtype=dtype) for n in (9, 4, 17)]
    segments = [np.sort(rng.integers(0, 3, s.size)).astype(np.int32) for s in sequences]
    inputs: dict[str, Any] = {**tables(rng, dtype), "eos_token_id": np.array(2, dtype)}
    outputs = ["hash_ids", "present_ids", "present_segment_ids"]

    def packed(of: list[np.ndarray], kinds: list[np.ndarray]) -> list[np.ndarray]:
        cu = np.concatenate([[0], np.cumsum([len(s) for s in of])]).astype(np.int32)
        feeds = {"input_ids": np.concatenate(of), "segment_ids": np.concatenate(kinds)}
        feeds |= {"cumulative_sequence_length": cu, **inputs}
        results = call("VarlenNGramHashMapping", feeds, outputs, device, reset_on_eos=1)
        inputs["past_ids"], inputs["past_segment_ids"] = results[1], results[2]
        return np.split(results[0].numpy(), cu[1:-1]) + [r.numpy() for r in results[1:]]

    *whole, last, last_segments = packed(sequences, segments)
    del inputs["past_ids"], inputs["past_segment_ids"]
    cuts = [np.sort(rng.choice(np.arange(1, s.size), 2, replace=False)) for s in sequences]
    parts: list[list[np.ndarray]] = [[], [], []]
    for k in range(3):
        chunk = [np.split(s, c)[k] for s, c in zip(sequences, cuts, strict=True)]
        kinds = [np.split(s, c)[k] for s, c in zip(segments, cuts, strict=True)]
        *found, state, state_segments = packed(chunk, kinds)
        for part, hashes in zip(parts, found, strict=True):
            part.append(hashes)
    for part, want in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(np.concatenate(part), want)
    np.testing.assert_array_equal(state, last)
    np.testing.assert_array_equal(state_segments, last_segments)


def test_packed_requests_hash_like_sequences_of_their_own(device: Device) -> None:
    rng = np.random.default_rng(6)
    constant = tables(rng, np.int64)
    sequences = [rng.integers(-9, 9, n) for n in (1, 8, 3)]
    cu = np.array([0, 1, 9, 12], np.int32)
    feeds = {"input_ids": np.concatenate(sequences), "cumulative_sequence_length": cu, **constant}
    (packed,) = call("VarlenNGramHashMapping", feeds, ["hash_ids"], device)
    alone = [
        call("NGramHashMapping", {"input_ids": s[None], **constant}, ["hash_ids"], device)[0].numpy()[0]
        for s in sequences
    ]
    np.testing.assert_array_equal(packed.numpy(), np.concatenate(alone))


def test_a_captured_state_is_where_a_shorter_run_stops(device: Device) -> None:
    """Rolling back to a captured prefix and going on gives what a run without the detour gives."""
    rng = np.random.default_rng(7)
    inputs = {**tables(rng, np.int64), "past_ids": rng.integers(0, 9, (2, ORDER - 1))}
    ids, cu = rng.integers(0, 9, 9), np.array([0, 4, 9], np.int32)
    counts = np.array([2, 3], np.int32)
    feeds = {**inputs, "input_ids": ids, "cumulative_sequence_length": cu, "capture_count": counts}
    outputs = ["hash_ids", "state_update"]
    _, update = call("VarlenNGramHashMapping", feeds, outputs, device, state_update_capacity=4)
    kept = update.numpy()[[0, 1], counts - 1]
    short = {
        **inputs,
        "input_ids": np.concatenate([ids[:2], ids[4:7]]),
        "cumulative_sequence_length": np.array([0, 2, 5], np.int32),
    }
    _, state = call("VarlenNGramHashMapping", short, ["hash_ids", "present_ids"], device)
    np.testing.assert_array_equal(kept, state.numpy())
    assert (update.numpy()[0, 2:] == ATTRIBUTES["pad_id"]).all()


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_past_and_present_may_be_one_allocation(device: Device, length: int) -> None:
    rng = np.random.default_rng(length)
    ids, past = rng.integers(0, 9, (2, length)), rng.integers(0, 9, (2, ORDER - 1))
    constant = tables(rng, np.int64)
    state = Tensor.from_numpy(past, device)
    copies = device.stats.dispatches
    hashes, present = run(
        "NGramHashMapping",
        {"input_ids": ids, "past_ids": state, **constant},
        ATTRIBUTES,
        outputs={"hash_ids": None, "present_ids": state},
        device=device,
    )
    assert device.stats.dispatches == copies + 2
    want_hashes, want = ngram_hash_mapping(ids, past_ids=past, **constant, **ATTRIBUTES)
    assert hashes is not None and present is state
    np.testing.assert_array_equal(hashes.numpy(), want_hashes)
    np.testing.assert_array_equal(state.numpy(), want)


# Values


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_products_wrap_and_remainders_are_exact(device: Device, dtype: type) -> None:
    """Extremes against Python's unbounded integers."""
    limits, bits = np.iinfo(dtype), 8 * np.dtype(dtype).itemsize
    ids = np.array([[limits.min, limits.max, -1, 0, 1, limits.min]], dtype)
    multipliers = np.array([limits.max, limits.min, -1, 3], dtype)
    vocab = np.array([1, 2, limits.max, limits.max - 2, 3, 1 << (bits // 2)], dtype)
    feeds = {"input_ids": ids, "multipliers": multipliers, "vocab_sizes": vocab}
    (hashes,) = call("NGramHashMapping", feeds, ["hash_ids"], device)

    def wrapped(value: int) -> int:
        return (value - limits.min) % (1 << bits) + limits.min

    history = [ATTRIBUTES["pad_id"]] * (ORDER - 1) + ids[0].tolist()
    for t in range(ids.shape[1]):
        for head in range(WIDTH):
            mix = 0
            for k in range(head // HEADS + 2):
                mix ^= wrapped(history[t + ORDER - 1 - k] * int(multipliers[k]))
            assert hashes.numpy()[0, t, head] == mix % int(vocab[head])


def test_a_vocabulary_that_is_not_positive_hashes_to_zero(device: Device) -> None:
    vocab = np.array([0, -5, 11, np.iinfo(np.int64).min, 3, -1])
    feeds = {"input_ids": np.arange(6).reshape(2, 3), "multipliers": np.arange(1, 5), "vocab_sizes": vocab}
    (hashes,) = call("NGramHashMapping", feeds, ["hash_ids"], device)
    assert (hashes.numpy()[..., vocab <= 0] == 0).all()
    assert (hashes.numpy()[..., vocab == 11] != 0).any()


# Containment


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 4, 9],
        [2, 4, 7],  # tokens in front of the first request and behind the last
        [-3, 4, 9],
        [0, 4, 1000],
        [0, 2**31 - 1, 2**31 - 1],
        [-(2**31), -1, 9],
        [0, 0, 9],  # a request without tokens
        [9, 9, 9],
        [50, 60, 70],
    ],
)
def test_malformed_offsets_are_contained(device: Device, offsets: list[int]) -> None:
    """Ranges are clamped into the tokens, tokens of no request give 0, neighbours stay untouched."""
    rng = np.random.default_rng(8)
    cu = np.array(offsets, np.int32)
    inputs = {
        **tables(rng, np.int64),
        "input_ids": rng.integers(0, 9, 9),
        "past_ids": rng.integers(0, 9, (2, ORDER - 1)),
        "segment_ids": rng.integers(0, 2, 9).astype(np.int32),
        "capture_count": np.array([2**31 - 1, -(2**31)], np.int32),
    }
    attributes = {**ATTRIBUTES, "state_update_capacity": 3}
    want = varlen_ngram_hash_mapping(**inputs, cumulative_sequence_length=cu, **attributes)
    shapes = {
        "hash_ids": ((9, WIDTH), np.int64),
        "present_ids": ((2, ORDER - 1), np.int64),
        "present_segment_ids": ((2, ORDER - 1), np.int32),
        "state_update": ((2, 3, ORDER - 1), np.int64),
    }
    backings, bound = {}, {}
    for name, (shape, dtype) in shapes.items():
        filler = np.full((int(np.prod(shape)) + 10) * np.dtype(dtype).itemsize, POISON, np.uint8)
        backings[name] = Tensor.from_numpy(filler.view(dtype), device)
        bound[name] = backings[name].view(shape, 5)
    downloads = device.stats.downloads
    feeds = {**inputs, "cumulative_sequence_length": Tensor.from_numpy(cu, device)}
    run("VarlenNGramHashMapping", feeds, attributes, outputs=bound, device=device)
    assert device.stats.downloads == downloads
    for name, array in zip(shapes, want, strict=True):
        np.testing.assert_array_equal(bound[name].numpy(), array)
        got = backings[name].numpy()
        assert (got[:5].view(np.uint8) == POISON).all() and (got[-5:].view(np.uint8) == POISON).all()


def test_decreasing_offsets_are_contained(device: Device) -> None:
    """Whose token it is may be open; what it reads and what is written is not."""
    rng = np.random.default_rng(9)
    inputs = {**tables(rng, np.int32), "input_ids": rng.integers(0, 9, 12, dtype=np.int32)}
    for offsets in ([12, 7, 3, 0], [0, 9, 4, 12], [5, -5, 100, 2]):
        cu = np.array(offsets, np.int32)
        feeds = {**inputs, "cumulative_sequence_length": cu}
        hashes, present = call("VarlenNGramHashMapping", feeds, ["hash_ids", "present_ids"], device)
        want = varlen_ngram_hash_mapping(**feeds, **ATTRIBUTES)
        np.testing.assert_array_equal(present.numpy(), want[1])
        alternatives = [np.zeros(WIDTH, np.int32)[None].repeat(12, 0), want[0]]
        for r in range(3):
            start, end = np.clip(cu[r], 0, 12), np.clip(cu[r + 1], 0, 12)
            if start < end:
                own = np.zeros((12, WIDTH), np.int32)
                lone = {**inputs, "input_ids": inputs["input_ids"][start:end]}
                lone["cumulative_sequence_length"] = np.array([0, end - start], np.int32)
                own[start:end] = varlen_ngram_hash_mapping(**lone, **ATTRIBUTES)[0]
                alternatives.append(own)
        assert np.any([(hashes.numpy() == a).all(axis=1) for a in alternatives], axis=0).all()


def test_a_growing_batch_compiles_nothing_new(device: Device) -> None:
    constant = tables(np.random.default_rng(10), np.int64)
    made = None
    for length in (3, 4, 9, 30):
        feeds = {"input_ids": np.arange(2 * length).reshape(2, length), **constant}
        call("NGramHashMapping", feeds, ["hash_ids", "present_ids"], device)
        assert made in (None, len(device.programs))
        made = len(device.programs)


def test_ids_that_are_strings_are_refused() -> None:
    feeds = {"input_ids": np.array([["a"]], object), "multipliers": np.ones(4), "vocab_sizes": np.ones(6)}
    with pytest.raises((SchemaError, UnsupportedError), match="input_ids"):
        plan("NGramHashMapping", feeds, ATTRIBUTES)


def test_windows_beyond_the_rounds_of_a_software_adapter_are_refused() -> None:
    with pytest.raises(LimitError, match="multipliers go with max_ngram_size 20000; expected less"):
        plan(
            "NGramHashMapping",
            specs(multipliers=(20_000,), vocab_sizes=(2 * 19_999,)),
            {**ATTRIBUTES, "max_ngram_size": 20_000},
            capabilities=Capabilities(device_class="cpu"),
        )
