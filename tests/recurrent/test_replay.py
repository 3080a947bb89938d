"""Replay of captured states: rollback as a whole, neighbours, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core.dtypes import float16, float32
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import WebGpuOpsError
from webgpu_ops.reference.recurrent import conv_state_replay

from .calls import draw

OUT = ("destination_out",)


@pytest.mark.parametrize("rule", ["gated_delta", "linear"])
def test_rollback_reaches_the_state_of_a_run_that_stopped(device: Device, rule: str) -> None:
    """Draft 6 tokens, keep some: the replayed state is that of a run over the kept ones alone.

    All states live in one pool, all captures in one capsule, at offsets that no alignment likes.
    """
    capacity, hk, hv, dk, dv = 6, 2, 4, 10, 7
    inputs = draw(np.random.default_rng(1), [6, 6], rule=rule, hk=hk, hv=hv, dk=dk, dv=dv)
    attributes = {"update_rule": rule, "qk_l2_norm": 1}
    state = inputs["initial_state"]
    row, width = hv * dv * dk, capacity * (hv + hk * dk + hv * dv)
    snapshot = Tensor.from_numpy(np.concatenate([np.zeros(3, np.float32), state.reshape(-1)]), device)
    capsule = Tensor.from_numpy(np.full(2 * width + 5, np.nan, np.float32), device)
    run(
        "GatedDeltaNet",
        inputs
        | {
            "initial_state": snapshot.view(state.shape, 3),
            "capture_count": np.full(2, capacity, np.int32),
        },
        attributes | {"state_update_capacity": capacity},
        outputs={"output": None, "state_update": capsule.view((2, width), 5)},
        device=device,
    )
    for kept in (1, 4, 6):
        pool = Tensor.from_numpy(np.full(2 * row + 9, np.nan, np.float32), device)
        for b, at in ((1, 1), (0, row + 4)):
            section = 5 + b * width
            metadata = [3 + b * row, at, section, section + capacity * hv]
            metadata += [section + capacity * (hv + hk * dk), hv, dv, dk, hk, capacity, kept]
            run(
                "GatedDeltaNetStateReplay",
                [snapshot, capsule, pool, np.array(metadata, np.int64)],
                outputs={"destination_out": pool},
                device=device,
            )
        stopped = {n: np.concatenate([inputs[n][:kept], inputs[n][6 : 6 + kept]]) for n in inputs}
        stopped |= {"initial_state": state, "cu_seqlens": np.array([0, kept, 2 * kept], np.int32)}
        for name in {"query", "key", "value", "decay", "beta"} - inputs.keys():
            stopped.pop(name, None)
        want = run("GatedDeltaNet", stopped, attributes, outputs=("output", "final_state"), device=device)[1]
        assert want is not None
        after = pool.numpy()
        got = np.stack([after[row + 4 : 2 * row + 4], after[1 : 1 + row]]).reshape(state.shape)
        np.testing.assert_allclose(got, want.numpy(), 1e-5, 1e-6)
        assert np.isnan(np.concatenate([after[:1], after[1 + row : row + 4], after[2 * row + 4 :]])).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_conv_replay_touches_its_view_alone(device: Device, dtype: Any) -> None:
    """Every start and length within a few words, with NaN payloads all around, byte for byte."""
    rng = np.random.default_rng(2)
    bits = np.uint16 if dtype == np.float16 else np.uint32
    item = np.dtype(dtype).itemsize

    def noise(size: int) -> np.ndarray:
        return rng.integers(0, np.iinfo(bits).max, size, bits, endpoint=True).view(dtype)

    source, capture = noise(40), noise(40)
    for start in range(5):
        for channels, width, kept in ((1, 1, 1), (1, 3, 0), (2, 1, 3), (3, 3, 2), (5, 2, 4)):
            metadata = np.array([3 * item, start * item, item, 1, channels, width, 4, kept], np.int64)
            destination = noise(start + channels * width + 3)
            held = Tensor.from_numpy(destination, device)
            run(
                "ConvStateReplay",
                [source, capture, held, metadata],
                outputs={"destination_out": held},
                device=device,
            )
            (want,) = conv_state_replay(source, capture, destination, metadata)
            assert held.numpy().tobytes() == want.tobytes()


def test_conv_replay_writes_a_view_that_starts_inside_a_word(device: Device) -> None:
    """The backing itself may be a view at an odd 2-byte offset of a larger allocation."""
    rng = np.random.default_rng(3)
    pool = rng.integers(0, 1 << 16, 31, np.uint16)
    held = Tensor.from_numpy(pool.view(np.float16), device)
    destination = held.view((20,), 5)
    source, capture = (rng.standard_normal(12).astype(np.float16) for _ in range(2))
    metadata = np.array([0, 6, 0, 1, 4, 3, 3, 2], np.int64)
    run(
        "ConvStateReplay",
        [source, capture, destination, metadata],
        outputs={"destination_out": destination},
        device=device,
    )
    want = pool.copy()
    (inner,) = conv_state_replay(source, capture, pool[5:25].view(np.float16), metadata)
    want[5:25] = inner.view(np.uint16)
    np.testing.assert_array_equal(held.numpy().view(np.uint16), want)


def conv_call(device: Device) -> dict[str, Any]:
    held = {
        n: Tensor.from_numpy(np.ones(64, np.float32), device) for n in ("source", "capture", "destination")
    }
    inputs: dict[str, Any] = {f"{n}_backing": t for n, t in held.items()}
    return inputs | {"metadata": np.array([0, 0, 0, 1, 2, 3, 4, 2], np.int64)}


def state_call(device: Device) -> dict[str, Any]:
    held = {
        n: Tensor.from_numpy(np.ones(64, np.float32), device) for n in ("source", "capsule", "destination")
    }
    inputs: dict[str, Any] = {f"{n}_backing": t for n, t in held.items()}
    return inputs | {"metadata": np.array([0, 0, 0, 8, 16, 2, 3, 4, 1, 2, 2], np.int64)}


CALLS = {"ConvStateReplay": conv_call, "GatedDeltaNetStateReplay": state_call}


@pytest.mark.parametrize("op", CALLS)
def test_only_the_destination_is_an_output(gpu_tiles: Device, op: str) -> None:
    inputs = CALLS[op](gpu_tiles)
    with pytest.raises(WebGpuOpsError, match=f"^{op}: output destination_out was not bound"):
        run(op, inputs, device=gpu_tiles)
    other = Tensor.from_numpy(np.ones(64, np.float32), gpu_tiles)
    with pytest.raises(WebGpuOpsError, match=f"^{op}: output destination_out is bound to other memory"):
        run(op, inputs, outputs={"destination_out": other}, device=gpu_tiles)
    for name, tensor in inputs.items():
        if isinstance(tensor, Tensor):
            np.testing.assert_array_equal(tensor.numpy(), np.ones(64, np.float32), err_msg=name)


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("other", [0, 1])
def test_destination_shares_no_allocation(gpu_tiles: Device, op: str, other: int) -> None:
    """Not even with disjoint views."""
    inputs = CALLS[op](gpu_tiles)
    pool = Tensor.from_numpy(np.ones(128, np.float32), gpu_tiles)
    name = list(inputs)[other]
    inputs |= {name: pool.view((64,)), "destination_backing": pool.view((64,), 64)}
    with pytest.raises(WebGpuOpsError, match=f"destination_backing shares its allocation with {name}"):
        run(op, inputs, outputs={"destination_out": inputs["destination_backing"]}, device=gpu_tiles)


@pytest.mark.parametrize("op", CALLS)
def test_replay_waits_for_its_work(op: str) -> None:
    length = {"ConvStateReplay": [0, 0, 0, 1, 2, 3, 4, 2]}.get(op, [0, 0, 0, 8, 16, 2, 3, 4, 1, 2, 2])
    backings = [TensorSpec((64,), float32)] * 3
    made = plan(op, [*backings, np.array(length, np.int64)])
    assert made.fence
    assert [(a.output, a.input, a.required) for a in made.aliases] == [(0, 2, True)]


CONV = [0, 0, 0, 1, 2, 3, 4, 2]
STATE = [0, 0, 0, 8, 16, 2, 3, 4, 1, 2, 2]


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        ("ConvStateReplay", {0: 3}, "source_offset_bytes = 3; expected a multiple of 2"),
        ("ConvStateReplay", {1: -2}, "destination_offset_bytes = -2; expected a value from 0"),
        ("ConvStateReplay", {4: 0}, "channels = 0; expected a positive value"),
        ("ConvStateReplay", {7: 5}, "kept_count = 5; expected 0 to capacity = 4"),
        ("ConvStateReplay", {0: 118}, "source_backing has 64 elements; expected at least 65"),
        ("ConvStateReplay", {1: 118}, "destination_backing has 64 elements; expected at least 65"),
        ("ConvStateReplay", {2: 114}, "capture_backing has 64 elements; expected at least 65"),
        ("ConvStateReplay", {3: 2**31, 4: 2**31, 5: 2**31}, "source_backing has 64 elements"),
        ("ConvStateReplay", {6: 2**40}, "capacity = 1099511627776; expected a value from 0"),
        ("GatedDeltaNetStateReplay", {0: 41}, "source_backing has 64 elements; expected at least 65"),
        ("GatedDeltaNetStateReplay", {1: 41}, "destination_backing has 64 elements; expected at least 65"),
        ("GatedDeltaNetStateReplay", {2: 61}, "capsule_backing has 64 .* 65 because decay"),
        ("GatedDeltaNetStateReplay", {3: 57}, "capsule_backing has 64 .* 65 because key"),
        ("GatedDeltaNetStateReplay", {4: 53}, "capsule_backing has 64 .* 65 because delta"),
        ("GatedDeltaNetStateReplay", {3: -1}, "key_offset = -1; expected a value from 0"),
        ("GatedDeltaNetStateReplay", {5: 0}, "Hv = 0; expected a positive value"),
        ("GatedDeltaNetStateReplay", {9: 0}, "capacity = 0; expected a positive value"),
        ("GatedDeltaNetStateReplay", {10: 0}, "kept_count = 0; expected 1 to capacity = 2"),
        ("GatedDeltaNetStateReplay", {10: 3}, "kept_count = 3; expected 1 to capacity = 2"),
        ("GatedDeltaNetStateReplay", {5: 2**31, 6: 2**31}, "source_backing has 64 elements"),
    ],
)
def test_metadata_is_refused_by_field(op: str, change: dict[int, int], message: str) -> None:
    metadata = np.array(CONV if op == "ConvStateReplay" else STATE, np.int64)
    metadata[list(change)] = list(change.values())
    dtype = float16 if op == "ConvStateReplay" else float32
    with pytest.raises(WebGpuOpsError, match=f"^{op}: .*{message}"):
        plan(op, [*[TensorSpec((64,), dtype)] * 3, metadata])


def test_more_transitions_than_a_software_adapter_walks() -> None:
    backings, metadata = [TensorSpec((1 << 20,), float32)] * 3, np.array(STATE, np.int64)
    metadata[5:] = 1, 1, 1, 1, 40_000, 40_000
    with pytest.raises(WebGpuOpsError, match="metadata has kept_count = 40000; expected less"):
        plan("GatedDeltaNetStateReplay", [*backings, metadata], capabilities=Capabilities(device_class="cpu"))


def test_shapes_are_refused() -> None:
    flat, square = TensorSpec((64,), float32), TensorSpec((8, 8), float32)
    with pytest.raises(WebGpuOpsError, match=r"source_backing has shape \(8, 8\)"):
        plan("ConvStateReplay", [square, flat, flat, np.array(CONV, np.int64)])
    with pytest.raises(WebGpuOpsError, match=r"metadata has shape \(8,\); expected \(11,\)"):
        plan("GatedDeltaNetStateReplay", [flat, flat, flat, np.array(CONV, np.int64)])
    with pytest.raises(WebGpuOpsError, match="metadata"):
        plan("ConvStateReplay", [flat, flat, flat, TensorSpec((8,), float32)])
