"""Random calls against ONNX Runtime's CPU kernels, where it has the operator and follows its text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, helper

from webgpu_ops import Device, Tensor, run, schema
from webgpu_ops.compare import EXACT, TOLERANCES, compare
from webgpu_ops.conformance import split_qualified
from webgpu_ops.core import dtypes
from webgpu_ops.reference.attention import resident
from webgpu_ops.reference.attention_variants import in_order, reordered
from webgpu_ops.reference.samples import Sample, draw_of

ort = pytest.importorskip("onnxruntime")

CALLS = 8


def comparable(op: str, s: Sample) -> Sample | None:
    """The call as ONNX Runtime takes it, or None where it has no kernel or reads the text otherwise."""
    given = {name: value for name, value in s.inputs.items() if value is not None}
    if any(value.dtype.name in ("bfloat16", "float64", "float8_e4m3fn") for value in given.values()):
        return None
    if op == "GroupQueryAttention":
        return group_query(s, given)
    if op == "Attention" and s.domain:
        return self_attention(s, given)
    if op == "Attention":
        total = given["K"].shape[-2] if given["K"].ndim == 4 else given["K"].shape[1]
        total += given["past_key"].shape[2] if "past_key" in given else 0
        mask = given.get("attn_mask")
        queries = given["Q"].shape[-2] if given["Q"].ndim == 4 else given["Q"].shape[1]
        if s.opset > 24 or (mask is not None and (mask.ndim < 2 or mask.shape[-2:] != (queries, total))):
            return None
        names = ("Y", "present_key", "present_value") if "past_key" in given else ("Y",)
        scores = tuple(name for name in s.outputs if name == "qk_matmul_output")
        return replace(s, inputs=given, outputs=names + scores)
    if op == "MultiHeadAttention":
        # Packed inputs, and heads of two sizes over a past, have no CPU kernel.
        key, value = given.get("key"), given.get("value")
        if key is None or value is None or key.shape != value.shape:
            return None
        # It passes over a past without presents, and beams of more than a token.
        if "cache_indirection" in given or (key.ndim == 4 and ("past_key" in given or "bias" in given)):
            return None
        if "past_key" in given and s.attributes["unidirectional"]:
            return None
        mask = given.get("key_padding_mask")
        if "past_key" in given and mask is not None and mask.shape[-1] == key.shape[1]:
            return None
        names = ("output", "present_key", "present_value") if "past_key" in given else ("output",)
        return replace(s, inputs=given, outputs=names, aliases={})
    if op == "DecoderMaskedMultiHeadAttention":
        key, value = given.get("key"), given.get("value")
        if key is None or value is None or key.shape != value.shape:
            return None
        if key.ndim == 3 and not s.attributes.get("past_present_share_buffer"):
            return None
        if "attention_bias" in given and len(given["attention_bias"]) > 1:
            return None  # its beams all take the bias of the first batch entry
        return replace(s, inputs=given, aliases={})
    if s.attributes.get("do_rotary"):
        return None  # its quantized attention does not turn
    # Products of unsigned and signed bytes saturate on processors without VNNI.
    if given["input"].dtype != np.uint8 or given["weight"].dtype != np.uint8:
        return None
    return replace(s, inputs=given) if given["bias"].dtype == np.float32 else None


def group_query(s: Sample, given: dict[str, np.ndarray]) -> Sample | None:
    """Its CPU kernel takes sizes and scales of some forms only, and no norms of heads."""
    attributes = s.attributes
    heads, kv = attributes["num_heads"], attributes["kv_num_heads"]
    query, past = given["query"], given.get("past_key")
    size = query.shape[-1] // (heads if "key" in given else heads + 2 * kv)
    total = int(given["total_sequence_length"].reshape(()))
    if size % 8 or "q_norm_weight" in given or attributes.get("qk_output"):
        return None
    if "cos_cache" in given and given["cos_cache"].shape[1] % 8:
        return None
    positions = given.get("position_ids")
    if positions is not None and (
        positions.shape != query.shape[:2] or positions.flat[0] + query.shape[1] > len(given["cos_cache"])
    ):
        return None
    if "attention_bias" in given and query.dtype == np.float16:
        return None  # where a row sees nothing, it gives NaN
    if past is not None and total == query.shape[1]:
        return None  # a prompt in front of a cache that holds nothing yet
    if "k_scale" in given and attributes.get("sliding_window_cache") and size % 32:
        return None
    if "k_scale" in given:
        kinds = {attributes["k_quant_type"], attributes["v_quant_type"]}
        wide = {given[name].size for name in ("k_scale", "v_scale")} == {kv * size}
        if past is None or len(kinds) > 1 or not (wide or "PER_TENSOR" in kinds):
            return None
    # What a cache holds behind an entry's last token is left open, and what the padding of a prompt sees.
    held = given["seqlens_k"].reshape(-1) + 1
    rows = query.shape[1]
    padding = (np.arange(rows) >= held[:, None])[..., None] & (rows == total)
    shape = (len(held), kv, total if past is None else max(total, past.shape[2]), 1)
    if attributes.get("sliding_window_cache"):
        window, capacity = attributes["local_window_size"], past.shape[2]  # type: ignore[union-attr]
        held = np.array([resident(int(n), capacity, window) for n in held])
        shape = (len(held), kv, capacity, 1)
    behind = np.arange(shape[2])[:, None] >= held[:, None, None, None]
    unspecified = {name: np.broadcast_to(behind, shape) for name in ("present_key", "present_value")}
    unspecified["output"] = np.broadcast_to(padding, (len(held), rows, 1))
    outputs = ("output", "present_key", "present_value")
    return replace(s, inputs=given, outputs=outputs, aliases={}, unspecified=unspecified)


def self_attention(s: Sample, given: dict[str, np.ndarray]) -> Sample | None:
    """Its CPU kernel turns nothing, shares no buffer and adds no bias over a past."""
    attributes, mask, bias = s.attributes, given.get("mask_index"), given.get("attention_bias")
    if attributes.get("do_rotary") or attributes.get("past_present_share_buffer"):
        return None
    if (mask is not None and mask.ndim == 4) or (bias is not None and "past" in given):
        return None
    if bias is not None and attributes.get("unidirectional"):
        return None  # where a row sees nothing, it averages what the row must not see
    return replace(s, inputs=given, aliases={})


def model_of(op: str, s: Sample) -> ModelProto:
    def trimmed(names: list[str]) -> list[str]:
        while names and not names[-1]:
            names.pop()
        return names

    declared = schema.find(op, s.domain, s.opset)
    inputs = trimmed([p.name if p.name in s.inputs else "" for p in declared.inputs])
    outputs = trimmed([p.name if p.name in s.outputs else "" for p in declared.outputs])
    kind = next(s.inputs[n].dtype for n in ("query", "Q", "bias", "input") if n in s.inputs)
    kinds = {n: s.inputs.get(n.replace("present", "past"), np.empty(0, kind)).dtype for n in outputs}
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, domain=s.domain, **s.attributes)],
        op,
        [
            helper.make_tensor_value_info(n, dtypes.from_numpy(s.inputs[n].dtype).onnx, s.inputs[n].shape)
            for n in inputs
            if n
        ],
        [helper.make_tensor_value_info(n, dtypes.from_numpy(kinds[n]).onnx, None) for n in outputs if n],
    )
    opsets = [
        helper.make_opsetid("", s.opset if s.domain == "" else 21),
        helper.make_opsetid("com.microsoft", 1),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def theirs(op: str, s: Sample) -> dict[str, np.ndarray]:
    """What ONNX Runtime makes of the call; its CPU kernel keeps shared key caches in plain order."""
    inputs = dict(s.inputs)
    swap = op == "DecoderMaskedMultiHeadAttention" and bool(s.attributes.get("past_present_share_buffer"))
    if swap:
        inputs["past_key"] = in_order(inputs["past_key"])
    session = ort.InferenceSession(
        model_of(op, replace(s, inputs=inputs)).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    if swap and "present_key" in results:
        results["present_key"] = reordered(results["present_key"])
    return results


@pytest.mark.parametrize(
    "name",
    [
        "Attention",
        "Attention@ai.onnx",
        "DecoderMaskedMultiHeadAttention",
        "GroupQueryAttention",
        "MultiHeadAttention",
        "QAttention",
    ],
)
def test_agrees(name: str) -> None:
    op, domain = split_qualified(name)
    draw, device, done, seed = draw_of(op, domain), Device.default(), 0, 0
    assert draw is not None
    while done < CALLS:
        seed += 1
        assert seed < 400, f"only {done} comparable calls"
        s = comparable(op, draw(np.random.default_rng((17, seed))))
        if s is None:
            continue
        s = replace(s, outputs=s.outputs or schema.find(op, domain, s.opset).required_outputs)
        want = theirs(op, s)
        results = run(
            op, s.inputs, s.attributes, domain=domain, opset=s.opset, outputs=s.outputs, device=device
        )
        got = [r for r in results if isinstance(r, Tensor)]
        order = [p.name for p in schema.find(op, domain, s.opset).outputs if p.name in s.outputs]
        for output, tensor in zip(order, got, strict=True):
            tolerance = TOLERANCES.get(want[output].dtype.name, EXACT)
            ignore = s.unspecified.get(output)
            if ignore is not None:
                ignore = np.broadcast_to(ignore, want[output].shape)
            wide = (2 * tolerance[0], 2 * tolerance[1])
            verdict = compare(tensor.numpy(), want[output], wide, ignore=ignore)
            assert verdict.agrees, f"seed {seed}: {output} {verdict.message}"
        done += 1
