"""QAttention and DecoderAttention: exact products, flags, caches and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import TensorSpec
from webgpu_ops.errors import SchemaError, ShapeError
from webgpu_ops.reference.attention_variants import q_attention


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def flag(value: bool) -> np.ndarray:
    return np.array([value])


CALLS: dict[str, dict[str, Any]] = {
    "QAttention": {
        "input": spec(2, 3, 10, dtype=dtypes.uint8),
        "weight": spec(10, 48, dtype=dtypes.int8),
        "bias": spec(48),
        "input_scale": spec(),
        "weight_scale": spec(48),
    },
    "DecoderAttention": {
        "query": spec(3, 2, 16),
        "key": spec(5, 2, 16),
        "q_weight": spec(16, 16),
        "kv_weight": spec(16, 32),
        "bias": spec(48),
        "key_cache": spec(2, 2, 7, 8),
        "value_cache": spec(2, 2, 7, 8),
        "static_kv": flag(False),
        "use_past": flag(True),
        "has_layer_state": flag(True),
        "has_key_padding_mask": flag(False),
    },
}


@pytest.mark.parametrize("x_type", [np.int8, np.uint8])
@pytest.mark.parametrize("w_type", [np.int8, np.uint8])
def test_the_integer_projection_is_exact(any_device: Device, x_type: Any, w_type: Any) -> None:
    """Sums past 2 ** 24, where float32 loses units at every step. A lone token's result is its V."""
    channels, rng = 2000, np.random.default_rng(1)

    def upper(dtype: Any, *shape: int) -> np.ndarray:
        high = int(np.iinfo(dtype).max)
        return rng.integers(high - 60, high + 1, shape).astype(dtype)

    x, w = upper(x_type, 1, 1, channels), upper(w_type, channels, 12)
    zeros = np.array(np.iinfo(x_type).min + 3, x_type), np.array(np.iinfo(w_type).min + 5, w_type)
    factors = x[0, 0].astype(np.int64) - int(zeros[0]), w[:, 8:].astype(np.int64) - int(zeros[1])
    product = factors[0] @ factors[1]
    rounded = np.cumsum(factors[0][:, None] * factors[1], axis=0, dtype=np.float32)[-1]
    unit = np.spacing(product.astype(np.float32)).max()
    assert abs(rounded - product).max() > 8 * unit, "the sums are too small to tell"
    # The bias takes most of the sum away, so that what is lost would be seen.
    bias = np.zeros(12, np.float32)
    bias[8:] = -product.astype(np.float32)
    inputs = {
        "input": x,
        "weight": w,
        "bias": bias,
        "input_scale": np.array(1, np.float32),
        "weight_scale": np.array(1, np.float32),
        "input_zero_point": zeros[0],
        "weight_zero_point": zeros[1],
    }
    y = run("QAttention", inputs, {"num_heads": 1}, device=any_device)[0]
    assert isinstance(y, Tensor)
    np.testing.assert_allclose(y.numpy(), q_attention(**inputs, num_heads=1)[0], rtol=0, atol=unit)


def shapes(**inputs: Any) -> list[tuple[int, ...]]:
    p = plan(
        "DecoderAttention",
        CALLS["DecoderAttention"] | inputs,
        {"num_heads": 2},
        outputs=("output", "new_key_cache", "new_value_cache"),
    )
    return [o.shape for o in p.outputs if o is not None]


def test_flags_decide_what_is_attended_to() -> None:
    y = (3, 2, 16)
    assert shapes() == [y, (2, 2, 10, 8), (2, 2, 10, 8)]
    assert shapes(use_past=flag(False)) == [y, (2, 2, 3, 8), (2, 2, 3, 8)]
    assert shapes(has_layer_state=flag(False)) == [y, (2, 2, 3, 8), (2, 2, 3, 8)]
    assert shapes(static_kv=flag(True)) == [y, (2, 2, 7, 8), (2, 2, 7, 8)]
    assert shapes(static_kv=flag(True), use_past=flag(False)) == [y, (2, 2, 5, 8), (2, 2, 5, 8)]


def test_keys_projected_once_are_not_projected_again() -> None:
    p = plan("DecoderAttention", CALLS["DecoderAttention"] | {"static_kv": flag(True)}, {"num_heads": 2})
    assert [d.template for d in p.dispatches].count("matmul/tile") == 1


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("QAttention", {}, {"num_heads": 0}, "num_heads=0; expected a positive number"),
        ("QAttention", {}, {"past_present_share_buffer": 1}, "past_present_share_buffer=1; expected 0"),
        ("QAttention", {"input": spec(6, 10, dtype=dtypes.uint8)}, {}, r"input has shape \(6, 10\)"),
        ("QAttention", {"weight": spec(9, 48, dtype=dtypes.int8)}, {}, r"weight has shape \(9, 48\)"),
        ("QAttention", {}, {"num_heads": 3}, "expected columns of Q, K and V in num_heads=3 heads"),
        ("QAttention", {"bias": spec(47)}, {}, r"bias has shape \(47,\); expected \(48,\)"),
        ("QAttention", {"input_scale": spec(2)}, {}, r"input_scale has shape \(2,\); expected one element"),
        ("QAttention", {"weight_scale": spec(3)}, {}, r"expected one element or \(48,\)"),
        (
            "QAttention",
            {"weight_zero_point": spec(16, dtype=dtypes.int8)},
            {},
            r"weight_zero_point has shape \(16,\)",
        ),
        ("QAttention", {"past": spec(2, 2, 2, 4, 7)}, {}, r"past has shape \(2, 2, 2, 4, 7\)"),
        ("QAttention", {"mask_index": spec(3, dtype=dtypes.int32)}, {}, r"mask_index has shape \(3,\)"),
        ("DecoderAttention", {}, {"num_heads": 0}, "num_heads=0; expected a positive number"),
        ("DecoderAttention", {}, {"num_heads": 3}, r"query has shape \(3, 2, 16\); expected a positive"),
        ("DecoderAttention", {"key": spec(5, 3, 16)}, {}, r"key has shape \(5, 3, 16\)"),
        ("DecoderAttention", {"kv_weight": spec(16, 16)}, {}, r"kv_weight has shape \(16, 16\)"),
        ("DecoderAttention", {"bias": spec(32)}, {}, r"bias has shape \(32,\); expected \(48,\)"),
        ("DecoderAttention", {"value_cache": None}, {}, "value_cache is missing.*use_past"),
        ("DecoderAttention", {"key_cache": spec(2, 2, 7, 4)}, {}, r"key_cache has shape \(2, 2, 7, 4\)"),
        ("DecoderAttention", {"use_past": np.array([True, False])}, {}, "use_past has shape"),
        ("DecoderAttention", {"has_key_padding_mask": flag(True)}, {}, "input key_padding_mask is required"),
        (
            "DecoderAttention",
            {"has_key_padding_mask": flag(True), "key_padding_mask": spec(2, 7, dtype=dtypes.bool_)},
            {},
            r"key_padding_mask has shape \(2, 7\); expected \(2, 10\)",
        ),
    ],
)
def test_refuses(op: str, inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    given = {k: v for k, v in (CALLS[op] | inputs).items() if v is not None}
    with pytest.raises((ShapeError, SchemaError), match=f"^{op}: .*{message}"):
        plan(op, given, {"num_heads": 2} | attributes)
