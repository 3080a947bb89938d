"""Selected rows and blocks of a cache: plans and refusals, sets that overlap, and what must not be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Plan, TensorSpec
from webgpu_ops.core.program import render
from webgpu_ops.errors import SchemaError, ShapeError
from webgpu_ops.reference.samples import Sample, draw_of

SELECTING = ("SparsePagedAttention", "DynamicSparseAttention")


def spec(*shape: int, dtype: dtypes.DType = dtypes.float16) -> TensorSpec:
    return TensorSpec(shape, dtype)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def int_spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.int32)


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


GIVEN: dict[str, dict[str, Any]] = {
    "SparsePagedAttention": {
        "query": spec(3, 64),
        "key": spec(3, 32),
        "value": spec(3, 32),
        "key_cache": spec(9, 16, 2, 16),
        "value_cache": spec(9, 16, 2, 16),
        "cumulative_sequence_length": int_spec(3),
        "past_seqlens": int_spec(2),
        "block_table": int_spec(2, 4),
        "selected_indices": int_spec(3, 7),
        "selected_counts": int_spec(3),
    },
    "DynamicSparseAttention": {
        "query": spec(2, 3, 64),
        "key": spec(2, 3, 32),
        "value": spec(2, 3, 32),
        "past_key": spec(2, 2, 9, 16),
        "past_value": spec(2, 2, 9, 16),
        "selected_indices": int_spec(6, 7),
        "selected_counts": int_spec(6),
        "seqlens_k": int_spec(2),
        "total_sequence_length": int_spec(1),
    },
    "SparseAttention": {
        "query": spec(2, 3, 64),
        "key": spec(2, 3, 32),
        "value": spec(2, 3, 32),
        "past_key": spec(2, 2, 40, 16),
        "past_value": spec(2, 2, 40, 16),
        "block_row_indices": int_spec(2, 4),
        "block_col_indices": int_spec(2, 5),
        "total_sequence_length": int_spec(1),
        "key_total_sequence_lengths": int_spec(2),
    },
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "SparsePagedAttention": {},
    "DynamicSparseAttention": {},
    "SparseAttention": {"sparse_block_size": 16},
}
AUXILIARY = {"attention_mode": "local_plus_selected", "selected_kv_source": "auxiliary"}


def planned(op: str, attributes: dict[str, Any] | None = None, **inputs: Any) -> Plan:
    """The plan of a call of 4 heads of 16 channels to 2; ``inputs`` replace or add some."""
    given = {k: v for k, v in (GIVEN[op] | inputs).items() if v is not None}
    wanted = ("output", "present_key", "present_value") if op == "SparseAttention" else ("output",)
    every = {"num_heads": 4, "kv_num_heads": 2} | ATTRIBUTES[op] | (attributes or {})
    return plan(op, given, every, outputs=wanted)


def templates(p: Plan) -> list[str]:
    return [d.template.removeprefix("attention/") for d in p.dispatches]


# Plans


def test_a_selection_is_walked_token_by_token() -> None:
    p = planned("SparsePagedAttention")
    assert templates(p) == ["prepare", "prepare", "pick", "stream_tile", "merge"]
    assert [d.groups for d in p.dispatches if d.template.endswith("pick")] == [3]


def test_several_sources_share_one_softmax() -> None:
    for op, others in (
        ("SparsePagedAttention", spec(2, 9, 1, 16)),
        ("DynamicSparseAttention", spec(2, 2, 9, 16)),
    ):
        attributes = AUXILIARY | {"local_window_size": 4, "auxiliary_kv_shared": 1}
        p = planned(op, attributes, auxiliary_key=others)
        assert templates(p)[-4:] == ["pick", "stream_tile", "stream_tile", "merge"]
        window, chosen = (dict(d.uniforms) for d in p.dispatches[-3:-1])
        parts = window["parts"].values[0]
        assert window["part_first"].values[0] == 0
        assert chosen["part_first"].values[0] == window["splits"].values[0]
        assert parts == window["splits"].values[0] + chosen["splits"].values[0]


def test_lengths_stay_on_the_device() -> None:
    for op in ("SparsePagedAttention", "DynamicSparseAttention", "SparseAttention"):
        assert not planned(op).host_read


def test_a_growing_cache_keeps_its_shaders() -> None:
    def sources(rows: int) -> list[str]:
        past = {name: spec(2, 2, rows, 16) for name in ("past_key", "past_value")}
        dispatches = planned("SparseAttention", **past).dispatches
        return [render(d, PORTABLE) for d in dispatches]

    assert sources(40) == sources(4000)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            "SparsePagedAttention",
            {"attention_mode": "dense"},
            "attention_mode='dense'; expected selected_only",
        ),
        ("SparsePagedAttention", {"selected_kv_source": "both"}, "selected_kv_source='both'"),
        ("SparsePagedAttention", {"auxiliary_cache_layout": "paged"}, "auxiliary_cache_layout='paged'"),
        ("SparsePagedAttention", {"auxiliary_kv_shared": 2}, "auxiliary_kv_shared=2; expected 0 or 1"),
        ("SparsePagedAttention", {"num_heads": 5}, "num_heads=5, kv_num_heads=2"),
        ("DynamicSparseAttention", {"is_causal": 0}, "is_causal=0; expected 1"),
        (
            "DynamicSparseAttention",
            {"attention_mode": "local_plus_selected", "local_window_size": 3},
            "selected_kv_source='main'; expected auxiliary because attention_mode is local_plus_selected",
        ),
        (
            "DynamicSparseAttention",
            {"selected_kv_source": "auxiliary"},
            "selected_kv_source='auxiliary'; expected main because attention_mode is selected_only",
        ),
        ("DynamicSparseAttention", AUXILIARY, "local_window_size=-1; expected a positive number"),
        ("DynamicSparseAttention", {"rotary_offset": -8}, "rotary_offset=-8"),
        ("DynamicSparseAttention", {"smooth_softmax": 2}, "smooth_softmax=2; expected 0 or 1"),
        ("SparseAttention", {"sparse_block_size": 8}, "sparse_block_size=8; expected one of"),
        ("SparseAttention", {"kv_num_heads": 3}, "num_heads=4, kv_num_heads=3"),
    ],
)
def test_refused_attributes(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"^{op}: .*{message}"):
        planned(op, attributes)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        (
            "SparsePagedAttention",
            {"selected_indices": int_spec(21)},
            {},
            r"selected_indices has shape \(21,\)",
        ),
        ("SparsePagedAttention", {"selected_counts": int_spec(2)}, {}, r"selected_counts has shape \(2,\)"),
        ("SparsePagedAttention", {}, AUXILIARY, "auxiliary_key is missing"),
        (
            "SparsePagedAttention",
            {"auxiliary_key": spec(2, 9, 2, 16)},
            AUXILIARY,
            "auxiliary_value is missing; expected it unless auxiliary_kv_shared is 1",
        ),
        (
            "SparsePagedAttention",
            {"auxiliary_key": spec(2, 9, 3, 16)},
            AUXILIARY,
            r"auxiliary_key has shape \(2, 9, 3, 16\); expected \(2, capacity, 2 or 1, 16\)",
        ),
        (
            "SparsePagedAttention",
            {"auxiliary_lengths": int_spec(3)},
            {},
            r"auxiliary_lengths has shape \(3,\)",
        ),
        ("SparsePagedAttention", {"attention_metadata": ints(1, 2)}, {}, r"expected \(5,\)"),
        ("DynamicSparseAttention", {"key": None}, {}, "key is missing; expected key and value, or neither"),
        ("DynamicSparseAttention", {"query": spec(2, 3, 66)}, {}, "query has shape .* num_heads=4"),
        ("DynamicSparseAttention", {"past_value": None}, {}, "past_value is missing"),
        ("DynamicSparseAttention", {"past_key": spec(2, 1, 9, 16)}, {}, r"expected \(2, 2, capacity, 16\)"),
        ("DynamicSparseAttention", {"selected_indices": int_spec(5, 7)}, {}, r"expected \(6, max_selected"),
        (
            "DynamicSparseAttention",
            {"total_sequence_length": ints(10)},
            {},
            "is 10; expected at most 9 because",
        ),
        ("DynamicSparseAttention", {"total_sequence_length": ints(2)}, {}, "is 2; expected at least the 3"),
        (
            "DynamicSparseAttention",
            {"past_key": None, "past_value": None, "total_sequence_length": ints(5)},
            {},
            "is 5; expected 3, the tokens of this call, because no past_key is given",
        ),
        ("DynamicSparseAttention", {"seqlens_k": ints(4, 9)}, {}, "seqlens_k holds 4 to 9; expected 0 to 8"),
        ("DynamicSparseAttention", {"q_norm_weight": spec(16)}, {}, "k_norm_weight is missing"),
        ("DynamicSparseAttention", {}, {"do_rotary": 1}, "input cos_cache is required"),
        (
            "DynamicSparseAttention",
            {
                "cos_cache": spec(5, 8),
                "sin_cache": spec(5, 8),
                "position_ids": np.array([[0, 1, 5], [2, 3, 4]]),
            },
            {"do_rotary": 1},
            "position_ids holds 0 to 5; expected 0 to 4 because cos_cache has 5 rows",
        ),
        ("SparseAttention", {}, {"do_rotary": 1}, "input cos_cache is required"),
        (
            "SparseAttention",
            {"cos_cache": spec(5, 8), "sin_cache": spec(5, 8), "total_sequence_length": ints(6)},
            {"do_rotary": 1},
            r"cos_cache has shape \(5, 8\); expected at least 6 positions",
        ),
        (
            "SparseAttention",
            {"block_row_indices": int_spec(3, 4)},
            {},
            "has 3 layouts; expected a divisor of",
        ),
        ("SparseAttention", {"block_col_indices": int_spec(1, 5)}, {}, r"expected \(2, max_nnz_blocks\)"),
        (
            "SparseAttention",
            {"past_value": spec(2, 2, 41, 16)},
            {},
            r"past_value has shape .*expected \(2, 2, 40",
        ),
        ("SparseAttention", {"total_sequence_length": ints(41)}, {}, "is 41; expected at most 40 because of"),
        (
            "SparseAttention",
            {"total_sequence_length": ints(9), "key_total_sequence_lengths": ints(9, 10)},
            {},
            "key_total_sequence_lengths holds 9 to 10; expected 0 to 9",
        ),
    ],
)
def test_refused_inputs(op: str, inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    attributes = {"local_window_size": 4} | attributes if op != "SparseAttention" else attributes
    with pytest.raises(ShapeError, match=f"^{op}: .*{message}"):
        planned(op, attributes, **inputs)


# Selections


def paged_call(rng: np.random.Generator, past: int, picks: np.ndarray, counts: np.ndarray) -> dict[str, Any]:
    """One sequence in one page as long as it is, and a new token for each row of ``picks``."""
    tokens, size = len(picks), 8
    rows = past + tokens
    return {
        "query": normal(rng, tokens, 2 * size, dtype=np.float16),
        "key": normal(rng, tokens, size, dtype=np.float16),
        "value": normal(rng, tokens, size, dtype=np.float16),
        "key_cache": normal(rng, 1, rows, 1, size, dtype=np.float16),
        "value_cache": normal(rng, 1, rows, 1, size, dtype=np.float16),
        "cumulative_sequence_length": ints(0, tokens),
        "past_seqlens": ints(past),
        "block_table": ints([0]),
        "selected_indices": picks.astype(np.int32),
        "selected_counts": counts.astype(np.int32),
    }


def check(op: str, inputs: dict[str, Any], attributes: dict[str, Any], device: Device) -> None:
    outcome = check_sample(op, Sample(inputs, attributes, ("output",)), device)
    assert outcome.passed, outcome.message


def test_no_entry_of_a_union_counts_twice(any_device: Device) -> None:
    """Entries that the window shows already, entries picked again and again, and both."""
    picks = np.array([[3, 3, 3, 39, 38, 3], [40, 39, 38, 37, 36, 0], [7, 7, 41, 41, 7, 7]])
    inputs = paged_call(np.random.default_rng(1), 40, picks, np.array([6, 6, 5]))
    attributes = {
        "num_heads": 2,
        "kv_num_heads": 1,
        "attention_mode": "local_plus_selected",
        "local_window_size": 5,
    }
    check("SparsePagedAttention", inputs, attributes, any_device)


def test_a_union_of_far_positions(device: Device) -> None:
    """More positions than one pass marks: those of later passes are picked once, too."""
    rng = np.random.default_rng(2)
    past = 140_000
    picks = rng.integers(0, past, (2, 64))
    picks[:, 32:48] = picks[:, :16]
    picks[:, 60:] = [0, 65_535, 65_536, 131_072]
    inputs = paged_call(rng, past, picks, np.array([64, 63]))
    attributes = {
        "num_heads": 2,
        "kv_num_heads": 1,
        "attention_mode": "local_plus_selected",
        "local_window_size": 9,
    }
    check("SparsePagedAttention", inputs, attributes, device)


@pytest.mark.parametrize("counts", [[-3, 2], [100, 2**31 - 1], [0, 0]])
def test_counts_that_lie(device: Device, counts: list[int]) -> None:
    """No more entries than there are, and none of a negative number."""
    picks = np.array([[1, 5, 2, -1], [3, 2**31 - 1, -(2**31), 4]])
    inputs = paged_call(np.random.default_rng(3), 9, picks, np.array(counts))
    check("SparsePagedAttention", inputs, {"num_heads": 2, "kv_num_heads": 1}, device)


def test_rows_that_are_not_selected_can_hold_anything(any_device: Device) -> None:
    """NaN in the main cache and in the auxiliary one, wherever nobody looks."""
    rng = np.random.default_rng(4)
    size, past, capacity = 8, 30, 20
    picks = np.array([[1, 17, 4, 19, 900], [6, 18, 4, -1, -1]])
    inputs = paged_call(rng, past, picks, np.array([5, 3]))
    shown = np.zeros(past + 2, bool)
    shown[past - 3 :] = True
    for name in ("key_cache", "value_cache"):
        inputs[name][:, ~shown] = np.nan
    looked = np.zeros(capacity, bool)
    looked[[1, 17, 4, 6, 18]] = True
    for name in ("auxiliary_key", "auxiliary_value"):
        inputs[name] = np.where(looked[:, None, None], normal(rng, 1, capacity, 1, size), np.nan).astype(
            np.float16
        )
    inputs["auxiliary_lengths"] = ints(19)
    attributes = {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 4} | AUXILIARY
    results = run("SparsePagedAttention", inputs, attributes, device=any_device)
    assert isinstance(results[0], Tensor) and np.isfinite(results[0].numpy()).all()
    check("SparsePagedAttention", inputs, attributes, any_device)


def dynamic_call(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two entries of unequal length, two new tokens each, in a cache with room to spare."""
    size, capacity = 8, 12
    return {
        "query": normal(rng, 2, 2, 2 * size),
        "key": normal(rng, 2, 2, size),
        "value": normal(rng, 2, 2, size),
        "past_key": normal(rng, 2, 1, capacity, size),
        "past_value": normal(rng, 2, 1, capacity, size),
        "selected_indices": ints([0, 5, 7, -1], [8, 3, 1, 2], [4, 0, -1, -1], [5, 4, 3, 2]),
        "selected_counts": ints(3, 4, 2, 4),
        "seqlens_k": ints(8, 5),
        "total_sequence_length": ints(9),
    }, {"num_heads": 2, "kv_num_heads": 1}


