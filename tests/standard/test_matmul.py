"""Matrix products: MatMul, Gemm, and the builder function beneath them."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, Tensor, UnsupportedError, plan
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import Builder, Capabilities, Slot
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.families.layout import View
from webgpu_ops.families.matmul import matmul, transposed

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-matmul")

Check = Callable[..., None]


def draw(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 9, shape).astype(dtype)
    return np.asarray(rng.uniform(-1, 1, shape)).astype(dtype)


def test_shapes(check: Check) -> None:
    for a, b in [
        ((3,), (3,)),
        ((3,), (3, 5)),
        ((2, 3), (3,)),
        ((1, 7), (7, 9)),
        ((2, 5), (5, 4)),
        ((9, 6), (6, 17)),
        ((4, 3, 5), (5, 6)),
        ((3, 5), (4, 5, 6)),
        ((2, 1, 3, 5), (4, 5, 2)),
        ((5, 1, 3, 3), (1, 2, 3, 1)),
        ((2, 0, 3), (3, 4)),
        ((2, 3, 0), (0, 4)),
    ]:
        check("MatMul", [draw(a), draw(b, seed=1)], 13, tolerance=(1e-5, 1e-5))


def test_types(check: Check) -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64, np.uint32, np.uint64):
        check("MatMul", [draw((5, 11), dtype), draw((11, 7), dtype, seed=1)], 13)
    big = np.array([[2**40, -3], [5, 2**33]], np.int64)
    check("MatMul", [big, big.T.copy()], 13)


def test_gemm(check: Check) -> None:
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            a = draw((7, 2) if trans_a else (2, 7))
            b = draw((5, 7) if trans_b else (7, 5), seed=1)
            attributes = {"transA": trans_a, "transB": trans_b}
            check("Gemm", [a, b], 13, tolerance=(1e-5, 1e-5), **attributes)
            for c in ((2, 5), (5,), (2, 1), (1,), ()):
                check(
                    "Gemm",
                    [a, b, draw(c, seed=2)],
                    13,
                    tolerance=(1e-5, 1e-5),
                    alpha=0.5,
                    beta=2.0,
                    **attributes,
                )
    check("Gemm", [draw((4, 3), np.int32), draw((3, 5), np.int32), draw((5,), np.int32)], 13)
    check("Gemm", [draw((4, 3), np.float64), draw((3, 5), np.float64), draw((5,), np.float64)], 13, alpha=0.5)


def product(
    device: Device,
    a: np.ndarray,
    w: np.ndarray,
    views: Callable[[Slot, Slot], tuple[Slot | View, Slot | View]],
    shape: tuple[int, ...],
    device_class: str,
    **options: str,
) -> np.ndarray:
    """``matmul`` of two views, planned for a class of device whatever this one is."""
    caps = Capabilities(**{**device.capabilities.__dict__, "device_class": device_class})
    slots = {
        name: Slot(x.shape, dtypes.from_numpy(x.dtype), "input", i, name)
        for i, (name, x) in enumerate((("a", a), ("w", w)))
    }
    b = Builder("Product", slots, ["y"], frozenset({"y"}), caps)
    y = b.output("y", shape, slots["a"].dtype)
    matmul(b, *views(slots["a"], slots["w"]), y, **options)
    out = Tensor.empty(shape, y.dtype, device)
    inputs = [Tensor.from_numpy(x, device) for x in (a, w)]
    device.stream.execute(PreparedPlan(b.finish(), device), inputs, [out])
    return out.numpy()


@pytest.mark.parametrize("device_class", ["gpu", "cpu"])
def test_tiles_of_both_device_classes(device: Device, device_class: str) -> None:
    for m, k, n in [(70, 37, 66), (64, 16, 64), (17, 5, 130), (3, 50, 9)]:
        a, w = draw((2, m, k)), draw((2, k, n), seed=1)
        want = a.astype(float) @ w.astype(float)
        got = product(device, a, w, lambda x, y: (x, y), want.shape, device_class)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        flipped = np.ascontiguousarray(np.swapaxes(w, 1, 2))
        got = product(device, a, flipped, lambda x, y: (x, transposed(y)), want.shape, device_class)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        tall = np.ascontiguousarray(np.swapaxes(a, 1, 2))
        got = product(device, tall, w, lambda x, y: (transposed(x), y), want.shape, device_class)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device_class", ["gpu", "cpu"])
def test_heads_in_place(device: Device, device_class: str) -> None:
    """q @ k^T of (batch, sequence, heads, size) tensors, every second column, with an epilogue."""
    q, k = draw((2, 20, 3, 16)), draw((2, 18, 3, 16), seed=1)

    def heads(x: Slot, y: Slot) -> tuple[View, View]:
        left, right = (View.of(t).permute((0, 2, 1, 3)).slice(3, 1, 8, 2) for t in (x, y))
        return left, transposed(right)

    want = 2 + np.einsum("bshc,bthc->bhst", q[..., 1::2].astype(float), k[..., 1::2].astype(float))
    got = product(device, q, k, heads, want.shape, device_class, epilogue="x + 2")
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_shared_weight_makes_one_matrix_of_the_batch() -> None:
    (step,) = plan("MatMul", [draw((4, 3, 5)), draw((5, 6))], domain="").dispatches
    values = dict(step.uniforms)
    assert values["m"].values == (12,)
    assert values["batches"].values == (1,)


def test_growing_sizes_share_pipelines() -> None:
    def variants(device_class: str) -> set:
        caps = Capabilities(device_class=device_class)  # type: ignore[arg-type]
        steps = [
            plan("MatMul", [draw((m, 5)), draw((5, 40))], domain="", capabilities=caps).dispatches[0]
            for m in range(1, 200)
        ]
        return {(s.template, s.constants, s.workgroup) for s in steps}

    assert len(variants("gpu")) <= 4
    assert len(variants("cpu")) <= 4


def test_refusals() -> None:
    x = np.zeros((2, 3), np.float32)
    for op, inputs, message in [
        (
            "MatMul",
            [x, x],
            r"MatMul: B has shape \(2, 3\); expected inner size 3 because A has shape \(2, 3\)",
        ),
        ("MatMul", [np.zeros((2, 1, 3), np.float32), np.zeros((3, 3, 1), np.float32)], "broadcasts with"),
        ("Gemm", [x, x], "inner size 3"),
        ("Gemm", [x, x.T, np.zeros((3,), np.float32)], r"C has shape \(3,\)"),
        ("Gemm", [x, np.zeros(3, np.float32)], "two dimensions"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan(op, inputs, domain="", opset=13)
    with pytest.raises(UnsupportedError, match=r"alpha is 0\.5"):
        plan("Gemm", [np.zeros((2, 2), np.int32)] * 2, {"alpha": 0.5}, domain="", opset=13)
