"""SkipLayerNormalization beyond the stored cases and the samples."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, TensorSpec, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import Capabilities
from webgpu_ops.reference.norm import skip_layer_normalization

ALL = ("output", "mean", "inv_std_var", "input_skip_bias_sum")


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def test_widths(device: Device) -> None:
    for hidden in (2, 3, 5, 31, 32, 33, 255, 257, 1030):
        inputs = [draw(2, 3, hidden, seed=i) for i in range(2)] + [draw(hidden, seed=i) for i in range(3)]
        got = run("SkipLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=ALL, device=device)
        want = skip_layer_normalization(*inputs, epsilon=1e-5)
        for g, w in zip(got, want, strict=True):
            assert g is not None
            np.testing.assert_allclose(g.numpy(), w, rtol=2e-4, atol=2e-5)


def test_a_mean_far_from_zero(device: Device) -> None:
    x = (draw(1, 4, 96) + 5000).round(2).astype(np.float32)
    ones = np.ones(96, np.float32)
    got = run("SkipLayerNormalization", [x, np.zeros_like(x), ones], device=device)[0]
    assert got is not None
    np.testing.assert_allclose(got.numpy(), skip_layer_normalization(x, np.zeros_like(x), ones)[0], atol=2e-3)


def test_nothing_at_all(device: Device) -> None:
    for shape in ((0, 3, 8), (2, 0, 8)):
        x = np.zeros(shape, np.float32)
        got = run("SkipLayerNormalization", [x, x, np.ones(8, np.float32)], device=device)[0]
        assert got is not None
        assert got.shape == shape


def test_in_place(device: Device) -> None:
    """The sum may take the place of the input: later layers read it alone."""
    from webgpu_ops import Tensor

    x, skip, gamma = draw(2, 3, 20), draw(2, 3, 20, seed=1), draw(20)
    residual = Tensor.from_numpy(x, device)
    got = run(
        "SkipLayerNormalization",
        [residual, skip, gamma],
        {"epsilon": 1e-5},
        outputs={"output": None, "input_skip_bias_sum": residual},
        device=device,
    )[0]
    assert got is not None
    np.testing.assert_allclose(residual.numpy(), x + skip, rtol=1e-6)
    want = skip_layer_normalization(x, skip, gamma, epsilon=1e-5)[0]
    np.testing.assert_allclose(got.numpy(), want, rtol=2e-4, atol=2e-5)


def test_lanes_follow_the_device_class() -> None:
    spec = TensorSpec((2, 3, 64), dtypes.float32)
    inputs = [spec, spec, TensorSpec((64,), dtypes.float32)]
    for device_class, lanes in (("gpu", 64), ("cpu", 8)):
        caps = Capabilities(device_class=device_class)  # type: ignore[arg-type]
        (step,) = plan("SkipLayerNormalization", inputs, capabilities=caps).dispatches
        assert (step.workgroup, step.groups) == (lanes, 6)


def test_refusals() -> None:
    x, gamma = np.zeros((2, 3, 8), np.float32), np.zeros(8, np.float32)
    for inputs, message in [
        ([x[0], x[0], gamma], r"SkipLayerNormalization: input has shape \(3, 8\); expected \(batch"),
        ([x, x[:1, :2], gamma], r"skip has shape \(1, 2, 8\); expected \(1, 3, 8\), \(3, 8\) or \(2, 3, 8\)"),
        ([x, x, gamma[:7]], r"gamma has shape \(7,\); expected \(8,\) because input has hidden size 8"),
        ([x, x, gamma, gamma[:1]], r"beta has shape \(1,\)"),
        ([x, x, gamma, None, x[0]], r"bias has shape \(3, 8\)"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan("SkipLayerNormalization", inputs)
    with pytest.raises(SchemaError, match=r"epsilon is -1\.0"):
        plan("SkipLayerNormalization", [x, x, gamma], {"epsilon": -1.0})
