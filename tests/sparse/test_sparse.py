"""Sparse inputs: their compressed form, their place in plans, and products with dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from webgpu_ops import Device, InferenceSession, ShapeError, SparseTensor, UnsupportedError, plan, run
from webgpu_ops.api import Node
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import TensorSpec

pytestmark = pytest.mark.xdist_group("sparse")


def scattered(seed: int, shape: tuple[int, int], count: int, dtype: type = np.float32) -> SparseTensor:
    """Values at random places in random order, some of them at the same place."""
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.integers(0, size, count) for size in shape], axis=-1)
    return SparseTensor.from_coo(rng.integers(1, 9, count).astype(dtype), indices, shape)


def test_compressed_by_rows_and_by_columns() -> None:
    coo = scattered(0, (5, 7), 40)
    dense = np.zeros((5, 7))
    for (r, c), value in zip(coo.indices, coo.values, strict=True):
        dense[r, c] += value
    np.testing.assert_array_equal(coo.toarray(), dense)
    values, columns, offsets = coo.compressed(0)
    assert columns.dtype == offsets.dtype == np.uint32
    csr = SparseTensor.from_csr(values, columns, offsets, (5, 7))
    np.testing.assert_array_equal(csr.toarray(), dense)
    for sparse in (coo, csr):
        values, rows, offsets = sparse.compressed(1)
        flipped = SparseTensor.from_csr(values, rows, offsets, (7, 5))
        np.testing.assert_array_equal(flipped.toarray(), dense.T)


def test_compressed_of_nothing() -> None:
    empty = SparseTensor.from_coo(np.zeros(0, np.float32), np.zeros((0, 2), np.int64), (3, 0))
    values, columns, offsets = empty.compressed(0)
    assert values.shape == columns.shape == (0,)
    assert offsets.tolist() == [0, 0, 0, 0]
    assert empty.compressed(1)[2].tolist() == [0]


def test_a_plan_holds_the_arrays_of_a_sparse_input() -> None:
    sparse = scattered(1, (5, 7), 11)
    for transposed, rows in ((0, 5), (1, 7)):
        dense = TensorSpec((12 - rows, 3), dtypes.float32)
        made = plan("SparseToDenseMatMul", [sparse, dense], {"transA": transposed})
        (part,) = made.compressed
        assert (part.input, part.axis, part.first) == (0, transposed, 2)
        names = [s.name for s in made.inputs[2:] if s is not None]
        assert names == ["A.values", "A.positions", "A.offsets"]
        assert [s.shape for s in made.inputs[2:] if s is not None] == [(11,), (11,), (rows + 1,)]


def test_other_values_take_the_same_plan(device: Device) -> None:
    node = Node("SparseToDenseMatMul", present=[True, True], wanted=[True])
    dense = np.random.default_rng(3).integers(0, 9, (7, 6)).astype(np.float32)
    before = device.stats.plans_made
    for seed in range(4):
        sparse = scattered(seed, (5, 7), 20)
        (y,) = node.run(device, [sparse, dense])
        np.testing.assert_array_equal(y.numpy(), sparse.toarray() @ dense)
    assert device.stats.plans_made == before + 1
    fewer = scattered(9, (5, 7), 3)
    (y,) = node.run(device, [fewer, dense])
    np.testing.assert_array_equal(y.numpy(), fewer.toarray() @ dense)
    assert device.stats.plans_made == before + 2


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_a_full_row_is_shared(device: Device, dtype: type) -> None:
    """More values in one row than an invocation may go round for; the other rows have few or none."""
    rng = np.random.default_rng(10)
    k = 150_000
    rows = np.where(rng.random(k) < 0.95, 1, rng.choice([0, 3], k))
    values = rng.integers(-8, 9, k).astype(dtype)
    sparse = SparseTensor.from_coo(values, np.stack([rows, np.arange(k)], -1), (4, k))
    dense = rng.integers(-8, 9, (k, 5)).astype(dtype)
    want = np.stack([(values[rows == r, None] * dense[rows == r]).sum(0) for r in range(4)])
    assert not want[2].any() and want[1].all()
    (y,) = run("SparseToDenseMatMul", [sparse, dense], device=device)
    np.testing.assert_array_equal(y.numpy(), want)
    flipped = SparseTensor.from_coo(values, np.stack([np.arange(k), rows], -1), (k, 4))
    (y,) = run("SparseToDenseMatMul", [flipped, dense], {"transA": 1, "alpha": 2.0}, device=device)
    np.testing.assert_array_equal(y.numpy(), 2 * want)


def test_whole_numbers_are_exact(device: Device) -> None:
    rng = np.random.default_rng(4)
    for dtype in (np.int64, np.uint64, np.int32, np.uint32):
        limits = np.iinfo(dtype)
        sparse = scattered(5, (6, 9), 30, dtype)
        huge = SparseTensor.from_coo(rng.integers(limits.min, limits.max, 30, dtype), sparse.indices, (6, 9))
        dense = rng.integers(limits.min, limits.max, (9, 5), dtype)
        (y,) = run("SparseToDenseMatMul", [huge, dense], {"alpha": -3.0}, device=device)
        exact = -3 * (huge.toarray().astype(object) @ dense.astype(object))
        bits = 8 * limits.dtype.itemsize
        wrapped = np.array([int(v) % 2**bits for v in exact.reshape(-1)], f"uint{bits}")
        np.testing.assert_array_equal(y.numpy().reshape(-1).view(wrapped.dtype), wrapped)


@pytest.mark.parametrize("place", ["initializer", "constant", "default"])
def test_sparse_constants_of_a_model(device: Device, place: str) -> None:
    """A matrix that a session has from its model stays sparse; the feed of a default replaces it."""
    kind, contrib = TensorProto.FLOAT, "com.microsoft"
    stored = helper.make_tensor("a", kind, [2], [5.0, 7.0])
    sparse = helper.make_sparse_tensor(
        stored, helper.make_tensor("i", TensorProto.INT64, [2], [1, 5]), [2, 3]
    )
    nodes = [helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain=contrib)]
    inputs = [helper.make_tensor_value_info("b", kind, [3, 4])]
    if place == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["a"], sparse_value=sparse))
    if place == "default":
        inputs.append(helper.make_sparse_tensor_value_info("a", kind, [2, 3]))
    graph = helper.make_graph(nodes, "test", inputs, [helper.make_tensor_value_info("y", kind, [2, 4])])
    if place != "constant":
        graph.sparse_initializer.append(sparse)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(contrib, 1)]
    session = InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=10), device)
    b = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = np.array([[0, 5, 0], [0, 0, 7]], np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"b": b})[0], a @ b)
    if place == "default":
        other = SparseTensor.from_coo(np.float32([2]), np.array([0]), (2, 3))
        np.testing.assert_array_equal(session.run(None, {"a": other, "b": b})[0], other.toarray() @ b)


def test_refusals() -> None:
    sparse = scattered(6, (5, 7), 4)
    wide = SparseTensor.from_coo(np.ones(1, np.float32), np.array([[0, 0, 0]]), (1, 7, 7))
    for inputs, attributes, message in [
        ([sparse, np.zeros((5, 2), np.float32)], {}, r"B has shape \(5, 2\); expected inner size 7"),
        ([sparse, np.zeros((7, 2), np.float32)], {"transB": 1}, "expected inner size 7"),
        ([sparse, np.zeros((7, 2), np.float64)], {}, "values of type float32; expected float64"),
        ([wide, np.zeros((7, 2), np.float32)], {}, r"A has shape \(1, 7, 7\); expected two dimensions"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan("SparseToDenseMatMul", inputs, attributes)
    whole = scattered(6, (5, 7), 4, np.int32)
    for alpha in (0.5, np.inf, np.nan):
        with pytest.raises(UnsupportedError, match=rf"alpha is {alpha} for int32; expected a whole"):
            plan("SparseToDenseMatMul", [whole, np.zeros((7, 2), np.int32)], {"alpha": alpha})
    with pytest.raises(ValueError, match="sparse"):
        plan("SparseToDenseMatMul", [np.zeros((5, 7), np.float32), np.zeros((7, 2), np.float32)])
