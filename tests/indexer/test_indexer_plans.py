"""Plans and refusals of the indexers, without a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import plan
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.program import Placement, Variant, variant_of
from webgpu_ops.errors import LimitError, SchemaError, ShapeError
from webgpu_ops.families.indexer import core

DENSE, PACKED, MERGE = (
    "SparseAttentionIndexer",
    "PackedSparseAttentionIndexer",
    "PackedSparseAttentionIndexerMerge",
)
QSA = {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4}
CSA = {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 3}
INT64 = ("mask", "position_ids")
INT32 = (
    "past_sequence_length",
    "cumulative_sequence_lengths",
    "past_sequence_lengths",
    "past_state_lengths",
    "state_update_capture_count",
    "state_update_active",
    "indexshare_mode",
    "merged_indices",
    "merged_counts",
    "merged_status",
)


def specs(shapes: dict[str, Any]) -> dict[str, Any]:
    """Specs for shapes; values stay as they are, None leaves an input out."""

    def one(name: str, shape: Any) -> Any:
        if isinstance(shape, np.ndarray):
            return shape
        kind = dtypes.int64 if name in INT64 else dtypes.int32 if name in INT32 else dtypes.float32
        return TensorSpec(shape, kind)

    return {name: one(name, shape) for name, shape in shapes.items() if shape is not None}


def dense(policy: str = "qsa", **changes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "query": (2, 3, 8),
        "key": (2, 3, 4),
        "query_norm_weight": (4,),
        "key_norm_weight": (4,),
        "cos_cache": (20, 4),
        "sin_cache": (20, 4),
        "past_key": (2, 5, 4),
    }
    if policy == "csa":
        shapes |= {
            "key": (2, 3, 8),
            "cos_cache": (20, 2),
            "sin_cache": (20, 2),
            "gate": (2, 3, 8),
            "position_bias": (2, 8),
            "head_weights": (2, 3, 2),
            "position_ids": (2, 3),
            "past_proj_buffer": (2, 2, 3, 8),
        }
    return specs(shapes | changes)


def packed(policy: str = "qsa", **changes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "query": (5, 8),
        "key": (5, 4),
        "query_norm_weight": (4,),
        "key_norm_weight": (4,),
        "cos_cache": (20, 4),
        "sin_cache": (20, 4),
        "cumulative_sequence_lengths": (3,),
        "past_sequence_lengths": (2,),
        "past_key_state": (2, 6, 4),
        "past_kv_buffer": (2, 3, 4),
        "past_state_lengths": (2, 2),
    }
    if policy == "csa":
        shapes |= {
            "key": (5, 8),
            "cos_cache": (20, 2),
            "sin_cache": (20, 2),
            "gate": (5, 8),
            "position_bias": (2, 8),
            "head_weights": (5, 2),
            "position_ids": (5,),
            "past_kv_buffer": (2, 3, 8),
            "past_gate_buffer": (2, 3, 8),
        }
    return specs(shapes | changes)


def shared(mode: int, rows: int, width: int = 9) -> dict[str, Any]:
    return {
        "indexshare_mode": np.array([mode], np.int32),
        "merged_indices": (rows, width),
        "merged_counts": (rows,),
        "merged_status": (rows,),
    }


def outputs(policy: str, *more: str) -> list[str]:
    gate = ["present_gate_buffer"] if policy == "csa" else []
    states = ["present_key_state", "present_kv_buffer", *gate, "present_state_lengths"]
    return ["selected_indices", "selected_counts", *states, *more]


def variants(made: Plan) -> set[Variant]:
    found = set()
    for d in made.dispatches:
        names = [n for n, s in (*d.reads, *d.writes) if s is not None]
        found.add(variant_of(d, [Placement(f"{n}_data", False) for n in names], PORTABLE))
    return found


# Attributes


@pytest.mark.parametrize("op", [DENSE, PACKED])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy_mode": "QSA"}, "policy_mode is 'QSA'; expected 'qsa' or 'csa'"),
        ({"compress_ratio": 0}, "compress_ratio is 0"),
        ({"compress_ratio": 1 << 31}, "compress_ratio is 2147483648"),
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"token_budget": None}, "token_budget is missing"),
        ({"token_budget": 0}, "token_budget is 0; expected a positive"),
        ({"token_budget": 5}, "token_budget is 5; expected a multiple of compress_ratio = 2"),
        ({"compress_ratio": 3, "token_budget": (1 << 31) - 2}, "token_budget is 2147483646; .* an int32"),
        ({"index_topk": 3}, "index_topk is 3; expected none because policy_mode is 'qsa'"),
        ({"head_weight_scale": 0.0}, "head_weight_scale is 0"),
        (CSA, "token_budget is 4; expected none because policy_mode is 'csa'"),
        ({**CSA, "token_budget": None, "index_topk": None}, "index_topk is missing"),
        ({**CSA, "token_budget": None, "index_topk": -1}, "index_topk is -1"),
    ],
)
def test_attributes(op: str, changes: dict[str, Any], message: str) -> None:
    inputs = dense() if op == DENSE else packed()
    merged = {**QSA, "state_capacity": 6, **changes} if op == PACKED else {**QSA, **changes}
    attributes = {k: v for k, v in merged.items() if v is not None}
    with pytest.raises(SchemaError, match=f"^{op}: {message}"):
        plan(op, inputs, attributes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_capacity": 0}, "state_capacity is 0"),
        ({"state_update_capacity": 9}, "state_update_capacity is 9; expected 0 to 8"),
        ({"max_output_entries": 4}, "max_output_entries is 4; expected at least 5"),
        ({"indexshare_state_policy": "keep"}, "indexshare_state_policy is 'keep'"),
    ],
)
def test_attributes_of_packed_requests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"^{PACKED}: {message}"):
        plan(PACKED, packed(), {**QSA, "state_capacity": 6, **changes})


def test_captures_belong_to_qsa() -> None:
    with pytest.raises(SchemaError, match="state_update_capacity is 2; expected none"):
        plan(PACKED, packed("csa"), {**CSA, "state_capacity": 6, "state_update_capacity": 2})


# Shapes


@pytest.mark.parametrize(
    ("policy", "changes", "wanted", "message"),
    [
        ("qsa", {"query": (2, 3, 9)}, (), "query has 9 columns; expected a multiple of 4"),
        ("qsa", {"query": (6, 8)}, (), r"query has shape \(6, 8\); expected 3 dimensions"),
        ("qsa", {"key": None, "query": (2, 3, 4)}, (), "query has 4 columns"),
        ("qsa", {"key": (2, 3, 8)}, (), r"key has shape \(2, 3, 8\); expected \(batch, sequence, 4\)"),
        ("qsa", {"key": (2, 2, 4)}, (), r"key has shape \(2, 2, 4\); expected \(2, 3, 4\)"),
        ("qsa", {"query_norm_weight": (0,)}, (), "query_norm_weight is empty"),
        ("qsa", {"key_norm_weight": (5,)}, (), r"key_norm_weight has shape \(5,\); expected \(4,\)"),
        ("qsa", {"cos_cache": (20, 3)}, (), "expected an even width up to 4"),
        ("qsa", {"cos_cache": (20, 6)}, (), "expected an even width up to 4"),
        ("qsa", {"cos_cache": (3, 20, 4)}, (), r"cos_cache has shape \(3, 20, 4\)"),
        ("qsa", {"cos_cache": (0, 4)}, (), "expected at least one row"),
        ("qsa", {"sin_cache": (2, 20, 4)}, (), r"sin_cache has shape \(2, 20, 4\); expected \(20, 4\)"),
        ("qsa", {"cos_cache": (7, 4), "sin_cache": (7, 4)}, (), "has 7 rows; expected at least 8"),
        ("qsa", {"mask": (2, 7)}, (), r"mask has shape \(2, 7\); expected \(2, 8\)"),
        ("qsa", {"past_key": (2, 5, 8)}, (), r"past_key has shape \(2, 5, 8\)"),
        ("qsa", {"gate": (2, 3, 8)}, (), "gate is given; expected none"),
        ("qsa", {"past_sequence_length": np.array([3], np.int32)}, (), "at least 6: 3 valid ones and 3"),
        ("qsa", {"past_sequence_length": np.array([6], np.int32)}, (), "is 6; expected 0 to 5"),
        ("qsa", {"past_sequence_length": np.array([-1], np.int32)}, (), "is -1; expected 0 to 5"),
        ("qsa", {"past_sequence_length": (2,)}, (), "expected one number"),
        ("qsa", {}, ("present_proj_buffer",), "present_proj_buffer is an output; expected none"),
        ("csa", {"mask": (2, 8)}, (), "mask is given; expected none"),
        ("csa", {"key": None}, (), "key is missing"),
        ("csa", {"gate": None}, (), "gate is missing"),
        ("csa", {"past_proj_buffer": None}, (), "past_proj_buffer is missing"),
        ("csa", {"past_proj_buffer": (2, 2, 4, 8)}, (), "holds 4 tokens; expected at most 3"),
        ("csa", {"position_bias": (3, 8)}, (), r"position_bias has shape \(3, 8\); expected \(2, 8\)"),
        ("csa", {"head_weights": (2, 3, 3)}, (), r"head_weights has shape \(2, 3, 3\); expected \(2, 3, 2\)"),
        ("csa", {"cos_cache": (20, 3), "sin_cache": (20, 3)}, (), "expected a width up to 2"),
        ("csa", {"cos_cache": (12, 2), "sin_cache": (12, 2)}, (), "entry 6 stands at position 12"),
        ("csa", {"position_ids": np.full((2, 3), 20)}, (), r"holds \[20\]; expected positions in \[0, 19\]"),
        ("csa", {"position_ids": np.full((2, 3), -1)}, (), r"position_ids holds \[-1\]"),
    ],
)
def test_shapes_of_a_batch(
    policy: str, changes: dict[str, Any], wanted: tuple[str, ...], message: str
) -> None:
    attributes = QSA if policy == "qsa" else CSA
    with pytest.raises(ShapeError, match=f"^{DENSE}: .*{message}"):
        plan(
            DENSE, dense(policy, **changes), attributes, outputs=["selected_indices", "present_key", *wanted]
        )


@pytest.mark.parametrize(
    ("policy", "changes", "attributes", "wanted", "message"),
    [
        ("qsa", {"query": (4, 8)}, {}, (), r"key has shape \(5, 4\); expected \(4, 4\)"),
        ("qsa", {"cumulative_sequence_lengths": (0,)}, {}, (), "cumulative_sequence_lengths is empty"),
        ("qsa", {"past_sequence_lengths": (3,)}, {}, (), r"past_sequence_lengths has shape \(3,\)"),
        ("qsa", {"past_state_lengths": (2, 3)}, {}, (), r"past_state_lengths has shape \(2, 3\)"),
        ("qsa", {"past_key_state": (2, 5, 4)}, {}, (), r"expected \(2, 6, 4\) .*state_capacity is 6"),
        ("qsa", {"past_kv_buffer": (2, 2, 4)}, {}, (), r"past_kv_buffer has shape \(2, 2, 4\)"),
        ("qsa", {"position_ids": (5,)}, {}, (), "position_ids is given; expected none"),
        ("qsa", {"past_gate_buffer": (2, 3, 8)}, {}, (), "past_gate_buffer is given"),
        ("qsa", {}, {}, ("present_gate_buffer",), "present_gate_buffer is an output"),
        ("qsa", {}, {"state_update_capacity": 2}, ("state_update",), "state_update_capture_count is missing"),
        ("qsa", {"state_update_capture_count": (3,)}, {}, (), "state_update_capture_count has shape"),
        ("qsa", {"state_update_active": (2,)}, {}, (), "state_update_active has shape"),
        ("csa", {"state_update_active": (1,)}, {}, (), "state_update_active is given"),
        ("csa", {}, {}, ("state_update",), "state_update is an output; expected none"),
        ("csa", {"position_ids": None}, {}, (), "position_ids is missing"),
        ("csa", {"past_gate_buffer": (2, 3, 4)}, {}, (), "past_gate_buffer has shape"),
        ("csa", {"head_weights": (5, 3)}, {}, (), r"head_weights has shape \(5, 3\); expected \(5, 2\)"),
        ("csa", {"position_ids": np.array([0, 1, 2, 3, 20])}, {}, (), r"position_ids holds \[20\]"),
        ("qsa", {}, {}, ("indexshare_status",), "indexshare_status is an output; expected none"),
        ("qsa", {}, {"max_output_entries": 9}, (), "indexshare_mode is missing"),
        ("qsa", shared(0, 0), {}, (), "max_output_entries is missing"),
        ("qsa", {**shared(0, 0), "merged_counts": None}, {"max_output_entries": 9}, (), "merged_counts is"),
        ("qsa", shared(2, 0), {"max_output_entries": 9}, (), "indexshare_mode is 2"),
        ("qsa", shared(0, 2), {"max_output_entries": 9}, (), r"merged_indices .*expected \(0, 9\)"),
        ("qsa", shared(1, 2), {"max_output_entries": 9}, (), r"query has shape \(5, 8\); expected \(0, 8\)"),
        ("qsa", {**shared(1, 3), "query": (0, 8)}, {"max_output_entries": 9}, (), r"expected \(2, 9\)"),
        ("qsa", {**shared(1, 2), "query": (0, 8)}, {"max_output_entries": 9}, (), r"key .*expected \(0, 4\)"),
        (
            "qsa",
            {**shared(1, 2), "query": (0, 8)},
            {"max_output_entries": 9, "indexshare_state_policy": "advance"},
            (),
            r"key has shape \(5, 4\); expected \(2, 4\)",
        ),
    ],
)
def test_shapes_of_packed_requests(
    policy: str, changes: dict[str, Any], attributes: dict[str, Any], wanted: tuple[str, ...], message: str
) -> None:
    base = QSA if policy == "qsa" else CSA
    with pytest.raises(ShapeError, match=f"^{PACKED}: .*{message}"):
        plan(
            PACKED,
            packed(policy, **changes),
            {**base, "state_capacity": 6, **attributes},
            outputs=outputs(policy, *wanted),
        )


def test_tokens_need_a_request() -> None:
    changes = {
        "cumulative_sequence_lengths": (1,),
        "past_sequence_lengths": (0,),
        "past_key_state": (0, 6, 4),
        "past_kv_buffer": (0, 3, 4),
        "past_state_lengths": (0, 2),
    }
    with pytest.raises(ShapeError, match="holds no request; expected at least one because query has 5 rows"):
        plan(PACKED, packed(**changes), {**QSA, "state_capacity": 6})


def test_heads_beyond_workgroup_memory() -> None:
    wide = {"query": (2, 3, 8192), "key": (2, 3, 4096), "past_key": (2, 5, 4096)}
    wide |= {"query_norm_weight": (4096,), "key_norm_weight": (4096,)}
    with pytest.raises(LimitError, match=r"heads of 4096 channels need 16640 bytes .* the adapter has 16384"):
        plan(DENSE, dense(**wide), QSA)


def test_sizes_beyond_the_rounds_of_a_software_adapter() -> None:
    software = Capabilities(device_class="cpu")
    ratio = 10_000
    windows = {"position_bias": (ratio, 8)}
    with pytest.raises(LimitError, match="SparseAttentionIndexer: compress_ratio is 10000; expected less"):
        plan(DENSE, dense("csa", **windows), CSA | {"compress_ratio": ratio}, capabilities=software)
    with pytest.raises(LimitError, match=r"a row takes \d+ rounds of loops; expected fewer"):
        plan(
            MERGE,
            merge_specs(base_indices=(2, 200_000)),
            {"policy_mode": "append_range", "max_output_entries": 9},
            capabilities=software,
        )


def merge_specs(**changes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "base_indices": (2, 3),
        "base_counts": (2,),
        "base_row_indices": (4,),
        "range_starts": (4,),
        "range_ends": (4,),
    } | changes
    return {k: TensorSpec(v, dtypes.int32) for k, v in shapes.items() if v is not None}


INDICES = {"range_starts": None, "range_ends": None, "additional_indices": (4, 2), "additional_counts": (4,)}


@pytest.mark.parametrize(
    ("mode", "width", "changes", "message"),
    [
        ("append", 4, {}, "policy_mode is 'append'; expected 'append_range' or 'append_indices'"),
        ("append_range", 0, {}, r"max_output_entries is 0; expected 1 to 2\*\*30"),
        ("append_range", (1 << 30) + 1, {}, "max_output_entries is 1073741825"),
        ("append_range", 4, {"range_ends": None}, "range_ends is missing"),
        ("append_range", 4, {"additional_counts": (4,)}, "additional_counts is given; expected none"),
        ("append_indices", 4, {**INDICES, "range_ends": (4,)}, "range_ends is given; expected none"),
        ("append_indices", 4, {**INDICES, "additional_counts": None}, "additional_counts is missing"),
        ("append_indices", 4, {**INDICES, "additional_indices": (3, 2)}, "additional_indices has shape"),
        ("append_range", 4, {"base_counts": (3,)}, r"base_counts has shape \(3,\); expected \(2,\)"),
        ("append_range", 4, {"range_starts": (2,)}, r"range_starts has shape \(2,\); expected \(4,\)"),
    ],
)
def test_refused_merges(mode: str, width: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises((SchemaError, ShapeError), match=f"^{MERGE}: {message}"):
        plan(MERGE, merge_specs(**changes), {"policy_mode": mode, "max_output_entries": width})


# Plans


def test_device_metadata_is_not_needed_for_the_plan() -> None:
    made = plan(
        PACKED,
        packed(state_update_capture_count=(2,), state_update_active=(1,)),
        {**QSA, "state_capacity": 6, "state_update_capacity": 2},
        outputs=outputs("qsa", "state_update", "state_status"),
    )
    assert not made.host_read
    assert [d.template.split("/")[1] for d in made.dispatches] == [
        "requests",
        "pool",
        "prepare",
        "capture",
        "pending",
        "rows",
        "prepare",
        "scores",
        "select",
    ]
    assert not plan(PACKED, packed("csa"), {**CSA, "state_capacity": 6}, outputs=outputs("csa")).host_read


@pytest.mark.parametrize("policy", ["qsa", "csa"])
def test_no_kernel_needs_more_bindings_than_every_adapter_has(policy: str) -> None:
    """Core would pack the smallest tensors, and which these are would depend on the lengths."""
    half = {
        name: TensorSpec(s.shape, dtypes.float16) if s.dtype == dtypes.float32 else s
        for name, s in packed(policy).items()
    }
    base = QSA if policy == "qsa" else CSA
    made = [plan(PACKED, half, {**base, "state_capacity": 6}, outputs=outputs(policy, "state_status"))]
    half = {
        name: TensorSpec(s.shape, dtypes.float16) if s.dtype == dtypes.float32 else s
        for name, s in dense(policy).items()
    }
    made.append(plan(DENSE, half, base))
    merge = {"policy_mode": "append_range", "max_output_entries": 4}
    made.append(plan(MERGE, merge_specs(), merge))
    made.append(plan(MERGE, merge_specs(**INDICES), {**merge, "policy_mode": "append_indices"}))
    for d in (d for p in made for d in p.dispatches):
        bound = [s for _, s in (*d.reads, *d.writes) if s is not None]
        assert len(bound) <= PORTABLE.max_storage_buffers, d.template


def test_a_held_state_is_only_passed_on() -> None:
    inputs = packed(**shared(1, 2), query=(0, 8), key=(0, 4))
    made = plan(PACKED, inputs, {**QSA, "state_capacity": 6, "max_output_entries": 9}, outputs=outputs("qsa"))
    assert made.path == "qsa, held" and made.host_read == {"indexshare_mode"}
    assert not made.dispatches
    assert made.outputs[0] is not None and made.outputs[0].shape == (2, 9)


@pytest.mark.parametrize("policy", ["qsa", "csa"])
def test_a_growing_cache_makes_no_new_pipelines(policy: str) -> None:
    attributes = QSA if policy == "qsa" else CSA

    def of(past: int) -> set[Variant]:
        tables = {name: (999, 4 if policy == "qsa" else 2) for name in ("cos_cache", "sin_cache")}
        return variants(plan(DENSE, dense(policy, past_key=(2, past, 4), **tables), attributes))

    assert of(2) == of(7) == of(300)


def test_scratch_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prefill over a long context is scored in groups of rows, which cover every row once."""
    monkeypatch.setattr(core, "SCRATCH_BYTES", 4096)
    tables = {name: (999, 4) for name in ("cos_cache", "sin_cache")}
    made = plan(DENSE, dense(past_key=(2, 600, 4), **tables), QSA)
    groups = [d for d in made.dispatches if d.template == "indexer/select"]
    covered = []
    for d in groups:
        values = {name: u.values[0] for name, u in d.uniforms}
        covered += range(values["first"], values["first"] + values["rows"])
    assert len(groups) > 1 and covered == list(range(6))
    assert all(s.nbytes <= 4096 for s in made.scratch if s.name in ("queries", "scores", "order"))
