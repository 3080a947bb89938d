"""ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, plan, run

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-selection")

Check = Callable[..., None]


def draw(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """Few different values, so that there are ties."""
    return np.random.default_rng(len(shape)).integers(0, 5, shape).astype(dtype)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_axes_and_ties(check: Check, op: str) -> None:
    x = draw((3, 4, 5))
    for axis in (0, 1, -1):
        for last in (0, 1):
            check(op, [x], 13, axis=axis, keepdims=last, select_last_index=last)
    check(op, [x], 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int64, np.uint8, np.int8, np.int32])
def test_types(check: Check, dtype: type) -> None:
    for op in ("ArgMax", "ArgMin"):
        check(op, [draw((3, 7), dtype) - dtype(2)], 13, axis=1)


def test_large_values_are_told_apart(check: Check) -> None:
    check("ArgMax", [np.array([[2**62, 2**62 + 1, -(2**62)], [-1, -2, -3]])], 13, axis=1)


def test_long_lines_are_searched_together(check: Check, gpu_tiles: Device) -> None:
    x = np.random.default_rng(0).permutation(3000).reshape(3, 1000).astype(np.float32)
    for last in (0, 1):
        check("ArgMax", [np.minimum(x, 2500)], 13, axis=1, select_last_index=last)
        check("ArgMin", [np.maximum(x, 300)], 13, axis=1, select_last_index=last, keepdims=0)
    got = run("ArgMax", [x], {"axis": 1}, domain="", opset=13, device=gpu_tiles)[0]
    np.testing.assert_array_equal(got.numpy(), x.argmax(axis=1, keepdims=True))


def test_a_nan_is_found(device: Device) -> None:
    x = np.array([[1, np.nan, np.inf, np.nan], [-np.inf, 2, 3, np.nan]], np.float32)
    for op in ("ArgMax", "ArgMin"):
        got = run(op, [x], {"axis": 1, "keepdims": 0}, domain="", opset=13, device=device)[0]
        np.testing.assert_array_equal(got.numpy(), [1, 3])


def test_nothing_has_no_largest_element(device: Device) -> None:
    with pytest.raises(ShapeError, match=r"ArgMax: data has shape \(2, 0\)"):
        plan("ArgMax", [np.zeros((2, 0), np.float32)], {"axis": 1}, domain="", opset=13)
    empty = run("ArgMax", [np.zeros((0, 2), np.float32)], {"axis": 1}, domain="", opset=13, device=device)[0]
    assert empty.shape == (0, 1)
