"""EmbedLayerNormalization beyond the stored cases and the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, Tensor, plan, run
from webgpu_ops.reference.embedding import embed_layer_normalization

WORDS, POSITIONS, HIDDEN = 9, 6, 12


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def call(**changes: Any) -> dict[str, Any]:
    """A valid call by input name, with changes."""
    ids = np.array([[0, 3, 8, 1], [2, 2, 7, 5]], np.int32)
    inputs = {
        "input_ids": ids,
        "segment_ids": ids % 2,
        "word_embedding": draw(WORDS, HIDDEN),
        "position_embedding": draw(POSITIONS, HIDDEN),
        "segment_embedding": draw(2, HIDDEN),
        "gamma": draw(HIDDEN),
        "beta": draw(HIDDEN, seed=1),
    }
    return {k: v for k, v in (inputs | changes).items() if v is not None}


def test_ids_on_the_device_are_contained(device: Device) -> None:
    ids = np.array([[-1, 100, 8, -(2**31)], [2, 2**31 - 1, 7, 5]], np.int32)
    inputs = call(input_ids=Tensor.from_numpy(ids, device), position_ids=Tensor.from_numpy(ids - 1, device))
    got = run("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, device=device)[0]
    with np.errstate(over="ignore"):
        clamped = call(
            input_ids=ids.clip(0, WORDS - 1), position_ids=(ids - np.int32(1)).clip(0, POSITIONS - 1)
        )
    want = embed_layer_normalization(**clamped, epsilon=1e-5)[0]
    assert got is not None
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)


def test_the_mask_is_counted(device: Device) -> None:
    """Its non-zeros, whatever their value and wherever they are."""
    mask = np.array([[0, 5, -1, 0], [1, 1, 1, 1]], np.int32)
    got = run("EmbedLayerNormalization", call(mask=mask), outputs=("output", "mask_index"), device=device)[1]
    assert got is not None
    np.testing.assert_array_equal(got.numpy(), [2, 4])


def test_a_long_mask(device: Device) -> None:
    ids = np.zeros((3, 300), np.int32)
    mask = (np.random.default_rng(0).random((3, 300)) < 0.5).astype(np.int32)
    inputs = call(
        input_ids=ids,
        segment_ids=None,
        segment_embedding=None,
        position_embedding=draw(300, HIDDEN),
        mask=mask,
    )
    got = run("EmbedLayerNormalization", inputs, outputs=("output", "mask_index"), device=device)[1]
    assert got is not None
    np.testing.assert_array_equal(got.numpy(), mask.sum(1))


def test_no_words_at_all(device: Device) -> None:
    empty = np.zeros((2, 0), np.int32)
    inputs = call(input_ids=empty, segment_ids=empty, mask=empty)
    got = run("EmbedLayerNormalization", inputs, outputs=("output", "mask_index"), device=device)
    assert got[0] is not None
    assert got[1] is not None
    assert got[0].shape == (2, 0, HIDDEN)
    np.testing.assert_array_equal(got[1].numpy(), [0, 0])


def test_refusals() -> None:
    ids = call()["input_ids"]
    for changes, message in [
        (
            {"input_ids": ids + 1},
            r"input_ids holds 9; expected ids in \[0, 8\] because word_embedding has 9 rows",
        ),
        ({"input_ids": ids - 1}, "input_ids holds -1"),
        ({"segment_ids": ids}, "segment_ids holds 3"),
        ({"position_ids": ids}, r"position_ids holds 8; expected ids in \[0, 5\]"),
        ({"position_ids": ids[:, :3]}, r"position_ids has shape \(2, 3\); expected \(2, 4\) or \(1, 4\)"),
        ({"position_embedding": draw(3, HIDDEN)}, "input_ids has 4 positions; expected at most 3"),
        ({"position_embedding": draw(POSITIONS, 5)}, r"position_embedding has shape \(6, 5\)"),
        ({"segment_ids": None}, "segment_ids is missing; expected it to come with segment_embedding"),
        ({"segment_embedding": None}, "segment_embedding is missing"),
        ({"mask": ids[:1]}, r"mask has shape \(1, 4\)"),
        ({"gamma": draw(5)}, r"gamma has shape \(5,\); expected \(12,\)"),
        ({"input_ids": ids[0]}, r"input_ids has shape \(4,\); expected \(batch, sequence\)"),
        ({"word_embedding": draw(0, HIDDEN)}, "at least one row"),
    ]:
        with pytest.raises(ShapeError, match=message):
            plan("EmbedLayerNormalization", call(**changes))