def test_in_place_equals_copied(device: Device) -> None:
    inputs, attributes = dynamic_call(np.random.default_rng(5))
    names = ("output", "present_key", "present_value")
    copied = run("DynamicSparseAttention", inputs, attributes, outputs=names, device=device)
    held = {name: Tensor.from_numpy(inputs[name], device) for name in ("past_key", "past_value")}
    shared = {"output": None, "present_key": held["past_key"], "present_value": held["past_value"]}
    moves = plan("DynamicSparseAttention", inputs, attributes, outputs=names)
    in_place = run("DynamicSparseAttention", inputs | held, attributes, outputs=shared, device=device)
    for name, a, b in zip(names, copied, in_place, strict=True):
        assert isinstance(a, Tensor) and isinstance(b, Tensor)
        assert a.numpy().tobytes() == b.numpy().tobytes(), name
    assert len(moves.steps) == len(moves.dispatches) + 2
    check("DynamicSparseAttention", inputs, attributes, device)


@pytest.mark.parametrize("length", [-5, 100, 2**31 - 1])
def test_lengths_on_the_device_are_contained(device: Device, length: int) -> None:
    """What a length may spoil ends with its own entry."""
    inputs, attributes = dynamic_call(np.random.default_rng(6))
    lengths = Tensor.from_numpy(ints(length, 5), device)
    held = {name: Tensor.from_numpy(inputs[name], device) for name in ("past_key", "past_value")}
    shared = {"output": None, "present_key": held["past_key"], "present_value": held["past_value"]}
    run(
        "DynamicSparseAttention",
        inputs | held | {"seqlens_k": lengths},
        attributes,
        outputs=shared,
        device=device,
    )
    want = inputs["past_key"][1].copy()
    want[0, 4:6] = inputs["key"][1]
    np.testing.assert_array_equal(held["past_key"].numpy()[1], want)


