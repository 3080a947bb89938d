"""Decoding token by token: every step against the reference, in shared buffers and with beams."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, run
from webgpu_ops.reference.attention import group_query_attention
from webgpu_ops.reference.attention_variants import (
    attend,
    decoder_masked_multi_head_attention,
    multi_head_attention,
    reordered,
)

STEPS = 200
ROOM = 208
HEADS, SIZE = 2, 16
SETTLED = 10  # steps after which nothing new may be compiled
Decode = Callable[[Device, int], None]


def tokens(seed: int, batch: int) -> list[np.ndarray]:
    """Queries, keys and values of all steps, ``[batch, STEPS, HEADS * SIZE]``."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((batch, STEPS, HEADS * SIZE)).astype(np.float32) for _ in range(3)]


def caches(device: Device, batch: int, fill: float) -> dict[str, Tensor]:
    shape = (batch, HEADS, ROOM, SIZE)
    return {
        name: Tensor.from_numpy(np.full(shape, fill, np.float32), device)
        for name in ("past_key", "past_value")
    }


def heads_first(x: np.ndarray) -> np.ndarray:
    batch, rows, _ = x.shape
    return x.reshape(batch, rows, HEADS, SIZE).transpose(0, 2, 1, 3)


def multi_head(device: Device, seed: int) -> None:
    batch = 2
    q, k, v = tokens(seed, batch)
    held = caches(device, batch, np.nan)
    for step in range(STEPS):
        at = slice(step, step + 1)
        results = run(
            "MultiHeadAttention",
            {
                "query": q[:, at],
                "key": k[:, at],
                "value": v[:, at],
                "past_sequence_length": np.array([step], np.int32),
                **held,
            },
            {"num_heads": HEADS, "unidirectional": 1},
            outputs={
                "output": None,
                "present_key": held["past_key"],
                "present_value": held["past_value"],
            },
            device=device,
        )
        want = multi_head_attention(q[:, at], k[:, : step + 1], v[:, : step + 1], num_heads=HEADS)[0]
        assert isinstance(results[0], Tensor)
        np.testing.assert_allclose(results[0].numpy(), want, rtol=1e-4, atol=1e-5, err_msg=f"step {step}")
    for name, x in (("past_key", k), ("past_value", v)):
        got = held[name].numpy()
        np.testing.assert_array_equal(got[:, :, :STEPS], heads_first(x))
        assert np.isnan(got[:, :, STEPS:]).all(), f"{name}: rows behind the last token were written"


def beams(device: Device, seed: int) -> None:
    """Beams that choose their parents at random: each attends to the tokens of its own line."""
    width, entries = 3, 2
    batch = entries * width
    rng = np.random.default_rng(seed)
    q, k, v = tokens(seed, batch)
    held = caches(device, batch, 0.0)
    indirection = np.zeros((entries, width, ROOM), np.int32)
    lines_k, lines_v = (np.zeros((batch, HEADS, 0, SIZE)) for _ in range(2))
    for step in range(STEPS):
        parents = rng.integers(0, width, (entries, width))
        if step:
            indirection = np.take_along_axis(indirection, parents[..., None], axis=1)
            indirection[:, :, step - 1] = parents
            rows = (np.arange(entries)[:, None] * width + parents).reshape(-1)
            lines_k, lines_v = lines_k[rows], lines_v[rows]
        at = slice(step, step + 1)
        lines_k, lines_v = (
            np.concatenate([line, heads_first(x[:, at])], axis=2) for line, x in ((lines_k, k), (lines_v, v))
        )
        results = run(
            "DecoderMaskedMultiHeadAttention",
            {
                "query": q[:, at],
                "key": k[:, at],
                "value": v[:, at],
                "past_sequence_length": np.array([step], np.int32),
                "beam_width": np.array([width], np.int32),
                "cache_indirection": indirection,
                **held,
            },
            {"num_heads": HEADS, "past_present_share_buffer": 1},
            outputs={
                "output": None,
                "present_key": held["past_key"],
                "present_value": held["past_value"],
            },
            device=device,
        )
        y, _ = attend(heads_first(q[:, at]).astype(np.float64), lines_k, lines_v, scale=None)
        want = y.transpose(0, 2, 1, 3).reshape(batch, 1, HEADS * SIZE)
        assert isinstance(results[0], Tensor)
        np.testing.assert_allclose(results[0].numpy(), want, rtol=1e-4, atol=1e-5, err_msg=f"step {step}")
    whole = np.zeros((batch, HEADS, ROOM, SIZE), np.float32)
    whole[:, :, :STEPS] = heads_first(k)
    np.testing.assert_array_equal(held["past_key"].numpy(), reordered(whole))


