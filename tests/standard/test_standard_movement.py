"""Operators of the standard domain that move elements, and those that make tensors from shapes."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, UnsupportedError, plan, run
from webgpu_ops.core.plan import Copy

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-movement")

Check = Callable[..., None]
TYPES = (np.float32, np.float16, np.int8, np.int64, np.bool_, np.float64)
PAD_TYPES = (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.float4_e2m1fn)


def draw(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    if dtype is np.bool_:
        return rng.random(shape) < 0.5
    return np.asarray(rng.integers(-100, 100, shape)).astype(dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_transpose(check: Check) -> None:
    for shape in [(), (5,), (3, 7), (2, 3, 5), (2, 3, 4, 5), (2, 1, 3, 2, 4), (3, 0, 2)]:
        check("Transpose", [draw(shape)])
    for dtype in TYPES:
        x = draw((2, 3, 4, 8), dtype)
        for perm in ([0, 2, 1, 3], [3, 1, 0, 2], [0, 1, 3, 2], [0, 1, 2, 3]):
            check("Transpose", [x], perm=perm)


def test_expand(check: Check) -> None:
    for shape, to in [((3, 1), (3, 5)), ((1,), (2, 3)), ((), (4,)), ((2, 1, 3), (1, 4, 1)), ((3,), (0, 3))]:
        check("Expand", [draw(shape), ints(*to)])
    check("Expand", [draw((3, 1, 8), np.int8), ints(2, 3, 5, 8)])


def test_tile(check: Check) -> None:
    for shape, repeats in [
        ((3,), (4,)),
        ((2, 3), (2, 1)),
        ((2, 3), (3, 4)),
        ((1, 5, 2), (2, 1, 3)),
        ((3,), (0,)),
    ]:
        for dtype in (np.float32, np.uint8):
            check("Tile", [draw(shape, dtype), ints(*repeats)])


def test_slice(check: Check) -> None:
    x = draw((7, 5, 9))
    cases = [
        ([1], [6], [0], [2]),
        ([-1], [-8], [0], [-1]),
        ([-1], [-100], [2], [-3]),
        ([0, 1], [100, -1], [2, 1], [1, 1]),
        ([3], [3], [1], [1]),
        ([5], [2], [0], [1]),
        ([8, 0], [2, 5], [-1, -2], [-2, 3]),
    ]
    for case in cases:
        check("Slice", [x, *(ints(*part) for part in case)])
    check("Slice", [x, ints(1, 0, 2), ints(3, 5, 9)])
    check("Slice", [x], 1, starts=[1, 2], ends=[4, 100], axes=[0, 2])
    for dtype in TYPES:
        check("Slice", [draw((3, 17), dtype), ints(1), ints(16), ints(1), ints(1)])


PADDED = ("constant", "reflect", "edge", "wrap")


def test_pad(check: Check) -> None:
    for mode in PADDED:
        check("Pad", [draw((3, 5)), ints(1, 2, 2, 1)], 25, mode=mode)
        check("Pad", [draw((2, 3, 9)), ints(2, 1, 0, 3), None, ints(-1, 0)], 19, mode=mode)
        # Many times the size of the input, and an axis of one element.
        check("Pad", [draw((3, 1, 2)), ints(0, 4, 7, 8, 3, 5)], 21, mode=mode)
        check("Pad", [draw((4, 8)), ints(0, 0, 0, 0)], 19, mode=mode)
        check("Pad", [np.array(3.0), ints()], 19, mode=mode, want=[np.array(3.0)])
        check("Pad", [draw((0, 3)), ints(0, 1, 0, 1)], 19, mode=mode)
    check("Pad", [draw((0, 3)), ints(2, 1, 1, 1), np.float32(7)], 19)
    check("Pad", [draw((3, 5)), ints(1, 2, 2, 1), np.float32(7)], 11)
    check("Pad", [draw((3, 5))], 2, pads=[1, 2, 2, 1], value=7.5)
    check("Pad", [draw((3, 5), np.float16)], 1, paddings=[1, 2, 2, 1], mode="edge")


@pytest.mark.parametrize(
    "dtype", [*TYPES, np.uint16, np.uint64, np.complex64, np.complex128, *map(np.dtype, PAD_TYPES)]
)
def test_pad_moves_every_type(device: Device, dtype: np.dtype) -> None:
    """Bits move: the value too, and a NaN's payload."""
    rng = np.random.default_rng(1)
    x = draw((3, 7), dtype=np.int8).astype(dtype)
    value = np.array(1, dtype)
    if dtype is np.float32:
        x.view(np.uint32)[:] = rng.integers(0, 1 << 32, x.shape, np.uint32)
    for mode in PADDED:
        got = run("Pad", [x, ints(2, 1, 1, 2), value], {"mode": mode}, domain="", opset=25, device=device)[0]
        extra = {"constant_values": value} if mode == "constant" else {}
        want = np.pad(x, [(2, 1), (1, 2)], mode=mode, **extra)  # type: ignore[call-overload]
        assert got is not None and got.numpy().tobytes() == want.tobytes(), mode


