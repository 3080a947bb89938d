"""The onnx.backend interface."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, parser

from webgpu_ops import SparseTensor, Tensor, backend
from webgpu_ops.core.device import Device
from webgpu_ops.errors import DeviceError, ModelError, SchemaError, ShapeError, UnsupportedError

HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>'


def parse(text: str) -> ModelProto:
    return parser.parse_model(f"{HEADER} g {text}")


ADD = parse("(float[n] a, float[n] b) => (float[n] s, float[n] d) { s = Add(a, b) d = Sub(a, b) }")
A, B = np.array([1, 2, 3], np.float32), np.array([4, 0.5, -1], np.float32)


def test_a_prepared_model_runs_on_sequences_and_mappings(device: Device) -> None:
    prepared = backend.prepare(ADD, device=device)
    tensor = Tensor.from_numpy(A, device)
    for inputs in ([A, B], (tensor, B), {"b": B, "a": A}):
        outputs = prepared.run(inputs)
        assert isinstance(outputs, tuple) and len(outputs) == 2
        np.testing.assert_array_equal(outputs[0], A + B)
        np.testing.assert_array_equal(outputs.d, A - B)


def test_one_input_needs_no_list() -> None:
    (y,) = backend.run_model(parse("(float[n] x) => (float[n] y) { y = Neg(x) }"), A)
    np.testing.assert_array_equal(y, -A)


def test_initializers_among_the_inputs_may_be_left_off() -> None:
    prepared = backend.prepare(
        parse("(float[n] x, float[3] w = {1, 2, 3}) => (float[n] y) { y = Add(x, w) }")
    )
    np.testing.assert_array_equal(prepared.run([A])[0], A + np.array([1, 2, 3]))
    np.testing.assert_array_equal(prepared.run([A, B])[0], A + B)


def test_run_node() -> None:
    node = helper.make_node("BiasGelu", ["x", "b"], ["y"], domain="com.microsoft")
    x = np.array([[-1, 0, 1]], np.float32)
    (y,) = backend.run_node(node, [x, np.zeros(3, np.float32)])
    np.testing.assert_allclose(y, [[-0.15865526, 0, 0.8413447]], rtol=1e-5)
    twice = helper.make_node("Mul", ["x", "x"], ["y"])
    np.testing.assert_array_equal(backend.run_node(twice, [x, x])[0], x * x)
    np.testing.assert_array_equal(backend.run_node(twice, {"x": x}, opset_version=13)[0], x * x)
    gap = helper.make_node("Clip", ["x", "", "high"], ["y"])
    (y,) = backend.run_node(gap, [x, np.float32(0.5)], outputs_info=[(np.float32, (1, 3))])
    np.testing.assert_array_equal(y, [[-1, 0, 0.5]])
    with pytest.raises(ModelError, match="Clip: 1 inputs came; the node has x, high"):
        backend.run_node(gap, [x])


def test_devices() -> None:
    assert backend.supports_device("WEBGPU")
    assert not backend.supports_device("CPU") and not backend.supports_device("CUDA")
    for device in ("CPU", "CUDA:0", None):
        with pytest.raises(DeviceError, match=f"device {device!r} is not supported; expected 'WEBGPU'"):
            backend.prepare(ADD, device=device)  # type: ignore[arg-type]


def test_compatibility() -> None:
    assert backend.is_compatible(ADD)
    assert not backend.is_compatible(parse("(float[2,2] x) => (float y) { y = Det(x) }"))
    with pytest.raises(UnsupportedError, match="Det: no WebGPU implementation"):
        backend.prepare(parse("(float[2,2] x) => (float y) { y = Det(x) }"))


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ([A], ModelError, "1 inputs came; the model has 2: a, b"),
        ([A, B, B], ModelError, "3 inputs came; the model has 2: a, b"),
        ({"a": A}, ModelError, "input 'b' was not fed"),
        (
            [A, B.astype(np.float16)],
            ModelError,
            r"input 'b' has type tensor\(float16\); expected tensor\(float\)",
        ),
        ([A, B[:2]], ShapeError, r"Add: "),
        ([A, [B]], ShapeError, "input 'b' has shape"),
    ],
)
def test_wrong_inputs(inputs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        backend.prepare(ADD).run(inputs)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ModelError, match="option 'fast' is not known"):
        backend.prepare(ADD, fast=True)
    with pytest.raises(ModelError, match="option 'fast' is not known"):
        backend.prepare(ADD).run([A, B], fast=True)


def test_narrow_types_travel_as_ml_dtypes_or_as_words(device: Device) -> None:
    proto = parse(
        "(bfloat16[2,n] x, bfloat16[n] b) => (bfloat16[2,n] y) { y = com.microsoft.BiasGelu(x, b) }"
    )
    x = np.array([[-2, 0.5, 3], [1, 0, -1]], ml_dtypes.bfloat16)
    b = np.array([1, 2, -3], ml_dtypes.bfloat16)
    prepared = backend.prepare(proto, device=device)
    (y,) = prepared.run([x, b])
    assert y.dtype == ml_dtypes.bfloat16
    (again,) = prepared.run([x.view(np.uint16), b.view(np.uint16)])
    assert again.tobytes() == y.tobytes()


def test_an_output_that_must_alias_an_input_is_bound_to_it(device: Device) -> None:
    proto = parse(
        "(float[n] source, float[n] capture, float[m] destination, int64[8] metadata) => (float[m] out)"
        "{ out = com.microsoft.ConvStateReplay(source, capture, destination, metadata) }"
    )
    source, capture = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) + 10
    destination = np.full(5, -1, np.float32)
    metadata = np.array([0, 4, 0, 1, 2, 2, 2, 2])
    (out,) = backend.prepare(proto, device=device).run([source, capture, destination, metadata])
    np.testing.assert_array_equal(out, [-1, 10, 12, 11, 13])
    np.testing.assert_array_equal(destination, np.full(5, -1))


def test_sparse_inputs_are_checked() -> None:
    x = helper.make_sparse_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("Shape", ["x"], ["y"])], "g", [x], [y])
    prepared = backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    sparse = SparseTensor.from_coo(np.ones(1, np.float32), np.array([[0, 1]]), (2, 3))
    np.testing.assert_array_equal(prepared.run([sparse])[0], [2, 3])
    with pytest.raises(ModelError, match=r"input 'x' is a ndarray; expected a webgpu_ops\.SparseTensor"):
        prepared.run([np.zeros((2, 3), np.float32)])
    with pytest.raises(ModelError, match=r"input 'x' has type sparse_tensor\(double\)"):
        prepared.run([SparseTensor.from_coo(np.ones(1), np.array([[0, 1]]), (2, 3))])
    with pytest.raises(ModelError, match="input 'a' is a SparseTensor; expected a dense tensor"):
        backend.prepare(ADD).run([sparse, B])


def test_schema_errors_come_at_prepare() -> None:
    with pytest.raises(SchemaError, match="BiasGelu: unknown attribute alpha"):
        backend.prepare(
            parse("(float[n] x) => (float[n] y) { y = com.microsoft.BiasGelu <alpha = 1.0> (x, x) }")
        )
