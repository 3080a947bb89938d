"""MultiHeadAttention and the masked decoders: layouts, caches and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import Plan, TensorSpec
from webgpu_ops.errors import SchemaError, ShapeError
from webgpu_ops.reference.attention_variants import decoder_masked_self_attention, in_order, reordered


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mask(*shape: int) -> TensorSpec:
    return spec(*shape, dtype=dtypes.int32)


CALLS: dict[str, dict[str, Any]] = {
    "MultiHeadAttention": {
        "query": spec(2, 3, 16),
        "key": spec(2, 5, 16),
        "value": spec(2, 5, 12),
    },
    "DecoderMaskedMultiHeadAttention": {
        "query": spec(2, 1, 16),
        "key": spec(2, 1, 16),
        "value": spec(2, 1, 12),
        "past_key": spec(2, 2, 7, 8),
        "past_value": spec(2, 2, 7, 6),
    },
    "DecoderMaskedSelfAttention": {
        "input": spec(2, 1, 10),
        "weights": spec(10, 48),
        "bias": spec(48),
        "past": spec(2, 2, 2, 7, 8),
        "past_sequence_length": ints(7),
    },
}
SHARED = {"past_present_share_buffer": 1}


def planned(
    op: str, inputs: dict[str, Any], attributes: dict[str, Any] | None = None, outputs: Any = None
) -> Plan:
    """The plan of two heads of eight channels; None takes an input away."""
    given = {k: v for k, v in (CALLS[op] | inputs).items() if v is not None}
    return plan(op, given, {"num_heads": 2} | (attributes or {}), outputs=outputs)


def templates(p: Plan) -> list[str]:
    return [d.template.removeprefix("attention/") for d in p.dispatches]


@pytest.mark.parametrize(
    "inputs",
    [
        {"query": spec(2, 5, 2, 3, 8), "key": None, "value": None},
        {"key": spec(2, 5, 2, 2, 8), "value": None},
        {"key": spec(2, 2, 5, 8), "value": spec(2, 2, 5, 6)},
        {},
    ],
    ids=["packed QKV", "packed KV", "ready", "separate"],
)
def test_every_layout_is_read_in_place(inputs: dict[str, Any]) -> None:
    assert templates(planned("MultiHeadAttention", inputs)) == ["stream_tile", "merge"]


def test_a_bias_is_added_to_what_is_projected() -> None:
    assert templates(planned("MultiHeadAttention", {"bias": spec(44)})).count("prepare") == 3
    ready = {"key": spec(2, 2, 5, 8), "value": spec(2, 2, 5, 6), "bias": spec(44)}
    assert templates(planned("MultiHeadAttention", ready)).count("prepare") == 1


def test_a_past_without_presents_is_legal() -> None:
    p = planned("MultiHeadAttention", {"past_key": spec(2, 2, 7, 8), "past_value": spec(2, 2, 7, 6)})
    assert p.outputs[1] is None
    assert {s.name: s.shape for s in p.scratch}["present_key"] == (2, 2, 12, 8)


def test_shared_buffers_keep_their_size() -> None:
    inputs = {
        "past_key": spec(2, 2, 9, 8),
        "past_value": spec(2, 2, 9, 6),
        "past_sequence_length": ints(4),
    }
    p = planned("MultiHeadAttention", inputs, outputs=("output", "present_key", "present_value"))
    assert [o.shape for o in p.outputs if o] == [(2, 3, 12), (2, 2, 9, 8), (2, 2, 9, 6)]
    assert "move" not in templates(p)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_keys_of_a_shared_buffer_are_reordered(device: Device, dtype: Any) -> None:
    """Twice the same step: over a plain past, and in the layout of a shared buffer."""
    had, room, rng = 5, 9, np.random.default_rng(1)
    fresh = {n: rng.standard_normal((2, 1, 32)).astype(dtype) for n in ("query", "key", "value")}
    key, value = (rng.standard_normal((2, 2, room, 16)).astype(dtype) for _ in range(2))
    names = ("output", "present_key", "present_value")

    def step(inputs: dict[str, Any], attributes: dict[str, Any]) -> list[np.ndarray]:
        results = run(
            "DecoderMaskedMultiHeadAttention",
            fresh | inputs,
            {"num_heads": 2} | attributes,
            outputs=names,
            device=device,
        )
        return [r.numpy() for r in results if isinstance(r, Tensor)]

    plain = step({"past_key": key[:, :, :had], "past_value": value[:, :, :had]}, {})
    shared = step(
        {"past_key": reordered(key), "past_value": value, "past_sequence_length": ints(had)}, SHARED
    )
    np.testing.assert_allclose(shared[0], plain[0], rtol=1e-3, atol=1e-3)
    got = in_order(shared[1])
    np.testing.assert_array_equal(got[:, :, : had + 1], plain[1])
    np.testing.assert_array_equal(got[:, :, had + 1 :], key[:, :, had + 1 :])
    np.testing.assert_array_equal(shared[2][:, :, : had + 1], plain[2])


@pytest.mark.parametrize("op", ["MultiHeadAttention", "DecoderMaskedMultiHeadAttention"])
def test_scores_have_the_type_the_model_declares(device: Device, op: str) -> None:
    """QK is float32 beside float16 inputs where the model says so, without a detour over float16."""
    from onnx import TensorProto, helper

    from webgpu_ops import backend

    rng = np.random.default_rng(2)
    shapes = {"query": (1, 1, 32), "key": (1, 2, 9, 16), "value": (1, 2, 9, 16)}
    inputs = {n: rng.standard_normal(s).astype(np.float16) for n, s in shapes.items()}
    node = helper.make_node(op, list(shapes), ["output", "", "", "qk"], domain="com.microsoft", num_heads=2)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in shapes.items()],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT16, None),
            helper.make_tensor_value_info("qk", TensorProto.FLOAT, None),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("com.microsoft", 1)])
    _, qk = backend.prepare(model, device).run(list(inputs.values()))
    assert qk.dtype == np.float32
    q = inputs["query"].astype(np.float64).reshape(1, 1, 2, 16).transpose(0, 2, 1, 3)
    want = q @ inputs["key"].astype(np.float64).swapaxes(-1, -2) / 4
    np.testing.assert_allclose(qk, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("had", [0, 4095, 70_001])
def test_computed_angles_hold_far_out(device: Device, had: int) -> None:
    """A position makes thousands of turns; the fraction of one is what counts."""
    inputs = {
        "input": normal(1, 1, 1, 6),
        "weights": normal(2, 6, 24),
        "bias": normal(3, 24),
        "past": np.zeros((2, 1, 1, had, 8), np.float32),
        "past_sequence_length": np.array(had, np.int32),
    }
    attributes = {"num_heads": 1, "do_rotary": 1}
    present = run("DecoderMaskedSelfAttention", inputs, attributes, device=device)[1]
    assert isinstance(present, Tensor)
    want = decoder_masked_self_attention(**inputs, **attributes)[1]
    np.testing.assert_allclose(present.numpy()[..., had, :], want[..., had, :], rtol=1e-5, atol=1e-5)


def test_a_beam_outside_the_group_is_contained(device: Device) -> None:
    """An entry that names no beam reads one of the group's own, never another batch entry's."""
    q, k, v = (normal(seed, 4, 1, 8) for seed in (1, 2, 3))
    past = {"past_key": normal(4, 4, 1, 3, 8), "past_value": normal(5, 4, 1, 3, 8)}
    for name in past:
        past[name][2:] = np.nan  # what the other entry's beams hold
    indirection = np.zeros((2, 2, 3), np.int32)
    indirection[0] = [[7, -3, 2**31 - 1], [2, 3, 1]]
    inputs = {"query": q, "key": k, "value": v, "cache_indirection": indirection, "beam_width": ints(2)}
    (y,) = (
        r
        for r in run("DecoderMaskedMultiHeadAttention", inputs | past, {"num_heads": 1}, device=device)
        if isinstance(r, Tensor)
    )
    assert np.isfinite(y.numpy()[:2]).all()


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("MultiHeadAttention", {}, {"num_heads": 0}, "num_heads=0; expected a positive number"),
        (
            "MultiHeadAttention",
            {},
            {"num_heads": 3},
            r"query has shape \(2, 3, 16\); expected a positive mul",
        ),
        ("MultiHeadAttention", {"key": None, "value": None}, {}, "key is missing"),
        ("MultiHeadAttention", {"value": None}, {}, "value is missing; expected it beside key"),
        (
            "MultiHeadAttention",
            {"query": spec(2, 5, 2, 3, 8)},
            {},
            "key is given; expected none because query",
        ),
        ("MultiHeadAttention", {"key": spec(2, 5, 2, 2, 8)}, {}, "value is given; expected none because key"),
        (
            "MultiHeadAttention",
            {"key": spec(2, 5, 14)},
            {},
            r"key has shape \(2, 5, 14\); expected \(2, kv_seq",
        ),
        ("MultiHeadAttention", {"value": spec(2, 4, 12)}, {}, r"value has shape \(2, 4, 12\)"),
        ("MultiHeadAttention", {"bias": spec(48)}, {}, r"bias has shape \(48,\); expected \(44,\)"),
        ("MultiHeadAttention", {"key_padding_mask": mask(2, 4)}, {}, "key_padding_mask has shape"),
        ("MultiHeadAttention", {"attention_bias": spec(2, 2, 3, 4)}, {}, "attention_bias has shape"),
        ("MultiHeadAttention", {"past_value": spec(2, 2, 7, 6)}, {}, "past_key is missing"),
        (
            "MultiHeadAttention",
            {"past_sequence_length": ints(3)},
            {},
            "past_key is missing; expected the shared",
        ),
        (
            "MultiHeadAttention",
            {
                "past_key": spec(2, 2, 7, 8),
                "past_value": spec(2, 2, 7, 6),
                "past_sequence_length": ints(3),
            },
            {},
            "past_sequence_length is 3; expected 0 to 2 because past_key has room for 7 rows and 5 are new",
        ),
        ("MultiHeadAttention", {"cache_indirection": mask(1, 2, 9)}, {}, "cache_indirection is given"),
        (
            "DecoderMaskedMultiHeadAttention",
            {"query": spec(2, 2, 16)},
            {},
            r"query has shape \(2, 2, 16\); expected a sequence length of 1",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            {"key": spec(2, 3, 16), "value": spec(2, 3, 12)},
            {},
            "expected one new token",
        ),
        ("DecoderMaskedMultiHeadAttention", {"key": None}, {}, "value is given without key"),
        ("DecoderMaskedMultiHeadAttention", {"mask_index": mask(2, 7)}, {}, r"mask_index has shape \(2, 7\)"),
        ("DecoderMaskedMultiHeadAttention", {}, SHARED, "input past_sequence_length is required"),
        (
            "DecoderMaskedMultiHeadAttention",
            {
                "query": spec(2, 1, 12),
                "key": spec(2, 1, 12),
                "past_key": spec(2, 2, 7, 6),
                "past_sequence_length": ints(1),
            },
            SHARED,
            "past_key has head size 6; expected a multiple of 4",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            {"beam_width": ints(2)},
            {},
            "cache_indirection is missing; expected it because beam_width is 2",
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            {"beam_width": ints(2), "cache_indirection": mask(1, 2, 6)},
            {},
            r"cache_indirection has shape \(1, 2, 6\); expected \(batch, 2, 7 or more\)",
        ),
        ("DecoderMaskedSelfAttention", {"input": spec(2, 3, 10)}, {}, r"input has shape \(2, 3, 10\)"),
        ("DecoderMaskedSelfAttention", {"weights": spec(10, 50)}, {}, r"weights has shape \(10, 50\)"),
        (
            "DecoderMaskedSelfAttention",
            {"past": spec(2, 2, 2, 7, 4)},
            {},
            r"past has shape \(2, 2, 2, 7, 4\)",
        ),
        ("DecoderMaskedSelfAttention", {}, SHARED, "past_sequence_length is 7; expected 0 to 6"),
        (
            "DecoderMaskedSelfAttention",
            {"weights": spec(10, 42), "bias": spec(42), "past": spec(2, 2, 2, 7, 7)},
            {"do_rotary": 1},
            "rotary embedding of head size 7; expected an even number",
        ),
    ],
)
def test_refuses(op: str, inputs: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises((ShapeError, SchemaError), match=f"^{op}: .*{message}"):
        planned(op, inputs, attributes)