@pytest.mark.parametrize("mode", PADDED)
def test_negative_pads_take_away_first(device: Device, mode: str) -> None:
    x = draw((6, 9))
    for (a, b), (c, d) in [((-2, 3), (-1, -4)), ((4, -5), (0, -8)), ((-3, -3), (2, 1)), ((-1, 0), (7, -2))]:
        inputs = [x, ints(a, c, b, d)]
        part = x[max(-a, 0) : 6 + min(b, 0), max(-c, 0) : 9 + min(d, 0)]
        want = np.pad(part, [(max(a, 0), max(b, 0)), (max(c, 0), max(d, 0))], mode=mode)  # type: ignore[call-overload]
        got = run("Pad", inputs, {"mode": mode}, domain="", opset=19, device=device)[0]
        assert got is not None
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([draw((2, 3)), ints(1, 2, 3)], {}, r"pads is \[1, 2, 3\]; expected 4 numbers"),
        ([draw((2, 3)), ints(-1, 0, -2, 0)], {}, "no more taken away than the 2 of axis 0"),
        ([draw((2, 0)), ints(0, 1, 0, 0)], {"mode": "edge"}, "of axis 1 because of mode=edge"),
        ([draw((2, 3)), ints(1, 1), None, ints(2)], {}, r"axes is 2; expected \[-2, 1\]"),
        ([draw((2, 3)), ints(1, 1), draw((2,)), ints(1)], {}, r"constant_value has shape \(2,\)"),
        ([draw((2, 3)), ints(1, 1, 1, 1)], {"mode": "mirror"}, "mode='mirror'; expected one of constant"),
    ],
)
def test_pad_refuses(inputs: list[np.ndarray | None], attributes: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match="^Pad: .*" + message):
        plan("Pad", inputs, attributes, domain="", opset=19)


def test_strings_are_refused_by_name() -> None:
    for op in ("Pad", "Tile"):
        with pytest.raises(UnsupportedError, match=f"^{op}: (data|input) holds strings"):
            run(op, [np.array(["a", "b"], object), ints(2, 1)[: 1 + (op == "Pad")]], domain="", opset=13)


def test_concat(check: Check) -> None:
    for axis in (0, 1, 2, -1):
        shapes = [[2, 3, 4], [2, 3, 4], [2, 3, 4], [2, 3, 4]]
        for i, shape in enumerate(shapes):
            shape[axis] = (1, 5, 0, 3)[i]
        for dtype in TYPES:
            check("Concat", [draw(tuple(s), dtype, i) for i, s in enumerate(shapes)], axis=axis)
    check("Concat", [draw((3,))], axis=0)
    check("Concat", [draw((2, 1), seed=i) for i in range(20)], axis=1)


def test_split(check: Check) -> None:
    for dtype in TYPES:
        check("Split", [draw((6, 5), dtype)], 13, outputs=3)
        check("Split", [draw((5, 7), dtype), ints(1, 4, 2)], 13, outputs=3, axis=-1)
    check("Split", [draw((7, 2))], 18, outputs=3, num_outputs=3)
    check("Split", [draw((6,))], 11, outputs=2, split=[2, 4])


def test_reshape(check: Check) -> None:
    x = draw((2, 3, 4))
    for shape in [(24,), (-1, 6), (0, -1), (2, 0, 2, 2), (4, 3, 2)]:
        check("Reshape", [x, ints(*shape)])
    check("Reshape", [draw((0, 3)), ints(3, 0)], allowzero=1)
    check("Reshape", [x], 1, want=[x.reshape(6, 4)], shape=[6, 4])
    check("Flatten", [x], axis=2)
    check("Flatten", [x], axis=0)
    check("Squeeze", [draw((1, 3, 1))])
    check("Squeeze", [draw((1, 3, 1)), ints(-1)])
    check("Squeeze", [draw((1, 3, 1))], 11, axes=[0])
    check("Unsqueeze", [x, ints(0, -1)])
    check("Unsqueeze", [x], 11, axes=[1, 2])
    check("Identity", [draw((3, 5), np.int8)])


def test_dropout_is_the_identity(check: Check) -> None:
    x = draw((3, 5))
    check("Dropout", [x], 13, outputs=2, want=[x, np.ones((3, 5), bool)])
    check("Dropout", [x], 7, outputs=2, want=[x, np.ones((3, 5), np.float32)])
    with pytest.raises(UnsupportedError, match="training"):
        plan("Dropout", [x, None, np.array(True)], domain="", opset=13)


def test_gather(check: Check) -> None:
    data = draw((4, 5, 6))
    for axis in (0, 1, 2, -1):
        for indices in (np.array(2), np.array([0, 3, -1, -4]), np.array([[1, 0], [2, 2]])):
            check("Gather", [data, indices.astype(np.int64)], axis=axis)
            check("Gather", [data, indices.astype(np.int32)], axis=axis)
    for dtype in TYPES:
        check("Gather", [draw((7, 3), dtype), ints(6, 0, -7)])
    check("Gather", [data, np.zeros((0,), np.int64)])


