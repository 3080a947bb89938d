"""Lines longer than one invocation may walk: shared by more of them, or made in parts.

Software adapters end an invocation's loops silently after 65535 rounds, so sizes beyond that are what
is tested: every element counts in each result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from webgpu_ops import Device, plan, run
from webgpu_ops.core import plan as plans

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-long-lines")

Check = Callable[..., None]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).uniform(-2, 2, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(64, 70000), (1, 600_000)])
def test_sums_of_ones(check: Check, shape: tuple[int, int]) -> None:
    check("ReduceSum", [np.ones(shape, np.float32), np.array([1], np.int64)], 13)


def test_other_reductions(check: Check) -> None:
    x = np.zeros((50_000, 2, 4), np.float32)
    x[-1, 1, 3] = 400_000
    check("ReduceMean", [x, np.array([0, 2], np.int64)], 18, tolerance=(1e-6, 0))
    small = np.full((1, 300_000), -7, np.int8)
    small[0, -9] = -3
    check("ReduceMax", [small, np.array([1], np.int64)], 18, want=[np.full((1, 1), -3, np.int8)])
    bits = np.zeros((1, 600_000), np.float16)
    bits[0, 599_990] = np.nan
    check("ReduceMax", [bits, np.array([1], np.int64)], 18, want=[np.full((1, 1), np.nan, np.float16)])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [(1, 300_000), (2, 30_000, 5)])
def test_softmax(check: Check, op: str, shape: tuple[int, ...]) -> None:
    check(op, [draw(*shape)], 13, axis=1, tolerance=(3e-5, 0 if op == "Softmax" else 1e-5))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_beyond_a_workgroup(check: Check, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    monkeypatch.setattr(plans, "MAX_ROUNDS", 64)
    for dtype in (np.float32, np.float16):
        check(op, [draw(2, 5000).astype(dtype)], 13, axis=1)


def test_softmax_of_narrow_floats(check: Check) -> None:
    check("Softmax", [3 * draw(1, 30_000, 3).astype(np.float16)], 13, axis=1)


@pytest.mark.parametrize("exclusive, reverse", [(0, 0), (1, 1)])
def test_running_sums(check: Check, exclusive: int, reverse: int) -> None:
    for x in (np.ones((3, 70_001), np.int32), np.arange(140_000).reshape(1, 70_000, 2).astype(np.int32) % 9):
        check("CumSum", [x, np.array(1, np.int64)], 14, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("shape", [(64, 70_000), (1, 600_000)])
def test_places(check: Check, op: str, shape: tuple[int, int]) -> None:
    x = np.zeros(shape, np.float32)
    x[:, [shape[1] - 900, shape[1] - 7]] = 1 if op == "ArgMax" else -1
    for last in (0, 1):
        want = np.full((shape[0], 1), shape[1] - (7 if last else 900), np.int64)
        check(op, [x], 13, axis=1, select_last_index=last, want=[want])


@pytest.mark.parametrize("width, rounds", [(300_000, plans.MAX_ROUNDS), (5001, 64)])
def test_norms(device: Device, monkeypatch: pytest.MonkeyPatch, width: int, rounds: int) -> None:
    """Rows for more lanes, and rows beyond what a workgroup may walk in ``rounds``."""
    monkeypatch.setattr(plans, "MAX_ROUNDS", rounds)
    x, skip, bias = draw(2, 2, width) + np.float32(3), draw(2, width), draw(width)
    gamma, beta = draw(width) + np.float32(1), draw(width)
    x[..., width // 2 :] += 2
    total = x.astype(np.float64) + skip + bias
    mean, variance = total.mean(-1, keepdims=True), total.var(-1, keepdims=True)
    want = (total - mean) / np.sqrt(variance + 1e-5) * gamma + beta
    names = ["output", "mean", "inv_std_var", "input_skip_bias_sum"]
    inputs = [x, skip, gamma, beta, bias]
    got = run("SkipLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=names, device=device)
    arrays = [y.numpy() for y in got if y is not None]
    for found, expected in zip(arrays, (want, mean, 1 / np.sqrt(variance + 1e-5), total), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)

    half = x.astype(np.float16)
    square = (half.astype(np.float64) ** 2).mean(-1, keepdims=True)
    rms = half / np.sqrt(square + 1e-5) * gamma.astype(np.float16).astype(np.float64)
    got = run("RMSNormalization", [half, gamma.astype(np.float16)], domain="", opset=23, device=device)
    assert got[0] is not None
    np.testing.assert_allclose(got[0].numpy().astype(np.float64), rms, rtol=2e-3, atol=2e-3)


def test_products(check: Check) -> None:
    k = 300_000
    check("MatMul", [np.ones((1, k), np.float32), np.ones((k, 1), np.float32)], 13)
    a, w = np.ones((k, 3), np.float32), np.ones((5, k), np.float32)
    a[-1], w[:, -2] = 100, np.arange(5)
    c = draw(5)
    want = [(2 * (a.T.astype(float) @ w.T) + c).astype(np.float32)]
    check("Gemm", [a, w, c], 13, transA=1, transB=1, alpha=2.0, want=want)
    k = 70_002
    a, w = np.ones((2, 3, k), np.int64), np.ones((k, 2), np.int64)
    a[1, 2], w[-1] = 7, 1000
    check("MatMul", [a, w], 13, want=[a @ w])


def test_ordinary_lines_stay_one_step() -> None:
    """Sizes of real models take the same single dispatch as ever."""
    x, axis = np.empty((4, 8192), np.float32), np.array([1], np.int64)
    assert len(plan("ReduceSum", [x, axis], domain="", opset=13).steps) == 1
    assert len(plan("Softmax", [np.empty((1, 262_144), np.float32)], domain="", opset=13).steps) == 1
    assert (
        len(
            plan(
                "MatMul",
                [np.empty((1, 65_536), np.float32), np.empty((65_536, 8), np.float32)],
                domain="",
                opset=13,
            ).steps
        )
        == 1
    )
    long = plan("ReduceSum", [np.empty((8192, 70_000), np.float32), axis], domain="", opset=13)
    assert len(long.steps) == 2