def group_query(device: Device, seed: int, shared: bool) -> None:
    """Entries of two lengths: one starts without a token, one behind eight, which both caches hold.

    Where present shares past's buffer its rows are written in place; else each step's caches are one row
    longer than those of the step before. The answers to all tokens at once, as a prompt, are the reference.
    """
    batch, kv, start = 2, 1, np.array([0, 8])
    dtype = np.float32 if shared else np.float16
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((batch, ROOM, n * SIZE)).astype(dtype) for n in (HEADS, kv, kv))
    angles = np.outer(np.arange(ROOM), 10.0 ** -np.linspace(0, 3, SIZE // 2))
    attributes = {"num_heads": HEADS, "kv_num_heads": kv, "do_rotary": 1, "local_window_size": 150}
    turns = {"cos_cache": np.cos(angles).astype(dtype), "sin_cache": np.sin(angles).astype(dtype)}
    lengths = {"seqlens_k": np.full(batch, ROOM - 1, np.int32), "total_sequence_length": np.int32(ROOM)}
    want, *whole, _ = group_query_attention(q, k, v, **lengths, **turns, **attributes)

    held: dict[str, Any] = {}
    for name, rows in zip(("past_key", "past_value"), whole, strict=True):
        before = (np.arange(ROOM) < start[:, None])[:, None, :, None]
        filled = np.where(before, rows, np.array(np.nan, dtype))[:, :, : ROOM if shared else start.max()]
        held[name] = Tensor.from_numpy(np.ascontiguousarray(filled), device)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if shared else {"rtol": 2e-3, "atol": 1e-3}
    for step in range(STEPS):
        at = np.arange(batch)[:, None], (start + step)[:, None]
        inputs = {
            "query": q[at],
            "key": k[at],
            "value": v[at],
            "seqlens_k": (start + step).astype(np.int32),
            "total_sequence_length": np.int32(start.max() + step + 1),
            **turns,
            **held,
        }
        bound = {
            "output": None,
            "present_key": held["past_key"] if shared else None,
            "present_value": held["past_value"] if shared else None,
        }
        y, *present = run("GroupQueryAttention", inputs, attributes, outputs=bound, device=device)[:3]
        assert isinstance(y, Tensor)
        np.testing.assert_allclose(y.numpy(), want[at], **tolerance, err_msg=f"step {step}")
        held = dict(zip(held, present, strict=True))
    for tensor, rows in zip(held.values(), whole, strict=True):
        got = tensor.numpy()
        assert got.shape == rows.shape
        for entry, end in enumerate(start + STEPS):
            np.testing.assert_allclose(got[entry, :, :end], rows[entry, :, :end], **tolerance)
            assert not shared or np.isnan(got[entry, :, end:]).all(), (
                "rows behind the last token were written"
            )


DECODES = [
    pytest.param(partial(group_query, shared=True), id="group query, shared"),
    pytest.param(partial(group_query, shared=False), id="group query, separate"),
    multi_head,
    beams,
]


@pytest.mark.parametrize("decode", DECODES)
def test_every_step_agrees(device: Device, decode: Decode) -> None:
    decode(device, 1)


@pytest.mark.parametrize("decode", DECODES)
def test_two_threads_decode_at_once(decode: Decode) -> None:
    """Each thread has caches of its own on one device."""
    device = Device.default()
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(decode, device, seed) for seed in (2, 3)]:
            done.result()


def test_a_growing_cache_compiles_nothing_new(device: Device) -> None:
    """After ten steps all pipelines are there: lengths are uniforms."""
    held = caches(device, 1, 0.0)
    q, k, v = tokens(4, 1)
    counts = []
    for step in range(60):
        at = slice(step, step + 1)
        inputs = {
            "query": q[:, at],
            "key": k[:, at],
            "value": v[:, at],
            "past_sequence_length": np.array([step], np.int32),
            **held,
        }
        shared = {"output": None, "present_key": held["past_key"], "present_value": held["past_value"]}
        run("MultiHeadAttention", inputs, {"num_heads": HEADS}, outputs=shared, device=device)
        counts.append(len(device.programs))
    assert counts[SETTLED] == counts[-1]


def test_the_reference_agrees_with_lines_kept_by_hand() -> None:
    """``cache_indirection`` as the reference reads it, against lines of tokens gathered one by one."""
    rng = np.random.default_rng(5)
    width, had = 2, 4
    q, k, v = (rng.standard_normal((width, 1, HEADS * SIZE)).astype(np.float32) for _ in range(3))
    past = [rng.standard_normal((width, HEADS, had, SIZE)).astype(np.float32) for _ in range(2)]
    indirection = rng.integers(0, width, (1, width, had)).astype(np.int32)
    got = decoder_masked_multi_head_attention(
        q, k, v, past_key=past[0], past_value=past[1], cache_indirection=indirection, num_heads=HEADS
    )[0]
    for beam in range(width):
        lines = [
            np.stack([held[indirection[0, beam, t], :, t] for t in range(had)], axis=1)[None] for held in past
        ]
        line_k, line_v = (
            np.concatenate([line, heads_first(x[beam : beam + 1])], axis=2)
            for line, x in zip(lines, (k, v), strict=True)
        )
        y, _ = attend(heads_first(q[beam : beam + 1]).astype(np.float64), line_k, line_v, scale=None)
        np.testing.assert_allclose(got[beam, 0], y.reshape(-1), rtol=1e-6, atol=1e-7)
