"""Reductions, softmax and layer norms of the standard domain."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, plan, run
from webgpu_ops.core.plan import Capabilities

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-reduction")

Check = Callable[..., None]

REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"]


def draw(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 9, shape).astype(dtype)
    return np.asarray(rng.uniform(-2, 2, shape)).astype(dtype)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes(check: Check, op: str) -> None:
    x = draw((2, 3, 4, 5))
    for axes in ([0], [-1], [1, 2], [0, 2], [3, 0, 1], [0, 1, 2, 3]):
        for keep in (0, 1):
            check(op, [x, np.array(axes, np.int64)], 18, keepdims=keep)
    check(op, [x], 18)
    check(op, [x], 18, keepdims=0, noop_with_empty_axes=1)
    check(op, [draw(())], 18)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_axes_as_an_attribute(check: Check, op: str) -> None:
    check(op, [draw((2, 3, 4))], 11, axes=[0, -1], keepdims=0)


def test_long_reductions(check: Check) -> None:
    for dtype in (np.float32, np.float16, np.float64, np.int64):
        x = draw((3, 700), dtype)
        for op in ("ReduceSum", "ReduceMax"):
            check(
                op,
                [x, np.array([1], np.int64)],
                18,
                want=[
                    getattr(x.astype(object if x.dtype.kind == "i" else float), op[6:].lower())(
                        1, keepdims=True
                    ).astype(dtype)
                ],
            )
    check("ReduceMean", [draw((1001, 3)), np.array([0], np.int64)], 18)


def test_types(check: Check) -> None:
    axes = np.array([1], np.int64)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.uint32):
        for op in ("ReduceSum", "ReduceMax", "ReduceMin"):
            check(op, [draw((3, 5, 7), dtype), axes], 18)
    for dtype in (np.int8, np.uint8):
        check("ReduceMax", [draw((3, 5, 7), dtype), axes], 18)
    x = draw((3, 5, 2), np.int32) > 6
    check("ReduceMax", [x, axes], 20)
    check("ReduceMin", [x, axes], 20)


def test_nan_wins(device: Device) -> None:
    x = np.array([[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan], [1, 2, 3]], np.float32)
    for op, best in (("ReduceMax", 3), ("ReduceMin", 1)):
        got = run(op, [x, np.array([1])], {"keepdims": 0}, domain="", opset=18, device=device)[0]
        assert got is not None
        np.testing.assert_array_equal(got.numpy(), [np.nan, np.nan, np.nan, best])


def test_nothing_to_reduce(check: Check) -> None:
    axes = np.array([1], np.int64)
    check("ReduceSum", [np.zeros((2, 0, 3), np.float32), axes], 18)
    check("ReduceProd", [np.zeros((2, 0), np.int32), axes], 18)
    check("ReduceMax", [np.zeros((2, 0), np.float32), axes], 20, want=[np.full((2, 1), -np.inf, np.float32)])
    check("ReduceSum", [np.zeros((0, 3), np.float32), axes], 18)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax(check: Check, op: str) -> None:
    for shape in [(5,), (3, 7), (2, 3, 130), (2, 5, 3, 4), (2, 0, 3)]:
        for axis in range(-len(shape), len(shape)):
            if shape[axis]:
                check(op, [draw(shape)], 13, axis=axis)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        check(op, [draw((3, 7), dtype)], 13)
        check(op, [draw((3, 7), dtype)], 13, axis=0)


def test_softmax_before_opset_13(device: Device) -> None:
    x = draw((2, 3, 4))
    for axis in (0, 1, 2, 3):
        attributes = {} if axis == 1 else {"axis": axis}
        got = run("Softmax", [x], attributes, domain="", opset=11, device=device)[0]
        rows = np.exp(x.reshape(int(np.prod(x.shape[:axis])), -1).astype(float))
        assert got is not None
        np.testing.assert_allclose(
            got.numpy(), (rows / rows.sum(1, keepdims=True)).reshape(x.shape), rtol=1e-5
        )


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_extremes(check: Check, op: str) -> None:
    """inf - inf is NaN, and so is then the sum: rows with an infinity, as rows of -inf, are all NaN."""
    low, high = -np.inf, np.inf
    rows = [[low, 1, low, 2, 0], [3e4, 0, -3e4, 0, 0], [low] * 5, [-3e4] * 5]
    rows += [[0, 1, high, 2, low], [high, 0, high, 1, 2], [np.nan, 1, 2, 3, 4], [1, 2, 3, 4, 5]]
    for dtype in (np.float32, np.float16, np.float64):
        x = np.array(rows, dtype)
        with np.errstate(all="ignore"):
            z = x.astype(float) - x.astype(float).max(axis=1, keepdims=True)
            total = np.exp(z).sum(axis=1, keepdims=True)
            want = (np.exp(z) / total if op == "Softmax" else z - np.log(total)).astype(dtype)
        check(op, [x], 13, axis=1, want=[want])
        check(op, [x.T.copy()], 13, axis=0, want=[want.T])


def test_layer_normalization(check: Check) -> None:
    for shape, axis in [((3, 7), -1), ((2, 3, 40), 1), ((2, 3, 5), 0), ((4,), 0), ((2, 5, 3, 3), -2)]:
        inner = shape[axis:]
        x, scale, bias = draw(shape), draw(inner, seed=1), draw(inner, seed=2)
        check("LayerNormalization", [x, scale, bias], 17, outputs=3, axis=axis, epsilon=1e-3)
        check("LayerNormalization", [x, scale], 17, axis=axis)
    for dtype in (np.float16, np.float64):
        x, scale = draw((3, 33), dtype), draw((33,), dtype, seed=1)
        check("LayerNormalization", [x, scale, scale], 17)
    x, scale = draw((2, 3, 4)), draw((4,), seed=1)
    check("LayerNormalization", [x, scale], 17, axis=1)


def test_rms_normalization(device: Device) -> None:
    for dtype, tolerance in ((np.float32, 1e-5), (np.float16, 2e-3), (np.float64, 1e-12)):
        x, scale = draw((2, 3, 70), dtype), draw((70,), dtype, seed=1)
        wide = x.astype(float)
        inverse = 1 / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5)
        want = wide * inverse * scale
        for op, outputs in (
            ("SimplifiedLayerNormalization", ("Y", "inv_std_var")),
            ("RMSNormalization", ("Y",)),
        ):
            got = run(op, [x, scale], {"epsilon": 1e-5}, domain="", outputs=outputs, device=device)
            assert got[0] is not None
            np.testing.assert_allclose(got[0].numpy().astype(float), want, rtol=tolerance, atol=tolerance)
            if len(outputs) > 1:
                assert got[1] is not None
                np.testing.assert_allclose(got[1].numpy(), inverse, rtol=1e-5)


def test_tall_reductions_share_a_pipeline() -> None:
    def constants(n: int) -> object:
        (step,) = plan("ReduceSum", [np.zeros((4, n), np.float32), np.array([1])], domain="").dispatches
        return step.constants

    assert constants(70) == constants(71) == constants(5000)


def test_few_results_get_a_workgroup_each() -> None:
    gpu = Capabilities(device_class="gpu")
    (step,) = plan(
        "ReduceSum", [np.zeros((8, 500), np.float32), np.array([1])], domain="", capabilities=gpu
    ).dispatches
    assert step.workgroup == 64
    assert step.groups == 2


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"ReduceSum: axes is 2; expected \[-2, 1\] because the rank is 2"):
        plan("ReduceSum", [x, np.array([2])], domain="")
    with pytest.raises(ShapeError, match="no axis twice"):
        plan("ReduceSum", [x, np.array([1, -1])], domain="")
    with pytest.raises(ShapeError, match=r"Softmax: axis is 5"):
        plan("Softmax", [x], {"axis": 5}, domain="")
    with pytest.raises(ShapeError, match=r"LayerNormalization: Scale has shape \(4,\)"):
        plan("LayerNormalization", [x, np.zeros(4, np.float32)], domain="")
