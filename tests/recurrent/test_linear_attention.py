"""LinearAttention on a device: both paths of the shared recurrence, windows of states, its gate."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, Tensor, run
from webgpu_ops import plan as make_plan
from webgpu_ops.reference.recurrent import linear_attention, linear_attention_gate

from .conftest import Force

LENGTHS = (1, 15, 63, 64, 65, 300)
TOLERANCE = {"float32": (1e-4, 1e-5), "float16": (1e-3, 1e-4), "bfloat16": (8e-3, 1e-3)}
HEADS = {"equal": (2, 2), "shared states": (6, 2), "shared queries": (2, 4)}


def draw(
    rng: np.random.Generator,
    length: int,
    *,
    rule: str = "gated_delta",
    hq: int = 2,
    hkv: int = 2,
    dk: int = 16,
    dv: int = 8,
    batch: int = 1,
    window: int = 0,
    dtype: Any = np.float32,
    state_type: Any = np.float32,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Inputs by schema name, and attributes; keys are of unit length, as the delta rules need."""

    def unit(heads: int) -> np.ndarray:
        x = rng.standard_normal((batch, length, heads, dk))
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        return x.reshape(batch, length, heads * dk).astype(dtype)

    slots = (window,) if window else ()
    inputs = {
        "query": unit(hq),
        "key": unit(hkv),
        "value": rng.standard_normal((batch, length, hkv * dv)).astype(dtype),
        "past_state": rng.standard_normal((*slots, batch, hkv, dk, dv)).astype(state_type),
    }
    if rule in ("gated", "gated_delta"):
        inputs["decay"] = -rng.exponential(0.3, (batch, length, hkv)).astype(dtype)
    if rule in ("delta", "gated_delta"):
        inputs["beta"] = rng.uniform(0, 1, (batch, length, hkv)).astype(dtype)
    attributes = {"q_num_heads": hq, "kv_num_heads": hkv, "update_rule": rule, "state_window": window}
    return inputs, attributes


def close(got: np.ndarray, want: np.ndarray) -> None:
    rtol, atol = TOLERANCE[want.dtype.name]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol)


def call(device: Device, inputs: dict[str, Any], attributes: dict[str, Any]) -> list[np.ndarray]:
    results = run("LinearAttention", inputs, attributes, device=device)
    return [t.numpy() for t in results if t is not None]


