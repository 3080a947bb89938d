"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, UnsupportedError, plan, run

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-quantize")

Check = Callable[..., None]


def quantize(device: Device, inputs: list[Any], opset: int = 21, **attributes: Any) -> np.ndarray:
    (y,) = run("QuantizeLinear", inputs, attributes, domain="", opset=opset, device=device)
    return y.numpy()


def dequantize(device: Device, inputs: list[Any], opset: int = 23, **attributes: Any) -> np.ndarray:
    (y,) = run("DequantizeLinear", inputs, attributes, domain="", opset=opset, device=device)
    return y.numpy()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, ml_dtypes.int4, ml_dtypes.uint4])
def test_ties_and_ends(device: Device, dtype: Any) -> None:
    """Half to even before the zero point is added; what the type does not hold becomes its end."""
    info = ml_dtypes.iinfo(dtype)
    zero = np.array(3, dtype)
    x = np.concatenate([np.arange(-9, 9, 0.25), [1e30, -1e30, np.inf, -np.inf]]).astype(np.float32)
    want = np.clip(np.rint(x / 0.5) + 3, int(info.min), int(info.max)).astype(dtype)
    got = quantize(device, [x, np.float32(0.5), zero])
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(got.astype(int), want.astype(int))


def test_against_onnx(check: Check) -> None:
    rng = np.random.default_rng(0)
    x = (rng.integers(-400, 400, (3, 4, 5)) * 0.25).astype(np.float32)
    q = rng.integers(-128, 127, (3, 4, 5), np.int8)
    scales, zeros = np.array([0.25, 0.5, 1, 2], np.float32), np.array([0, 1, -1, 100], np.int8)
    for opset in (19, 21):
        check("QuantizeLinear", [x, np.float32(0.5), np.uint8(10)], opset)
        check("QuantizeLinear", [x, np.float32(0.5)], opset)
        check("DequantizeLinear", [q, np.float32(0.3), np.int8(9)], opset)
        for axis in (1, -2):
            check("QuantizeLinear", [x, scales, zeros], opset, axis=axis)
            check("DequantizeLinear", [q, scales, zeros], opset, axis=axis)
        check("DequantizeLinear", [rng.integers(-(2**30), 2**30, (7,), np.int32), np.float32(0.5)], opset)


def test_first_versions(device: Device) -> None:
    """Before opset 13 there is one scale; an axis came then, blocks in 21."""
    x = np.array([[1.25, -3.5, 70]], np.float32)
    for opset in (10, 13):
        y = quantize(device, [x, np.float32(0.5), np.int8(1)], opset)
        np.testing.assert_array_equal(y, [[3, -6, 127]])
        back = dequantize(device, [y, np.float32(0.5), np.int8(1)], opset)
        np.testing.assert_array_equal(back, [[1, -3.5, 63]])


def test_blocks(device: Device) -> None:
    """Seven places in blocks of three: the last block is shorter."""
    rng = np.random.default_rng(1)
    x = (rng.integers(-100, 100, (2, 7, 3)) * 0.25).astype(np.float32)
    scales = np.array([0.5, 1, 2], np.float32)[rng.integers(0, 3, (2, 3, 3))]
    zeros = rng.integers(-5, 5, (2, 3, 3), np.int8)
    spread = [np.repeat(v, 3, axis=1)[:, :7] for v in (scales, zeros)]
    want = np.clip(np.rint(x / spread[0]) + spread[1], -128, 127).astype(np.int8)
    np.testing.assert_array_equal(quantize(device, [x, scales, zeros], axis=1, block_size=3), want)
    back = dequantize(device, [want, scales, zeros], axis=1, block_size=3)
    np.testing.assert_array_equal(back, (want - spread[1].astype(np.float32)) * spread[0])


def test_narrow_floats(device: Device) -> None:
    x = np.array([0.1, -3.3, 17, 1000, -1e9], np.float32)
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz):
        largest = float(ml_dtypes.finfo(dtype).max)
        want = np.clip(x / np.float32(0.5), -largest, largest).astype(dtype)
        got = quantize(device, [x, np.float32(0.5), np.zeros((), dtype)])
        np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
        back = dequantize(device, [want, np.float32(0.5)])
        np.testing.assert_array_equal(back, want.astype(np.float32) * np.float32(0.5))


def test_output_types(device: Device) -> None:
    x = np.array([1, 2, 300], np.float16)
    assert quantize(device, [x, np.float16(1)], output_dtype=3).tolist() == [1, 2, 127]
    q = np.array([1, 2, 3], np.int8)
    for code, dtype in ((1, np.float32), (10, np.float16), (16, ml_dtypes.bfloat16)):
        y = dequantize(device, [q, np.float32(0.5)], output_dtype=code)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.astype(np.float32), [0.5, 1, 1.5])


@pytest.mark.parametrize("size", [1, 5, 3000, 70_000])
def test_dynamic_range(any_device: Device, size: int) -> None:
    rng = np.random.default_rng(size)
    for low, high in ((-0.75, 2.0), (0.5, 2.0), (-2.0, -0.5)):
        x = rng.uniform(low, high, size).astype(np.float32)
        outputs = ["y", "y_scale", "y_zero_point"]
        results = run("DynamicQuantizeLinear", [x], domain="", outputs=outputs, device=any_device)
        y, scale, zero = (r.numpy() for r in results)
        least, most = min(x.min(), 0), max(x.max(), 0)
        assert scale.shape == zero.shape == ()
        np.testing.assert_allclose(scale, (most - least) / 255, rtol=1e-6)
        assert zero == np.clip(np.rint(-least / scale), 0, 255)
        assert (np.abs((y.astype(np.float64) - zero) * scale - x) <= 0.5001 * scale).all()


def test_dynamic_range_of_zeros(device: Device) -> None:
    for shape in ((4,), (0,), ()):
        x = np.zeros(shape, np.float32)
        y, scale, zero = run(
            "DynamicQuantizeLinear", [x], domain="", outputs=["y", "y_scale", "y_zero_point"], device=device
        )
        assert (y.numpy() == 0).all()
        assert scale.numpy() == 1
        assert zero.numpy() == 0


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    two, one = np.ones(2, np.float32), np.float32(1)
    for inputs, attributes, message in [
        (
            [x, two],
            {},
            r"y_scale has shape \(2,\); expected one element or \(3,\) because x has shape \(2, 3\)",
        ),
        ([x, two], {"axis": 2}, r"axis is 2; expected \[-2, 1\]"),
        ([x, one, np.zeros(2, np.int8)], {}, r"y_zero_point has shape \(2,\); expected \(\)"),
        ([x, np.ones((2, 2), np.float32)], {"block_size": 1}, r"one element or \(2, 3\)"),
        ([x, one], {"block_size": -1}, "block_size is -1"),
        ([x, one, np.int8(0)], {"output_dtype": 2}, "output_dtype is uint8; expected int8"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan("QuantizeLinear", inputs, attributes, domain="", opset=21)
    with pytest.raises(UnsupportedError, match="saturate=0"):
        zero = np.zeros((), ml_dtypes.float8_e5m2)
        plan("QuantizeLinear", [x, one, zero], {"saturate": 0}, domain="", opset=21)
    with pytest.raises(ShapeError, match="output_dtype is int8"):
        plan("DequantizeLinear", [np.zeros(2, np.int8), one], {"output_dtype": 3}, domain="", opset=23)
