"""Reading models: what is refused, and what a graph looks like afterwards. No GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from webgpu_ops import graph as graphs
from webgpu_ops.core.device import Device
from webgpu_ops.errors import DeviceError, ModelError, SchemaError, UnsupportedError
from webgpu_ops.session import InferenceSession
from webgpu_ops.steps import make_steps

from .models import FLOAT, INT64, contrib, model, node

X, Y = ("x", FLOAT, [2, "n"]), ("y", FLOAT, None)
RELU = model([node("Relu", "x", "y")], [X], [Y])


@pytest.fixture(autouse=True)
def no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests refuse is refused before a GPU is looked for."""

    def none() -> Device:
        raise DeviceError("no adapter in this test")

    monkeypatch.setattr(Device, "default", none)


def test_missing_file_folder_and_foreign_content(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"nothing\.onnx: no such file"):
        InferenceSession(tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match="is a folder"):
        InferenceSession(tmp_path)
    for name, content in {
        "text.onnx": b"hello, world\n",
        "empty.onnx": b"",
        "png.onnx": b"\x89PNG\r\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match=rf"{name}: not an ONNX model"):
            InferenceSession(str(tmp_path / name))
        with pytest.raises(ModelError, match="not an ONNX model"):
            InferenceSession(content)
    with pytest.raises(ModelError, match="not an ONNX model"):
        InferenceSession(RELU.SerializeToString()[:-5])
    with pytest.raises(ModelError, match="got int"):
        InferenceSession(3)  # type: ignore[arg-type]


def test_errors_are_one_line(tmp_path: Path) -> None:
    for bad in (tmp_path / "nothing.onnx", b"text", model([node("Foo", "x", "y")], [X], [Y])):
        with pytest.raises((ModelError, UnsupportedError)) as caught:
            InferenceSession(bad)
        assert "\n" not in str(caught.value)


def test_external_data_is_read_from_beside_the_path(tmp_path: Path) -> None:
    weights = np.arange(600, dtype=np.float32)
    path = tmp_path / "model.onnx"
    wanted = model([node("Add", "x w", "y")], [("x", FLOAT, [600])], [Y], {"w": weights})
    onnx.save_model(wanted, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = graphs.read(graphs.load(path))
    np.testing.assert_array_equal(graph.constants["w"], weights)
    with pytest.raises(ModelError, match=r"initializer w keeps its data in 'weights\.bin'"):
        graphs.read(graphs.load(path.read_bytes()))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"model\.onnx: its external data cannot be read.*weights\.bin"):
        graphs.load(path)


def test_truncated_initializer_is_named() -> None:
    bad = model([node("Add", "x w", "y")], [X], [Y], {"w": np.ones(8, np.float32)})
    bad.graph.initializer[0].raw_data = b"\0" * 12
    with pytest.raises(ModelError, match="initializer w: its data cannot be read"):
        InferenceSession(bad)


def test_nodes_are_sorted() -> None:
    nodes = [node("Relu", "b", "y"), node("Relu", "a", "b"), node("Relu", "x", "a")]
    graph = graphs.read(model(nodes, [X], [Y]))
    assert [n.outputs for n in graph.nodes] == [["a"], ["b"], ["y"]]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], "cycle through node 0"),
        ([node("Add", "x nowhere", "y")], r"node 0 \(Add\): input 'nowhere' is defined nowhere"),
        ([node("Relu", "x", "y"), node("Relu", "x", "y")], "value 'y' is defined twice"),
        ([node("Relu", "x", "x"), node("Relu", "x", "y")], "value 'x' is defined twice"),
        ([node("Relu", "x", "z")], "graph output 'y' is produced by no node"),
        ([node("Foo", "x", "y", "com.acme")], "domain 'com.acme', which the model does not import"),
    ],
)
def test_broken_graphs(nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        InferenceSession(model(nodes, [X], [Y]))


def test_unsupported_operators_are_all_named_in_one_error() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x"], ["s"], "build"),
        node("Det", "x", "a"),
        node("Det", "x", "b"),
        contrib("BiasGeluu", "x x", "c"),
        node("Relu", "x", "y"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        InferenceSession(model(nodes, [X], [Y]))
    message = str(caught.value)
    assert (
        "SequenceConstruct: no WebGPU implementation of ai.onnx:SequenceConstruct (node 'build')" in message
    )
    assert "Det: no WebGPU implementation of ai.onnx:Det (2 nodes)" in message
    assert "BiasGeluu: com.microsoft has no such operator; did you mean BiasGelu" in message
    assert "Relu" not in message


def test_sequences_are_refused() -> None:
    bad = model([node("Relu", "x", "y")], [X], [Y])
    bad.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    with pytest.raises(UnsupportedError, match="'s' is a sequence; only tensors"):
        InferenceSession(bad)


def test_a_node_that_does_not_fit_its_schema_is_named() -> None:
    nodes = [
        node("Relu", "x", "a"),
        helper.make_node("BiasGelu", ["a"], ["y"], "gelu_1", domain="com.microsoft"),
    ]
    with pytest.raises(SchemaError, match="node 'gelu_1': BiasGelu: input B is required"):
        InferenceSession(model(nodes, [X], [Y]))
    with pytest.raises(SchemaError, match="Shape: unknown attribute axis"):
        InferenceSession(model([node("Shape", "x", "y", axis=1)], [X], [("y", INT64, None)]))
    with pytest.raises(
        SchemaError, match=r"node 1: RMSNormalization: .* since opset 23; the model imports opset 17"
    ):
        InferenceSession(model([node("Relu", "x", "a"), node("RMSNormalization", "a a", "y")], [X], [Y]))


def test_local_functions_are_inlined() -> None:
    body = [node("Relu", "a", "t"), node("Neg", "t", "b")]
    function = helper.make_function("local", "NegRelu", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    wanted = model([node("NegRelu", "x", "y", "local")], [X], [Y])
    wanted.functions.append(function)
    wanted.opset_import.append(helper.make_opsetid("local", 1))
    assert [n.op for n in graphs.read(wanted).nodes] == ["Relu", "Neg"]


def test_initializers_listed_as_inputs() -> None:
    constants = {"w": np.ones(2, np.float32)}
    inputs = [X, ("w", FLOAT, [2])]
    old = graphs.read(model([node("Add", "x w", "y")], inputs, [Y], constants, ir_version=3))
    assert [a.name for a in old.inputs] == ["x"] and set(old.constants) == {"w"} and not old.defaults
    new = graphs.read(model([node("Add", "x w", "y")], inputs, [Y], constants))
    assert [a.name for a in new.inputs] == ["x", "w"] and not new.constants and set(new.defaults) == {"w"}


def sparse_initializer(name: str, indices: object, values: object = (5, 7)) -> onnx.SparseTensorProto:
    """Float values of a (2, 3) matrix."""
    stored = numpy_helper.from_array(np.array(values, np.float32), name)
    return helper.make_sparse_tensor(stored, numpy_helper.from_array(np.array(indices), "i"), [2, 3])


def test_sparse_initializers_are_dense_where_nobody_wants_them_sparse() -> None:
    dense = [[0, 5, 0], [0, 0, 7]]
    for indices in ([1, 5], [[0, 1], [1, 2]]):
        for wanted in (
            model([node("Add", "x w", "y")], [("x", FLOAT, [2, 3])], [Y]),
            model([node("Add", "x w", "y")], [("x", FLOAT, [2, 3]), ("w", FLOAT, [2, 3])], [Y], ir_version=3),
        ):
            wanted.graph.sparse_initializer.append(sparse_initializer("w", indices))
            read, constants = graphs.read(wanted), dict[str, np.ndarray]()
            make_steps(read, constants, read.sparse)
            assert not read.sparse and [a.name for a in read.inputs] == ["x"]
            np.testing.assert_array_equal(constants["w"], dense)
    wanted = model([node("Add", "x w", "y")], [("x", FLOAT, [2, 3]), ("w", FLOAT, [2, 3])], [Y])
    wanted.graph.sparse_initializer.append(sparse_initializer("w", [1, 5]))
    np.testing.assert_array_equal(np.asarray(graphs.read(wanted).defaults["w"]), dense)


def test_sparse_initializers_are_checked() -> None:
    wanted = model([node("Relu", "w", "y")], [], [Y])
    wanted.graph.sparse_initializer.append(sparse_initializer("w", [1, 6]))
    with pytest.raises(ModelError, match=r"sparse initializer w: .* an index lies outside of shape \(2, 3\)"):
        graphs.read(wanted)
    del wanted.graph.sparse_initializer[:]
    wanted.graph.sparse_initializer.extend([sparse_initializer("w", [1, 5])] * 2)
    with pytest.raises(ModelError, match="initializer 'w' is defined twice"):
        graphs.read(wanted)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": numpy_helper.from_array(np.array([[1, 2]], np.int32))}, np.array([[1, 2]], np.int32)),
        ({"value_int": 3}, np.array(3, np.int64)),
        ({"value_ints": [3, 4]}, np.array([3, 4], np.int64)),
        ({"value_float": 0.5}, np.array(0.5, np.float32)),
        ({"value_floats": [0.5, 2]}, np.array([0.5, 2], np.float32)),
        ({"value_string": "abc"}, np.array("abc", dtype=object)),
        ({"value_strings": ["a", "ü"]}, np.array(["a", "ü"], dtype=object)),
    ],
)
def test_constant_nodes(attributes: dict[str, object], expected: np.ndarray) -> None:
    graph = graphs.read(model([node("Constant", "", "y", **attributes)], [], [Y]))
    value = graphs.constant_value(graph.nodes[0])
    assert isinstance(value, np.ndarray) and value.dtype == expected.dtype
    np.testing.assert_array_equal(value, expected)


def test_subgraphs_take_constants_of_the_graph_around_them() -> None:
    inner = helper.make_graph(
        [node("Add", "a w", "b")], "inner", [], [helper.make_tensor_value_info("b", FLOAT, None)]
    )
    outer = model(
        [node("Relu", "x", "a"), node("If", "c", "y", then_branch=inner)],
        [X, ("c", FLOAT, None)],
        [Y],
        {"w": np.ones(2, np.float32)},
    )
    node_if = graphs.read(outer).nodes[1]
    assert node_if.captured == {"a", "w"}
    closed = node_if.closed_over({"w": np.ones(2, np.float32)})
    assert closed.captured == {"a"} and node_if.captured == {"a", "w"}


def test_arguments_tell_name_type_and_shape() -> None:
    graph = graphs.read(model([node("Relu", "x", "y")], [("x", FLOAT, [2, "n", None])], [Y]))
    (x,), (y,) = graph.inputs, graph.outputs
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", [2, "n", None])
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", None)
