"""Arabic diacritization models with DynamicQuantizeLSTM as shipped.

The stored outputs come from exact integer arithmetic. A quantized value near a tie may round to the
other side in float32, so a few positions may differ.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from webgpu_ops import Device, InferenceSession
from webgpu_ops.demos.packages import TASHKEEL, TASHKEEL_ENSEMBLE

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.xdist_group("tashkeel")


def _load(model: str, name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / model / f"{name}.npz") as data:
        return dict(data)


def test_scores(any_device: Device) -> None:
    session = InferenceSession(str(TASHKEEL.fetch()), device=any_device)
    (got,) = session.run(["output"], _load("tashkeel-rawi-v2", "inputs"))
    want = _load("tashkeel-rawi-v2", "expected")["output"]
    assert got.shape == want.shape and got.dtype == want.dtype
    assert np.mean(got.argmax(-1) == want.argmax(-1)) >= 0.95
    assert np.abs(got - want).max() <= 0.2
    assert np.sqrt(np.mean((got - want) ** 2)) <= 0.02


def test_classes_of_the_ensemble(device: Device) -> None:
    session = InferenceSession(str(TASHKEEL_ENSEMBLE.fetch()), device=device)
    (got,) = session.run(["gated_cls"], _load("tashkeel-rawi-ensemble", "inputs"))
    want = _load("tashkeel-rawi-ensemble", "expected")["gated_cls"]
    assert got.shape == want.shape and got.dtype == want.dtype == np.int64
    assert np.mean(got == want) >= 0.97


def test_a_layer_is_few_dispatches(device: Device) -> None:
    """A sentence of 44 characters does not take a dispatch a step."""
    graph = onnx.load(str(TASHKEEL.fetch())).graph
    layers = sum(node.op_type == "DynamicQuantizeLSTM" for node in graph.node)
    assert layers == 2
    session = InferenceSession(str(TASHKEEL.fetch()), device=device)
    feeds = _load("tashkeel-rawi-v2", "inputs")
    session.run(None, feeds)
    before = device.stats.dispatches
    session.run(None, feeds)
    assert feeds["input"].shape == (1, 44)
    assert device.stats.dispatches - before < 44
