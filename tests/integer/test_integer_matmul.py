"""Products of quantized factors: exact sums, rounding, every layout and both kinds of kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, Tensor, UnsupportedError, plan, run
from webgpu_ops.core.plan import Capabilities, Plan
from webgpu_ops.core.stream import PreparedPlan

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("integer")

BYTES = (np.int8, np.uint8)


def ends(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """The smallest and the largest number of a type, at random."""
    limits = np.iinfo(dtype)
    return rng.choice(np.array([limits.min, limits.max], dtype), shape)


def product(a: np.ndarray, b: np.ndarray, a_zero: Any = 0, b_zero: Any = 0) -> np.ndarray:
    return (a.astype(np.int64) - np.asarray(a_zero, np.int64)) @ (
        b.astype(np.int64) - np.asarray(b_zero, np.int64)
    )


@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("left", BYTES)
def test_the_largest_bytes_do_not_saturate(any_device: Device, left: type, right: type) -> None:
    """Kernels that add pairs of products in 16 bits get these sums wrong."""
    rng = np.random.default_rng(0)
    for m, k, n in [(1, 301, 9), (6, 64, 34)]:
        for a in (ends(rng, (m, k), left), np.full((m, k), np.iinfo(left).max, left)):
            for b in (ends(rng, (k, n), right), np.full((k, n), np.iinfo(right).min, right)):
                (y,) = run("MatMulInteger", [a, b], domain="", device=any_device)
                np.testing.assert_array_equal(y.numpy(), product(a, b))
        a, b = ends(rng, (m, k), left), ends(rng, (k, n), right)
        a_zero, b_zero = ends(rng, (m,), left), ends(rng, (n,), right)
        (y,) = run("MatMulInteger", [a, b, a_zero, b_zero], domain="", device=any_device)
        np.testing.assert_array_equal(y.numpy(), product(a, b, a_zero[:, None], b_zero))


def test_a_sum_of_almost_32_bits(any_device: Device) -> None:
    k = 33_000
    a, b = np.full((1, k), 255, np.uint8), np.full((k, 5), 255, np.uint8)
    (y,) = run("MatMulInteger", [a, b], domain="", device=any_device)
    assert (y.numpy() == k * 255 * 255).all()
    (y,) = run("MatMulInteger", [a, b, np.uint8(0), np.full(5, 255, np.uint8)], domain="", device=any_device)
    assert (y.numpy() == 0).all()


def test_sixteen_bits(any_device: Device) -> None:
    a, b = np.array([[65535, 1]], np.uint16), np.array([[65535, 0], [1, 65535]], np.uint16)
    (y,) = run("MatMulInteger16", [a, b], device=any_device)
    assert y.numpy().tolist() == [[65535**2 + 1, 65535]]
    a, b = np.array([[-32768, 32767]], np.int16), np.array([[65535], [32769]], np.uint16)
    (y,) = run("MatMulInteger16", [a, b], device=any_device)
    assert y.numpy().tolist() == [[-32768 * 65535 + 32767 * 32769]]


@pytest.mark.parametrize("trans", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_layouts(any_device: Device, trans: tuple[int, int]) -> None:
    """Sizes around four; rows and columns that start inside a word."""
    rng = np.random.default_rng(trans)
    one = np.float32(1)
    for m, k, n in [(1, 3, 2), (3, 4, 5), (4, 5, 4), (5, 19, 66)]:
        for left, right in ((np.uint8, np.int8), (np.int8, np.uint8)):
            a = ends(rng, (k, m) if trans[0] else (m, k), left)
            b = ends(rng, (n, k) if trans[1] else (k, n), right)
            a_zero, b_zero = ends(rng, (), left), ends(rng, (n,), right)
            c = rng.integers(-(2**20), 2**20, (n,), np.int32)
            attributes = {"transA": trans[0], "transB": trans[1]}
            inputs = [a, one, a_zero, b, one, b_zero, c]
            (y,) = run("QGemm", inputs, attributes, device=any_device)
            want = product(a.T if trans[0] else a, b.T if trans[1] else b, a_zero, b_zero) + c
            np.testing.assert_array_equal(y.numpy(), want.astype(np.float32))


@pytest.mark.parametrize("seed", range(4))
def test_sizes_up_to_600(any_device: Device, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for m in (1, 5):
        k, n = (int(rng.integers(1, 601)) for _ in range(2))
        a, b = (rng.integers(0, 256, shape, np.uint8) for shape in ((m, k), (k, n)))
        b = b.view(np.int8) if seed % 2 else b
        a_zero, b_zero = np.uint8(rng.integers(256)), ends(rng, (n,), b.dtype)
        (y,) = run("MatMulInteger", [a, b, a_zero, b_zero], domain="", device=any_device)
        np.testing.assert_array_equal(y.numpy(), product(a, b, a_zero, b_zero))


def test_an_inner_size_of_zero(device: Device) -> None:
    a, b, one = np.zeros((2, 0), np.uint8), np.zeros((0, 3), np.int8), np.float32(1)
    bias = np.array([1, 2, 3], np.float32)
    (y,) = run("MatMulIntegerToFloat", [a, b, one, one, np.uint8(9), np.int8(9), bias], device=device)
    np.testing.assert_array_equal(y.numpy(), [bias, bias])


def test_views_of_the_batch(any_device: Device) -> None:
    rng = np.random.default_rng(1)
    a, b = ends(rng, (2, 1, 3, 6), np.uint8), ends(rng, (4, 6, 5), np.int8)
    a_zero, b_zero = ends(rng, (2, 1, 3, 1), np.uint8), ends(rng, (4, 1, 5), np.int8)
    (y,) = run("MatMulInteger", [a, b, a_zero, b_zero], domain="", device=any_device)
    np.testing.assert_array_equal(y.numpy(), product(a, b, a_zero, b_zero))


@pytest.mark.parametrize("dtype", BYTES)
def test_ties_go_to_even_and_ends_hold(device: Device, dtype: type) -> None:
    """Products 0.5, 1.5, ... of both signs and far beyond the type, with an odd zero point."""
    limits = np.iinfo(dtype)
    zero = dtype(limits.min + 41)
    steps = np.concatenate([np.arange(-90, 127), [127, -128]]).astype(np.int8).reshape(-1, 1)
    for factor in (1, 3, 100):
        b = np.full((1, 1), factor, np.int8)
        one, half = np.float32(1), np.float32(0.5)
        exact = steps.astype(np.float64) * factor * 0.5
        want = np.clip(np.rint(exact) + float(zero), limits.min, limits.max).astype(dtype)
        inputs = [steps, half, np.int8(0), b, one, np.int8(0), one, zero]
        (y,) = run("QLinearMatMul", inputs, domain="", device=device)
        np.testing.assert_array_equal(y.numpy(), want)
        inputs = [steps, one, np.int8(0), b, half, np.int8(0), None, one, zero]
        (y,) = run("QGemm", inputs, device=device)
        np.testing.assert_array_equal(y.numpy(), want)


def test_scales_of_the_columns_of_a(device: Device) -> None:
    rng = np.random.default_rng(2)
    a, b = ends(rng, (3, 7), np.uint8), ends(rng, (7, 5), np.int8)
    a_scale, a_zero = rng.uniform(0.1, 1, 7).astype(np.float32), ends(rng, (7,), np.uint8)
    for scale in (a_scale, np.float32(0.5)):
        for zero in (a_zero, np.uint8(3)):
            inputs = [a, b, scale, np.float32(2), zero]
            (y,) = run("MatMulIntegerToFloat", inputs, device=device)
            left = (a.astype(np.float64) - np.asarray(zero, np.float64)) * scale
            np.testing.assert_allclose(y.numpy(), left @ b.astype(np.float64) * 2, rtol=1e-5, atol=1e-3)


def test_an_output_scale_without_a_zero_point(device: Device) -> None:
    a, b = np.array([[3, 5]], np.uint8), np.array([[7], [-2]], np.int8)
    one = np.float32(1)
    (y,) = run("QGemm", [a, one, np.uint8(0), b, one, np.int8(0), None, np.float32(2)], device=device)
    assert y.dtype.name == "uint8"
    assert y.numpy().tolist() == [[6]]


# Parts


def limited(
    device: Device, op: str, inputs: list[Any], nbytes: int, **options: Any
) -> tuple[Plan, np.ndarray]:
    """The call as planned for an adapter that binds at most ``nbytes``."""
    caps = replace(device.capabilities, max_binding_bytes=nbytes)
    made = plan(op, inputs, **options, capabilities=caps)
    feeds = [None if s is None else Tensor.from_numpy(inputs[s.index], device) for s in made.inputs]
    (slot,) = made.outputs
    assert slot is not None
    out = Tensor.from_numpy(np.full(slot.shape, 99, slot.dtype.numpy), device)
    device.stream.execute(PreparedPlan(made, device), feeds, [out])
    return made, out.numpy()


@pytest.mark.parametrize("shape", [(300, 70), (40, 600), (9, 8, 40)], ids=["inner", "columns", "batch"])
def test_parts_of_weights(any_device: Device, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    *batch, k, n = shape
    a, b = ends(rng, (*batch, 3, k), np.uint8), ends(rng, shape, np.int8)
    a_zero, b_zero = ends(rng, (3,), np.uint8), ends(rng, (n,), np.int8)
    if n == 600:  # each column is consecutive
        a_zero = a_zero[:1]
        inputs = [a, np.float32(1), a_zero[0], b.T.copy(), np.float32(1), b_zero]
        made, got = limited(any_device, "QGemm", inputs, k * 256, attributes={"transB": 1})
    else:
        made, got = limited(any_device, "MatMulInteger", [a, b, a_zero, b_zero], b.nbytes // 2, domain="")
    assert len(made.dispatches) == 3
    np.testing.assert_array_equal(got, product(a, b, a_zero[:, None], b_zero))


def test_columns_of_a_in_parts(any_device: Device) -> None:
    """Scales, zero points and a bias go with their columns."""
    rng = np.random.default_rng(8)
    a, b = ends(rng, (2, 300), np.uint8), ends(rng, (300, 24), np.int8)
    scale, zero = rng.uniform(0.01, 0.02, 300).astype(np.float32), rng.integers(0, 256, 300, np.uint8)
    b_scale, bias = rng.uniform(0.01, 0.02, 24).astype(np.float32), rng.normal(size=24).astype(np.float32)
    inputs = [a, b, scale, b_scale, zero, np.int8(-7), bias]
    made, got = limited(any_device, "MatMulIntegerToFloat", inputs, 128 * 24)
    assert len(made.dispatches) == 3
    left = (a.astype(np.float64) - zero) * scale
    want = left @ ((b.astype(np.float64) + 7) * b_scale) + bias
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_long_sums_are_made_in_steps(any_device: Device, dtype: type) -> None:
    """More of the inner dimension than an invocation may go round for, twice, and a little."""
    k = 262_144 + 5
    rng = np.random.default_rng(9)
    a, b = ends(rng, (1, k), dtype), ends(rng, (k, 3), dtype)
    op, domain = ("MatMulInteger", "") if dtype is np.uint8 else ("MatMulInteger16", "com.microsoft")
    made = plan(op, [a, b], domain=domain, capabilities=any_device.capabilities)
    assert len(made.dispatches) == 3
    (y,) = run(op, [a, b], domain=domain, device=any_device)
    np.testing.assert_array_equal(y.numpy().view(np.uint32), product(a, b) & 0xFFFFFFFF)


def variants(device_class: str, sizes: list[int]) -> set[Any]:
    caps = Capabilities(device_class=device_class)  # type: ignore[arg-type]
    steps = [
        plan(
            "MatMulInteger",
            [np.zeros((m, 5), np.uint8), np.zeros((5, 40), np.int8), np.uint8(1)],
            domain="",
            capabilities=caps,
        ).dispatches[0]
        for m in sizes
    ]
    return {(s.template, s.constants, s.workgroup) for s in steps}


def test_growing_sizes_share_pipelines() -> None:
    assert len(variants("gpu", list(range(1, 200)))) <= 3
    assert len(variants("cpu", list(range(1, 200)))) <= 3


def test_gpus_multiply_packed_bytes() -> None:
    for device_class, packed in (("gpu", True), ("cpu", False)):
        ((_, constants, _),) = variants(device_class, [8])
        assert dict(constants)["packed"] is packed


def test_refusals() -> None:
    a, b = np.zeros((2, 3), np.uint8), np.zeros((3, 4), np.int8)
    one, zero = np.float32(1), np.uint8(0)
    two = np.ones(2, np.float32)
    for op, domain, inputs, message in [
        ("MatMulInteger", "", [a, b.T], r"B has shape \(4, 3\); expected inner size 3"),
        ("MatMulInteger", "", [a, b, np.zeros(3, np.uint8)], r"a_zero_point has shape \(3,\); .*\(2,\)"),
        ("MatMulInteger", "", [a, b, None, np.zeros(3, np.int8)], r"b_zero_point has shape \(3,\); .*\(4,\)"),
        ("MatMulIntegerToFloat", "com.microsoft", [a, b, two, one], r"a_scale has shape \(2,\); .*\(3,\)"),
        ("MatMulIntegerToFloat", "com.microsoft", [a, b, one, two], r"b_scale has shape \(2,\)"),
        ("MatMulIntegerToFloat", "com.microsoft", [a, b, one, one, None, None, two], r"bias has shape"),
        ("QGemm", "com.microsoft", [a, one, zero, b, two, np.int8(0)], r"b_scale has shape \(2,\)"),
        ("QGemm", "com.microsoft", [a, two, zero, b, one, np.int8(0)], r"a_scale has shape .* one element"),
        (
            "QGemm",
            "com.microsoft",
            [a, one, zero, b, one, np.int8(0), np.zeros((3,), np.int32)],
            r"C has shape \(3,\); expected a shape that broadcasts to \(2, 4\)",
        ),
        (
            "QGemm",
            "com.microsoft",
            [a, one, zero, b, one, np.int8(0), None, None, zero],
            "y_zero_point is given without y_scale",
        ),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan(op, inputs, domain=domain)
    with pytest.raises(UnsupportedError, match="float8"):
        e4m3 = np.zeros((2, 2), ml_dtypes.float8_e4m3fn)
        none = e4m3[0, 0].reshape(())
        plan("QLinearMatMul", [e4m3, one, none, e4m3, one, none, one, none], domain="", opset=21)