def test_lengths_may_be_a_column() -> None:
    planned("DynamicSparseAttention", seqlens_k=int_spec(2, 1))


# Blocks


def block_call(
    rng: np.random.Generator, dense: np.ndarray, block: int, rows: int, total: int, heads: int = 2
) -> dict[str, Any]:
    """A call whose layouts ``dense [layouts, blocks, blocks]`` are compressed by rows."""
    size, layouts = 8, len(dense)
    starts = np.concatenate([np.zeros((layouts, 1), int), dense.sum(-1).cumsum(-1)], axis=-1)
    columns = np.full((layouts, int(starts.max()) + 2), -1)
    for n, layout in enumerate(dense):
        found = np.nonzero(layout)[1]
        columns[n, : len(found)] = found
    return {
        "query": normal(rng, 1, rows, heads * size),
        "key": normal(rng, 1, rows, size),
        "value": normal(rng, 1, rows, size),
        "past_key": normal(rng, 1, 1, total, size),
        "past_value": normal(rng, 1, 1, total, size),
        "block_row_indices": starts.astype(np.int32),
        "block_col_indices": columns.astype(np.int32),
        "total_sequence_length": ints(total),
        "key_total_sequence_lengths": ints(total),
    }


@pytest.mark.parametrize("rows", [1, 150])
def test_blocks_nobody_sees_are_skipped(any_device: Device, rows: int) -> None:
    """Whole steps of keys between the first and the last block, on every layout of a group of heads."""
    rng = np.random.default_rng(7)
    blocks, block = 12, 16
    dense = np.zeros((2, blocks, blocks), bool)
    dense[0, :, 0] = True
    dense[1, np.arange(blocks), np.arange(blocks)] = True
    dense[1, 6:, 3] = True
    total = blocks * block - 5
    inputs = block_call(rng, dense, block, rows, total)
    if rows == 1:  # the last query sees blocks 0, 3 and 11 only
        for name in ("past_key", "past_value"):
            inputs[name][:, :, 6 * block : 9 * block] = np.nan
    attributes = {"num_heads": 2, "kv_num_heads": 1, "sparse_block_size": block}
    sample = Sample(inputs, attributes, ("output", "present_key", "present_value"))
    outcome = check_sample("SparseAttention", sample, any_device)
    assert outcome.passed, outcome.message


