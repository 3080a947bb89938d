"""What a query does not see has no say in its answer, whatever its memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, run
from webgpu_ops.reference.attention import group_query_attention
from webgpu_ops.reference.attention_variants import multi_head_attention, onnx_attention

WILD = (np.nan, np.inf, -np.inf)
LOWEST = np.finfo(np.float32).min


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def onnx(
    device: Device, *inputs: np.ndarray | None, stage: int = 2, **attributes: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Output and scores of ONNX Attention."""
    results = run(
        "Attention",
        inputs,
        attributes | {"qk_matmul_output_mode": stage},
        domain="",
        opset=25,
        outputs=("Y", "qk_matmul_output"),
        device=device,
    )
    y, scores = results[0], results[3]
    assert isinstance(y, Tensor) and isinstance(scores, Tensor)
    return y.numpy(), scores.numpy()


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keys_that_no_query_sees_may_hold_anything(device: Device, dtype: type, wild: float) -> None:
    """Beyond the lengths, where a mask says -inf, and past the frontier."""
    q, k, v = (normal(n, 2, 4 // n, 6, 8).astype(dtype) for n in (1, 2, 2))
    lengths, mask = np.array([4, 6]), normal(4, 6, 6).astype(dtype)
    mask[:, 1] = -np.inf
    for x in (k, v):
        x[0, :, 4:] = x[:, :, 1] = wild
    inputs = (q, k, v, mask, None, None, lengths)
    with np.errstate(invalid="ignore"):
        want, _, _, want_scores = onnx_attention(*inputs, is_causal=1, qk_matmul_output_mode=2)
    y, scores = onnx(device, *inputs, is_causal=1)
    assert np.isfinite(want).all()
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, want_scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("wild", WILD)
def test_a_query_does_not_hear_of_keys_after_it(device: Device, wild: float, rows: int) -> None:
    """The first queries of a tile are as if the later keys, which others in it see, were not there."""
    q, k, v = normal(1, 1, rows, 32), normal(2, 1, rows, 16), normal(3, 1, rows, 16)
    k[:, rows - 2 :] = v[:, rows - 2 :] = wild
    inputs = (q, k, v, None, None, np.array([rows - 1], np.int32), np.array(rows, np.int32))
    attributes = {"num_heads": 4, "kv_num_heads": 2}
    got = run("GroupQueryAttention", inputs, attributes, outputs=("output",), device=device)[0]
    assert isinstance(got, Tensor)
    short = (*(x[:, : rows - 2] for x in (q, k, v)), None, None)
    want = group_query_attention(*short, np.array([rows - 3]), np.array(rows - 2), **attributes)[0]
    np.testing.assert_allclose(got.numpy()[:, : rows - 2], want, rtol=1e-5, atol=1e-6)
    assert not np.isfinite(got.numpy()[:, rows - 2 :]).any()


def test_a_bias_hides_and_a_visible_value_counts(device: Device) -> None:
    q, k, v = (normal(n, 1, 2, 16) for n in (1, 2, 3))
    bias = np.array([[0, -np.inf], [0, 0]], np.float32)[None, None]
    k[0, 1, 0] = np.nan
    v[0, 1, :3] = np.inf, -np.inf, np.nan
    inputs = (q, k, v, None, None, bias)
    got = run("MultiHeadAttention", inputs, {"num_heads": 2}, device=device)[0]
    assert isinstance(got, Tensor)
    with np.errstate(invalid="ignore"):
        want = multi_head_attention(*inputs, num_heads=2)[0]
    assert np.isfinite(want[:, 0]).all() and np.isnan(want[:, 1, :8]).all()
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=1e-6)


def test_scores_that_a_mask_makes_huge_are_written_as_they_are(device: Device) -> None:
    """Softmax keeps away from the lowest number, but the scores are the output's."""
    q, k, v = normal(1, 1, 1, 2, 8), normal(2, 1, 1, 5, 8), normal(3, 1, 1, 5, 8)
    mask = np.array([[0, LOWEST, 0, -np.inf, -3.35e38], [LOWEST] * 5], np.float32)
    for stage in (2, 3):
        want = onnx_attention(q, k, v, mask, qk_matmul_output_mode=stage)
        y, scores = onnx(device, q, k, v, mask, stage=stage)
        np.testing.assert_allclose(y, want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores, want[3], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_short_mask_leaves_the_frontier_where_it_is(device: Device, dtype: type) -> None:
    """Queries end level with the last key of each entry, not with the end of the mask."""
    q, k, v = (normal(n, 2, 1, rows, 8).astype(dtype) for n, rows in ((1, 2), (2, 6), (3, 6)))
    mask, lengths = np.ones((2, 3), bool), np.array([6, 4])
    inputs = (q, k, v, mask, None, None, lengths)
    for attributes in ({"is_causal": 1}, {"left_window_size": 2, "right_window_size": 0}):
        want = onnx_attention(*inputs, qk_matmul_output_mode=2, **attributes)
        y, scores = onnx(device, *inputs, **attributes)
        np.testing.assert_allclose(y, want[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores, want[3], rtol=1e-5, atol=1e-6)
