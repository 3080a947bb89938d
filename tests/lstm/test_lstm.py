"""LSTM layers on the device: paths, lengths, states fed back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, reference, run

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("lstm")

OUTPUTS = ("Y", "Y_h", "Y_c")


def lstm_inputs(
    steps: int, batch: int, width: int, hidden: int, dirs: int = 1, dtype: Any = np.float32
) -> dict[str, Any]:
    rng = np.random.default_rng((steps, batch, hidden))

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(dtype)

    scale = dtype(1 / np.sqrt(hidden + width))
    return {
        "X": draw(steps, batch, width),
        "W": draw(dirs, 4 * hidden, width) * scale,
        "R": draw(dirs, 4 * hidden, hidden) * scale,
        "B": draw(dirs, 8 * hidden),
        "initial_h": draw(dirs, batch, hidden),
        "initial_c": draw(dirs, batch, hidden),
    }


def quantized_inputs(steps: int, batch: int, width: int, hidden: int, dirs: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(hidden)
    inputs = lstm_inputs(steps, batch, width, hidden, dirs)
    for name, rows in (("W", width), ("R", hidden)):
        inputs[name] = rng.integers(-128, 128, (dirs, rows, 4 * hidden)).astype(np.int8)
        inputs[f"{name}_scale"] = rng.uniform(0.5, 1, dirs).astype(np.float32) / np.float32(150 * rows**0.5)
        inputs[f"{name}_zero_point"] = rng.integers(-9, 9, dirs).astype(np.int8)
    return inputs


def attention_inputs(
    steps: int, batch: int, width: int, hidden: int, memory: int, query: int = 5, depth: int = 6
) -> dict[str, Any]:
    rng = np.random.default_rng(memory)
    inputs = lstm_inputs(steps, batch, width, hidden)
    layer = 7

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    return inputs | {
        "W": draw(1, 4 * hidden, width + layer) / np.float32(np.sqrt(width + layer)),
        "QW": draw(1, hidden, query),
        "MW": draw(1, depth, query),
        "V": draw(1, query),
        "M": draw(batch, memory, depth),
        "memory_seq_lens": rng.integers(0, memory + 1, batch).astype(np.int32),
        "AW": draw(1, depth + hidden, layer) / np.float32(np.sqrt(depth + hidden)),
    }


def outputs(op: str, inputs: Mapping[str, Any], device: Device, **attributes: Any) -> list[np.ndarray]:
    domain = "" if op == "LSTM" else "com.microsoft"
    found = run(op, inputs, attributes, domain=domain, outputs=OUTPUTS, device=device)
    return [t.numpy() for t in found if t is not None]


def check(op: str, inputs: Mapping[str, Any], device: Device, atol: float = 2e-5, **attributes: Any) -> None:
    expected = reference.find(op, "" if op == "LSTM" else "com.microsoft")
    assert expected is not None
    want = expected(**inputs, **attributes)
    for name, got, value in zip(OUTPUTS, outputs(op, inputs, device, **attributes), want, strict=True):
        assert got.dtype == value.dtype
        np.testing.assert_allclose(got.astype(float), value.astype(float), rtol=0, atol=atol, err_msg=name)


def test_long_sequences(any_device: Device) -> None:
    """Several dispatches of many steps each go on where the one before ended."""
    inputs = lstm_inputs(700, 3, 4, 21, dirs=2)
    inputs["sequence_lens"] = np.array([700, 333, 1], np.int32)
    check("LSTM", inputs, any_device, direction="bidirectional")


@pytest.mark.parametrize("steps", [2, 3])
def test_wide_layers(any_device: Device, steps: int) -> None:
    """A workgroup cannot own all units: each step is a dispatch, and the state changes buffers."""
    inputs = lstm_inputs(steps, 3, 4, 517, dirs=2)
    inputs["sequence_lens"] = np.array([steps, 1, 0], np.int32)
    check("LSTM", inputs, any_device, direction="bidirectional")


def test_wide_quantized_layer(any_device: Device) -> None:
    inputs = quantized_inputs(3, 3, 4, 517)
    inputs["sequence_lens"] = np.array([3, 1, 2], np.int32)
    # A value on the other side of a rounding tie is one code of 1/255 times a small weight.
    check("DynamicQuantizeLSTM", inputs, any_device, atol=2e-3, direction="reverse")


def test_wide_attention_layer(any_device: Device) -> None:
    check("AttnLSTM", attention_inputs(3, 3, 4, 517, 20), any_device)


def test_long_memory(any_device: Device) -> None:
    check("AttnLSTM", attention_inputs(3, 2, 4, 9, 3000), any_device)


def test_a_wide_attention_layer_over_a_long_memory(device: Device) -> None:
    """More than the fewest lanes of a software adapter may share."""
    inputs = attention_inputs(1, 1, 4, 513, 4000, query=512, depth=448)
    for name in ("QW", "MW"):
        inputs[name] /= np.float32(20)
    check("AttnLSTM", inputs, device)


def test_wide_double(device: Device) -> None:
    inputs = lstm_inputs(2, 2, 3, 261, dtype=np.float64)
    check("LSTM", inputs, device, atol=1e-11)


def test_a_layer_as_wide_as_a_workgroup_holds(any_device: Device) -> None:
    check("LSTM", lstm_inputs(2, 5, 3, 512), any_device)


@pytest.mark.parametrize("op", ["LSTM", "AttnLSTM"])
def test_chunks_with_states_fed_back(any_device: Device, op: str) -> None:
    """AttnLSTM starts every call with an attention of 0, so its memory here has no valid step."""
    inputs = lstm_inputs(23, 2, 5, 12) if op == "LSTM" else attention_inputs(23, 2, 5, 12, 4)
    if op == "AttnLSTM":
        inputs["memory_seq_lens"] = np.zeros(2, np.int32)
        inputs["AW"][:, :12] = 0
    whole = outputs(op, inputs, any_device)
    cuts = [0, 1, 9, 10, 23]
    parts = []
    for begin, end in pairwise(cuts):
        y, h, c = outputs(op, inputs | {"X": inputs["X"][begin:end]}, any_device)
        inputs |= {"initial_h": h, "initial_c": c}
        parts.append(y)
    for got, want in zip((np.concatenate(parts), h, c), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


def test_lengths_on_the_device_are_contained(any_device: Device) -> None:
    inputs = lstm_inputs(4, 3, 5, 6, dirs=2)
    wild = np.array([9, -3, 2**31 - 1], np.int32)
    on_device = Tensor.from_numpy(wild, any_device)
    got = outputs("LSTM", inputs | {"sequence_lens": on_device}, any_device, direction="bidirectional")
    clamped = inputs | {"sequence_lens": np.clip(wild, 0, 4)}
    for value, want in zip(got, outputs("LSTM", clamped, any_device, direction="bidirectional"), strict=True):
        np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("op", ["LSTM", "DynamicQuantizeLSTM", "AttnLSTM"])
def test_gates_of_more_steps_than_a_binding_holds(
    any_device: Device, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The products are then made piece by piece, each direction in its own order of steps."""
    draw = {"LSTM": lstm_inputs, "DynamicQuantizeLSTM": quantized_inputs}.get(op)
    inputs = attention_inputs(40, 3, 5, 6, 4) if draw is None else draw(40, 3, 5, 6, 2)
    attributes = {"direction": "reverse" if draw is None else "bidirectional"}
    inputs["sequence_lens"] = np.array([40, 0, 17], np.int32)
    small = replace(any_device.capabilities, max_binding_bytes=8192)
    monkeypatch.setattr(any_device, "capabilities", small)
    before = any_device.stats.dispatches
    # A value on the other side of a rounding tie is one code of 1/255 times a small weight.
    check(op, inputs, any_device, atol=2e-3 if op == "DynamicQuantizeLSTM" else 2e-5, **attributes)
    assert any_device.stats.dispatches - before > 8


