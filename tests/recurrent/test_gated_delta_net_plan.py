"""Paths, costs and refusals of GatedDeltaNet; no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import plan
from webgpu_ops.core.dtypes import float16, float32, int32
from webgpu_ops.core.plan import PORTABLE, Fill, Plan, TensorSpec
from webgpu_ops.errors import SchemaError, WebGpuOpsError

ALL = ("output", "final_state")


def specs(
    batch: int = 1, length: int = 100, hk: int = 2, hv: int = 4, dk: int = 64, dv: int = 32
) -> dict[str, Any]:
    """A uniform call, tokens spelled [batch, length]."""
    return {
        "query": TensorSpec((batch, length, hk, dk), float16),
        "key": TensorSpec((batch, length, hk, dk), float16),
        "value": TensorSpec((batch, length, hv, dv), float16),
        "decay": TensorSpec((batch, length, hv), float32),
        "beta": TensorSpec((batch, length, hv), float32),
    }


def ragged(tokens: int, batch: int, hk: int = 2, hv: int = 4, dk: int = 64, dv: int = 32) -> dict[str, Any]:
    flat = specs(1, tokens, hk, hv, dk, dv)
    inputs = {name: TensorSpec(s.shape[1:], s.dtype) for name, s in flat.items()}
    return inputs | {"cu_seqlens": TensorSpec((batch + 1,), int32)}


def made(inputs: dict[str, Any], attributes: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan("GatedDeltaNet", inputs, attributes or {}, **({"outputs": ALL} | more))


@pytest.mark.parametrize(
    ("length", "path"), [(1, "recurrent"), (63, "recurrent"), (64, "chunked"), (5000, "chunked")]
)
def test_length_chooses_the_path(length: int, path: str) -> None:
    assert made(specs(length=length)).path == path


def test_prefill_is_two_dispatches_of_the_same_pipelines_at_any_length() -> None:
    short, long = made(specs(length=64)), made(specs(length=6400))
    assert len(short.dispatches) == len(long.dispatches) == 2
    for a, b in zip(short.dispatches, long.dispatches, strict=True):
        assert (a.template, a.constants, a.workgroup) == (b.template, b.constants, b.workgroup)


def test_ragged_calls_go_by_what_is_known_of_their_lengths() -> None:
    assert made(ragged(tokens=300, batch=2)).path == "chunked"
    assert made(ragged(tokens=64, batch=64)).path == "recurrent"  # one token each
    assert made(ragged(tokens=256, batch=64)).path == "recurrent"  # most chunks would be almost empty


def test_chunks_of_ragged_requests_fit_however_the_tokens_are_spread() -> None:
    made_plan = made(ragged(tokens=300, batch=3))
    floats = 2 * 32 * 32 + 4 * 32
    assert made_plan.scratch[0].size == (300 // 32 + 3) * 4 * floats


def test_chunk_size_is_a_hint() -> None:
    def chunk(size: int) -> Any:
        return dict(made(specs(), {"chunk_size": size}).dispatches[0].constants)["chunk"]

    assert [chunk(n) for n in (1, 16, 32, 64)] == [16, 16, 32, 32]


def test_calls_that_stay_recurrent() -> None:
    per_key = specs() | {"decay": TensorSpec((1, 100, 4, 64), float32)}
    assert made(per_key).path == "recurrent"
    assert made(specs(dk=513)).path == "recurrent"
    assert made(specs(), capabilities=replace(PORTABLE, device_class="cpu")).path == "recurrent"
    little = replace(PORTABLE, max_binding_bytes=1 << 16)
    assert made(specs(), capabilities=little).path == "recurrent"


def test_capture_is_recurrent_and_inactive_capture_is_not() -> None:
    attributes = {"state_update_capacity": 4}
    inputs = specs() | {"capture_count": TensorSpec((1,), int32)}
    outputs = (*ALL, "state_update")
    active = made(inputs, attributes, outputs=outputs)
    assert active.path == "recurrent"
    assert active.outputs[2] is not None and active.outputs[2].shape == (1, 4 * (4 + 2 * 64 + 4 * 32))
    inactive = made(inputs | {"state_update_active": np.zeros(1, np.int32)}, attributes, outputs=outputs)
    assert inactive.path == "chunked"
    assert [s.target.name for s in inactive.steps if isinstance(s, Fill)] == ["state_update"]
    assert made(inputs, attributes).path == "chunked"  # nobody takes the state update


def test_shapes_of_packed_and_batched_spellings() -> None:
    state = TensorSpec((2, 4, 32, 64), float32)
    width = 2 * 2 * 64 + 4 * 32
    for lead in ((6,), (2, 3)):
        inputs = {
            "query": TensorSpec((*lead, width), float32),
            "initial_state": state,
            "decay": TensorSpec((*lead, 4), float32),
            "beta": TensorSpec((*lead, 4), float32),
        }
        output, final_state, _ = made(inputs).outputs
        assert output is not None and output.shape == (*lead, 4, 32)
        assert final_state is not None and final_state.shape == state.shape


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({"key": None}, {}, "key and value came as value alone"),
        ({"key": None, "value": None}, {}, "initial_state is missing"),
        ({"query": TensorSpec((1, 100, 128), float16)}, {}, r"key has shape .* query has shape"),
        (
            {"key": TensorSpec((1, 100, 1, 64), float16)},
            {},
            r"key has shape \(1, 100, 1, 64\); expected \(1, 100, 2, 64\)",
        ),
        (
            {"value": TensorSpec((1, 100, 3, 32), float16)},
            {},
            "num_heads_v a multiple of num_heads_q = 2, not 3",
        ),
        ({"cu_seqlens": TensorSpec((2,), int32)}, {}, "one token axis because cu_seqlens is given"),
        ({"decay": TensorSpec((100, 4), float32)}, {}, r"decay has shape \(100, 4\); expected \(1, 100, 4\)"),
        ({"decay": TensorSpec((1, 100, 4, 63), float32)}, {}, r"expected \(1, 100, 4, 64\)"),
        ({"beta": TensorSpec((1, 100, 2), float32)}, {}, r"beta has shape .*; expected \(1, 100, 4\)"),
        ({"initial_state": TensorSpec((1, 4, 64, 32), float32)}, {}, r"initial_state has shape"),
        ({"a_log": TensorSpec((4,), float32)}, {}, "a_log is given"),
        ({"dt_bias": TensorSpec((4,), float32)}, {}, "dt_bias is given"),
        ({"dt_bias": TensorSpec((4,), float32)}, {"gate_activation": "qwen"}, "a_log is missing"),
        ({"a_log": TensorSpec((4,), float32)}, {"gate_activation": "qwen"}, "dt_bias is missing"),
        ({"capture_count": TensorSpec((1,), int32)}, {}, "capture_count is given"),
        ({}, {"state_update_capacity": 2}, "capture_count is missing"),
        (
            {"capture_count": TensorSpec((2,), int32)},
            {"state_update_capacity": 2},
            r"capture_count has shape \(2,\)",
        ),
        (
            {"capture_count": TensorSpec((1,), int32), "decay": TensorSpec((1, 100, 4, 64), float32)},
            {"state_update_capacity": 2},
            "decay is per key dimension",
        ),
        ({"state_update_active": np.zeros(2, np.int32)}, {}, r"state_update_active has shape \(2,\)"),
    ],
)
def test_refusals(change: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(WebGpuOpsError, match=f"^GatedDeltaNet: .*{message}"):
        made(specs() | change, attributes)


def test_uniform_packing_needs_the_state_for_its_batch() -> None:
    inputs = ragged(tokens=6, batch=2)
    del inputs["cu_seqlens"]
    with pytest.raises(WebGpuOpsError, match=r"initial_state is missing.*batch size without cu_seqlens"):
        made(inputs)
    with pytest.raises(WebGpuOpsError, match="query has 6 tokens; expected a multiple of the batch size 4"):
        made(inputs | {"initial_state": TensorSpec((4, 4, 32, 64), float32)})


@pytest.mark.parametrize(
    "attributes",
    [
        {"update_rule": "delta_gated"},
        {"gate_activation": "silu"},
        {"beta_activation": "tanh"},
        {"qk_l2_norm": 2},
        {"state_update_capacity": 9},
        {"state_update_capacity": -1},
        {"scale": float("nan")},
    ],
)
def test_attributes_are_checked_with_the_node(attributes: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=f"^GatedDeltaNet: {next(iter(attributes))} is "):
        made(specs(), attributes)
