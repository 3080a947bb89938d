"""Packed attention: sequences that end where they should, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import SchemaError, ShapeError
from webgpu_ops.reference.attention_variants import packed_multi_head_attention


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


SEQUENCES = {
    "token_offset": spec(3, 5, dtype=dtypes.int32),
    "cumulative_sequence_length": spec(4, dtype=dtypes.int32),
}
CALLS: dict[str, dict[str, Any]] = {
    "PackedAttention": {"input": spec(10, 6), "weights": spec(6, 44), "bias": spec(44)},
    "PackedMultiHeadAttention": {"query": spec(10, 16), "key": spec(10, 16), "value": spec(10, 12)},
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "PackedAttention": {"num_heads": 2, "qkv_hidden_sizes": [16, 16, 12]},
    "PackedMultiHeadAttention": {"num_heads": 2},
}


def call(device: Device, x: np.ndarray, lengths: Any, longest: int) -> np.ndarray:
    """Attention of ``x [tokens, 8]`` in one head, to itself."""
    batch = len(lengths) - 1
    inputs = {
        "query": x,
        "key": x,
        "value": x,
        "token_offset": np.zeros((batch, longest), np.int32),
        "cumulative_sequence_length": lengths,
    }
    (y,) = run("PackedMultiHeadAttention", inputs, {"num_heads": 1}, device=device)
    assert isinstance(y, Tensor)
    return y.numpy()


@pytest.mark.parametrize("rows", [1, 4, 70])
def test_sequences_do_not_see_each_other(any_device: Device, rows: int) -> None:
    """A token's result does not change with what its neighbours in memory hold."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3 * rows, 8)).astype(np.float32)
    lengths = np.array([0, rows, 2 * rows, 3 * rows], np.int32)
    alone = call(any_device, x[rows : 2 * rows], np.array([0, rows], np.int32), rows)
    poisoned = np.full_like(x, np.nan)
    poisoned[rows : 2 * rows] = x[rows : 2 * rows]
    for among in (x, poisoned):
        got = call(any_device, among, lengths, rows)[rows : 2 * rows]
        np.testing.assert_allclose(got, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("batch", "longest"), [(0, 4), (2, 0)])
def test_tokens_without_a_sequence(any_device: Device, batch: int, longest: int) -> None:
    lengths = np.arange(batch + 1, dtype=np.int32)
    assert not call(any_device, np.ones((3, 8), np.float32), lengths, longest).any()


@pytest.mark.parametrize("last", [-4, 3, 1000, 2**31 - 1])
def test_lengths_on_the_device_are_contained(device: Device, last: int) -> None:
    """Tokens that are not there leave other sequences, and all other memory, alone; a count that falls
    says nothing about any sequence."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((6, 8)).astype(np.float32)
    lengths = Tensor.from_numpy(np.array([0, 4, last], np.int32), device)
    lengths.host = None
    backing = Tensor.from_numpy(np.full(8 * 8, 7, np.float32), device)
    inputs = {
        "query": x,
        "key": x,
        "value": x,
        "token_offset": np.zeros((2, 4), np.int32),
        "cumulative_sequence_length": lengths,
    }
    run(
        "PackedMultiHeadAttention",
        inputs,
        {"num_heads": 1},
        outputs={"output": backing.view((6, 8), 8)},
        device=device,
    )
    got = backing.numpy().reshape(8, 8)
    assert (got[0] == 7).all() and (got[7] == 7).all()
    if last < 4:
        return
    (want,) = packed_multi_head_attention(
        x[:4], x[:4], x[:4], cumulative_sequence_length=np.array([0, 4]), num_heads=1
    )
    np.testing.assert_allclose(got[1:5], want, rtol=1e-5, atol=1e-6)


def test_tokens_beyond_their_sequence_are_zeros(any_device: Device) -> None:
    """A sequence has no more tokens than the padded batch has room for; what memory held is not told."""
    x = np.random.default_rng(3).standard_normal((40, 8)).astype(np.float32)
    lengths = Tensor.from_numpy(np.array([1, 3, 40], np.int32), any_device, keep_host=False)
    for _ in range(2):
        got = call(any_device, x, lengths, 4)
        assert not got[0].any() and not got[7:].any()
        np.testing.assert_allclose(
            got[3:7], call(any_device, x[3:7], np.array([0, 4], np.int32), 4), rtol=1e-5
        )


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("PackedAttention", {}, {"num_heads": 0}, "num_heads=0; expected a positive number"),
        ("PackedAttention", {}, {"qkv_hidden_sizes": [16, 16]}, "expected three numbers"),
        ("PackedAttention", {}, {"qkv_hidden_sizes": [16, 12, 16]}, "the sizes of Q and K to be equal"),
        ("PackedAttention", {}, {"qkv_hidden_sizes": [16, 16, 16]}, "expected 48 columns"),
        ("PackedAttention", {}, {"num_heads": 5}, "Q has 16 channels; expected a positive multiple"),
        ("PackedAttention", {"input": spec(2, 5, 6)}, {}, r"input has shape \(2, 5, 6\)"),
        ("PackedAttention", {"weights": spec(7, 44)}, {}, r"weights has shape \(7, 44\)"),
        ("PackedAttention", {"bias": spec(43)}, {}, r"bias has shape \(43,\); expected \(44,\)"),
        ("PackedAttention", {"token_offset": spec(15, dtype=dtypes.int32)}, {}, r"token_offset has shape"),
        ("PackedAttention", {"attention_bias": spec(3, 2, 5, 6)}, {}, "attention_bias has shape"),
        (
            "PackedMultiHeadAttention",
            {"cumulative_sequence_length": spec(3, dtype=dtypes.int32)},
            {},
            r"cumulative_sequence_length has shape \(3,\); expected \(4,\)",
        ),
        ("PackedMultiHeadAttention", {"value": None}, {}, "value is missing"),
        ("PackedMultiHeadAttention", {"query": spec(10, 2, 3, 8)}, {}, "key is given; expected none"),
        ("PackedMultiHeadAttention", {"query": spec(10, 4, 4)}, {}, "two or four dimensions"),
        ("PackedMultiHeadAttention", {"key": spec(9, 16)}, {}, r"key has shape \(9, 16\)"),
        ("PackedMultiHeadAttention", {"bias": spec(48)}, {}, r"bias has shape \(48,\); expected \(44,\)"),
    ],
)
def test_refuses(op: str, inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    given = {k: v for k, v in (SEQUENCES | CALLS[op] | inputs).items() if v is not None}
    with pytest.raises((ShapeError, SchemaError), match=f"^{op}: .*{message}"):
        plan(op, given, ATTRIBUTES[op] | attributes)
