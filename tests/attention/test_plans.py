"""What attention plans: paths, sizes and refusals, without a GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import plan
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.program import render
from webgpu_ops.errors import SchemaError, ShapeError, UnsupportedError

CPU = replace(PORTABLE, device_class="cpu")


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def scalar(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def group_query(
    batch: int = 1,
    rows: int = 1,
    heads: int = 4,
    kv: int = 2,
    size: int = 64,
    past: int = 0,
    *,
    outputs: tuple[str, ...] = ("output", "present_key", "present_value"),
    capabilities: Capabilities = PORTABLE,
    attributes: dict[str, Any] | None = None,
    **inputs: Any,
) -> Plan:
    """The plan of a call; ``inputs`` replaces or adds some."""
    given: dict[str, Any] = {
        "query": spec(batch, rows, heads * size),
        "key": spec(batch, rows, kv * size),
        "value": spec(batch, rows, kv * size),
        "seqlens_k": spec(batch, dtype=dtypes.int32),
        "total_sequence_length": scalar(past + rows),
    }
    if past:
        given |= {"past_key": spec(batch, kv, past, size), "past_value": spec(batch, kv, past, size)}
    given = {k: v for k, v in (given | inputs).items() if v is not None}
    return plan(
        "GroupQueryAttention",
        given,
        {"num_heads": heads, "kv_num_heads": kv} | (attributes or {}),
        outputs=outputs,
        capabilities=capabilities,
    )


def templates(p: Plan) -> list[str]:
    return [d.template.removeprefix("attention/") for d in p.dispatches]


def test_decode_splits_keys_and_prefill_streams() -> None:
    assert group_query(past=1000).path == "split keys"
    long = group_query(batch=8, rows=512, heads=32, kv=8)
    assert long.path == "streaming"
    assert long.scratch_bytes == 0
    assert templates(long) == ["prepare", "prepare", "stream_tile"]


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_a_growing_cache_keeps_its_shaders(capabilities: Capabilities) -> None:
    """Everything that depends on the length is a uniform."""

    def sources(past: int) -> list[str]:
        p = group_query(past=past, capabilities=capabilities)
        return [render(d, capabilities) for d in p.dispatches]

    assert sources(1) == sources(9) == sources(10_000)


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_memory_does_not_hold_the_scores(capabilities: Capabilities) -> None:
    """2,048 queries over 8,192 keys: the matrix would be 128 MiB a head."""
    p = group_query(
        rows=2048,
        heads=2,
        kv=2,
        past=6144,
        capabilities=capabilities,
    )
    outputs = sum(o.nbytes for o in p.outputs if o is not None)
    assert p.scratch_bytes + outputs < 64 << 20


def test_past_rows_are_copied_only_when_the_caches_differ() -> None:
    grown = group_query(past=6)
    assert templates(grown)[:2] == ["move", "move"]
    roomy = group_query(
        past_key=spec(1, 2, 32, 64), past_value=spec(1, 2, 32, 64), total_sequence_length=scalar(7)
    )
    assert "move" not in templates(roomy)
    assert [o.shape for o in roomy.outputs[1:3] if o] == [(1, 2, 32, 64)] * 2
    assert len(roomy.steps) == len(roomy.dispatches) + 2


def test_a_windowed_cache_is_staged() -> None:
    p = group_query(
        past_key=spec(1, 2, 8, 64),
        past_value=spec(1, 2, 8, 64),
        total_sequence_length=scalar(40),
        attributes={"sliding_window_cache": 1, "local_window_size": 6},
    )
    assert templates(p) == ["move", "move", "prepare", "prepare", "stream_tile", "merge", "move", "move"]
    assert p.outputs[1] is not None and p.outputs[1].shape == (1, 2, 8, 64)
    assert {s.name: s.shape for s in p.scratch}["line_key"] == (1, 2, 9, 64)


def test_scores_are_written_only_when_wanted() -> None:
    p = group_query(rows=5, attributes={"qk_output": 2}, outputs=("output", "output_qk"))
    assert templates(p)[-1] == "scores" and p.path.endswith("scores written")
    assert p.outputs[3] is not None and p.outputs[3].shape == (1, 4, 5, 5)
    assert "scores" not in templates(group_query(rows=5, attributes={"qk_output": 2}))


def test_packed_queries_need_no_split() -> None:
    p = group_query(rows=3, query=spec(1, 3, 8 * 64), key=None, value=None)
    assert p.outputs[0] is not None and p.outputs[0].shape == (1, 3, 4 * 64)
    starts = [dict(d.uniforms)["x_offset"].values[0] for d in p.dispatches if d.template.endswith("prepare")]
    assert starts == [4 * 64, 6 * 64]


def test_quantized_cache_types() -> None:
    scales = {"k_scale": spec(1), "v_scale": spec(1, 2, 1, 64)}
    attributes = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": 4}
    bytes_ = {
        "past_key": spec(1, 2, 9, 32, dtype=dtypes.uint8),
        "past_value": spec(1, 2, 9, 32, dtype=dtypes.uint8),
    }
    p = group_query(total_sequence_length=scalar(4), attributes=attributes, **scales, **bytes_)
    assert p.outputs[1] is not None and (p.outputs[1].shape, p.outputs[1].dtype) == (
        (1, 2, 9, 32),
        dtypes.uint8,
    )
    with pytest.raises(ShapeError, match="past_key has type uint8; expected int8 or float8e4m3fn"):
        group_query(
            total_sequence_length=scalar(4),
            attributes=attributes | {"kv_cache_bit_width": 8},
            **scales,
            **bytes_,
        )
    with pytest.raises(ShapeError, match="input k_scale is required"):
        group_query(
            total_sequence_length=scalar(4), attributes=attributes, v_scale=scales["v_scale"], **bytes_
        )
    with pytest.raises(ShapeError, match=r"k_scale has shape \(1, 2, 1, 64\); expected one element"):
        group_query(
            total_sequence_length=scalar(4),
            attributes=attributes,
            k_scale=spec(1, 2, 1, 64),
            v_scale=scales["v_scale"],
            **bytes_,
        )


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads": 3}, "num_heads=3; expected a multiple of kv_num_heads=2"),
        ({"num_heads": 0}, "expected positive numbers"),
        ({"causal": 2}, "causal=2; expected 0 or 1"),
        ({"sliding_window_cache": 2}, "sliding_window_cache=2; expected 0 or 1"),
        ({"do_rotary": -1}, "do_rotary=-1; expected 0 or 1"),
        ({"smooth_softmax": 2}, "smooth_softmax=2; expected 0 or 1"),
        ({"softcap": -1.0}, "softcap=-1.0; expected 0 or a positive number"),
        ({"scale": math.nan}, "scale=nan; expected a finite number"),
        ({"causal": 0, "local_window_size": 3}, "local_window_size=3; expected -1 because causal=0"),
        ({"local_window_size": 0}, "local_window_size=0"),
        ({"sliding_window_cache": 1}, "expected a positive window"),
        ({"qk_output": 3}, "qk_output=3; expected 0, 1 or 2"),
        ({"k_quant_type": "PER_ROW"}, "k_quant_type='PER_ROW'"),
        ({"k_quant_type": "PER_TENSOR"}, "expected both or neither to be NONE"),
        ({"kv_cache_bit_width": 2}, "kv_cache_bit_width=2; expected 4 or 8"),
        ({"q_norm_epsilon": 0.0}, "q_norm_epsilon=0.0; expected a finite positive number"),
    ],
)
def test_group_query_refuses_attributes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match="^GroupQueryAttention: .*" + message):
        group_query(attributes=attributes)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ({"value": None}, {}, "value is missing while key is given"),
        ({"query": spec(1, 1, 250)}, {}, "query has shape .* because of num_heads=4"),
        ({"key": spec(1, 1, 64)}, {}, r"key has shape \(1, 1, 64\); expected \(1, 1, 128\)"),
        ({"past_key": spec(1, 2, 3, 64)}, {}, "past_value is missing"),
        (
            {"past_key": spec(1, 8, 3, 64), "past_value": spec(1, 8, 3, 64)},
            {},
            r"past_key has shape \(1, 8, 3, 64\); expected \(1, 2, cache_length, 64\).*kv_num_heads=2",
        ),
        ({"total_sequence_length": scalar(5)}, {}, "total_sequence_length is 5; expected 1.*no past_key"),
        ({"total_sequence_length": scalar(0)}, {}, "at least the 1 new tokens"),
        ({"seqlens_k": spec(2, dtype=dtypes.int32)}, {}, r"seqlens_k has shape \(2,\)"),
        ({"seqlens_k": np.array([1], np.int32)}, {}, "seqlens_k holds 1 to 1; expected 0 to 0"),
        ({"head_sink": spec(3)}, {}, r"head_sink has shape \(3,\); expected \(4,\)"),
        ({"attention_bias": spec(1, 3, 1, 1)}, {}, "attention_bias has shape"),
        ({"q_norm_weight": spec(64)}, {}, "k_norm_weight is missing"),
        ({}, {"do_rotary": 1}, "input cos_cache is required"),
        ({"cos_cache": spec(9, 33), "sin_cache": spec(9, 33)}, {"do_rotary": 1}, r"up to 32\) because"),
        (
            {
                "past_key": spec(1, 2, 3, 64),
                "past_value": spec(1, 2, 3, 64),
                "total_sequence_length": scalar(3),
            },
            {"sliding_window_cache": 1, "local_window_size": 4},
            "a capacity of 3 rows; expected at least 4 rows because of local_window_size",
        ),
    ],
)
def test_group_query_refuses_inputs(inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeError, match="^GroupQueryAttention: .*" + message):
        group_query(attributes=attributes, **inputs)


def test_a_chunk_over_a_past_takes_one_batch_entry() -> None:
    with pytest.raises(ShapeError, match="batch 1 or one token because total_sequence_length=9"):
        group_query(batch=2, rows=3, past=6)


def test_the_total_length_is_needed_while_planning() -> None:
    with pytest.raises(UnsupportedError, match="total_sequence_length"):
        group_query(total_sequence_length=spec(dtype=dtypes.int32))


def self_attention(
    attributes: dict[str, Any] | None = None, outputs: tuple[str, ...] = ("output",), **inputs: Any
) -> Plan:
    given = {"input": spec(2, 5, 12), "weights": spec(12, 48)} | inputs
    return plan("Attention", given, {"num_heads": 2} | (attributes or {}), outputs=outputs)


def test_self_attention_reads_the_projection_in_place() -> None:
    p = self_attention(bias=spec(48))
    assert templates(p)[-2:] == ["stream_tile", "merge"]
    assert "prepare" not in templates(p) and "move" not in templates(p)


@pytest.mark.parametrize("shape", [(2,), (4,), (8,), (2, 5), (2, 5, 5), (2, 1, 9, 9)])
def test_self_attention_takes_every_form_of_mask(shape: tuple[int, ...]) -> None:
    p = self_attention(mask_index=spec(*shape, dtype=dtypes.int32))
    assert dict(p.dispatches[-2].constants)["mask_kind"] == ("ends" if len(shape) == 1 else "values")


@pytest.mark.parametrize(
    ("inputs", "attributes", "outputs", "message"),
    [
        ({"weights": spec(11, 48)}, {}, ("output",), r"weights has shape \(11, 48\)"),
        ({"weights": spec(12, 50)}, {}, ("output",), "columns divisible by three"),
        ({"weights": spec(12, 45)}, {}, ("output",), "Q has 15 channels; expected a positive multiple of"),
        ({}, {"qkv_hidden_sizes": [16, 16, 12]}, ("output",), r"expected 44 columns"),
        ({"bias": spec(47)}, {}, ("output",), "bias has shape"),
        ({"mask_index": spec(3, dtype=dtypes.int32)}, {}, ("output",), r"mask_index has shape \(3,\)"),
        ({"past": spec(2, 2, 2, 4, 8)}, {}, ("output",), "present is not wanted"),
        ({"past": spec(2, 2, 2, 4, 7)}, {}, ("output", "present"), "past has shape"),
        ({"attention_bias": spec(2, 2, 5, 6)}, {}, ("output",), "attention_bias has shape"),
        (
            {"weights": spec(12, 44)},
            {"qkv_hidden_sizes": [16, 16, 12]},
            ("output", "present"),
            "present is wanted with heads of 8 channels in K and 6 in V",
        ),
        (
            {"past": spec(2, 2, 2, 8, 8), "past_sequence_length": scalar(4)},
            {"past_present_share_buffer": 1},
            ("output", "present"),
            "past_sequence_length is 4; expected 0 to 3",
        ),
        (
            {},
            {"do_rotary": 1, "rotary_embedding_dim": 32},
            ("output",),
            "rotary dimension 32 with head size 8",
        ),
    ],
)
def test_self_attention_refuses(
    inputs: dict[str, Any], attributes: dict[str, Any], outputs: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match="^Attention: .*" + message):
        self_attention(attributes, outputs, **inputs)
