"""The ONNX project's own node tests of Attention, through the backend interface and its own judge.

The onnx package makes them when it is imported, from random numbers. Each comes twice: as the operator,
and ``_expanded`` into the graph of simpler operators that defines it.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.runner import Runner

from webgpu_ops import Device, backend

# Why a test does not pass: the operator's text decides, and float16 is not made of float16 sums.
DIFFERS = {
    "test_attention_4d_causal_fp16_expanded": (
        "its float16 steps round in another order than those of the expected values, by more than the "
        "0.1 percent that the test allows"
    ),
}


def _collect() -> dict[str, TestCase]:
    state = np.random.get_state()
    np.random.seed(0)
    importlib.import_module("onnx.backend.test.case.node.attention")
    np.random.set_state(state)
    made = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    return {c.name: c for c in made if c.name.startswith("test_attention_")}


CASES = _collect()
OPERATOR = [name for name in CASES if not name.endswith("_expanded")]
EXPANDED = [name for name in CASES if name.endswith("_expanded")]


def check(case: TestCase, device: Device) -> None:
    prepared = backend.prepare(case.model, device)
    for inputs, outputs in case.data_sets:
        Runner.assert_similar_outputs(outputs, list(prepared.run(inputs)), case.rtol, case.atol)


def test_all_are_here() -> None:
    """Both opsets of the operator, and its definition, are tested."""
    opsets = {c.model.opset_import[0].version for c in CASES.values()}
    assert {23, 24} <= opsets
    assert len(OPERATOR) >= 80 and len(EXPANDED) == len(OPERATOR)
    assert set(DIFFERS) <= set(CASES)


@pytest.mark.xdist_group("onnx attention")
@pytest.mark.parametrize("name", OPERATOR)
def test_operator(device: Device, name: str) -> None:
    check(CASES[name], device)


@pytest.mark.xdist_group("onnx attention")
@pytest.mark.parametrize("name", EXPANDED)
def test_definition(name: str) -> None:
    case = CASES[name]
    if name in DIFFERS:
        pytest.xfail(DIFFERS[name])
    check(case, Device.default())
