"""Fused matrix products: transpositions, every activation, float8, whole numbers, refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, Tensor, UnsupportedError, plan, reference, run
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.families.fused_activation import ACTIVATIONS
from webgpu_ops.reference.fused_matmul import activate, fused_gemm, fused_mat_mul

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("fused-matmul")

TYPES = [(np.float32, 1e-6, 1e-6), (np.float64, 1e-11, 1e-12), (np.float16, 1e-3, 1e-4)]


def test_transpositions(device: Device) -> None:
    """The product of (2, 4, 3, 5) and (2, 4, 5, 6), from every form the attributes undo."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((2, 4, 3, 5), (2, 4, 5, 6)))
    for last_a, last_b, batch_a, batch_b in itertools.product((0, 1), repeat=4):
        forms = []
        for x, last, batch in ((a, last_a, batch_a), (b, last_b, batch_b)):
            form = np.swapaxes(x, -1, -2) if last else x
            forms.append(np.ascontiguousarray(np.moveaxis(form, -2, 0) if batch else form))
        attributes = {"transA": last_a, "transB": last_b, "transBatchA": batch_a, "transBatchB": batch_b}
        (y,) = run("FusedMatMul", forms, {"alpha": 0.5, **attributes}, device=device)
        np.testing.assert_allclose(y.numpy(), 0.5 * (a @ b), rtol=1e-5, atol=1e-6)


def test_vectors_stay_as_they_are(device: Device) -> None:
    v, m = np.arange(3, dtype=np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = run("FusedMatMul", [v, m], {"transA": 1, "transB": 1, "transBatchA": 1}, device=device)
    np.testing.assert_array_equal(y.numpy(), v @ m.T)
    (y,) = run("FusedMatMul", [v, v], {"transA": 1, "transB": 1}, device=device)
    np.testing.assert_array_equal(y.numpy(), v @ v)


def activated(device: Device, name: str, x: np.ndarray, **parameters: float) -> np.ndarray:
    """The activation of ``x`` by way of a product with one."""
    attributes = {"activation": name} | {f"activation_{k}": v for k, v in parameters.items()}
    column, one = x.reshape(-1, 1), np.ones((1, 1), x.dtype)
    (y,) = run("FusedMatMulActivation", [column, one], attributes, device=device)
    return y.numpy().reshape(x.shape)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(device: Device, name: str) -> None:
    for dtype, rtol, atol in TYPES:
        x = np.concatenate([np.linspace(-12, 12, 97), [-300, -0.0, 1e-4, 300]]).astype(dtype)
        for parameters in ({}, {"alpha": 0.5, "beta": 0.75, "gamma": 1.5}):
            want = activate(name, x.astype(np.float64), **parameters)
            got = activated(device, name, x, **parameters)
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=rtol, atol=atol)