def compare(device: Device, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    want = linear_attention(**inputs, **attributes)
    for got, expected in zip(call(device, inputs, attributes), want, strict=True):
        close(got, expected)


def tokens(inputs: dict[str, Any], begin: int, end: int) -> dict[str, Any]:
    """The call over some of the tokens."""
    return {n: x if n == "past_state" else x[:, begin:end] for n, x in inputs.items()}


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("heads", HEADS)
def test_paths_agree_with_the_reference_at_all_lengths(
    gpu_tiles: Device, force: Force, path: str, heads: str
) -> None:
    force(path)
    rng = np.random.default_rng(1)
    hq, hkv = HEADS[heads]
    for length in LENGTHS:
        inputs, attributes = draw(rng, length, hq=hq, hkv=hkv)
        made = make_plan("LinearAttention", inputs, attributes, capabilities=gpu_tiles.capabilities)
        assert made.path == path
        compare(gpu_tiles, inputs, attributes)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta"])
def test_rules_with_narrow_types(gpu_tiles: Device, force: Force, path: str, rule: str) -> None:
    force(path)
    rng = np.random.default_rng(2)
    for dtype, state_type in ((np.float16, np.float16), (ml_dtypes.bfloat16, np.float32)):
        inputs, attributes = draw(
            rng, 70, rule=rule, hq=4, hkv=2, dk=9, dv=6, batch=2, dtype=dtype, state_type=state_type
        )
        compare(gpu_tiles, inputs, attributes | {"scale": 0.7, "chunk_size": 16})


def test_one_beta_for_all_heads_and_a_decay_for_each_key_channel(device: Device) -> None:
    rng = np.random.default_rng(3)
    inputs, attributes = draw(rng, 7, hkv=3, hq=3, dk=10, dv=5, batch=2)
    inputs["beta"] = inputs["beta"][:, :, :1]
    inputs["decay"] = -rng.exponential(0.3, (2, 7, 3 * 10)).astype(np.float32)
    compare(device, inputs, attributes)


def test_many_queries_of_a_wide_state(device: Device) -> None:
    """More key channels than a lane keeps: lanes meet for every query head."""
    inputs, attributes = draw(np.random.default_rng(4), 3, hq=5, hkv=1, dk=70, dv=9, batch=2)
    compare(device, inputs, attributes)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_windows(gpu_tiles: Device, force: Force, path: str, window: int) -> None:
    """Each slot is the state of a run that stopped there; slots without a token are zero."""
    force(path)
    rng = np.random.default_rng(5)
    for length in (1, 2, 3, 4, 8, 9, 70):
        inputs, attributes = draw(rng, length, window=window, batch=2, dv=6)
        made = make_plan("LinearAttention", inputs, attributes, capabilities=gpu_tiles.capabilities)
        assert made.path == ("recurrent" if 1 < window >= length else path)
        compare(gpu_tiles, inputs, attributes)
        _, present = call(gpu_tiles, inputs, attributes)
        for j in range(window):
            stop = length - window + j + 1
            if stop < 1:
                assert not present[j].any()
            else:
                _, want = call(gpu_tiles, tokens(inputs, 0, stop), attributes)
                close(present[j], want[-1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("path", ["recurrent", "chunked"])
def test_the_states_of_a_window_are_rounded_once(
    gpu_tiles: Device, force: Force, path: str, dtype: Any
) -> None:
    """Also where chunks leave off and single tokens go on: rounding there too moves a quarter of them."""
    force(path)
    rng = np.random.default_rng(6)
    inputs, attributes = draw(rng, 72, rule="linear", window=8, dtype=dtype, state_type=dtype)
    inputs["value"] = (inputs["value"].astype(np.float32) / 8).astype(dtype)
    _, present = call(gpu_tiles, inputs, attributes)
    _, want = linear_attention(**inputs, **attributes)
    assert np.mean(present != want) < 0.02


@pytest.mark.parametrize("window", [0, 4])
def test_random_chunks_thread_the_state(any_device: Device, window: int) -> None:
    rng = np.random.default_rng(7)
    inputs, attributes = draw(rng, 100, hq=4, hkv=2, batch=2, window=window)
    output, state = call(any_device, inputs, attributes)
    past, pieces, at = inputs["past_state"], [], 0
    while at < 100:
        end = min(100, at + int(rng.choice([1, 2, 7, 70])))
        piece, past = call(any_device, tokens(inputs, at, end) | {"past_state": past}, attributes)
        pieces.append(piece)
        at = end
    close(np.concatenate(pieces, axis=1), output)
    close(past[-1] if window else past, state[-1] if window else state)


@pytest.mark.parametrize("path", ["recurrent", "chunked"])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("state_type", [np.float32, np.float16])
def test_state_in_place(gpu_tiles: Device, force: Force, path: str, window: int, state_type: Any) -> None:
    """The state is a view at an odd offset of a larger allocation; its neighbours stay."""
    force(path)
    rng = np.random.default_rng(8)
    for length in (2, 40):
        inputs, attributes = draw(rng, length, hq=4, hkv=2, dv=5, window=window, state_type=state_type)
        want = linear_attention(**inputs, **attributes)
        state = inputs["past_state"]
        pool = np.full(state.size + 12, np.nan, state_type)
        pool[5 : 5 + state.size] = state.reshape(-1)
        held = Tensor.from_numpy(pool, gpu_tiles)
        view = held.view(state.shape, 5)
        outputs = {"output": None, "present_state": view}
        results = run(
            "LinearAttention", inputs | {"past_state": view}, attributes, outputs=outputs, device=gpu_tiles
        )
        assert results[0] is not None
        close(results[0].numpy(), want[0])
        after = held.numpy()
        close(after[5 : 5 + state.size].reshape(state.shape), want[1])
        assert np.isnan(after[:5]).all() and np.isnan(after[5 + state.size :]).all()


@pytest.mark.parametrize("window", [0, 3])
def test_no_tokens_keep_the_state(device: Device, window: int) -> None:
    inputs, attributes = draw(np.random.default_rng(9), 0, batch=2, window=window)
    output, present = call(device, inputs, attributes)
    assert output.shape == (2, 0, 16)
    last = (lambda s: s[-1]) if window else (lambda s: s)
    np.testing.assert_array_equal(last(present), last(inputs["past_state"]))
    assert not window or not present[:-1].any()


def test_an_empty_batch(device: Device) -> None:
    inputs, attributes = draw(np.random.default_rng(10), 3, batch=0)
    output, present = call(device, inputs, attributes)
    assert output.shape == (0, 3, 16) and present.shape == (0, 2, 16, 8)


def test_unused_gates_are_ignored(device: Device) -> None:
    inputs, attributes = draw(np.random.default_rng(11), 5)
    for rule, unused in (("gated", "beta"), ("delta", "decay")):
        given = call(device, inputs, attributes | {"update_rule": rule})
        without = {n: x for n, x in inputs.items() if n != unused}
        for a, b in zip(given, call(device, without, attributes | {"update_rule": rule}), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_gate_from_tiny_to_huge(device: Device, dtype: Any) -> None:
    """Small decays keep their digits, large ones do not overflow on the way."""
    values = np.array([-200, -80, -20, -3, -0.5, 0, 1e-3, 0.5, 3, 20, 80, 200, 3e4], dtype)
    a = np.stack([values, values[::-1], 0 * values], axis=-1)[None]
    bias, scale = np.array([0, 1, -2], np.float32), np.array([-1, -0.5, 2], np.float32)
    got = run("LinearAttentionGate", [a, bias, scale, a], outputs=("decay", "beta"), device=device)
    want = linear_attention_gate(a, bias, scale, a)
    for x, expected in zip(got, want, strict=True):
        assert x is not None and expected is not None
        smallest = 6e-8 if dtype == np.float16 else 2e-38  # subnormals may be flushed
        rtol = TOLERANCE[expected.dtype.name][0]
        np.testing.assert_allclose(x.numpy().astype(np.float64), expected.astype(np.float64), rtol, smallest)


def test_gate_in_place_of_its_inputs(device: Device) -> None:
    rng = np.random.default_rng(12)
    a, b = (rng.standard_normal((2, 3, 5)).astype(np.float16) for _ in range(2))
    bias, scale = (rng.standard_normal(5).astype(np.float32) for _ in range(2))
    want = linear_attention_gate(a, bias, scale, b)
    for crossed in (False, True):
        held = [Tensor.from_numpy(x, device) for x in (a, b)]
        decay, beta = held[::-1] if crossed else held
        run(
            "LinearAttentionGate",
            [held[0], bias, scale, held[1]],
            outputs={"decay": decay, "beta": beta},
            device=device,
        )
        for got, expected in zip((decay, beta), want, strict=True):
            assert expected is not None
            close(got.numpy(), expected)
