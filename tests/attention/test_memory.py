"""Streaming attention never holds its scores: memory of long calls, and right results there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec

KEYS, ROWS, HEADS, SIZE = 8192, 2048, 2, 32
SCORES = HEADS * ROWS * KEYS * 4
CPU = replace(PORTABLE, device_class="cpu")
Run = Callable[[Device, np.ndarray, np.ndarray, np.ndarray], Tensor]


@pytest.fixture(params=["native", "portable"])
def fresh(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device that nothing ran on before, so that its memory is this test's alone."""
    device = Device(portable=request.param == "portable")
    yield device
    device.destroy()


def first(results: list[Any]) -> Tensor:
    assert isinstance(results[0], Tensor)
    return results[0]


def tokens_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(1, x.shape[2], -1)


def onnx_attention(device: Device, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Tensor:
    return first(run("Attention", [q, k, v], domain="", opset=23, device=device))


def group_query_attention(device: Device, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Tensor:
    """A chunk of new tokens behind a past; the caches grow into new memory."""
    past = KEYS - ROWS
    inputs = {
        "query": tokens_first(q),
        "key": tokens_first(k[:, :, past:]),
        "value": tokens_first(v[:, :, past:]),
        "past_key": k[:, :, :past],
        "past_value": v[:, :, :past],
        "seqlens_k": np.array([KEYS - 1], np.int32),
        "total_sequence_length": np.array(KEYS, np.int32),
    }
    outputs = ("output", "present_key", "present_value")
    attributes = {"num_heads": HEADS, "kv_num_heads": k.shape[1]}
    return first(run("GroupQueryAttention", inputs, attributes, outputs=outputs, device=device))


@pytest.mark.quick(0)
@pytest.mark.parametrize(
    ("call", "kv_heads", "causal"),
    [(onnx_attention, HEADS, False), (group_query_attention, 1, True)],
    ids=["Attention@ai.onnx", "GroupQueryAttention"],
)
def test_long_calls(fresh: Device, call: Run, kv_heads: int, causal: bool) -> None:
    """8,192 keys, 2,048 queries, 2 heads; a matrix of scores would take 128 MiB."""
    rng = np.random.default_rng(5)
    q = rng.standard_normal((1, HEADS, ROWS, SIZE)).astype(np.float32)
    k, v = (rng.standard_normal((1, kv_heads, KEYS, SIZE)).astype(np.float32) for _ in range(2))
    fresh.memory.reset_peak()
    got = call(fresh, q, k, v).numpy()
    assert fresh.memory.peak_bytes < 256 << 20
    assert fresh.memory.peak_bytes < SCORES / 8, "the scores, or much of them, were in memory"

    got = got.reshape(ROWS, HEADS, SIZE) if got.ndim == 3 else got[0].transpose(1, 0, 2)
    for row in (0, 1, 7, 8, 1023, 1500, ROWS - 1):
        seen = KEYS - ROWS + row + 1 if causal else KEYS
        for head in range(HEADS):
            keys, values = (x[0, head * kv_heads // HEADS, :seen].astype(np.float64) for x in (k, v))
            scores = keys @ q[0, head, row].astype(np.float64) / np.sqrt(SIZE)
            shares = np.exp(scores - scores.max())
            want = shares @ values / shares.sum()
            np.testing.assert_allclose(got[row, head], want, rtol=1e-4, atol=1e-5, err_msg=f"row {row}")


def planned(batch: int, heads: int, rows: int, keys: int, capabilities: Capabilities) -> Plan:
    q, kv = (TensorSpec((batch, heads, n, SIZE), dtypes.float32) for n in (rows, keys))
    return plan("Attention", [q, kv, kv], domain="", opset=23, capabilities=capabilities)


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize("rows", [1, 8, 40, 2048])
def test_scratch_does_not_grow_with_the_keys(capabilities: Capabilities, rows: int) -> None:
    """Workers share the keys of a row, as many as keep the adapter busy."""
    few, many = (planned(1, HEADS, rows, keys, capabilities).scratch_bytes for keys in (16384, 1 << 18))
    if capabilities is CPU:
        # There a worker walks 2,048 keys or more: each leaves a row of values and two numbers.
        assert many <= few + HEADS * rows * (SIZE + 4) * 4 * ((1 << 18) // 2048)
        few, many = (planned(1, HEADS, rows, keys, capabilities).scratch_bytes for keys in (1500, 2048))
    assert few == many


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_scratch_grows_with_the_rows_of_all_heads(capabilities: Capabilities) -> None:
    """Once there are rows enough to keep the adapter busy, a row takes as much as any other."""

    def scratch(batch: int, heads: int, rows: int) -> int:
        return planned(batch, heads, rows, 1 << 16, capabilities).scratch_bytes

    once = scratch(1, 8, 2048)
    assert scratch(3, 8, 2048) == scratch(1, 24, 2048) == scratch(1, 8, 3 * 2048) == 3 * once
    assert once <= 8 * 2048 * (SIZE + 4) * 4 * ((1 << 16) // 2048)