def test_batch_first_in_pieces(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = lstm_inputs(30, 3, 5, 6, dirs=2)
    for name in ("X", "initial_h", "initial_c"):
        inputs[name] = np.swapaxes(inputs[name], 0, 1).copy()
    inputs["sequence_lens"] = np.array([11, 30, 29], np.int32)
    small = replace(device.capabilities, max_binding_bytes=8192)
    monkeypatch.setattr(device, "capabilities", small)
    check("LSTM", inputs, device, direction="bidirectional", layout=1)


def test_quantized_values_are_exact(any_device: Device) -> None:
    """One step from zero states: the gates are an integer product, seen through the identity."""
    rng = np.random.default_rng(0)
    width, hidden = 300, 5
    inputs = {
        "X": rng.integers(0, 256, (1, 2, width)).astype(np.float32),
        "W": rng.integers(-128, 128, (1, width, 4 * hidden)).astype(np.int8),
        "R": np.zeros((1, hidden, 4 * hidden), np.int8),
        "W_scale": np.ones(1, np.float32),
        "W_zero_point": np.array([-128], np.int8),
        "R_scale": np.ones(1, np.float32),
        "R_zero_point": np.zeros(1, np.int8),
    }
    inputs["X"][0, 0, 0] = 255.0  # the scale of X is 1
    got = outputs(
        "DynamicQuantizeLSTM",
        inputs,
        any_device,
        activations=["Affine", "Affine", "Affine"],
        activation_alpha=[0.0, 1.0, 1.0],
        activation_beta=[1.0, 0.0, 0.0],
    )
    product = inputs["X"][0].astype(np.int64) @ (inputs["W"][0, :, 3 * hidden :].astype(np.int64) + 128)
    np.testing.assert_array_equal(got[2][0], product.astype(np.float32))


def test_against_onnx_runtime(device: Device) -> None:
    """The reference's reading of peepholes, clip and coupled gates is the one of another program."""
    ort = pytest.importorskip("onnxruntime")
    from onnx import helper

    inputs = lstm_inputs(6, 3, 4, 5, dirs=2)
    inputs["sequence_lens"] = np.array([6, 0, 3], np.int32)
    inputs["P"] = np.linspace(-1, 1, 30, dtype=np.float32).reshape(2, 15)
    attributes = {"direction": "bidirectional", "hidden_size": 5, "clip": 0.5, "input_forget": 1}
    names = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
    node = helper.make_node("LSTM", names, OUTPUTS, **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(inputs[n].dtype), inputs[n].shape)
        for n in names
    ]
    results = [helper.make_tensor_value_info(n, 1, None) for n in OUTPUTS]
    model = helper.make_model(
        helper.make_graph([node], "lstm", infos, results),
        opset_imports=[helper.make_opsetid("", 14)],
        ir_version=8,
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, inputs)
    for got, value in zip(outputs("LSTM", inputs, device, **attributes), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=0, atol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "DynamicQuantizeLSTM", "AttnLSTM"])
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (3, 0)])
def test_no_steps_and_no_rows(device: Device, op: str, steps: int, batch: int) -> None:
    """A sequence without steps has no last value; without rows there is nothing."""
    draw = {"LSTM": lstm_inputs, "DynamicQuantizeLSTM": quantized_inputs}.get(op)
    inputs = draw(steps, batch, 3, 4) if draw else attention_inputs(steps, batch, 3, 4, 5)
    y, h, c = outputs(op, inputs, device)
    assert y.shape == (steps, 1, batch, 4)
    for got in (h, c):
        np.testing.assert_array_equal(got, np.zeros((1, batch, 4), np.float32))


def test_no_hidden_units(device: Device) -> None:
    shapes = {"X": (3, 2, 5), "W": (1, 0, 5), "R": (1, 0, 0)}
    inputs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert [v.shape for v in outputs("LSTM", inputs, device)] == [(3, 1, 2, 0), (1, 2, 0), (1, 2, 0)]
