"""Elementwise operators of the standard domain."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, UnsupportedError, plan, run
from webgpu_ops.core import dtypes

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-math")

Check = Callable[..., None]
FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16, np.float64)
SHAPES = [(), (1,), (7,), (3, 0, 2), (2, 3, 5), (2, 1, 3, 1, 4)]
PAIRS = [
    ((), ()),
    ((5,), ()),
    ((3, 1), (1, 7)),
    ((2, 3, 4, 5), (4, 1)),
    ((4, 1, 6, 1), (5, 1, 9)),
    ((2, 0, 3), (3,)),
    ((1, 1, 1), (2, 3, 9)),
    ((6, 8), (8,)),
]


def draw(
    shape: tuple[int, ...], dtype: type, low: float = -3.0, high: float = 3.0, seed: int = 0
) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    if dtype is np.bool_:
        return rng.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        low = max(low, 0) if np.dtype(dtype).kind == "u" else low
        return rng.integers(int(low), int(high) + 1, shape).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


@pytest.mark.parametrize(
    "op",
    [
        "Abs",
        "Ceil",
        "Cos",
        "Erf",
        "Exp",
        "Floor",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Tanh",
    ],
)
def test_unary(check: Check, op: str) -> None:
    for dtype in FLOATS if op == "Erf" else (np.float32, np.float16, np.float64):
        for shape in SHAPES[2:5] if dtype is not np.float32 else SHAPES:
            x = draw(shape, dtype)
            if op == "Reciprocal":
                x = (x + np.sign(x) * 1).astype(dtype)
            # ONNX's own erf is made of float32 numbers.
            want = (
                [np.vectorize(math.erf, otypes=[float])(x.astype(float)).astype(dtype)]
                if op == "Erf"
                else None
            )
            check(op, [x], want=want)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_nan_and_infinities(check: Check, dtype: type) -> None:
    """NaN stays NaN whatever the operator, and infinities have the limits that NumPy says."""
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -1.5], dtype)
    for op in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Round"):
        check(op, [x])
    for op in ("Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh"):
        check(op, [x])
    a, b = (np.ascontiguousarray(side) for side in np.meshgrid(x, x))
    for op in ("Add", "Sub", "Mul", "Div", "Pow", "Equal", "Greater", "LessOrEqual", "Max", "Min"):
        check(op, [a, b])


@pytest.mark.parametrize("op", ["Sqrt", "Log"])
def test_positive(check: Check, op: str) -> None:
    for dtype in FLOATS:
        check(op, [draw((3, 7), dtype, 0.01, 30.0)])


def test_unary_of_integers(check: Check) -> None:
    for dtype in (np.int32, np.int64, np.int8):
        x = draw((3, 5), dtype, -9, 9)
        for op in ("Abs", "Neg", "Sign", "Relu"):
            check(op, [x])
    check("Not", [draw((3, 3), np.bool_)])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic(check: Check, op: str) -> None:
    for a, b in PAIRS:
        check(op, [draw(a, np.float32), draw(b, np.float32, 1, 4)])
    more = (np.uint32, np.uint64, np.int8, np.uint8) if op == "Sub" else ()
    for dtype in (*FLOATS, np.int32, np.int64, *more):
        low = 0 if np.dtype(dtype).kind == "u" else -40
        a = draw((3, 1, 5), dtype, 40, 80)
        b = draw((4, 5), dtype, 1, 9)
        check(op, [a, b])
        if op == "Div" and low < 0 and np.dtype(dtype).kind == "i":
            # Integer division truncates.
            check(op, [-a, b], want=[(-(a // b)).astype(dtype)])


def test_wide_integers(check: Check) -> None:
    a = np.array([2**40 + 3, -(2**50), 2**62, -1], np.int64)
    b = np.array([3, 2**33, -(2**31), 7], np.int64)
    check("Add", [a, b])
    check("Mul", [np.array([2**31 + 1, -5, 3, 0], np.int64), b])
    check("Div", [a, b], want=[np.array([(2**40 + 3) // 3, -(2**17), -(2**31), 0], np.int64)])


def test_legacy_broadcast(device: Device) -> None:
    a, b = draw((2, 3, 4), np.float32), draw((3,), np.float32)
    got = run("Add", [a, b], {"broadcast": 1, "axis": 1}, domain="", opset=6, device=device)[0]
    assert got is not None
    np.testing.assert_allclose(got.numpy(), a + b[:, None], rtol=1e-6)


def test_power(check: Check) -> None:
    for dtype in FLOATS:
        check("Pow", [draw((2, 5), dtype, 0.2, 3), draw((5,), dtype)], tolerance=None)
    check("Pow", [draw((9,), np.float32), np.array(2, np.float32)])
    check("Pow", [draw((9,), np.float32), np.array(3, np.int64)])
    check("Pow", [draw((9,), np.int32, -5, 5), draw((9,), np.int32, 0, 6)])
    check("Pow", [draw((9,), np.int64, -9, 9), draw((9,), np.int64, 0, 15)])
    check("Pow", [draw((9,), np.int32, 1, 9), np.array(0.5, np.float32)])


@pytest.mark.parametrize("op", ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
def test_comparisons(check: Check, op: str) -> None:
    for a, b in PAIRS:
        check(op, [draw(a, np.int32), draw(b, np.int32)], 19)
    for dtype in (np.float32, np.float16, np.float64, np.int64, np.uint8, np.uint64):
        check(op, [draw((3, 7), dtype, -2, 2).round(), draw((7,), dtype, -2, 2).round()], 19)
    if op == "Equal":
        check(op, [draw((9,), np.bool_), draw((9,), np.bool_, seed=1)], 19)
    x = np.array([np.nan, 1.0, np.inf], np.float32)
    check(op, [x, x[::-1].copy()], 19)


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(check: Check, op: str) -> None:
    for a, b in PAIRS:
        check(op, [draw(a, np.bool_), draw(b, np.bool_, seed=1)])


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_variadic(check: Check, op: str) -> None:
    for count in (1, 2, 3, 5):
        shapes = [(3, 6), (3, 1), (1, 6), (6,), ()]
        inputs = [draw(shapes[i], np.float32, seed=i) for i in range(count)]
        check(op, inputs)
    check(op, [draw((7,), np.float16, seed=i) for i in range(3)])
    if op in ("Max", "Min"):
        check(op, [draw((9,), np.int64, -99, 99, seed=i) for i in range(3)])
        nan = np.array([np.nan, 1, 2], np.float32)
        check(op, [nan, np.array([0, np.nan, 1], np.float32)])


def test_where_moves_bits(check: Check, device: Device) -> None:
    for dtype in (np.float32, np.float16, np.float64, np.int8, np.int64, np.bool_):
        x, y = draw((3, 1, 5), dtype), draw((2, 5), dtype, seed=1)
        check("Where", [draw((2, 1), np.bool_), x, y])
    nan = np.array([0x7FC01234, 0x80000000], np.uint32).view(np.float32)
    got = run("Where", [np.array([True]), nan, np.zeros(2, np.float32)], domain="", device=device)[0]
    assert got is not None
    assert got.numpy().tobytes() == nan.tobytes()


def test_clip(check: Check) -> None:
    for dtype in (np.float32, np.float16, np.float64, np.int32, np.int64, np.uint8):
        x = draw((3, 7), dtype, -9, 9)
        low, high = np.array(2, dtype), np.array(5, dtype)
        for bounds in ([low, high], [low, None], [None, high], [None, None]):
            check("Clip", [x, *bounds])
    x = draw((3, 7), np.float32, -9, 9)
    check("Clip", [x], 6, want=[np.clip(x, -1, 2)], min=-1.0, max=2.0)
    check("Clip", [np.array([np.nan, 7], np.float32), low.astype(np.float32), high.astype(np.float32)])


NUMBERS = (
    np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8, np.int16, np.uint16,
    np.int32, np.uint32, np.int64, np.uint64, np.bool_,
)  # fmt: skip


def cast(device: Device, x: np.ndarray, target: type) -> np.ndarray:
    to = dtypes.from_numpy(np.dtype(target)).onnx
    got = run("Cast", [x], {"to": to}, domain="", opset=19, device=device)[0]
    assert got is not None
    assert got.numpy().dtype == np.dtype(target)
    return got.numpy()


@pytest.mark.parametrize("target", NUMBERS)
def test_cast(device: Device, target: type) -> None:
    here = NUMBERS.index(target)
    for step in (1, 4, 9):  # over all targets, every type is a source three times
        source = NUMBERS[(here + step) % len(NUMBERS)]
        x = draw((3, 7), source, 0, 100)
        np.testing.assert_array_equal(cast(device, x, target), x.astype(target))


def test_cast_keeps_bits_of_wide_integers(device: Device) -> None:
    x = np.array([-1, 2**40 + 5, -(2**63), 255], np.int64)
    for target in (np.int32, np.int8, np.uint8, np.uint64):
        np.testing.assert_array_equal(cast(device, x, target), x.astype(target))


def test_cast_rounds_once(device: Device) -> None:
    """To the nearest even; float64 to 16 bits not by way of float32, whose rounding may make a tie."""
    for source, targets in (
        (np.float64, (np.float32, np.float16)),
        (np.float32, (np.float16, ml_dtypes.bfloat16)),
    ):
        x = np.array(
            [1 + 2**-11 + 2**-40, 1 + 2**-11, -1 - 3 * 2**-11, 1e-6, 65519, 1 / 3, -2.5, 0.0]
        ).astype(source)
        for target in targets:
            got = cast(device, x, target)
            np.testing.assert_array_equal(got.view(np.uint8), x.astype(target).view(np.uint8))


def test_cast_of_signs_and_bounds(device: Device) -> None:
    x = np.array([-100, -1, 0, 1, 127], np.int8)
    for target in (np.int64, np.int32, np.float32, np.float16, np.float64, np.bool_):
        np.testing.assert_array_equal(cast(device, x, target), x.astype(target))
    x = np.array([-2.75, -0.5, 0.5, 2.75, 100.0], np.float32)
    for target in (np.int64, np.int32, np.int8, np.bool_):
        np.testing.assert_array_equal(cast(device, x, target), x.astype(target))


def test_cast_to_float8_saturates(device: Device) -> None:
    x = np.array([0.3, -7.7, 1000.0, -1e9, 448.0, 17.0], np.float32)
    for target in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        limit = float(ml_dtypes.finfo(target).max)
        want = x.clip(-limit, limit).astype(target)
        np.testing.assert_array_equal(cast(device, x, target).view(np.uint8), want.view(np.uint8))


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(
        ShapeError, match=r"Add: B has shape \(4,\); expected a shape that broadcasts with \(2, 3\)"
    ):
        plan("Add", [x, np.zeros(4, np.float32)], domain="")
    with pytest.raises(ShapeError, match="Clip: min has shape"):
        plan("Clip", [x, np.zeros(2, np.float32)], domain="", opset=13)
    with pytest.raises(UnsupportedError, match="string"):
        plan("Cast", [x], {"to": 8}, domain="", opset=13)


def test_a_growing_row_keeps_its_pipeline() -> None:
    def templates(n: int) -> set:
        steps = plan(
            "Add", [np.zeros((3, n), np.float32), np.zeros((3, 1), np.float32)], domain=""
        ).dispatches
        return {(s.template, s.constants, s.workgroup) for s in steps}

    assert templates(5) == templates(8) == templates(600)
