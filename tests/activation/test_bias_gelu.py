"""BiasGelu beyond the stored cases and the samples."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, plan, run
from webgpu_ops.reference.activation import bias_gelu


def test_ranks_and_ragged_sizes(device: Device) -> None:
    rng = np.random.default_rng(0)
    for shape in [(1,), (7,), (5, 3), (2, 3, 5), (1, 1, 1, 2), (2, 1, 3, 1, 6), (3, 0, 4), (2, 0)]:
        a = rng.standard_normal(shape).astype(np.float32) * 4
        bias = rng.standard_normal(shape[-1]).astype(np.float32)
        got = run("BiasGelu", [a, bias], device=device)[0]
        assert got is not None
        np.testing.assert_allclose(got.numpy(), bias_gelu(a, bias)[0], rtol=1e-5, atol=2e-6)


def test_extremes(device: Device) -> None:
    a = np.array([[np.inf, -1e30, 1e30, 0, -0.0, np.nan, -8, 8]], np.float32)
    got = run("BiasGelu", [a, np.zeros(8, np.float32)], device=device)[0]
    assert got is not None
    want = np.array([[np.inf, 0, 1e30, 0, 0, np.nan, 0, 8]], np.float32)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=1e-5)


def test_one_dispatch_and_no_baked_sizes() -> None:
    def steps(rows: int, columns: int) -> list[tuple[str, object]]:
        found = plan("BiasGelu", [np.zeros((rows, columns), np.float32), np.zeros(columns, np.float32)])
        return [(s.template, s.constants) for s in found.dispatches]

    assert len(steps(3, 8)) == 1
    assert steps(3, 8) == steps(50, 7)


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(
        ShapeError, match=r"BiasGelu: B has shape \(4,\); expected \(3,\) because A has 3 columns"
    ):
        plan("BiasGelu", [x, np.zeros(4, np.float32)])
    with pytest.raises(ShapeError, match=r"B has shape \(1, 3\)"):
        plan("BiasGelu", [x, x[:1]])
    with pytest.raises(ShapeError, match="A is a scalar"):
        plan("BiasGelu", [np.float32(1), np.zeros(1, np.float32)])
    with pytest.raises(SchemaError, match="B has type float16; expected float32"):
        plan("BiasGelu", [x, np.zeros(3, np.float16)])
