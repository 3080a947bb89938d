"""Random shapes of ranks 0 to 5, empty and ragged ones among them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Device, run

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("standard-random")

DRAWS = 25
TYPES = (np.float32, np.float16, np.int64, np.uint8, np.int16, np.float64)


def shape_of(rng: np.random.Generator, least: int = 0) -> tuple[int, ...]:
    rank = int(rng.integers(least, 6))
    return tuple(
        int(rng.choice([0, 1, 2, 3, 4, 5, 7, 9], p=[0.03, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.07]))
        for _ in range(rank)
    )


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return rng.integers(0, 50, shape).astype(dtype)


def result(device: Device, op: str, inputs: list[np.ndarray], **attributes: object) -> np.ndarray:
    got = run(op, inputs, attributes, domain="", opset=18, device=device)[0]
    assert got is not None
    return got.numpy()


@pytest.fixture(params=range(3))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def test_broadcasting(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        whole = shape_of(rng)
        parts = []
        for _ in range(3):
            kept = whole[int(rng.integers(0, len(whole) + 1)) :]
            parts.append(tuple(1 if rng.random() < 0.3 else s for s in kept))
        dtype = TYPES[rng.choice(len(TYPES))]
        condition = rng.random(parts[0]) < 0.5
        x, y = (values(rng, shape, dtype) for shape in parts[1:])
        np.testing.assert_array_equal(result(device, "Where", [condition, x, y]), np.where(condition, x, y))
        a, b = (values(rng, shape, np.float32) for shape in parts[:2])
        np.testing.assert_array_equal(result(device, "Sub", [a, b]), a - b)


def test_orders_and_parts(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        x = values(rng, shape_of(rng), TYPES[rng.choice(len(TYPES))])
        perm = rng.permutation(x.ndim)
        got = result(device, "Transpose", [x], perm=[int(p) for p in perm])
        np.testing.assert_array_equal(got, x.transpose(perm))
        if not x.ndim:
            continue
        axes = rng.permutation(x.ndim)[: int(rng.integers(1, x.ndim + 1))]
        starts, ends = rng.integers(-12, 12, (2, len(axes)))
        steps = rng.choice([-3, -2, -1, 1, 2, 3], len(axes))
        cut = [slice(None)] * x.ndim
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            cut[axis] = slice(int(start), int(end), int(step))
        got = result(device, "Slice", [x, starts, ends, axes, steps])
        np.testing.assert_array_equal(got, x[tuple(cut)])


def test_repetitions_and_joins(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        x = values(rng, shape_of(rng, 1), TYPES[rng.choice(len(TYPES))])
        repeats = rng.integers(1, 4, x.ndim)
        np.testing.assert_array_equal(result(device, "Tile", [x, repeats]), np.tile(x, repeats))
        axis = int(rng.integers(-x.ndim, x.ndim))
        parts = [np.take(x, range(min(n, x.shape[axis])), axis) for n in rng.integers(0, 9, 3)]
        np.testing.assert_array_equal(
            result(device, "Concat", [x, *parts], axis=axis), np.concatenate([x, *parts], axis)
        )


def test_picks(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        x = values(rng, shape_of(rng, 1), TYPES[rng.choice(len(TYPES))])
        axis = int(rng.integers(-x.ndim, x.ndim))
        if not x.shape[axis]:
            continue
        indices = rng.integers(-x.shape[axis], x.shape[axis], shape_of(rng)[:2])
        got = result(device, "Gather", [x, np.asarray(indices)], axis=axis)
        np.testing.assert_array_equal(got, np.take(x, indices, axis))


def test_reductions(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        x = values(rng, shape_of(rng, 1), (np.float32, np.int64, np.float16)[rng.choice(3)])
        axes = tuple(int(a) for a in rng.permutation(x.ndim)[: int(rng.integers(1, x.ndim + 1))])
        keep = bool(rng.integers(2))
        got = result(device, "ReduceSum", [x, np.array(axes)], keepdims=int(keep))
        want = x.sum(axes, keepdims=keep, dtype=np.float64 if x.dtype.kind == "f" else np.int64)
        np.testing.assert_array_equal(got, want.astype(x.dtype))
        if x.size:
            got = result(device, "ReduceMax", [x, np.array(axes)], keepdims=int(keep))
            np.testing.assert_array_equal(got, x.max(axes, keepdims=keep))


def test_products(device: Device, rng: np.random.Generator) -> None:
    for _ in range(DRAWS):
        batch = shape_of(rng)[:3]
        m, k, n = (int(d) for d in rng.integers(1, 20, 3))
        sides = [
            tuple(1 if rng.random() < 0.3 else s for s in batch[int(rng.integers(0, len(batch) + 1)) :])
            for _ in "ab"
        ]
        a, b = values(rng, (*sides[0], m, k), np.float32), values(rng, (*sides[1], k, n), np.float32)
        np.testing.assert_allclose(result(device, "MatMul", [a, b]), a @ b, rtol=1e-6)


def test_pads(device: Device, rng: np.random.Generator) -> None:
    """Ranks of every number, pads beyond the size of the input and those that take away."""
    for _ in range(DRAWS):
        x = values(rng, shape_of(rng), TYPES[rng.choice(len(TYPES))])
        mode = str(rng.choice(["constant", "reflect", "edge", "wrap"]))
        axes = rng.permutation(x.ndim)[: int(rng.integers(0, x.ndim + 1))]
        pads = rng.integers(-2, 4, (2, len(axes)))
        if rng.random() < 0.2:
            pads *= 5
        part, width = x, [(0, 0)] * x.ndim
        for axis, (first, last) in zip(axes, pads.T, strict=True):
            if part.shape[axis] + min(first, 0) + min(last, 0) < int(mode != "constant"):
                pads[:, list(axes).index(axis)] = first, last = 0, 0
            end = part.shape[axis] + min(last, 0)
            part = np.take(part, range(max(-first, 0), end), axis)
            width[axis] = max(first, 0), max(last, 0)
        want = np.pad(part, width, mode=mode) if x.ndim else x  # type: ignore[call-overload]
        inputs = [x, pads.reshape(-1), None, axes - x.ndim * rng.integers(0, 2, len(axes))]
        got = run("Pad", inputs, {"mode": mode}, domain="", opset=19, device=device)[0]
        assert got is not None
        np.testing.assert_array_equal(got.numpy(), want)
