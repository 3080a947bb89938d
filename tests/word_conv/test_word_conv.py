"""WordConvEmbedding: refusals, padding and malformed ids."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, Tensor, plan, reference, run
from webgpu_ops.core.plan import Capabilities
from webgpu_ops.errors import LimitError

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("word-conv")


def inputs(filters: int = 5, window: int = 3, width: int = 4, characters: int = 9) -> dict[str, Any]:
    rng = np.random.default_rng(filters)
    return {
        "Sequence": rng.integers(1, characters, (6, 7)).astype(np.int32),
        "W": rng.standard_normal((filters, 1, window, width)).astype(np.float32),
        "B": rng.standard_normal(filters).astype(np.float32),
        "C": rng.standard_normal((characters, width)).astype(np.float32),
    }


def embed(device: Device, call: dict[str, Any]) -> np.ndarray:
    return run("WordConvEmbedding", call, device=device)[0].numpy()


@pytest.mark.parametrize("window", [1, 3, 7, 12])
def test_words_of_every_length(any_device: Device, window: int) -> None:
    call = inputs(window=window)
    for length, word in enumerate(call["Sequence"]):
        word[length:] = 0
    call["Sequence"][3, -1] = 5  # what follows the first 0 does not count
    (want,) = reference.find("WordConvEmbedding")(**call)
    got = embed(any_device, call)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(got[0], 0)


def test_ids_on_the_device_are_contained(any_device: Device) -> None:
    call = inputs()
    wild = call["Sequence"].copy()
    wild[0, 1], wild[2, 3] = 2**31 - 1, -(2**31)
    got = embed(any_device, call | {"Sequence": Tensor.from_numpy(wild, any_device)})
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got[3:], embed(any_device, call)[3:])


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        ({}, {"embedding_size": 4}, "embedding_size is 4; expected 5 because W has 5 filters"),
        ({}, {"conv_window_size": 2}, "conv_window_size is 2; expected 3 because W has 3 rows a window"),
        ({}, {"char_embedding_size": 5}, "char_embedding_size is 5; expected 4 because W has 4 columns"),
        (
            {"C": np.zeros((9, 3), np.float32)},
            {},
            "W has shape (5, 1, 3, 4); expected (filters, 1, window, 3)",
        ),
        ({"B": np.zeros(4, np.float32)}, {}, "B has shape (4,); expected (5,) because W has 5 filters"),
        ({"Sequence": np.full((2, 3), 9, np.int32)}, {}, "Sequence holds 9..9; expected ids in [0, 8]"),
        ({"Sequence": np.full((2, 3), -1, np.int32)}, {}, "Sequence holds -1..-1"),
    ],
)
def test_refusals(changes: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(f"WordConvEmbedding: {message}")):
        plan("WordConvEmbedding", inputs() | changes, attributes)


def test_words_longer_than_a_software_adapter_walks_are_refused() -> None:
    long = inputs() | {"Sequence": np.ones((1, 10_000), np.int32)}
    with pytest.raises(
        LimitError, match=r"Sequence has shape \(1, 10000\) and W windows of 3; expected less"
    ):
        plan("WordConvEmbedding", long, capabilities=Capabilities(device_class="cpu"))