def test_a_nan_stays_one(device: Device) -> None:
    x = np.array([math.nan, 1.0], np.float32)
    for name in ("Clip", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Tanh", "ThresholdedRelu"):
        assert np.isnan(activated(device, name, x)).tolist() == [True, False], name


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_softmax_along_any_axis(any_device: Device, dtype: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.uniform(-1, 1, shape).astype(dtype) for shape in ((2, 3, 4), (4, 9)))
    x = a.astype(np.float64) @ b.astype(np.float64)
    for axis in (-3, -2, -1, 0, 1, 2):
        attributes = {"activation": "Softmax", "activation_axis": axis}
        (y,) = run("FusedMatMulActivation", [a, b], attributes, device=any_device)
        power = np.exp(x)
        want = power / power.sum(axis=axis, keepdims=True)
        tolerance = 5e-4 if dtype == np.float16 else 1e-6
        np.testing.assert_allclose(y.numpy().astype(np.float64), want, rtol=tolerance, atol=tolerance / 10)


def test_whole_numbers(device: Device) -> None:
    for dtype in (np.int32, np.int64, np.uint32, np.uint64):
        limits = np.iinfo(dtype)
        a = np.array([[limits.max // 2, 1], [limits.min, 1]], dtype)
        b, c = np.array([[2, 1], [1, 0]], dtype), np.array([0, 1], dtype)
        with np.errstate(over="ignore"):
            x = a @ b + dtype(3) * c
        (y,) = run("FusedGemm", [a, b, c], {"activation": "Relu", "beta": 3.0}, device=device)
        np.testing.assert_array_equal(y.numpy(), np.maximum(x, 0))
        (y,) = run("FusedGemm", [a, b], {"alpha": -1.0}, device=device)  # wraps where there is no sign
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y.numpy(), (a @ b) * (dtype(0) - dtype(1)))
        clip = {"activation": "Clip", "activation_alpha": 1.0, "activation_beta": 100.0, "beta": 3.0}
        (y,) = run("FusedGemm", [a, b, c], clip, device=device)
        np.testing.assert_array_equal(y.numpy(), np.clip(x, 1, 100))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_float8_rounds_to_even_and_saturates(device: Device, dtype: Any) -> None:
    """Every float8 value and all ties between neighbours, scaled up, through a product with one."""
    values = np.sort(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    values = values[np.isfinite(values)]
    x = np.concatenate([values, (values[1:] + values[:-1]) / 2, [1e9, -1e9]]).astype(np.float32)
    one = np.ones((1, 1), dtype)
    code = 17 if dtype == ml_dtypes.float8_e4m3fn else 19
    scales = {"scaleA": np.float32(4), "scaleY": np.array([0.25], np.float32)}
    inputs = {"A": x.reshape(-1, 1), "B": one, **scales}
    (y,) = run("GemmFloat8", inputs, {"dtype": code, "transB": 1}, device=device)
    largest = float(ml_dtypes.finfo(dtype).max)
    want = np.clip(x, -largest, largest).astype(dtype)
    np.testing.assert_array_equal(y.numpy().reshape(-1).view(np.uint8), want.view(np.uint8))


def test_beta_is_zero_unless_given(device: Device) -> None:
    a = np.eye(2, dtype=np.float32)
    c = np.full((2, 2), math.nan, np.float32)
    (y,) = run("GemmFloat8", [a, a, c], device=device)
    np.testing.assert_array_equal(y.numpy(), a)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 2), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_nothing_to_multiply(device: Device, m: int, k: int, n: int) -> None:
    """An inner size of 0 gives what the fused steps make of zeros."""
    a, b, c = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.ones(n, np.float32)
    for op, inputs, attributes, rest in [
        ("FusedMatMul", [a, b], {"alpha": 2.0}, 0.0),
        ("FusedMatMulActivation", [a, b], {"activation": "Sigmoid"}, 0.5),
        ("FusedMatMulActivation", [a, b], {"activation": "Softmax"}, 1 / max(1, n)),
        ("FusedGemm", [a, b, c], {"activation": "Relu", "beta": 3.0}, 3.0),
        ("GemmFloat8", [a, b], {}, 0.0),
    ]:
        (y,) = run(op, inputs, attributes, device=device)
        function = reference.find(op)
        assert function is not None
        for got in (y.numpy(), function(*inputs, **attributes)[0]):
            assert got.shape == (m, n)
            np.testing.assert_allclose(got, np.full((m, n), rest), rtol=1e-6)  # empty unless k is 0


# Parts


def limited(
    device: Device, op: str, inputs: list[np.ndarray], attributes: dict[str, Any], nbytes: int
) -> tuple[int, np.ndarray]:
    """The call as planned for an adapter that binds at most ``nbytes``: products and result."""
    caps = replace(device.capabilities, max_binding_bytes=nbytes)
    made = plan(op, inputs, attributes, capabilities=caps)
    feeds = [None if s is None else Tensor.from_numpy(inputs[s.index], device) for s in made.inputs]
    (slot,) = made.outputs
    assert slot is not None
    out = Tensor.from_numpy(np.full(slot.shape, math.nan, slot.dtype.numpy), device)
    device.stream.execute(PreparedPlan(made, device), feeds, [out])
    return sum(d.template.startswith("matmul/") for d in made.dispatches), out.numpy()


@pytest.mark.parametrize(("dtype", "rows"), [(np.float32, 20), (np.float64, 2), (np.float16, 2)])
def test_weights_in_parts(any_device: Device, dtype: Any, rows: int) -> None:
    """Cut along the inner dimension, the columns, and the batch, wherever memory is longest."""
    rng = np.random.default_rng(3)
    size = np.dtype(dtype).itemsize
    tolerance = 2e-3 if dtype == np.float16 else 1e-5

    def draw(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(dtype)

    for left, right, attributes, limit, count in [
        ((rows, 300), (300, 64), {"alpha": 0.5}, 128 * 64, 3),
        ((rows, 40), (600, 40), {"alpha": 0.5, "transB": 1}, 256 * 40, 3),
        ((5, rows, 24), (5, 24, 64), {}, 3 * 24 * 64, 2),
        ((rows, 24), (5, 24, 64), {"transBatchB": 0}, 4 * 24 * 64, 2),
        ((30, rows, 16), (64, 30, 16), {"transBatchA": 0, "transBatchB": 1, "transB": 1}, 32 * 30 * 16, 2),
    ]:
        a, b = draw(*left), draw(*right)
        want = fused_mat_mul(a, b, **attributes)[0]
        products, got = limited(any_device, "FusedMatMul", [a, b], attributes, limit * size)
        assert products == count
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)
    a, b, c = draw(rows, 300), draw(300, 64), draw(rows, 1)
    attributes = {"activation": "LeakyRelu", "beta": -2.0}
    products, got = limited(any_device, "FusedGemm", [a, b, c], attributes, 128 * 64 * size)
    assert products == 3
    want = fused_gemm(a, b, c, **attributes)[0]
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance)


def test_weights_above_the_binding_limit(device: Device) -> None:
    """More than 128 MiB of float8, on a device that may bind no more."""
    n, k = 8300, 16384
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 0x38, 1_000_003, np.uint8).view(ml_dtypes.float8_e4m3fn)
    a, b = np.resize(codes[::-1], (1, k)), np.resize(codes, (n, k))
    assert b.nbytes > 128 << 20
    attributes = {"transB": 1, "activation": "RELU"}
    if device.capabilities.max_binding_bytes == 128 << 20:
        assert len(plan("GemmFloat8", [a, b], attributes, capabilities=device.capabilities).dispatches) == 2
    (y,) = run("GemmFloat8", [a, b], attributes, device=device)
    columns = np.unique([0, 8191, 8192, 8193, n - 1, *rng.integers(0, n, 20)])
    want = a.astype(np.float64) @ b[columns].astype(np.float64).T
    np.testing.assert_allclose(y.numpy()[:, columns], want, rtol=1e-5)
    assert (y.numpy() > 0).all()


def test_long_sums_are_made_in_steps(any_device: Device) -> None:
    """More of the inner dimension than an invocation may go round for."""
    rng = np.random.default_rng(5)
    gpu = any_device.capabilities.device_class == "gpu"
    m, k, n = (17, 31_000, 18) if gpu else (1, 140_001, 3)
    a, b = rng.uniform(-1, 1, (m, k)).astype(np.float32), rng.uniform(-1, 1, (k, n)).astype(np.float32)
    made = plan("FusedMatMul", [a, b], capabilities=any_device.capabilities)
    assert sum(d.template.startswith("matmul/") for d in made.dispatches) == 2
    (y,) = run("FusedMatMul", [a, b], {"alpha": 0.5}, device=any_device)
    np.testing.assert_allclose(y.numpy(), 0.5 * (a.astype(np.float64) @ b), rtol=1e-4, atol=2e-3)


def test_fused_steps_are_one_dispatch() -> None:
    a, b, c = (np.zeros(s, np.float32) for s in ((2, 3), (3, 4), (4,)))
    for op, inputs, attributes in [
        ("FusedMatMulActivation", [a, b], {"activation": "Selu", "alpha": 2.0}),
        ("FusedGemm", [a, b, c], {"activation": "Tanh", "beta": 2.0}),
        ("GemmFastGelu", [a, b, c], {}),
        ("GemmFloat8", [a, b, None, np.float32(1), np.float32(1), np.float32(1)], {"activation": "GELU"}),
    ]:
        assert len(plan(op, inputs, attributes).dispatches) == 1


def test_refusals() -> None:
    x, y = np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)
    e4m3 = np.zeros((3, 3), ml_dtypes.float8_e4m3fn)
    softmax = {"activation": "Softmax", "activation_axis": 2}
    for op, inputs, attributes, error, message in [
        ("FusedMatMul", [x, x], {}, ShapeError, r"FusedMatMul: B has shape \(2, 3\); expected inner size 3"),
        ("FusedMatMul", [x, y], {"transA": 1}, ShapeError, "expected inner size 2"),
        ("FusedMatMulActivation", [x, y], {"activation": "Nope"}, SchemaError, "'Nope'; expected one of Aff"),
        ("FusedMatMulActivation", [x, y], softmax, ShapeError, r"activation_axis is 2; expected \[-2, 1\]"),
        ("FusedGemm", [x, y], {"activation": "Softmax"}, SchemaError, "activation is 'Softmax'"),
        ("FusedGemm", [x, y, np.zeros(3, np.float32)], {}, ShapeError, r"C has shape \(3,\)"),
        ("FusedGemm", [x[0], y], {}, ShapeError, r"A has shape \(3,\); expected two dimensions"),
        (
            "FusedGemm",
            [x.astype(np.int32), y.astype(np.int32)],
            {"activation": "Tanh"},
            UnsupportedError,
            "Tanh of int32 values",
        ),
        (
            "FusedGemm",
            [x.astype(np.int32), y.astype(np.int32)],
            {"activation": "Clip", "activation_alpha": math.nan},
            UnsupportedError,
            "activation_alpha is nan for int32 values",
        ),
        (
            "FusedGemm",
            [x.astype(np.int32)] * 2,
            {"transB": 1, "alpha": math.inf},
            UnsupportedError,
            "alpha is inf",
        ),
        ("GemmFastGelu", [x, y, np.zeros(3, np.float32)], {}, ShapeError, r"bias has shape \(3,\)"),
        ("GemmFloat8", [x, y, np.zeros(4, np.float32)], {}, ShapeError, r"C has shape \(4,\)"),
        ("GemmFloat8", [x, y], {"activation": "TANH"}, SchemaError, "activation is 'TANH'"),
        ("GemmFloat8", [x, y], {"dtype": 11}, ShapeError, "dtype is float64"),
        ("GemmFloat8", [x, y, None, np.ones(2, np.float32)], {}, ShapeError, "scaleA has 2 elements"),
        ("GemmFloat8", [e4m3, e4m3], {"transA": 1, "transB": 1}, UnsupportedError, "transA is 1 for float8"),
        ("GemmFloat8", [e4m3, e4m3], {}, UnsupportedError, "transB is 0 for float8"),
    ]:
        with pytest.raises(error, match=message):
            plan(op, inputs, attributes)
