"""cublasLt's memory orders: where elements lie, and products of matrices in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import Builder, Slot
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.families.elementwise import elementwise
from webgpu_ops.families.ordered import ORDERS
from webgpu_ops.reference.ordered import (
    COL,
    COL4_4R2_8C,
    COL32,
    COL32_2R_4R4,
    ROW,
    from_order,
    places,
    to_order,
)

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("ordered")


@pytest.mark.parametrize("order", range(5))
def test_every_element_has_one_place(order: int) -> None:
    at = places(order, 64, 96)
    assert sorted(at.reshape(-1)) == list(range(64 * 96))
    matrix = np.arange(64 * 96, dtype=np.int32).reshape(64, 96)
    np.testing.assert_array_equal(from_order(to_order(matrix, order), order), matrix)


def test_places_by_hand() -> None:
    assert places(COL, 3, 2).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert places(ROW, 2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    # The second band of 32 columns begins after all rows of the first.
    assert places(COL32, 3, 64)[[0, 1, 0, 2], [5, 31, 32, 63]].tolist() == [5, 63, 96, 191]
    # A tile of 8 rows: four columns of rows 0, 2, 4, 6, then the next four columns; odd rows later.
    at = places(COL4_4R2_8C, 8, 32)
    assert at[[0, 2, 4, 6], 0].tolist() == [0, 4, 8, 12]
    assert at[[0, 0, 0, 1], [3, 4, 8, 0]].tolist() == [3, 16, 32, 128]
    # ((row % 8 / 2 * 4 + row / 8) * 2 + row % 2) * 32 + column, in tiles of 32 x 32.
    at = places(COL32_2R_4R4, 64, 32)
    assert at[[1, 2, 8, 31, 32], [0, 1, 2, 31, 0]].tolist() == [32, 257, 66, 1023, 1024]


def test_shaders_and_the_reference_agree(device: Device) -> None:
    rows, columns = 64, 96
    r, c = np.indices((rows, columns)).astype(np.uint32)
    slots = {n: Slot(r.shape, dtypes.uint32, "input", i, n) for i, n in enumerate("rc")}
    tensors = [Tensor.from_numpy(x, device) for x in (r, c)]
    for order, name in enumerate(ORDERS):
        b = Builder("Places", slots, ["y"], frozenset({"y"}), device.capabilities)
        y = b.output("y", r.shape, dtypes.uint32)
        size = {"rows": rows, "columns": columns}
        call = f"order_{name}(r, c, u.rows, u.columns)"
        elementwise(b, call, y, slots, uniforms=size, library="ordered/index.wgsl")
        out = Tensor.empty(y.shape, y.dtype, device)
        device.stream.execute(PreparedPlan(b.finish(), device), tensors, [out])
        np.testing.assert_array_equal(out.numpy(), places(order, rows, columns), err_msg=name)


def call(**changes: Any) -> dict[str, Any]:
    one = np.float32(1)
    inputs = {
        "A": np.zeros((1, 4, 32), np.int8),
        "scale_A": one,
        "B": np.zeros((32, 64), np.int8),
        "scale_B": one,
        "scale_Y": one,
    }
    return {**inputs, **changes}


TILED = {"order_A": COL32, "order_B": COL4_4R2_8C, "order_Y": COL32}
PLAIN = {"order_A": ROW, "order_B": COL, "order_Y": ROW}


@pytest.mark.parametrize("order", [COL4_4R2_8C, COL32_2R_4R4])
def test_ends_and_ties(any_device: Device, order: int) -> None:
    """The largest products, an addend in the same order, halves to even."""
    rng = np.random.default_rng(order)
    a = rng.choice(np.array([-128, 127], np.int8), (2, 3, 64))
    b = rng.choice(np.array([-128, 127], np.int8), (64, 32))
    c = rng.integers(-128, 127, (1, 3, 32), np.int8)
    memory = to_order(b.T.copy(), order).reshape(64, 32)
    inputs = {
        "A": to_order(a, COL32),
        "scale_A": np.float32(2**-8),
        "B": memory,
        "scale_B": np.float32(2**-7),
        "scale_Y": np.float32(2),
        "C": to_order(c, COL32),
        "scale_C": np.float32(1),
    }
    attributes = {"order_A": COL32, "order_B": order, "order_Y": COL32}
    (y,) = run("QOrderedMatMul", inputs, attributes, device=any_device)
    exact = ((a.astype(np.int64) @ b.astype(np.int64)) * 2.0**-15 + c) / 2
    want = np.clip(np.rint(exact), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(from_order(y.numpy(), COL32), want)


def test_refusals() -> None:
    for inputs, attributes, message in [
        (call(B=np.zeros((31, 64), np.int8)), PLAIN, "32 rows because A has shape"),
        (call(C=np.zeros((4, 64), np.int8)), PLAIN, "scale_C is required"),
        (call(C=np.zeros((2, 4, 64), np.int8), scale_C=np.float32(1)), PLAIN, r"C has shape \(2, 4, 64\)"),
        (call(bias=np.zeros(64, np.float32)), TILED, "bias is given; expected none with order_B=3"),
        (call(bias=np.zeros(4, np.float32)), PLAIN, r"bias has shape \(4,\); expected \(64,\)"),
        (call(scale_B=np.zeros(4, np.float32)), PLAIN, r"scale_B has shape \(4,\); expected \(64,\)"),
        (call(A=np.zeros((4, 33), np.int8), B=np.zeros((33, 64), np.int8)), TILED, "multiples of 1 and 32"),
        (
            call(B=np.zeros((32, 36), np.int8)),
            TILED,
            "36 rows and 32 columns; expected multiples of 8 and 32",
        ),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan("QOrderedMatMul", inputs, attributes)
    for orders, message in [
        ((ROW, COL32_2R_4R4, ROW), "order_A is ROW; expected COL32 because order_B is COL32_2R_4R4"),
        ((ROW, COL, COL32), "order_Y is COL32; expected ROW because order_B is COL"),
        ((ROW, ROW, ROW), "order_B is ROW; expected one of COL, COL4_4R2_8C, COL32_2R_4R4"),
        ((ROW, 7, ROW), "order_B is 7"),
    ]:
        attributes = dict(zip(("order_A", "order_B", "order_Y"), orders, strict=True))
        with pytest.raises(SchemaError, match=message):
            plan("QOrderedMatMul", call(), attributes)
