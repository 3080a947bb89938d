"""GatherBlockQuantized: parts of large tables, indices out of range, refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, Tensor, plan, reference, run
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.errors import LimitError

OP = "GatherBlockQuantized"


def expected(inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> np.ndarray:
    function = reference.find(OP)
    assert function is not None
    return np.asarray(function(**inputs, **attributes)[0])


def table(
    rng: np.random.Generator, shape: tuple[int, ...], axis: int, bits: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A uint8 table of ``shape`` weights with zero points, in blocks of 16 along ``axis``."""
    scales = list(shape)
    scales[axis] = -(-shape[axis] // 16)
    zeros = (*scales[:-1], -(-scales[-1] * bits // 8))
    inputs = {
        "data": rng.integers(0, 256, (*shape[:-1], shape[-1] * bits // 8)).astype(np.uint8),
        "scales": rng.uniform(0.1, 1.0, scales).astype(np.float32),
        "zero_points": rng.integers(0, 256, zeros).astype(np.uint8),
    }
    return inputs, {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": axis}


@pytest.mark.parametrize(
    ("bits", "axis", "inner"), [(4, 1, (36,)), (2, 1, (20, 12)), (8, 0, (7,)), (8, 1, (5,))]
)
def test_parts_of_tables(device: Device, bits: int, axis: int, inner: tuple[int, ...]) -> None:
    """A limit so small that the table is looked up in parts; results are written around each other."""
    rng = np.random.default_rng(bits)
    inputs, attributes = table(rng, (200, *inner), axis, bits)
    inputs["indices"] = rng.integers(-230, 230, (5, 11))
    caps = replace(device.capabilities, max_binding_bytes=inputs["data"].nbytes // 3 + 64)
    made = plan(OP, inputs, attributes, capabilities=caps)
    assert len(made.dispatches) > 2
    (slot,) = made.outputs
    assert slot is not None
    got = Tensor.from_numpy(np.full(slot.shape, np.nan, np.float32), device)
    tensors = [Tensor.from_numpy(inputs[s.name], device) if s is not None else None for s in made.inputs]
    device.stream.execute(PreparedPlan(made, device), tensors, [got])
    np.testing.assert_allclose(got.numpy(), expected(inputs, attributes), rtol=1e-6, atol=0)


def test_indices_beyond_32_bits_are_out_of_range(device: Device) -> None:
    inputs, attributes = table(np.random.default_rng(0), (6, 32), 1, 8)
    inputs["indices"] = np.array([1, 1 + (1 << 32), -(1 << 40), (1 << 63) - 1, -(1 << 63), -6], np.int64)
    (got,) = run(OP, inputs, attributes, device=device)
    assert isinstance(got, Tensor)
    want = expected(inputs, attributes)
    assert not want[1:5].any()
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, atol=0)


def test_nothing_to_pick_from(device: Device) -> None:
    inputs = {
        "data": np.zeros((0, 16), np.uint8),
        "indices": np.array([0, -1], np.int32),
        "scales": np.zeros((0, 2), np.float32),
    }
    (got,) = run(OP, inputs, {"block_size": 16}, device=device)
    assert isinstance(got, Tensor)
    np.testing.assert_array_equal(got.numpy(), np.zeros((2, 32), np.float32))


def test_refusals() -> None:
    def inputs(data: np.ndarray, scales: tuple[int, ...], zeros: np.ndarray | None = None) -> dict[str, Any]:
        found = {"data": data, "indices": np.zeros(2, np.int64), "scales": np.zeros(scales, np.float32)}
        return found if zeros is None else found | {"zero_points": zeros}

    bytes_, nibbles = np.zeros((4, 16), np.uint8), np.zeros((4, 32), ml_dtypes.int4)
    floats = np.zeros((4, 32), ml_dtypes.float8_e5m2)
    for given, attributes, error, message in [
        (inputs(bytes_, (4, 2)), {"bits": 3}, SchemaError, "bits is 3; expected 2, 4 or 8"),
        (inputs(bytes_, (4, 2)), {"block_size": 24}, SchemaError, "block_size is 24"),
        (inputs(bytes_, (4, 2)), {"block_size": 0}, SchemaError, "block_size is 0; .* because data is uint8"),
        (
            inputs(bytes_, (4, 2)),
            {"gather_axis": 1},
            ShapeError,
            "gather_axis is 1; expected 0 because data is uint8",
        ),
        (inputs(bytes_, (1, 32)), {"quantize_axis": 0}, ShapeError, "quantize_axis is 0"),
        (inputs(bytes_, (4, 2)), {"quantize_axis": 2}, ShapeError, r"quantize_axis is 2; expected \[-2, 1\]"),
        (inputs(nibbles, (4, 2)), {"gather_axis": -3}, ShapeError, "gather_axis is -3"),
        (inputs(nibbles, (4, 3)), {}, ShapeError, r"scales has shape \(4, 3\); expected \(4, 2\)"),
        (inputs(nibbles, (1, 2)), {}, ShapeError, r"scales has shape \(1, 2\)"),
        (
            inputs(bytes_, (4, 2), bytes_),
            {},
            ShapeError,
            r"zero_points has shape \(4, 16\); expected \(4, 1\)",
        ),
        (inputs(floats, (4, 2), floats), {}, ShapeError, "zero_points was given; expected none"),
        (inputs(np.zeros((), ml_dtypes.int4), ()), {}, ShapeError, "data is a scalar"),
    ]:
        with pytest.raises(error, match=message):
            plan(OP, given, {"block_size": 16, **attributes})
    large = inputs(np.zeros((4, 4096), np.uint8), (4, 512))
    caps = replace(plan_capabilities(), max_binding_bytes=8192)
    with pytest.raises(LimitError, match=r"data has 16384 bytes in 4 rows"):
        plan(OP, large, {"block_size": 16}, capabilities=caps)


def plan_capabilities() -> Any:
    from webgpu_ops.core.plan import PORTABLE

    return PORTABLE
