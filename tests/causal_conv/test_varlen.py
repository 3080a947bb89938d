"""VarlenCausalConvWithState: requests on their own, malformed offsets, captures and their replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core.dtypes import float32, int32
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import SchemaError, WebGpuOpsError

ALL = ("output", "final_state", "state_update")
CHANNELS, TAPS, DILATION = 5, 3, 2
HISTORY = (TAPS - 1) * DILATION
ATTRIBUTES = {"activation": "silu", "dilation": DILATION}


def draw(lengths: list[int], dtype: Any = np.float32, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "input": (sum(lengths), CHANNELS),
        "weight": (CHANNELS, 1, TAPS),
        "bias": (CHANNELS,),
        "initial_state": (len(lengths), CHANNELS, HISTORY),
    }
    inputs = {name: rng.standard_normal(s).astype(dtype) for name, s in shapes.items()}
    return inputs | {"cumulative_sequence_length": np.cumsum([0, *lengths]).astype(np.int32)}


def call(device: Device, inputs: dict[str, Any], outputs: Any = ALL[:2], capacity: int = 0) -> list[Any]:
    attributes = ATTRIBUTES | {"state_update_capacity": capacity}
    results = run("VarlenCausalConvWithState", inputs, attributes, outputs=outputs, device=device)
    return [t.numpy() for t in results if t is not None]


def alone(device: Device, inputs: dict[str, Any], b: int, begin: int, end: int) -> list[np.ndarray]:
    """Request b as a call of CausalConvWithState over tokens begin .. end: output and state."""
    one = {
        "input": inputs["input"][begin:end].T[None].copy(),
        "weight": inputs["weight"],
        "bias": inputs["bias"],
        "past_state": inputs["initial_state"][b : b + 1],
    }
    results = run("CausalConvWithState", one, ATTRIBUTES, device=device)
    output, state = (t.numpy() for t in results if t is not None)
    return [output[0].T, state[0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_each_request_is_a_call_of_its_own(device: Device, dtype: Any) -> None:
    inputs = draw([3, 1, 20, 2, 6], dtype)
    output, state = call(device, inputs)
    cuts = inputs["cumulative_sequence_length"]
    for b in range(5):
        want = alone(device, inputs, b, cuts[b], cuts[b + 1])
        np.testing.assert_array_equal(output[cuts[b] : cuts[b + 1]], want[0])
        np.testing.assert_array_equal(state[b], want[1])


def test_random_chunks_give_the_same_bits(device: Device) -> None:
    """Every request is cut at places of its own; one that has ended leaves the batch."""
    rng = np.random.default_rng(2)
    lengths = [17, 30, 9]
    inputs = draw(lengths, np.float16)
    cuts = inputs["cumulative_sequence_length"]
    output, final = call(device, inputs)
    state, at = inputs["initial_state"].copy(), np.zeros(3, int)
    got = np.zeros_like(output)
    while (at < lengths).any():
        live = [b for b in range(3) if at[b] < lengths[b]]
        ends = [min(lengths[b], at[b] + int(rng.integers(1, 8))) for b in live]
        rows = [np.arange(cuts[b] + at[b], cuts[b] + end) for b, end in zip(live, ends, strict=True)]
        packed = np.concatenate(rows)
        piece = inputs | {
            "input": inputs["input"][packed],
            "cumulative_sequence_length": np.cumsum([0, *map(len, rows)]).astype(np.int32),
            "initial_state": state[live],
        }
        got[packed], state[live] = call(device, piece)
        at[live] = ends
    np.testing.assert_array_equal(got, output)
    np.testing.assert_array_equal(state, final)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_state_in_place(device: Device, dtype: Any) -> None:
    inputs = draw([1, 2, 3, 20], dtype)
    want = call(device, inputs)
    state = inputs["initial_state"]
    pool = np.full(state.size + 8, np.nan, dtype)
    pool[3 : 3 + state.size] = state.reshape(-1)
    held = Tensor.from_numpy(pool, device)
    view = held.view(state.shape, 3)
    (output, _) = call(device, inputs | {"initial_state": view}, {"output": None, "final_state": view})
    np.testing.assert_array_equal(output, want[0])
    after = held.numpy()
    np.testing.assert_array_equal(after[3 : 3 + state.size].reshape(state.shape), want[1])
    assert np.isnan(after[:3]).all() and np.isnan(after[3 + state.size :]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("cuts", "good"),
    [
        ([0, 4, 2, 12], [0, 2]),  # the second request's end lies before its start
        ([0, 5, 5, 12], [0, 2]),  # nobody's token
        ([0, 3, 99, 12], [0]),  # beyond the tokens, and back
        ([0, -7, 3, 12], [2]),  # a range that starts below zero
        ([0, 9, 1, 12], [0, 2]),  # a search among these misses the first request
        ([1, 5, 8, 12], []),  # not from the first token
        ([0, 5, 8, 11], []),  # not to the last
        ([0, 5, 8, 2**31 - 1], []),
        ([-(2**31), 2**31 - 1, -(2**31), 12], []),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_malformed_offsets_are_contained(
    device: Device, dtype: Any, cuts: list[int], good: list[int], shared: bool
) -> None:
    """Requests with sound ranges are right; nothing is written for the others, nor beside the outputs."""
    inputs = draw([4, 4, 4], dtype)
    inputs["cumulative_sequence_length"] = np.array(cuts, np.int32)
    inputs["capture_count"] = np.array([1, 2, 3], np.int32)
    shapes = {
        "output": (12, CHANNELS),
        "final_state": (3, CHANNELS, HISTORY),
        "state_update": (3, 2, CHANNELS),
    }
    backings, bound = {}, {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        before = np.full(size + 8, np.nan, dtype)
        if shared and name == "final_state":
            before[3 : 3 + size] = inputs["initial_state"].reshape(-1)
        backings[name] = Tensor.from_numpy(before, device)
        bound[name] = backings[name].view(shape, 3)
    given: dict[str, Any] = dict(inputs)
    if shared:
        given["initial_state"] = bound["final_state"]
    call(device, given, bound, capacity=2)

    want = {name: np.full(shape, np.nan, dtype) for name, shape in shapes.items()}
    if shared:
        want["final_state"][:] = inputs["initial_state"]
    overlap = np.zeros(12, int)
    for b in good:
        begin, end = cuts[b], cuts[b + 1]
        overlap[begin:end] += 1
        want["output"][begin:end], want["final_state"][b] = alone(device, inputs, b, begin, end)
        kept = min(b + 1, 2, end - begin)
        want["state_update"][b] = 0
        want["state_update"][b, :kept] = inputs["input"][begin : begin + kept]
    for name, backing in backings.items():
        after = backing.numpy()
        assert np.isnan(after[:3]).all() and np.isnan(after[-5:]).all(), name
        rows = overlap < 2 if name == "output" else slice(None)  # two owners: either may have written
        np.testing.assert_array_equal(after[3:-5].reshape(shapes[name])[rows], want[name][rows], name)


def test_metadata_stays_on_the_device(device: Device) -> None:
    """Neither offsets nor counts are part of the plan: other values take no other plan or pipeline."""
    inputs = draw([3, 3])
    made = plan(
        "VarlenCausalConvWithState",
        inputs | {"capture_count": np.ones(2, np.int32)},
        {"state_update_capacity": 2, "dilation": DILATION},
        outputs=ALL,
    )
    assert made.host_read == frozenset() and len(made.steps) == 3
    call(device, inputs)
    pipelines = len(device.programs)
    for cuts in ([0, 1, 6], [0, 5, 6]):
        held = Tensor.from_numpy(np.array(cuts, np.int32), device)
        call(device, inputs | {"cumulative_sequence_length": held})
    assert len(device.programs) == pipelines


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rollback_reaches_the_state_of_a_run_that_stopped(device: Device, dtype: Any) -> None:
    """Draft, keep a prefix of each request, replay it: bit for bit the state of a run over the prefix.

    All states live in one pool and all captures in another, at offsets that no alignment likes.
    """
    capacity, lengths = 6, [6, 4, 9]
    inputs = draw(lengths, dtype)
    inputs["capture_count"] = np.full(3, capacity, np.int32)
    cuts, state, item = (
        inputs["cumulative_sequence_length"],
        inputs["initial_state"],
        np.dtype(dtype).itemsize,
    )
    row, width = CHANNELS * HISTORY, capacity * CHANNELS
    snapshot = Tensor.from_numpy(np.concatenate([np.zeros(3, dtype), state.reshape(-1)]), device)
    captures = Tensor.from_numpy(np.full(3 * width + 9, np.nan, dtype), device)
    drafted = Tensor.empty(state.shape, snapshot.dtype, device)
    call(
        device,
        inputs | {"initial_state": snapshot.view(state.shape, 3)},
        {
            "output": None,
            "final_state": drafted,
            "state_update": captures.view((3, capacity, CHANNELS), 7),
        },
        capacity,
    )
    starts = [1, row + 4, 2 * row + 7]
    for kept in ([0, 0, 0], [1, 4, 2], [6, 3, 5]):
        pool = Tensor.from_numpy(np.full(3 * row + 10, np.nan, dtype), device)
        for b in (2, 0, 1):
            offsets = [3 + b * row, starts[b], 7 + b * width]
            metadata = [*(n * item for n in offsets), 1, CHANNELS, HISTORY, capacity, kept[b]]
            run(
                "ConvStateReplay",
                [snapshot, captures, pool, np.array(metadata, np.int64)],
                outputs={"destination_out": pool},
                device=device,
            )
        after = pool.numpy()
        untouched = np.ones(len(after), bool)
        for b in range(3):
            want = state[b]
            if kept[b]:
                want = alone(device, inputs, b, cuts[b], cuts[b] + kept[b])[1]
            got = after[starts[b] : starts[b] + row].reshape(CHANNELS, HISTORY)
            assert got.tobytes() == want.tobytes()
            untouched[starts[b] : starts[b] + row] = False
        assert np.isnan(after[untouched]).all()


def test_one_replay_for_a_batch(device: Device) -> None:
    """Requests that keep the same number of tokens share one descriptor."""
    inputs = draw([5, 5, 5], np.float16)
    inputs["capture_count"] = np.full(3, 5, np.int32)
    _, final, update = call(device, inputs, ALL, 5)
    destination = Tensor.from_numpy(np.zeros(final.size, np.float16), device)
    metadata = np.array([0, 0, 0, 3, CHANNELS, HISTORY, 5, 5], np.int64)
    run(
        "ConvStateReplay",
        [inputs["initial_state"].reshape(-1), update.reshape(-1), destination, metadata],
        outputs={"destination_out": destination},
        device=device,
    )
    assert destination.numpy().tobytes() == final.tobytes()


def test_empty_calls(device: Device) -> None:
    output, state = call(device, draw([]))
    assert output.shape == (0, CHANNELS) and state.shape == (0, CHANNELS, HISTORY)


def specs(**change: Any) -> dict[str, Any]:
    inputs = {
        "input": TensorSpec((9, 4), float32),
        "weight": TensorSpec((4, 1, 3), float32),
        "cumulative_sequence_length": TensorSpec((3,), int32),
        "initial_state": TensorSpec((2, 4, 2), float32),
    }
    return inputs | change


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({"input": TensorSpec((1, 9, 4), float32)}, {}, r"input has shape \(1, 9, 4\)"),
        (
            {"weight": TensorSpec((3, 1, 3), float32)},
            {},
            r"weight has shape .* expected \(4, 1, kernel_size\)",
        ),
        ({"weight": TensorSpec((4, 1, 0), float32)}, {}, "at least one tap"),
        ({"bias": TensorSpec((3,), float32)}, {}, r"bias has shape \(3,\); expected \(4,\)"),
        ({"cumulative_sequence_length": TensorSpec((1,), int32)}, {}, "has 1 elements; expected at least 2"),
        ({"cumulative_sequence_length": TensorSpec((3, 1), int32)}, {}, r"has shape \(3, 1\)"),
        ({"initial_state": None}, {}, "initial_state"),
        ({"initial_state": TensorSpec((3, 4, 2), float32)}, {}, r"expected \(2, 4, 2\)"),
        ({}, {"dilation": 2}, r"initial_state has shape \(2, 4, 2\); expected \(2, 4, 4\)"),
        ({}, {"state_update_capacity": 2}, "capture_count is missing"),
        ({"capture_count": TensorSpec((2,), int32)}, {}, "capture_count is given"),
        (
            {"capture_count": TensorSpec((3,), int32)},
            {"state_update_capacity": 2},
            r"capture_count has shape \(3,\); expected \(2,\)",
        ),
    ],
)
def test_refusals(change: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(WebGpuOpsError, match=f"^VarlenCausalConvWithState: .*{message}"):
        plan("VarlenCausalConvWithState", specs(**change), attributes)


@pytest.mark.parametrize(
    "attributes",
    [{"activation": "relu"}, {"dilation": 0}, {"state_update_capacity": 9}, {"state_update_capacity": -1}],
)
def test_attributes_are_checked_with_the_node(attributes: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=f"^VarlenCausalConvWithState: {next(iter(attributes))} is "):
        plan("VarlenCausalConvWithState", specs(), attributes)
