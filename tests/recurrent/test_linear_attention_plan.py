"""Paths, costs and refusals of LinearAttention and its gate; no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from webgpu_ops import plan
from webgpu_ops.core.dtypes import bfloat16, float16, float32
from webgpu_ops.core.plan import PORTABLE, Plan, TensorSpec
from webgpu_ops.errors import SchemaError, WebGpuOpsError

HEADS = {"q_num_heads": 2, "kv_num_heads": 4}


def specs(length: int = 100, batch: int = 1, dk: int = 64, dv: int = 32) -> dict[str, Any]:
    shapes = {"query": 2 * dk, "key": 4 * dk, "value": 4 * dv, "decay": 4, "beta": 4}
    return {name: TensorSpec((batch, length, width), float16) for name, width in shapes.items()}


def made(inputs: dict[str, Any], attributes: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan("LinearAttention", inputs, HEADS | (attributes or {}), **more)


@pytest.mark.parametrize(
    ("length", "path"), [(1, "recurrent"), (63, "recurrent"), (64, "chunked"), (5000, "chunked")]
)
def test_length_chooses_the_path(length: int, path: str) -> None:
    assert made(specs(length)).path == path


@pytest.mark.parametrize(("window", "dispatches"), [(0, 2), (1, 2), (8, 3)])
def test_prefill_takes_the_same_few_pipelines_at_any_length(window: int, dispatches: int) -> None:
    short, long = (made(specs(length), {"state_window": window}) for length in (72, 7200))
    assert len(short.steps) == len(long.steps) == dispatches
    for a, b in zip(short.dispatches, long.dispatches, strict=True):
        assert (a.template, a.constants, a.workgroup) == (b.template, b.constants, b.workgroup)


def test_a_decay_for_each_channel_is_one_dispatch_at_any_length() -> None:
    per_key = specs(5000) | {"decay": TensorSpec((1, 5000, 4 * 64), float16)}
    assert made(per_key).path == "recurrent"
    assert len(made(per_key, {"state_window": 4}).steps) == 1


def test_software_adapters_stay_recurrent() -> None:
    caps = replace(PORTABLE, device_class="cpu")
    assert made(specs(), capabilities=caps).path == "recurrent"


def test_shapes_and_types() -> None:
    output, present = made(specs(7, batch=3)).outputs
    assert output is not None and (output.shape, output.dtype) == ((3, 7, 4 * 32), float16)
    assert present is not None and (present.shape, present.dtype) == ((3, 4, 64, 32), float16)
    past = TensorSpec((2, 3, 4, 64, 32), bfloat16)
    present = made(specs(7, batch=3) | {"past_state": past}, {"state_window": 2}).outputs[1]
    assert present is not None and (present.shape, present.dtype) == (past.shape, bfloat16)
    grouped = specs(7) | {"query": TensorSpec((1, 7, 8 * 64), float16)}
    output = made(grouped, {"q_num_heads": 8}).outputs[0]
    assert output is not None and output.shape == (1, 7, 8 * 32)


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({"query": TensorSpec((100, 128), float16)}, {}, r"query has shape \(100, 128\)"),
        ({"query": TensorSpec((1, 100, 127), float16)}, {}, "positive multiple of q_num_heads = 2"),
        ({"key": TensorSpec((1, 100, 128), float16)}, {}, r"key has shape .* expected \(1, 100, 256\)"),
        ({"key": TensorSpec((1, 99, 256), float16)}, {}, r"key has shape .* query has shape"),
        ({"value": TensorSpec((1, 100, 127), float16)}, {}, "positive multiple of kv_num_heads = 4"),
        ({"value": TensorSpec((2, 100, 128), float16)}, {}, r"value has shape .* query has shape"),
        ({"decay": None}, {}, "decay is missing; expected an input because update_rule is 'gated_delta'"),
        ({"beta": None}, {}, "beta is missing; expected an input because update_rule is 'gated_delta'"),
        ({"decay": None}, {"update_rule": "gated"}, "decay is missing"),
        ({"beta": None}, {"update_rule": "delta"}, "beta is missing"),
        (
            {"decay": TensorSpec((1, 100, 64), float16)},
            {},
            r"decay has shape \(1, 100, 64\); expected \(1, 100, 4\) or \(1, 100, 256\)",
        ),
        ({"beta": TensorSpec((1, 100, 2), float16)}, {}, r"beta has shape .* \(1, 100, 4\) or \(1, 100, 1\)"),
        ({"beta": TensorSpec((1, 100), float16)}, {}, r"beta has shape \(1, 100\)"),
        (
            {"past_state": TensorSpec((1, 4, 32, 64), float32)},
            {},
            r"past_state has shape .* expected \(1, 4, 64, 32\)",
        ),
        (
            {"past_state": TensorSpec((1, 4, 64, 32), float32)},
            {"state_window": 2},
            r"past_state has shape .* expected \(2, 1, 4, 64, 32\)",
        ),
    ],
)
def test_refusals(change: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(WebGpuOpsError, match=f"^LinearAttention: .*{message}"):
        made(specs() | change, attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"update_rule": "retnet"},
        {"q_num_heads": 0},
        {"kv_num_heads": -1},
        {"q_num_heads": 3},
        {"state_window": 9},
        {"state_window": -1},
        {"scale": float("inf")},
    ],
)
def test_attributes_are_checked_with_the_node(attributes: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=f"^LinearAttention: {next(iter(attributes))} is "):
        made(specs(), attributes)


def gate(**change: Any) -> dict[str, Any]:
    inputs = {name: TensorSpec((2, 3, 5), float16) for name in ("a", "b")}
    return inputs | {name: TensorSpec((5,), float32) for name in ("dt_bias", "decay_scale")} | change


def test_the_gate_is_one_dispatch() -> None:
    assert len(plan("LinearAttentionGate", gate(), outputs=("decay", "beta")).steps) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": TensorSpec((3, 5), float16)}, r"a has shape \(3, 5\)"),
        ({"b": TensorSpec((2, 3, 1), float16)}, r"b has shape \(2, 3, 1\); expected \(2, 3, 5\)"),
        ({"dt_bias": TensorSpec((6,), float32)}, r"dt_bias has shape \(6,\); expected \(5,\)"),
        ({"decay_scale": TensorSpec((1,), float32)}, r"decay_scale has shape \(1,\)"),
        ({"b": None}, "b is missing; expected an input because beta is an output"),
    ],
)
def test_gate_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(WebGpuOpsError, match=f"^LinearAttentionGate: {message}"):
        plan("LinearAttentionGate", gate(**change), outputs=("decay", "beta"))
