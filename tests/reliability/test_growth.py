"""Loops without growth: no new pipelines, no new memory."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, api, run

BATCH, HEADS, KV_HEADS, SIZE, STEPS = 1, 4, 2, 32, 600


@pytest.mark.parametrize("shared", [False, True], ids=["concatenated", "shared"])
def test_growing_cache_compiles_nothing_after_ten_steps(device: Device, shared: bool) -> None:
    rng = np.random.default_rng(0)
    capacity = STEPS if shared else 0
    empty = np.zeros((BATCH, KV_HEADS, capacity, SIZE), np.float32)
    past_key, past_value = Tensor.from_numpy(empty, device), Tensor.from_numpy(empty, device)
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
    names = ("output", "present_key", "present_value")
    pipelines = 0
    keys, values = [], []
    out = query = None
    for step in range(STEPS):
        query, key, value = (
            rng.normal(size=(BATCH, 1, n * SIZE)).astype(np.float32) for n in (HEADS, KV_HEADS, KV_HEADS)
        )
        keys.append(key)
        values.append(value)
        inputs = {
            "query": query,
            "key": key,
            "value": value,
            "past_key": past_key,
            "past_value": past_value,
            "seqlens_k": np.array([step], np.int32),
            "total_sequence_length": np.array([step + 1], np.int32),
        }
        bound = {"present_key": past_key, "present_value": past_value} if shared else {}
        out, past_key, past_value, *_ = run(
            "GroupQueryAttention",
            inputs,
            attributes,
            outputs={name: bound.get(name) for name in names},
            device=device,
        )
        if step == 9:
            pipelines = device.stats.pipelines_created
    assert device.stats.pipelines_created == pipelines
    # The last step is still right.
    k = np.concatenate(keys, 1).reshape(STEPS, KV_HEADS, SIZE).transpose(1, 0, 2).astype(np.float64)
    v = np.concatenate(values, 1).reshape(STEPS, KV_HEADS, SIZE).transpose(1, 0, 2).astype(np.float64)
    q = query.reshape(HEADS, SIZE)
    for head in range(HEADS):
        scores = k[head // 2] @ q[head] / np.sqrt(SIZE)
        weights = np.exp(scores - scores.max())
        want = weights @ v[head // 2] / weights.sum()
        np.testing.assert_allclose(out.numpy()[0, 0, head * SIZE :][:SIZE], want, rtol=1e-4, atol=1e-5)


def test_a_loop_keeps_its_memory(device: Device) -> None:
    a = Tensor.from_numpy(np.ones((64, 64), np.float32), device)
    bias = Tensor.from_numpy(np.ones(64, np.float32), device)
    for _ in range(5):
        run("BiasGelu", [a, bias], device=device)
    in_use, idle = device.memory.bytes_in_use, device.memory.bytes_idle
    for _ in range(500):
        run("BiasGelu", [a, bias], device=device)
    assert device.memory.bytes_in_use == in_use
    assert device.memory.bytes_idle == idle


def test_texts_of_earlier_calls_are_let_go(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan keeps the text that it uploaded for a call with the same text, but not any amount of it."""
    monkeypatch.setattr(api, "CONSTANT_BYTES", 1 << 20)

    def hashed(letter: str) -> None:
        run("MurmurHash3", [np.array([letter * 200_000], object)], device=device)

    for letter in "abcdefghij":
        hashed(letter)
    in_use = device.memory.bytes_in_use
    for letter in "klmnopqrstuvwxyz":
        hashed(letter)
    assert device.memory.bytes_in_use == in_use
    uploads = device.stats.uploads
    hashed("z")
    assert device.stats.uploads == uploads
