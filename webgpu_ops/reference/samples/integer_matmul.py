"""Random calls of products of quantized factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..integer_matmul import real_q_gemm, real_q_linear_mat_mul
from ..ordered import COL, COL4_4R2_8C, COL32, COL32_2R_4R4, ROW, real_q_ordered_mat_mul, to_order
from . import Sample, sample
from .fused_matmul import factors, some, uniform

BYTES = (np.int8, np.uint8)


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers of the whole range of an integer type, in every third array its ends alone."""
    limits = np.iinfo(dtype)
    if rng.random() < 0.3:
        return rng.choice(np.array([limits.min, limits.max], dtype), shape)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scale(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(rng.uniform(0.001, 0.02, shape)).astype(dtype)


def near_ties(x: np.ndarray) -> np.ndarray:
    """Where rounding x hangs on the last bits of float32."""
    return np.abs(np.abs(x - np.trunc(x)) - 0.5) < 1e-5 * (1 + np.abs(x))


def columns_of(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    """The shape of a parameter of all, or of each of ``count`` columns or rows."""
    return some(rng, [(), (1,), (count,), (count,)])


@sample("MatMulInteger", domain="")
def mat_mul_integer(rng: np.random.Generator) -> Sample:
    left, right = factors(rng)
    a, b = whole(rng, left, some(rng, BYTES)), whole(rng, right, some(rng, BYTES))
    inputs = {"A": a, "B": b}
    if rng.random() < 0.7:
        rows = some(rng, [(), (left[-2],), (*left[:-1], 1)]) if len(left) > 1 else ()
        inputs["a_zero_point"] = whole(rng, rows, a.dtype)
    if rng.random() < 0.7:
        columns = some(rng, [(), (right[-1],), (*right[:-2], 1, right[-1])]) if len(right) > 1 else ()
        inputs["b_zero_point"] = whole(rng, columns, b.dtype)
    return Sample(inputs, domain="", opset=10)


@sample("MatMulInteger16")
def mat_mul_integer16(rng: np.random.Generator) -> Sample:
    left, right = factors(rng)
    kinds = (np.int16, np.uint16)
    return Sample({"A": whole(rng, left, some(rng, kinds)), "B": whole(rng, right, some(rng, kinds))})


@sample("MatMulIntegerToFloat")
def mat_mul_integer_to_float(rng: np.random.Generator) -> Sample:
    k, n = int(rng.integers(1, 60)), int(rng.integers(1, 40))
    lead = tuple(int(rng.integers(1, 5)) for _ in range(int(rng.integers(1, 4))))
    batch = some(rng, [(), (), lead[:-1]])
    dtype = some(rng, (np.float32, np.float32, np.float16))
    a, b = whole(rng, (*lead, k), some(rng, BYTES)), whole(rng, (*batch, k, n), some(rng, BYTES))
    inputs: dict[str, Any] = {"A": a, "B": b}
    inputs["a_scale"] = scale(rng, some(rng, [(), (1,), (), (k,)]), dtype)
    inputs["b_scale"] = scale(rng, columns_of(rng, n), dtype)
    if rng.random() < 0.7:
        inputs["a_zero_point"] = whole(rng, some(rng, [(), (1,), (k,)]), a.dtype)
    if rng.random() < 0.7:
        inputs["b_zero_point"] = whole(rng, columns_of(rng, n), b.dtype)
    if rng.random() < 0.5:
        inputs["bias"] = uniform(rng, (n,), dtype)
    # Sums of many terms may cancel; the error goes by their size.
    return Sample(inputs, tolerance=(1e-3, 1e-2) if dtype == np.float16 else (1e-4, 1e-3))


@sample("DynamicQuantizeMatMul")
def dynamic_quantize_mat_mul(rng: np.random.Generator) -> Sample:
    k, n = int(rng.integers(1, 60)), int(rng.integers(1, 40))
    lead = tuple(int(rng.integers(1, 5)) for _ in range(int(rng.integers(1, 4))))
    b = whole(rng, (k, n), some(rng, BYTES))
    inputs: dict[str, Any] = {"A": on_a_grid(rng, (*lead, k)), "B": b}
    inputs["b_scale"] = scale(rng, columns_of(rng, n))
    if rng.random() < 0.6:
        inputs["b_zero_point"] = whole(rng, columns_of(rng, n), b.dtype)
    if rng.random() < 0.5:
        inputs["bias"] = uniform(rng, (n,), np.float32)
    return Sample(inputs, tolerance=(1e-4, 1e-3))


def on_a_grid(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Floats whose quantization has no ties: a multiple of a step, 255 steps from least to most."""
    steps = rng.integers(0, 256, shape)
    flat = steps.reshape(-1)
    zero = int(rng.integers(0, 256))
    # One element alone spans the range from 0.
    flat[0] = 255 if zero < 128 else 0
    if flat.size > 1:
        flat[-1] = 0 if zero < 128 else 255
    elif zero < 128:
        zero = 0
    else:
        zero = 255
    return ((steps - zero) * 2.0**-5).astype(np.float32)


@sample("QLinearMatMul", domain="")
def q_linear_mat_mul(rng: np.random.Generator) -> Sample:
    left, right = factors(rng)
    a, b = whole(rng, left, some(rng, BYTES)), whole(rng, right, some(rng, BYTES))
    matrices = len(left) == len(right) == 2
    rows = some(rng, [(), (left[0],)]) if matrices else ()
    columns = some(rng, [(), (right[1],)]) if matrices else ()
    result = some(rng, [(), rows])
    kind = some(rng, BYTES)
    inputs = {
        "a": a,
        "a_scale": scale(rng, rows),
        "a_zero_point": whole(rng, rows, a.dtype),
        "b": b,
        "b_scale": scale(rng, columns),
        "b_zero_point": whole(rng, columns, b.dtype),
        "y_scale": scale(rng, result) * np.float32(5),
        "y_zero_point": whole(rng, result, kind),
    }
    ties = near_ties(real_q_linear_mat_mul(**inputs))
    return Sample(inputs, domain="", opset=10, unspecified={"y": ties})


@sample("QGemm")
def q_gemm(rng: np.random.Generator) -> Sample:
    m, k, n = (int(rng.integers(1, 40)) for _ in range(3))
    trans_a, trans_b = int(rng.integers(2)), int(rng.integers(2))
    a = whole(rng, (k, m) if trans_a else (m, k), some(rng, BYTES))
    b = whole(rng, (n, k) if trans_b else (k, n), some(rng, BYTES))
    columns = columns_of(rng, n)
    inputs: dict[str, Any] = {
        "A": a,
        "a_scale": scale(rng, ()),
        "a_zero_point": whole(rng, (), a.dtype),
        "B": b,
        "b_scale": scale(rng, columns),
        "b_zero_point": whole(rng, columns, b.dtype),
    }
    if rng.random() < 0.6:
        inputs["C"] = rng.integers(-9999, 9999, some(rng, [(m, n), (n,), (m, 1), ()]), np.int32)
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": some(rng, [1.0, 0.5, 1.25])}
    if rng.random() < 0.5:
        return Sample(inputs, attributes, tolerance=(1e-5, 1e-5))
    inputs["y_scale"] = scale(rng, ()) * np.float32(20)
    inputs["y_zero_point"] = whole(rng, (), some(rng, BYTES))
    return Sample(inputs, attributes, unspecified={"Y": near_ties(real_q_gemm(**inputs, **attributes))})


@sample("QOrderedMatMul")
def q_ordered_mat_mul(rng: np.random.Generator) -> Sample:
    m = int(rng.integers(1, 20))
    tiled = rng.random() < 0.6
    order = some(rng, [COL4_4R2_8C, COL32_2R_4R4]) if tiled else COL
    k, n = (32 * int(rng.integers(1, 4)) if tiled else int(rng.integers(1, 50)) for _ in range(2))
    batch = some(rng, [(), (1,), (2,), (3,)])
    weights = some(rng, [(), (1,), batch])
    inputs: dict[str, Any] = {
        "A": whole(rng, (*batch, m, k), np.int8),
        "scale_A": scale(rng, ()),
        "B": whole(rng, (*weights, k, n), np.int8),
        "scale_B": scale(rng, some(rng, [(), (n,)])),
        "scale_Y": scale(rng, ()) * np.float32(10),
    }
    if not tiled and rng.random() < 0.5:
        inputs["bias"] = uniform(rng, (n,), np.float32)
    if rng.random() < 0.5:
        inputs["C"] = whole(rng, (*some(rng, [(), (1,), batch]), m, n), np.int8)
        inputs["scale_C"] = scale(rng, ())
    outer = COL32 if tiled else ROW
    orders: dict[str, Any] = {"order_A": outer, "order_B": order, "order_Y": outer}
    y = real_q_ordered_mat_mul(**inputs, **orders)
    return Sample(inputs, orders, unspecified={"Y": to_order(near_ties(y), outer)})
