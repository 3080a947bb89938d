"""Shape arithmetic on the host, and the shapes of views. No GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from webgpu_ops.core import dtypes
from webgpu_ops.errors import ShapeError
from webgpu_ops.graph import GraphNode
from webgpu_ops.host import HOST_LIMIT, HostNode
from webgpu_ops.steps import Step

from .models import INT64, model, node


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


CALLS: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("Gather", [ints(5, 6, 7), np.array(-1)], {"axis": 0}),
    ("Gather", [ints(5, 6, 7), ints(2, 0)], {}),
    ("Concat", [ints(1), ints(2, 3), ints()], {"axis": 0}),
    ("Unsqueeze", [np.array(4), ints(0)], {}),
    ("Squeeze", [np.array([[4]]), ints(0, 1)], {}),
    ("Slice", [ints(1, 2, 3, 4), ints(-1), ints(-(2**40)), ints(0), ints(-2)], {}),
    ("Slice", [ints(1, 2, 3, 4), ints(1), ints(2**62)], {}),
    ("Div", [ints(-7, 7, 7), ints(2, -2, 3)], {}),
    ("Mod", [ints(-7, 7, -7), ints(3, -3, -3)], {}),
    ("Mod", [ints(-7, 7, -7), ints(3, -3, -3)], {"fmod": 1}),
    ("Where", [np.array([True, False]), ints(1), ints(8, 9)], {}),
    ("Equal", [ints(1, -1), ints(-1)], {}),
    ("Range", [np.array(10), np.array(0), np.array(-3)], {}),
    ("Range", [np.array(5), np.array(1), np.array(2)], {}),
    ("ConstantOfShape", [ints(2, 3)], {}),
    ("Expand", [ints(1, 2), ints(3, 1)], {}),
    ("Tile", [ints(1, 2), ints(3)], {}),
    ("ReduceProd", [ints(2, 3, 4)], {"keepdims": 0}),
    ("ReduceMax", [np.array([[2, 9], [4, 1]])], {"axes": [1], "keepdims": 1}),
    ("Cast", [ints(3, -2)], {"to": 1}),
    ("CumSum", [ints(1, 2, 3), np.array(0)], {"exclusive": 1, "reverse": 1}),
    ("NonZero", [ints(0, 3, 0, 4)], {}),
    ("ScatterND", [ints(1, 1, 1), np.array([[2]]), ints(7)], {}),
    ("Transpose", [np.array([[1, 2], [3, 4]])], {"perm": [1, 0]}),
    ("Min", [ints(4, 1), ints(2)], {}),
    ("Reshape", [ints(1, 2, 3, 4), ints(2, -1)], {}),
]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"), CALLS, ids=[f"{c[0]}-{i}" for i, c in enumerate(CALLS)]
)
def test_agrees_with_onnxruntime(op: str, inputs: list[np.ndarray], attributes: dict[str, Any]) -> None:
    names = " ".join(f"i{k}" for k in range(len(inputs)))
    one = node(op, names, "y", **attributes)
    kinds = [dtypes.from_numpy(x.dtype).onnx for x in inputs]
    graph_inputs = [(f"i{k}", kind, x.shape) for k, (kind, x) in enumerate(zip(kinds, inputs, strict=True))]
    oracle = onnxruntime.InferenceSession(model([one], graph_inputs, [("y", 0, None)]).SerializeToString())
    (expected,) = oracle.run(None, {f"i{k}": x for k, x in enumerate(inputs)})
    host = HostNode(one, 17)
    assert host.fits(inputs)
    (got,) = host(inputs)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, strict=True)


def test_shape_and_size_read_no_elements() -> None:
    (shape,) = HostNode(node("Shape", "x", "y", start=1), 17).of_shape((2**40, 3, 5))
    np.testing.assert_array_equal(shape, ints(3, 5), strict=True)
    (size,) = HostNode(node("Size", "x", "y"), 17).of_shape((1 << 20, 3))
    assert size == 3 << 20


def test_a_changed_operand_changes_the_result() -> None:
    add = HostNode(node("Add", "a b", "y"), 17)
    a = ints(1, 2)
    assert add([a, ints(3)])[0].tolist() == [4, 5]
    a[0] = 7  # the same array with another value
    assert add([a, ints(3)])[0].tolist() == [10, 5]
    assert add([a.astype(np.int32), np.array([3], np.int32)])[0].dtype == np.int32
    assert add([a[None], ints(3)])[0].shape == (1, 2)
    shape = HostNode(node("Shape", "x", "y"), 17)
    assert [shape.of_shape(s)[0].tolist() for s in ((2, 3), (4,), ())] == [[2, 3], [4], []]


def test_gaps_and_several_outputs() -> None:
    (clipped,) = HostNode(node("Clip", "x - hi", "y"), 17)([ints(1, 9), np.array(5)])
    np.testing.assert_array_equal(clipped, ints(1, 5))
    parts = HostNode(node("Split", "x s", "a b"), 17)([ints(1, 2, 3), ints(1, 2)])
    assert [p.tolist() for p in parts] == [[1], [2, 3]]


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ConstantOfShape", [ints(HOST_LIMIT, 2)]),
        ("Expand", [ints(1), ints(HOST_LIMIT + 1)]),
        ("Tile", [ints(1, 2), ints(HOST_LIMIT)]),
        ("Range", [np.array(0), np.array(1 << 40), np.array(1)]),
        ("Neg", [np.zeros(HOST_LIMIT + 1, np.int64)]),
    ],
)
def test_large_tensors_are_left_to_the_device(op: str, inputs: list[np.ndarray]) -> None:
    names = " ".join(f"i{k}" for k in range(len(inputs)))
    assert not HostNode(node(op, names, "y"), 17).fits(inputs)


def test_refusals_name_operator_and_operands() -> None:
    with pytest.raises(ShapeError, match=r"Gather: cannot be evaluated with s int64\[2\], i int64\[\]"):
        HostNode(node("Gather", "s i", "y"), 17)([ints(1, 2), np.array(5)])
    with pytest.raises(ShapeError, match="Range: delta is 0"):
        HostNode(node("Range", "a b c", "y"), 17).fits([np.array(0), np.array(3), np.array(0)])
    with pytest.raises(ShapeError, match=r"Expand: cannot be evaluated with x int64\[2\], s int64\[1\]"):
        HostNode(node("Expand", "x s", "y"), 17).fits([ints(1, 2), ints(3)])


def view(op: str, x: tuple[int, ...], *operands: np.ndarray, **attributes: Any) -> tuple[int, ...]:
    names = ["x", *(f"i{k}" for k in range(len(operands)))]
    proto = helper.make_node(op, names, ["y"], **attributes)
    return Step(GraphNode(proto, 0, "", 17), {}).view_shape(x, operands)


def test_shapes_of_views() -> None:
    assert view("Identity", (2, 3)) == (2, 3)
    assert view("Flatten", (2, 3, 4)) == (2, 12)
    assert view("Flatten", (2, 3, 4), axis=0) == (1, 24)
    assert view("Flatten", (2, 3, 4), axis=-1) == (6, 4)
    assert view("Flatten", (), axis=0) == (1, 1)
    assert view("Reshape", (2, 3, 4), ints(0, -1)) == (2, 12)
    assert view("Reshape", (2, 3), ints(3, 2)) == (3, 2)
    assert view("Reshape", (1,), ints()) == ()
    assert view("Reshape", (0, 3), ints(3, 0), allowzero=1) == (3, 0)
    assert view("Reshape", (2, 0, 3), ints(0, 3, -1)) == (2, 3, 0)
    assert view("Reshape", (6,), shape=[2, 3]) == (2, 3)
    assert view("Squeeze", (1, 3, 1)) == (3,)
    assert view("Squeeze", (1, 3, 1), ints(-1)) == (1, 3)
    assert view("Squeeze", (1, 3, 1), axes=[0]) == (3, 1)
    assert view("Unsqueeze", (3,), ints(0, -1)) == (1, 3, 1)
    assert view("Unsqueeze", (3, 4), axes=[1]) == (3, 1, 4)
    assert view("Unsqueeze", (3,), np.array(0)) == (1, 3)


@pytest.mark.parametrize(
    ("op", "shape", "operand"),
    [
        ("Reshape", (2, 3), ints(4, 2)),
        ("Reshape", (2, 3), ints(-1, -1)),
        ("Reshape", (2, 3), ints(4, -1)),
        ("Reshape", (2, 3), ints(2, 3, 0)),
        ("Squeeze", (2, 1), ints(0)),
        ("Squeeze", (2, 1), ints(2)),
        ("Unsqueeze", (2,), ints(0, 0)),
        ("Unsqueeze", (2,), ints(3)),
    ],
)
def test_views_that_do_not_fit(op: str, shape: tuple[int, ...], operand: np.ndarray) -> None:
    with pytest.raises(ShapeError, match=rf"{op}: .*\(2,"):
        view(op, shape, operand)


def test_model_helper_spells_gaps() -> None:
    assert list(node("Clip", "x - hi", "y").input) == ["x", "", "hi"]
    assert (
        model([node("Shape", "x", "y")], [("x", INT64, [1])], [("y", INT64, None)]).graph.node[0].op_type
        == "Shape"
    )
