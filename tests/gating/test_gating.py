"""Gates and RMS norms: refusals, rounding, rows shared by lanes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Tensor, plan, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import PORTABLE, Capabilities, TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, ShapeError
from webgpu_ops.reference.gating import gated_add, scaled_silu
from webgpu_ops.reference.samples import draw_of

NARROW = (np.float16, ml_dtypes.bfloat16)


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.float32)


def engram(**changes: Any) -> dict[str, Any]:
    row = (2, 3, 4, 8)
    shapes = {
        "key": row,
        "query": row,
        "value": (2, 3, 8),
        "key_norm_scale": (4, 8),
        "query_norm_scale": (4, 8),
    }
    return {k: spec(*v) for k, v in (shapes | changes).items()}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("EngramGate", engram(key=(2, 3, 8)), {}, r"key has shape \(2, 3, 8\)"),
        ("EngramGate", engram(query=(2, 3, 4, 9)), {}, r"query has shape .*; expected \(2, 3, 4, 8\)"),
        ("EngramGate", engram(value=(2, 3, 4)), {}, r"value has shape \(2, 3, 4\); expected \(2, 3, 8\)"),
        ("EngramGate", engram(key_norm_scale=(8,)), {}, r"key_norm_scale has shape \(8,\)"),
        ("BranchwiseRMSNorm", [spec(8)], {}, r"X has shape \(8,\); expected \(..., C, H\)"),
        ("BranchwiseRMSNorm", [spec(2, 10)], {"num_branches": 3}, "X has shape .* that 3 divides"),
        (
            "BranchwiseRMSNorm",
            [spec(2, 3, 4), spec(5)],
            {},
            r"scale has shape \(5,\); expected \(12,\), \(3, 4\)",
        ),
        ("GatedRMSNorm", [spec(2, 10), spec(4), spec(2, 10)], {}, "X has shape .* that 4 divides"),
        (
            "GatedRMSNorm",
            [spec(2, 8), spec(4), spec(2, 4)],
            {},
            r"gate has shape \(2, 4\); expected \(2, 8\)",
        ),
        ("GatedRMSNorm", [spec(2, 8), spec(0), spec(2, 8)], {}, "scale has no elements"),
        ("GatedAdd", [spec(2, 3), spec(2, 4), spec(2, 1)], {}, r"Y has shape \(2, 4\); expected \(2, 3\)"),
        ("GatedAdd", [spec(2, 3), spec(2, 3), spec(2, 3)], {}, r"gate has shape \(2, 3\); expected \(2, 1\)"),
        ("GatedAdd", [spec(), spec(), spec(1)], {}, "X is a scalar"),
        ("ScaledSiLU", [spec(4), spec(4)], {}, r"scale has shape \(4,\); expected one element"),
    ],
)
def test_shapes(op: str, inputs: Any, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=f"{op}: {message}"):
        plan(op, inputs, attributes)


def test_a_normed_value_needs_its_scale() -> None:
    with pytest.raises(ShapeError, match="EngramGate: conv_norm_scale is missing; expected it because"):
        plan("EngramGate", engram(), outputs=["output", "gated_value_normed"])


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("GatedRMSNorm", [spec(8), spec(8), spec(8)], {"activation": "relu"}, "activation is 'relu'"),
        ("GatedRMSNorm", [spec(8), spec(8), spec(8)], {"epsilon": -1.0}, "epsilon is -1.0"),
        ("BranchwiseRMSNorm", [spec(2, 8)], {"num_branches": -2}, "num_branches is -2"),
    ],
)
def test_attributes(op: str, inputs: Any, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"{op}: {message}"):
        plan(op, inputs, attributes)


# Lanes


@pytest.mark.parametrize(("width", "lanes"), [(1, 1), (4, 1), (5, 2), (16, 4), (100, 32), (5000, 64)])
def test_a_row_takes_as_many_lanes_as_it_has_quads(width: int, lanes: int) -> None:
    (dispatch,) = plan("BranchwiseRMSNorm", [spec(6, width)], capabilities=PORTABLE).dispatches
    assert dict(dispatch.constants)["lanes"] == lanes
    assert dispatch.groups == -(-6 * lanes // dispatch.workgroup)


def test_rows_beyond_the_rounds_of_a_software_adapter_are_refused() -> None:
    software = Capabilities(device_class="cpu")
    plan("BranchwiseRMSNorm", [spec(1, 1 << 20)], capabilities=software)
    with pytest.raises(LimitError, match="BranchwiseRMSNorm: a row has 4194304 elements; expected less"):
        plan("BranchwiseRMSNorm", [spec(1, 1 << 22)], capabilities=software)


@pytest.mark.parametrize("op", ["EngramGate", "BranchwiseRMSNorm", "GatedRMSNorm"])
def test_rows_shared_by_lanes(gpu_tiles: Device, op: str) -> None:
    draw = draw_of(op)
    assert draw is not None
    for seed in range(16):
        outcome = check_sample(op, draw(np.random.default_rng((2, seed))), gpu_tiles)
        assert outcome.passed, f"seed {seed}: {outcome.message}"


@pytest.mark.parametrize("width", [3, 64, 67])
def test_rows_do_not_depend_on_their_neighbours(gpu_tiles: Device, width: int) -> None:
    """Rows that share a workgroup, some of them NaN, and a last workgroup that is not full."""
    x = np.random.default_rng(3).standard_normal((37, width)).astype(np.float32)
    (clean,) = run("BranchwiseRMSNorm", [x], device=gpu_tiles)
    dirty = x.copy()
    dirty[::3] = np.nan
    (got,) = run("BranchwiseRMSNorm", [dirty], device=gpu_tiles)
    assert clean is not None and got is not None
    keep = np.arange(37) % 3 != 0
    np.testing.assert_array_equal(got.numpy()[keep], clean.numpy()[keep])
    assert np.isnan(got.numpy()[~keep]).all()


# Rounding


@pytest.mark.parametrize("dtype", NARROW)
def test_a_gated_product_is_rounded_before_it_is_added(device: Device, dtype: type) -> None:
    """Bit for bit, on sums that one rounding at the end would get wrong."""
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal((64, 50)).astype(dtype) for _ in range(2))
    gate = rng.standard_normal((64, 1)).astype(dtype)
    want = gated_add(x, y, gate)[0]
    fused = (x.astype(np.float64) + y.astype(np.float64) * gate.astype(np.float64)).astype(dtype)
    assert (fused != want).any()
    (got,) = run("GatedAdd", [x, y, gate], device=device)
    assert got is not None and got.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", NARROW)
def test_every_step_of_silu_is_rounded(device: Device, dtype: type) -> None:
    """All values of a 16-bit type at once: more agree with the rounded steps than can by chance."""
    x = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(dtype)
    x = x[np.isfinite(x.astype(np.float32)) & (np.abs(x.astype(np.float32)) < 30)]
    (got,) = run("ScaledSiLU", [x], {"alpha": 0.75}, device=device)
    want = scaled_silu(x, alpha=0.75)[0]
    z = x.astype(np.float64) * 0.75
    once = (z / (1 + np.exp(-z))).astype(dtype)
    assert got is not None
    # The device's exp may put a sigmoid on the other side of a tie now and then.
    assert (got.numpy() == want).mean() > 0.999 > (once == want).mean()


@pytest.mark.parametrize("op", ["GatedAdd", "ScaledSiLU"])
def test_work_in_place(device: Device, op: str) -> None:
    x = np.random.default_rng(5).standard_normal((7, 9)).astype(np.float16)
    more = [x[::-1].copy(), x[:, :1].copy()] if op == "GatedAdd" else []
    (want,) = run(op, [x, *more], device=device)
    tensor = Tensor.from_numpy(x, device)
    (name,) = ("output",) if op == "GatedAdd" else ("Y",)
    dispatches = device.stats.dispatches
    (got,) = run(op, [tensor, *more], outputs={name: tensor}, device=device)
    assert got is tensor and device.stats.dispatches == dispatches + 1
    assert want is not None and tensor.numpy().tobytes() == want.numpy().tobytes()


@pytest.mark.parametrize("dot", [0.0, np.nan])
def test_a_gate_without_direction(device: Device, dot: float) -> None:
    """No agreement opens the gate halfway; NaN stays NaN."""
    key, query = np.zeros((1, 1, 1, 6), np.float32), np.ones((1, 1, 1, 6), np.float32)
    key[..., 0] = dot
    value = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    scale = np.ones((1, 6), np.float32)
    got, _ = run("EngramGate", [key, query, value, scale, scale], device=device)
    assert got is not None
    want = np.full(6, np.nan) if np.isnan(dot) else value.reshape(-1) / 2
    np.testing.assert_array_equal(got.numpy().reshape(-1), want)


def test_sums_of_squares_leave_the_range_of_16_bits(device: Device) -> None:
    x = np.full((2, 300), 6e4, np.float16)
    (got,) = run("BranchwiseRMSNorm", [x], device=device)
    assert got is not None
    np.testing.assert_array_equal(got.numpy(), np.ones((2, 300), np.float16))


def test_a_growing_sequence_compiles_nothing_new(device: Device) -> None:
    scale = np.ones(16, np.float32)
    made = None
    for rows in (1, 3, 40, 200):
        x = np.ones((rows, 32), np.float32)
        run("GatedRMSNorm", [x, scale, x], device=device)
        assert made in (None, len(device.programs))
        made = len(device.programs)
