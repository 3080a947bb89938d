"""RemovePadding and RestorePadding: refusals, counts on the device, and bad values contained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, plan, reference, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import ShapeError

NAMES = ("output", "token_offset", "cumulated_seq_len", "max_seq_len")


def floats(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.float32)


def ints(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.int32)


@pytest.mark.parametrize(
    ("op", "inputs", "text"),
    [
        ("RemovePadding", [floats(3, 4), ints(3)], "input has shape (3, 4)"),
        ("RemovePadding", [floats(3, 4, 5), ints(2)], "sequence_token_count has shape (2,); expected (3,)"),
        (
            "RemovePadding",
            [floats(2, 4, 5), np.array([1, 5], np.int32)],
            "holds 5; expected counts in [0, 4]",
        ),
        ("RemovePadding", [floats(2, 4, 5), np.array([-1, 4], np.int32)], "holds -1"),
        ("RestorePadding", [floats(3, 4, 5), ints(3, 4)], "input has shape (3, 4, 5)"),
        ("RestorePadding", [floats(3, 5), ints(12)], "token_offset has shape (12,)"),
        ("RestorePadding", [floats(7, 5), ints(2, 3)], "input has 7 tokens; expected at most 6"),
        ("RestorePadding", [floats(2, 5), np.array([[0, 4, 1, 2]], np.int32)], "offsets in [0, 3]"),
        ("RestorePadding", [floats(2, 5), np.array([[1, 1, 0, 2]], np.int32)], "names a place twice"),
    ],
)
def test_refusals(op: str, inputs: list[Any], text: str) -> None:
    with pytest.raises(ShapeError, match=f"^{op}: ") as caught:
        plan(op, inputs)
    assert text in str(caught.value)


def test_the_output_is_measured_only_where_the_host_does_not_know_the_counts() -> None:
    known = plan("RemovePadding", [floats(2, 4, 5), np.array([1, 3], np.int32)], outputs=NAMES)
    assert known.outputs[0].shape == (4, 5) and not known.measured
    unknown = plan("RemovePadding", [floats(2, 4, 5), ints(2)], outputs=NAMES)
    assert unknown.outputs[0].shape == (8, 5) and list(unknown.measured) == [0]
    # Without the tokens there is nothing to wait for.
    assert not plan("RemovePadding", [floats(2, 4, 5), ints(2)], outputs=NAMES[1:]).measured


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("counts", [[3, 0, 7, 2], [7, 7, 7, 7], [0, 0, 0, 0]])
def test_counts_on_the_device(device: Device, counts: list[int], dtype: type) -> None:
    x = np.random.default_rng(1).standard_normal((4, 7, 5)).astype(dtype)
    real = np.array(counts, np.int32)
    got = run("RemovePadding", [x, Tensor.from_numpy(real, device)], outputs=NAMES, device=device)
    want = reference.find("RemovePadding")(x, real)
    for name, g, w in zip(NAMES, got, want, strict=True):
        assert g.numpy().dtype == w.dtype, name
        np.testing.assert_array_equal(g.numpy(), w, err_msg=name)


def test_bad_counts_on_the_device_are_clamped(device: Device) -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 6)).astype(np.float32)
    bad = np.array([-5, 1 << 30, 2], np.int32)
    got = run("RemovePadding", [x, Tensor.from_numpy(bad, device)], outputs=NAMES, device=device)
    for g, w in zip(got, reference.find("RemovePadding")(x, np.clip(bad, 0, 4)), strict=True):
        np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_there_and_back(device: Device, dtype: type) -> None:
    """NaN payloads and signed zeros survive both ways, between tensors that stay on the device."""
    rng = np.random.default_rng(2)
    batch, sequence, hidden = 5, 9, 7
    bits = rng.integers(0, 256, (batch, sequence, hidden * np.dtype(dtype).itemsize)).astype(np.uint8)
    x = bits.view(dtype)
    counts = rng.integers(0, sequence + 1, batch).astype(np.int32)
    tokens, offset, *_ = run(
        "RemovePadding", [x, Tensor.from_numpy(counts, device)], outputs=NAMES[:2], device=device
    )
    (y,) = run("RestorePadding", [tokens, offset], device=device)
    padding = np.arange(sequence) >= counts[:, None]
    want = np.where(padding[..., None], np.uint8(0), bits)
    np.testing.assert_array_equal(y.numpy().view(np.uint8), want)


def test_bad_offsets_on_the_device_put_their_tokens_nowhere(device: Device) -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    offset = np.array([[5, -1, 6, 2], [0, 1, 3, 4]], np.int32)
    offset[0, 2] = 1 << 30
    (y,) = run("RestorePadding", [x, Tensor.from_numpy(offset, device)], device=device)
    want = np.zeros((8, 3), np.float32)
    want[5], want[2] = x[0], x[3]
    np.testing.assert_array_equal(y.numpy().reshape(8, 3), want)


def test_empty_batches(device: Device) -> None:
    x, counts = np.zeros((0, 4, 5), np.float32), np.zeros(0, np.int32)
    for given in (counts, Tensor.from_numpy(counts, device)):
        got = run("RemovePadding", [x, given], outputs=NAMES, device=device)
        assert [g.shape for g in got] == [(0, 5), (0, 4), (1,), (1,)]
        assert got[2].numpy() == 0 and got[3].numpy() == 0
    (y,) = run("RestorePadding", [np.zeros((0, 5), np.float32), np.array([[1, 0]], np.int32)], device=device)
    np.testing.assert_array_equal(y.numpy(), np.zeros((1, 2, 5)))
