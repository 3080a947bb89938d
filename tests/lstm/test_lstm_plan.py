"""LSTM plans and refusals, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import LimitError, SchemaError, ShapeError, plan
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Plan, TensorSpec

CPU = replace(PORTABLE, device_class="cpu")
CLASSES = pytest.mark.parametrize("caps", [PORTABLE, CPU], ids=["gpu", "cpu"])
OUTPUTS = ("Y", "Y_h", "Y_c")


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def lstm(steps: int, batch: int, width: int, hidden: int, dirs: int = 1) -> dict[str, Any]:
    return {
        "X": spec(steps, batch, width),
        "W": spec(dirs, 4 * hidden, width),
        "R": spec(dirs, 4 * hidden, hidden),
    }


def quantized(steps: int, batch: int, width: int, hidden: int, dirs: int = 1) -> dict[str, Any]:
    return {
        "X": spec(steps, batch, width),
        "W": spec(dirs, width, 4 * hidden, dtype=dtypes.int8),
        "R": spec(dirs, hidden, 4 * hidden, dtype=dtypes.int8),
        **{f"{n}_scale": spec(dirs) for n in "WR"},
        **{f"{n}_zero_point": spec(dirs, dtype=dtypes.int8) for n in "WR"},
    }


def attention(steps: int, batch: int, width: int, hidden: int, memory: int = 9) -> dict[str, Any]:
    return {
        "X": spec(steps, batch, width),
        "W": spec(1, 4 * hidden, width + 6),
        "R": spec(1, 4 * hidden, hidden),
        "QW": spec(1, hidden, 5),
        "MW": spec(1, 6, 5),
        "V": spec(1, 5),
        "M": spec(batch, memory, 6),
    }


CALLS = {"LSTM": lstm, "DynamicQuantizeLSTM": quantized, "AttnLSTM": attention}


def planned(op: str, inputs: Mapping[str, Any], caps: Any = PORTABLE, **attributes: Any) -> Plan:
    domain = "" if op == "LSTM" else "com.microsoft"
    return plan(op, inputs, attributes, domain=domain, outputs=OUTPUTS, capabilities=caps)


def count(found: Plan, template: str) -> int:
    return sum(d.template == template for d in found.dispatches)


@CLASSES
@pytest.mark.parametrize("op", CALLS)
def test_a_long_sequence_is_few_dispatches(op: str, caps: Any) -> None:
    found = planned(op, CALLS[op](1000, 2, 40, 64), caps)
    assert count(found, "lstm/step") <= 60
    assert len(found.dispatches) <= 70


@CLASSES
@pytest.mark.parametrize("op", CALLS)
def test_length_and_rows_make_no_new_pipelines(op: str, caps: Any) -> None:
    """One template, types and constants for every length, in however many dispatches."""
    kinds = [
        {
            (
                d.template,
                d.constants,
                d.workgroup,
                tuple((n, s and s.dtype) for n, s in (*d.reads, *d.writes)),
            )
            for d in planned(op, CALLS[op](steps, batch, 40, 64), caps).dispatches
            if d.template.startswith("lstm/")
        }
        for steps, batch in ((1, 4), (7, 4), (500, 9))
    ]
    assert kinds[0] == kinds[1] == kinds[2]


@CLASSES
@pytest.mark.parametrize("op", CALLS)
def test_steps_of_wide_layers_are_shared_out(op: str, caps: Any) -> None:
    found = planned(op, CALLS[op](5, 3, 40, 2048), caps)
    steps = [d for d in found.dispatches if d.template == "lstm/step"]
    assert len(steps) == 5
    assert all(d.groups >= 32 for d in steps)
    assert count(found, "lstm/quantize") == (5 if op == "DynamicQuantizeLSTM" else 0)
    assert count(found, "lstm/attention") == (5 if op == "AttnLSTM" else 0)


def test_many_quantized_rows_are_shared_out() -> None:
    """One workgroup would quantize all rows, and multiply them all by itself."""
    assert count(planned("DynamicQuantizeLSTM", quantized(3, 2, 8, 256)), "lstm/quantize") == 0
    assert count(planned("DynamicQuantizeLSTM", quantized(3, 4096, 8, 256)), "lstm/quantize") == 3


def test_work_that_a_software_adapter_shares_among_more_lanes() -> None:
    for batch, lanes in ((64, 64), (4096, 256)):
        found = planned("DynamicQuantizeLSTM", quantized(3, batch, 8, 512), CPU)
        assert {d.workgroup for d in found.dispatches if d.template == "lstm/quantize"} == {lanes}
    with pytest.raises(
        LimitError, match=r"X has shape \(3, 16384, 8\) and hidden_size is 512; expected less"
    ):
        planned("DynamicQuantizeLSTM", quantized(3, 16384, 8, 512), CPU)


def test_both_directions_are_in_one_dispatch() -> None:
    found = planned("LSTM", lstm(9, 2, 5, 16, dirs=2), direction="bidirectional")
    assert count(found, "lstm/step") == 1
    assert count(found, "matmul/tile") + count(found, "matmul/shared") == 1


def test_outputs() -> None:
    found = planned("LSTM", lstm(9, 2, 5, 16, dirs=2), direction="bidirectional")
    assert [s and s.shape for s in found.outputs] == [(9, 2, 2, 16), (2, 2, 16), (2, 2, 16)]
    first = {"X": spec(2, 9, 5), "W": spec(1, 64, 5), "R": spec(1, 64, 16)}
    found = planned("LSTM", first, layout=1)
    assert [s and s.shape for s in found.outputs] == [(2, 9, 1, 16), (2, 1, 16), (2, 1, 16)]


BASE = lstm(4, 2, 3, 5)
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"direction": "sideways"}, "direction is 'sideways'; expected one of forward, reverse"),
    ({}, {"activations": ["NoSuch", "Tanh", "Tanh"]}, "activations hold 'NoSuch'"),
    ({}, {"activations": ["Tanh", "Tanh"]}, "activations hold 2 names; expected 3 because direction"),
    ({}, {"clip": -1.0}, "clip is -1.0"),
    ({}, {"layout": 2}, "layout is 2; expected 0 or 1"),
    ({}, {"hidden_size": 6}, "R has shape (1, 20, 5); expected hidden_size 6"),
    ({}, {"direction": "bidirectional"}, "W has shape (1, 20, 3); expected (2, 20, 3)"),
    ({"X": spec(4, 2)}, {}, "X has shape (4, 2); expected three dimensions"),
    ({"W": spec(1, 20, 4)}, {}, "W has shape (1, 20, 4); expected (1, 20, 3) because X has 3 columns"),
    ({"R": spec(1, 19, 5)}, {}, "R has shape (1, 19, 5); expected (1, 20, 5)"),
    ({"B": spec(1, 20)}, {}, "B has shape (1, 20); expected (1, 40)"),
    ({"P": spec(1, 20)}, {}, "P has shape (1, 20); expected (1, 15)"),
    ({"initial_h": spec(2, 1, 5)}, {}, "initial_h has shape (2, 1, 5); expected (1, 2, 5)"),
    ({"initial_c": spec(1, 2, 4)}, {}, "initial_c has shape (1, 2, 4); expected (1, 2, 5)"),
    ({"sequence_lens": np.array([4], np.int32)}, {}, "sequence_lens has shape (1,); expected (2,)"),
    (
        {"sequence_lens": np.array([5, 1], np.int32)},
        {},
        "sequence_lens holds 1..5; expected lengths in [0, 4]",
    ),
    ({"sequence_lens": np.array([-1, 1], np.int32)}, {}, "sequence_lens holds -1..1"),
]


@pytest.mark.parametrize(("inputs", "attributes", "message"), REFUSED)
def test_refusals(inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises((ShapeError, SchemaError), match=re.escape(f"LSTM: {message}")):
        planned("LSTM", BASE | inputs, **attributes)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("W", spec(1, 20, 4, dtype=dtypes.int8), "expected (1, 3, 20)"),
        ("W_scale", spec(1, 5), "expected (1,) or (1, 20)"),
        ("R_zero_point", spec(1, 20, dtype=dtypes.int8), "expected (1,) because R_scale has shape (1,)"),
    ],
)
def test_refusals_of_quantized_weights(name: str, bad: TensorSpec, message: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(message)):
        planned("DynamicQuantizeLSTM", quantized(4, 2, 3, 5) | {name: bad})


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("W", spec(1, 20, 3), "W has shape (1, 20, 3); expected (1, 20, 9) because X has 3 columns"),
        ("M", spec(3, 9, 6), "M has shape (3, 9, 6); expected (2, max_memory_step, memory_depth)"),
        ("MW", spec(1, 5, 5), "MW has shape (1, 5, 5); expected (1, 6, 5)"),
        ("QW", spec(1, 4, 5), "QW has shape (1, 4, 5); expected (1, 5, am_attn_size)"),
        ("AW", spec(1, 6, 6), "AW has shape (1, 6, 6); expected (1, 11, aw_attn_size)"),
        ("memory_seq_lens", np.array([10, 0], np.int32), "memory_seq_lens holds 0..10; expected lengths in"),
        ("V", None, "input V is required here"),
    ],
)
def test_refusals_of_attention(name: str, bad: Any, message: str) -> None:
    inputs = {k: v for k, v in (attention(4, 2, 3, 5) | {name: bad}).items() if v is not None}
    with pytest.raises(ShapeError, match=re.escape(f"AttnLSTM: {message}")):
        planned("AttnLSTM", inputs)
