"""CausalConvWithState: chunks, windows, states in place, layouts that agree, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core.dtypes import float32
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, WebGpuOpsError
from webgpu_ops.reference.causal_conv import causal_conv_with_state

LAYOUTS: dict[str, dict[str, Any]] = {
    "1d": {"x": (2, 5, 40), "kernel": (4,), "attributes": {}},
    "1d dilated": {"x": (2, 3, 40), "kernel": (3,), "attributes": {"dilation": 3}},
    "channels last": {"x": (2, 40, 3, 2), "kernel": (4,), "attributes": {"channels_last": 1}},
    "2d": {"x": (1, 2, 3, 40), "kernel": (3, 3), "attributes": {"ndim": 2, "dilation": 2}},
    "3d": {"x": (2, 2, 2, 3, 40), "kernel": (1, 3, 2), "attributes": {"ndim": 3}},
}
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16 if x.itemsize == 2 else np.uint32)


def causal_axis(layout: str) -> int:
    """Of the input; the state has it in the same place, after the window if there is one."""
    return 1 if layout == "channels last" else len(LAYOUTS[layout]["x"]) - 1


def draw(
    layout: str, *, window: int = 0, dtype: Any = np.float32, seed: int = 1
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    rng = np.random.default_rng(seed)
    shape, kernel = LAYOUTS[layout]["x"], LAYOUTS[layout]["kernel"]
    attributes = LAYOUTS[layout]["attributes"] | {"activation": "silu", "state_window": window}
    last = layout == "channels last"
    channels = int(np.prod(shape[2:])) if last else shape[1]
    state = list(shape)
    state[causal_axis(layout)] = (kernel[-1] - 1) * attributes.get("dilation", 1)
    shapes = {
        "input": shape,
        "weight": (channels, 1, *kernel),
        "bias": (channels,),
        "past_state": (*((window,) if window else ()), *state),
    }
    return {name: rng.standard_normal(s).astype(dtype) for name, s in shapes.items()}, attributes


def call(device: Device, inputs: dict[str, Any], attributes: dict[str, Any]) -> list[np.ndarray]:
    results = run("CausalConvWithState", inputs, attributes, device=device)
    return [t.numpy() for t in results if t is not None]


def part(inputs: dict[str, Any], layout: str, begin: int, end: int) -> dict[str, Any]:
    """The call over some of the positions."""
    axis = causal_axis(layout)
    return inputs | {"input": np.take(inputs["input"], range(begin, end), axis)}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", TYPES)
def test_random_chunks_give_the_same_bits(device: Device, layout: str, dtype: Any) -> None:
    """Outputs and states: every output is the same sum, wherever the call's ends are."""
    rng = np.random.default_rng(2)
    for window in (0, 3):
        inputs, attributes = draw(layout, window=window, dtype=dtype)
        output, state = call(device, inputs, attributes)
        past, pieces, at = inputs["past_state"], [], 0
        while at < 40:
            end = min(40, at + int(rng.choice([1, 1, 2, 5, 16])))
            piece, past = call(device, part(inputs, layout, at, end) | {"past_state": past}, attributes)
            pieces.append(piece)
            at = end
        whole = np.concatenate(pieces, causal_axis(layout))
        np.testing.assert_array_equal(bits(whole), bits(output))
        last = (past[-1], state[-1]) if window else (past, state)
        np.testing.assert_array_equal(*map(bits, last))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_states_are_copies_of_bits(device: Device, layout: str, dtype: Any) -> None:
    """Any bits at all, NaN payloads and signed zeros among them, in every slot of a window."""
    rng = np.random.default_rng(3)
    for length in (1, 2, 40):
        inputs, attributes = draw(layout, window=4, dtype=dtype)
        for name in ("input", "past_state"):
            noise = bits(inputs[name])
            noise[:] = rng.integers(0, np.iinfo(noise.dtype).max, noise.shape, noise.dtype, endpoint=True)
        inputs = part(inputs, layout, 0, length)
        with np.errstate(all="ignore"):
            want = causal_conv_with_state(**inputs, **attributes)[1]
        np.testing.assert_array_equal(bits(call(device, inputs, attributes)[1]), bits(want))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_window_rolls_back_to_any_of_its_prefixes(device: Device, layout: str) -> None:
    inputs, attributes = draw(layout, window=5)
    for length in (1, 3, 5, 9):
        _, present = call(device, part(inputs, layout, 0, length), attributes)
        for j in range(5):
            stop = length - 5 + j + 1
            want = np.zeros_like(present[j])
            if stop > 0:
                want = call(device, part(inputs, layout, 0, stop), attributes)[1][-1]
            np.testing.assert_array_equal(present[j], want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_state_in_place(device: Device, layout: str, window: int, dtype: Any) -> None:
    """The state is a view at an odd offset of a larger allocation; its neighbours stay."""
    for length in (1, 2, 20):
        inputs, attributes = draw(layout, window=window, dtype=dtype)
        inputs = part(inputs, layout, 0, length)
        want = call(device, inputs, attributes)
        state = inputs["past_state"]
        pool = np.full(state.size + 12, np.nan, dtype)
        pool[5 : 5 + state.size] = state.reshape(-1)
        held = Tensor.from_numpy(pool, device)
        view = held.view(state.shape, 5)
        output = run(
            "CausalConvWithState",
            inputs | {"past_state": view},
            attributes,
            outputs={"output": None, "present_state": view},
            device=device,
        )[0]
        assert output is not None
        np.testing.assert_array_equal(output.numpy(), want[0])
        after = held.numpy()
        np.testing.assert_array_equal(after[5 : 5 + state.size].reshape(state.shape), want[1])
        assert np.isnan(after[:5]).all() and np.isnan(after[5 + state.size :]).all()


def test_channels_last_is_another_order_of_the_same(device: Device) -> None:
    inputs, attributes = draw("1d", window=2, dtype=np.float16)
    first = call(device, inputs, attributes)
    moved = inputs | {
        "input": np.moveaxis(inputs["input"], 1, 2).copy(),
        "past_state": np.moveaxis(inputs["past_state"], 2, 3).copy(),
    }
    last = call(device, moved, attributes | {"channels_last": 1})
    np.testing.assert_array_equal(np.moveaxis(last[0], 2, 1), first[0])
    np.testing.assert_array_equal(np.moveaxis(last[1], 3, 2), first[1])


def test_no_past_is_a_past_of_zeros(device: Device) -> None:
    for layout in LAYOUTS:
        inputs, attributes = draw(layout)
        zeros = call(device, inputs | {"past_state": 0 * inputs["past_state"]}, attributes)
        without = {n: x for n, x in inputs.items() if n != "past_state"}
        for a, b in zip(call(device, without, attributes), zeros, strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_positions_keep_the_state(device: Device) -> None:
    for layout in LAYOUTS:
        for window in (0, 3):
            inputs, attributes = draw(layout, window=window)
            inputs = part(inputs, layout, 0, 0)
            output, present = call(device, inputs, attributes)
            assert output.shape == inputs["input"].shape
            past = inputs["past_state"]
            np.testing.assert_array_equal(
                *((present[-1], past[-1]) if window else (present, past)), err_msg=layout
            )
            assert not window or not present[:-1].any()


def test_one_tap_has_no_state(device: Device) -> None:
    x = np.random.default_rng(4).standard_normal((2, 3, 5)).astype(np.float32)
    weight = np.array([2, -1, 0.5], np.float32).reshape(3, 1, 1)
    for past in (None, np.zeros((2, 3, 0), np.float32)):
        output, present = call(device, {"input": x, "weight": weight, "past_state": past}, {})
        np.testing.assert_array_equal(output, x * weight[:, :, 0])
        assert present.shape == (2, 3, 0)


@pytest.mark.parametrize("lengths", [(1, 99_999), (4, 100_000)], ids=["ragged", "fours"])
def test_two_dispatches_of_the_same_pipelines_at_any_length(lengths: tuple[int, int]) -> None:
    """One form of the kernel for lengths in fours, one for others."""

    def made(length: int, window: int) -> Any:
        inputs = [TensorSpec(s, float32) for s in ((2, 8, length), (8, 1, 4), (8,))]
        return plan("CausalConvWithState", inputs, {"state_window": window})

    for window in (0, 8):
        short, long = (made(length, window) for length in lengths)
        assert len(short.steps) == len(long.steps) == 2
        for a, b in zip(short.dispatches, long.dispatches, strict=True):
            assert (a.template, a.constants, a.workgroup) == (b.template, b.constants, b.workgroup)


def specs(**shapes: tuple[int, ...]) -> dict[str, TensorSpec]:
    shapes = {"input": (2, 4, 7), "weight": (4, 1, 3)} | shapes
    return {name: TensorSpec(shape, float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        ({"input": (4, 7)}, {}, r"input has shape \(4, 7\)"),
        ({"input": (2, 4, 3, 7)}, {}, "of rank 3 because ndim is 1"),
        ({}, {"ndim": 2}, "of rank 4 because ndim is 2"),
        ({"input": (2, 4)}, {"channels_last": 1}, r"\(batch, length, channels...\)"),
        ({}, {"channels_last": 1}, r"weight has shape \(4, 1, 3\); expected \(7, 1, k\)"),
        ({"weight": (4, 2, 3)}, {}, r"weight has shape \(4, 2, 3\); expected \(4, 1, k\)"),
        ({"weight": (4, 1, 0)}, {}, "at least one tap"),
        ({"input": (2, 4, 3, 7), "weight": (4, 1, 2, 3)}, {"ndim": 2}, "an odd size on each axis"),
        ({"input": (2, 4, 3, 7), "weight": (4, 1, 0, 3)}, {"ndim": 2}, "an odd size on each axis"),
        ({"bias": (3,)}, {}, r"bias has shape \(3,\); expected \(4,\)"),
        ({"past_state": (2, 4, 3)}, {}, r"past_state has shape \(2, 4, 3\); expected \(2, 4, 2\)"),
        ({"past_state": (2, 4, 2)}, {"dilation": 3}, r"expected \(2, 4, 6\)"),
        ({}, {"dilation": 1 << 30}, r"dilation is 1073741824; expected less than 2\*\*31 over 3 taps"),
        ({"past_state": (2, 4, 2)}, {"state_window": 2}, r"expected \(2, 2, 4, 2\)"),
        (
            {"input": (2, 7, 2, 2), "past_state": (2, 2, 4)},
            {"channels_last": 1},
            r"past_state has shape \(2, 2, 4\); expected \(2, 2, 2, 2\)",
        ),
    ],
)
def test_refusals(shapes: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(WebGpuOpsError, match=f"^CausalConvWithState: .*{message}"):
        plan("CausalConvWithState", specs(**shapes), attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"activation": "gelu"},
        {"channels_last": 2},
        {"dilation": 0},
        {"ndim": 4},
        {"state_window": 9},
        {"ndim": 2, "channels_last": 1},
    ],
)
def test_attributes_are_checked_with_the_node(attributes: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=f"^CausalConvWithState: {next(iter(attributes))} is "):
        plan("CausalConvWithState", specs(), attributes)


def test_a_long_window_of_states_in_place(device: Device) -> None:
    """More positions than one invocation of a software adapter may move."""
    rng = np.random.default_rng(12)
    dilation, window = 9000, 8
    inputs = {
        "input": rng.normal(size=(1, 1, 4)).astype(np.float32),
        "weight": rng.normal(size=(1, 1, 2)).astype(np.float32),
        "past_state": rng.normal(size=(window, 1, 1, dilation)).astype(np.float32),
    }
    attributes = {"dilation": dilation, "state_window": window}
    want = causal_conv_with_state(**inputs, **attributes)[1]
    state = Tensor.from_numpy(inputs["past_state"], device)
    feeds = inputs | {"past_state": state}
    run("CausalConvWithState", feeds, attributes, outputs={"present_state": state}, device=device)
    np.testing.assert_array_equal(state.numpy(), want)


def test_kernels_beyond_the_rounds_of_a_software_adapter_are_refused() -> None:
    inputs = {
        "input": TensorSpec((1, 2, 5), float32),
        "weight": TensorSpec((2, 1, 20_000), float32),
    }
    with pytest.raises(LimitError, match=r"CausalConvWithState: weight has shape \(2, 1, 20000\)"):
        plan("CausalConvWithState", inputs, capabilities=Capabilities(device_class="cpu"))