def test_many_blocks_of_a_row(device: Device) -> None:
    """A row of 1500 blocks fills 47 words; a query at the end sees the last of them."""
    rng = np.random.default_rng(9)
    blocks, block = 1500, 16
    dense = np.eye(blocks, dtype=bool)[None]
    dense[0, -1] = True
    inputs = block_call(rng, dense, block, 1, blocks * block)
    inputs["past_value"][0, 0, -3 * block :] += 1000.0
    sample = Sample(
        inputs,
        {"num_heads": 2, "kv_num_heads": 1, "sparse_block_size": block},
        ("output", "present_key", "present_value"),
    )
    outcome = check_sample("SparseAttention", sample, device)
    assert outcome.passed, outcome.message


def test_block_masks_that_lie_are_contained(device: Device) -> None:
    """Offsets and columns on the device that cannot be name no block."""
    rng = np.random.default_rng(8)
    inputs = block_call(rng, np.tril(np.ones((1, 3, 3), bool)), 16, 20, 20)
    inputs["block_row_indices"] = ints([0, 1, 2**31 - 1, -5])
    inputs["block_col_indices"] = ints([0, 0, 1, 2**31 - 1, -(2**31), 7, 3])
    attributes = {"num_heads": 2, "kv_num_heads": 1, "sparse_block_size": 16}
    outputs = ("output", "present_key", "present_value")
    results = run("SparseAttention", inputs, attributes, outputs=outputs, device=device)
    sane = inputs | {"block_row_indices": ints([0, 1, 3, 3]), "block_col_indices": ints([0, 0, 1])}
    want = run("SparseAttention", sane, attributes, outputs=outputs, device=device)
    for a, b in zip(results, want, strict=True):
        assert isinstance(a, Tensor) and isinstance(b, Tensor)
        assert a.numpy().tobytes() == b.numpy().tobytes()


# Random calls


@pytest.mark.parametrize("op", SELECTING)
def test_draws_reach_every_feature(op: str) -> None:
    draw = draw_of(op)
    assert draw is not None
    drawn = [draw(np.random.default_rng((0, i))) for i in range(100)]
    for name in ("auxiliary_key", "auxiliary_value", "cos_cache", "q_norm_weight", "head_sink"):
        assert sum(name in s.inputs for s in drawn) >= 5, name
    assert {s.attributes.get("attention_mode", "selected_only") for s in drawn} == {
        "selected_only",
        "local_plus_selected",
    }
    assert sum((s.inputs["selected_indices"] > 4000).any() for s in drawn) >= 5
    assert sum((s.inputs["selected_counts"] == 0).any() for s in drawn) >= 5
    assert sum(bool(s.aliases) for s in drawn) >= 20