def test_gather_elements(check: Check) -> None:
    data = draw((4, 5, 3))
    rng = np.random.default_rng(0)
    for axis in (0, 1, -1):
        index = rng.integers(0, 3, (4, 5, 3))
        check("GatherElements", [data, index], axis=axis)
        # Indices may stop short along the other axes, and count from the end.
        short = rng.integers(-3, 3, (3, 4, 2))
        part = tuple(slice(None) if d == axis % 3 else slice(size) for d, size in enumerate(short.shape))
        want = np.take_along_axis(data[part], short, axis)
        check("GatherElements", [data, short], want=[want], axis=axis)
    check("GatherElements", [draw((3, 5), np.int8), rng.integers(0, 5, (3, 2)).astype(np.int32)], axis=1)


def test_indices_on_the_device_are_contained(device: Device) -> None:
    from webgpu_ops import Tensor

    data = draw((5, 2))
    for dtype in (np.int32, np.int64):
        indices = np.array([4, 5, 99, -5, -6, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
        got = run("Gather", [data, Tensor.from_numpy(indices, device)], domain="", device=device)[0]
        assert got is not None
        np.testing.assert_array_equal(got.numpy(), data[[4, 4, 4, 0, 0, 4, 0]])


def test_shapes(check: Check) -> None:
    x = draw((2, 3, 4))
    check("Shape", [x])
    check("Shape", [x], 15, start=-2, end=3)
    check("Size", [x])
    check("ConstantOfShape", [ints(2, 3)])
    check("ConstantOfShape", [ints()])
    check("Range", [np.array(3, np.int64), np.array(12, np.int64), np.array(4, np.int64)])
    check("Range", [np.array(5, np.int32), np.array(-3, np.int32), np.array(-2, np.int32)])
    check("Range", [np.array(0.5, np.float32), np.array(2, np.float32), np.array(0.25, np.float32)])


def test_constants(device: Device) -> None:
    for attributes, want in [
        ({"value": np.arange(6, dtype=np.int8).reshape(2, 3)}, np.arange(6, dtype=np.int8).reshape(2, 3)),
        ({"value_ints": [1, 2]}, ints(1, 2)),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
    ]:
        got = run("Constant", [], attributes, domain="", opset=13, device=device)[0]
        assert got is not None
        assert got.numpy().dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want)
    for value in (np.array([-3], np.int64), np.array([1.5], ml_dtypes.bfloat16), np.array([True])):
        got = run("ConstantOfShape", [ints(3, 3)], {"value": value}, domain="", opset=21, device=device)[0]
        assert got is not None
        assert got.numpy().dtype == value.dtype
        np.testing.assert_array_equal(got.numpy(), np.full((3, 3), value[0]))


def test_cumulative_sum(check: Check) -> None:
    x = draw((3, 4, 5))
    for axis in (0, 1, -1):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                check("CumSum", [x, np.array(axis)], exclusive=exclusive, reverse=reverse)
    for dtype in (np.int32, np.int64, np.float64):
        check("CumSum", [draw((3, 7), dtype), np.array(1)])


def test_dense_moves_are_copies() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    for op, inputs, attributes in [
        ("Transpose", [x], {"perm": [0, 1, 2]}),
        ("Slice", [x, ints(1), ints(2)], {}),
        ("Concat", [x, x], {"axis": 0}),
    ]:
        steps = plan(op, inputs, attributes, domain="", opset=18).steps
        assert steps
        assert all(isinstance(s, Copy) for s in steps)


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    for op, inputs, attributes, message in [
        ("Reshape", [x, ints(4, -1)], {}, r"Reshape: shape is \[4, -1\]; expected sizes that divide the 6"),
        ("Reshape", [x, ints(-1, -1)], {}, "at most one -1"),
        ("Reshape", [x, ints(2, 2)], {}, "expected a shape of the 6 elements of data"),
        ("Transpose", [x], {"perm": [0, 0]}, r"perm is \(0, 0\)"),
        ("Squeeze", [x, ints(0)], {}, "expected size 1 at axis 0"),
        ("Expand", [x, ints(4)], {}, "broadcasts with"),
        ("Tile", [x, ints(2)], {}, "expected 2 numbers"),
        ("Slice", [x, ints(0), ints(1), ints(0), ints(0)], {}, "steps other than 0"),
        ("Slice", [x, ints(0), ints(1), ints(2)], {}, r"axes is 2; expected \[-2, 1\]"),
        ("Concat", [x, np.zeros((3, 3), np.float32)], {"axis": 1}, "but for axis 1"),
        ("Split", [x, ints(1, 3)], {}, "expected parts of 2"),
        ("Gather", [x, ints(2)], {}, r"indices holds 2; expected indices in \[-2, 1\]"),
        ("GatherElements", [x, np.full((2, 3), -3)], {}, "indices holds -3"),
    ]:
        outputs = ["outputs[0]", "outputs[1]"] if op == "Split" else None
        with pytest.raises(ShapeError, match=message):
            plan(op, inputs, attributes, domain="", opset=18, outputs=outputs)
