"""GatedDeltaNet on a device: its two paths, its states, and what malformed metadata may do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, Tensor, run
from webgpu_ops import plan as make_plan
from webgpu_ops.reference.recurrent import gated_delta_net

from .calls import draw
from .conftest import Force

LENGTHS = (1, 15, 63, 64, 65, 300)
TOLERANCE = {"float32": (1e-4, 1e-5), "float16": (1e-3, 1e-4), "bfloat16": (8e-3, 1e-3)}
ALL = ("output", "final_state")


def close(got: np.ndarray, want: np.ndarray) -> None:
    rtol, atol = TOLERANCE[want.dtype.name]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol)


def call(device: Device, inputs: dict[str, Any], outputs: Any = ALL, **attributes: Any) -> list[np.ndarray]:
    results = run("GatedDeltaNet", inputs, attributes, outputs=outputs, device=device)
    return [t.numpy() for t in results if t is not None]


def compare(device: Device, inputs: dict[str, Any], **attributes: Any) -> None:
    want = gated_delta_net(**inputs, **attributes)
    for got, expected in zip(call(device, inputs, **attributes), want, strict=False):
        close(got, expected)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_paths_agree_with_the_reference_at_all_lengths(gpu_tiles: Device, force: Force, path: str) -> None:
    force(path)
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        inputs = draw(rng, [length])
        made = make_plan("GatedDeltaNet", inputs, outputs=ALL, capabilities=gpu_tiles.capabilities)
        assert made.path == path
        compare(gpu_tiles, inputs)
    compare(gpu_tiles, draw(rng, list(LENGTHS)))
    compare(gpu_tiles, draw(rng, [0, 33, 0, 0, 31, 40, 1, 0]))


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta"])
def test_rules(gpu_tiles: Device, force: Force, path: str, rule: str) -> None:
    force(path)
    inputs = draw(np.random.default_rng(2), [65, 40], rule=rule, hk=2, hv=2, dk=9, dv=5)
    compare(gpu_tiles, inputs, update_rule=rule, chunk_size=16)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_all_options_with_narrow_types(gpu_tiles: Device, force: Force, path: str, dtype: Any) -> None:
    force(path)
    rng = np.random.default_rng(3)
    inputs = draw(rng, [70, 3], hk=2, hv=6, dk=20, dv=7, dtype=dtype)
    inputs["query"], inputs["key"] = (
        rng.standard_normal(inputs[n].shape).astype(dtype) for n in ("query", "key")
    )
    inputs["decay"] = rng.standard_normal(inputs["decay"].shape).astype(np.float32)
    inputs["beta"] = rng.standard_normal(inputs["beta"].shape).astype(np.float32)
    inputs["a_log"] = rng.uniform(-2, 2, 6).astype(np.float32)
    inputs["dt_bias"] = rng.standard_normal(6).astype(np.float32)
    del inputs["initial_state"]
    compare(
        gpu_tiles,
        inputs,
        gate_activation="qwen",
        beta_activation="sigmoid",
        qk_l2_norm=1,
        scale=0.7,
    )


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_decays_from_none_to_total(gpu_tiles: Device, force: Force, path: str) -> None:
    """Sums of steps keep small decays exact next to huge ones; exp(-inf) forgets everything."""
    force(path)
    rng = np.random.default_rng(4)
    inputs = draw(rng, [100])
    steps = np.array([0, -1e-4, -0.5, -30, -1000, -np.inf], np.float32)
    inputs["decay"] = rng.choice(steps, inputs["decay"].shape, p=[0.3, 0.3, 0.3, 0.05, 0.03, 0.02])
    compare(gpu_tiles, inputs)


def test_head_sizes_beyond_a_tile(gpu_tiles: Device, force: Force) -> None:
    rng = np.random.default_rng(5)
    force("recurrent")
    compare(gpu_tiles, draw(rng, [3, 2], hv=1, dk=517, dv=1))
    force("chunked")
    compare(gpu_tiles, draw(rng, [40], hv=1, dk=257, dv=33))


def test_per_key_decay_goes_with_qwen(device: Device) -> None:
    rng = np.random.default_rng(6)
    inputs = draw(rng, [5, 4], hv=3, dk=18, dv=6)
    inputs["decay"] = rng.standard_normal((9, 3, 18)).astype(np.float32)
    inputs["a_log"] = rng.uniform(-2, 1, 3).astype(np.float32)
    inputs["dt_bias"] = rng.standard_normal(3).astype(np.float32)
    compare(device, inputs, gate_activation="qwen")


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_a_small_softplus_of_a_large_rate(gpu_tiles: Device, force: Force, path: str) -> None:
    """Where exp(x) vanishes beside 1, softplus(x) is exp(x) all the same."""
    force(path)
    inputs = draw(np.random.default_rng(11), [100])
    inputs["decay"] = np.linspace(-17, -13, 200, dtype=np.float32).reshape(100, 2)
    inputs["a_log"], inputs["dt_bias"] = np.full(2, 12, np.float32), np.zeros(2, np.float32)
    compare(gpu_tiles, inputs, gate_activation="qwen")


def test_unused_gates_are_ignored(device: Device) -> None:
    inputs = draw(np.random.default_rng(7), [6])
    gated = call(device, inputs, update_rule="gated")
    without = {k: v for k, v in inputs.items() if k != "beta"}
    for a, b in zip(gated, call(device, without, update_rule="gated"), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_state_in_place(gpu_tiles: Device, force: Force, path: str) -> None:
    """The state may be a view at an odd offset of a larger allocation; its neighbours stay."""
    force(path)
    inputs = draw(np.random.default_rng(8), [70, 0, 33])
    want = gated_delta_net(**inputs)
    state = inputs["initial_state"]
    pool = np.full(state.size + 12, np.nan, np.float32)
    pool[5 : 5 + state.size] = state.reshape(-1)
    held = Tensor.from_numpy(pool, gpu_tiles)
    view = held.view(state.shape, 5)
    outputs = {"output": None, "final_state": view}
    output = run("GatedDeltaNet", inputs | {"initial_state": view}, outputs=outputs, device=gpu_tiles)[0]
    assert output is not None
    close(output.numpy(), want[0])
    after = held.numpy()
    close(after[5 : 5 + state.size].reshape(state.shape), want[1])
    assert np.isnan(after[:5]).all() and np.isnan(after[5 + state.size :]).all()


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_outputs_at_odd_offsets_keep_their_neighbours(gpu_tiles: Device, force: Force, path: str) -> None:
    force(path)
    inputs = draw(np.random.default_rng(9), [70], dv=5, dtype=np.float16)
    want = gated_delta_net(**inputs)[0]
    poison = np.full(want.size + 6, 0x7E5A, np.uint16)
    held = Tensor.from_numpy(poison.view(np.float16), gpu_tiles)
    run("GatedDeltaNet", inputs, outputs={"output": held.view(want.shape, 3)}, device=gpu_tiles)
    after = held.numpy()
    close(after[3 : 3 + want.size].reshape(want.shape), want)
    np.testing.assert_array_equal(after[[0, 1, 2, -3, -2, -1]].view(np.uint16), poison[:6])


def test_chunks_of_a_sequence_thread_the_state(device: Device) -> None:
    rng = np.random.default_rng(10)
    inputs = draw(rng, [90])
    whole = call(device, inputs)
    state, pieces, at = inputs["initial_state"], [], 0
    while at < 90:
        end = min(90, at + int(rng.integers(1, 40)))
        part = {n: inputs[n][at:end] for n in ("query", "key", "value", "decay", "beta")}
        output, state = call(device, part | {"initial_state": state})
        pieces.append(output)
        at = end
    close(np.concatenate(pieces), whole[0])
    close(state, whole[1])


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize(
    "cuts",
    [
        [3, 20, 60],  # tokens before the first and after the last request
        [-5, 20, 2**31 - 1],  # clamped to the tokens there are
        [0, 50, 20],  # decreasing: an empty second request
        [90, 80, -(2**31)],
    ],
)
def test_malformed_cu_seqlens_are_contained(
    gpu_tiles: Device, force: Force, path: str, cuts: list[int]
) -> None:
    force(path)
    inputs = draw(np.random.default_rng(11), [40, 40])
    clamped = np.clip(cuts, 0, 80)
    inputs["cu_seqlens"] = np.array(cuts, np.int32)
    output, state = call(gpu_tiles, inputs)
    claimed = np.zeros(80, bool)
    for b in range(2):
        begin, end = clamped[b], max(clamped[b], clamped[b + 1])
        alone = {n: inputs[n][begin:end] for n in ("query", "key", "value", "decay", "beta")}
        want = gated_delta_net(**alone, initial_state=inputs["initial_state"][b : b + 1])
        close(output[begin:end], want[0])
        close(state[b], want[1][0])
        claimed[begin:end] = True
    assert not output[~claimed].any()


def test_empty_calls(device: Device) -> None:
    inputs = draw(np.random.default_rng(12), [0, 0])
    output, state = call(device, inputs)
    assert output.shape == (0, 2, 8)
    np.testing.assert_array_equal(state, inputs["initial_state"])


def test_inactive_capture_is_zero_in_poisoned_memory(device: Device) -> None:
    inputs = draw(np.random.default_rng(13), [4, 2])
    inputs["capture_count"] = np.array([2, 2], np.int32)
    inputs["state_update_active"] = np.zeros(1, np.int32)
    width = 3 * (2 + 16 + 2 * 8)
    update = Tensor.from_numpy(np.full((2, width), np.nan, np.float32), device)
    outputs = {"output": None, "state_update": update}
    run("GatedDeltaNet", inputs, {"state_update_capacity": 3}, outputs=outputs, device=device)
    np.testing.assert_array_equal(update.numpy(), np.zeros((2, width), np.float32))
