"""Paged caches: plans and refusals, updates in place, pages and lengths that lie, and decoding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from webgpu_ops import Device, InferenceSession, Tensor, plan, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.program import render
from webgpu_ops.errors import SchemaError, ShapeError
from webgpu_ops.reference.paged_attention import paged_attention
from webgpu_ops.reference.samples import Sample, draw_of

CPU = replace(PORTABLE, device_class="cpu")
CACHES = {"key_cache_out": "key_cache", "value_cache_out": "value_cache"}


def spec(*shape: int, dtype: dtypes.DType = dtypes.float16) -> TensorSpec:
    return TensorSpec(shape, dtype)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def half(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def paged(
    attributes: dict[str, Any] | None = None,
    outputs: tuple[str, ...] = ("output",),
    capabilities: Capabilities = PORTABLE,
    tokens: int = 3,
    batch: int = 2,
    pages: int = 4,
    **inputs: Any,
) -> Plan:
    """The plan of a call of 4 heads of 16 channels to 2; ``inputs`` replace or add some."""
    given: dict[str, Any] = {
        "query": spec(tokens, 64),
        "key": spec(tokens, 32),
        "value": spec(tokens, 32),
        "key_cache": spec(9, 16, 2, 16),
        "value_cache": spec(9, 16, 2, 16),
        "cumulative_sequence_length": spec(batch + 1, dtype=dtypes.int32),
        "past_seqlens": spec(batch, dtype=dtypes.int32),
        "block_table": spec(batch, pages, dtype=dtypes.int32),
    }
    given = {k: v for k, v in (given | inputs).items() if v is not None}
    return plan(
        "PagedAttention",
        given,
        {"num_heads": 4, "kv_num_heads": 2} | (attributes or {}),
        outputs=outputs,
        capabilities=capabilities,
    )


def templates(p: Plan) -> list[str]:
    return [d.template.removeprefix("attention/") for d in p.dispatches]


# Plans


def test_float_caches_need_no_queries_of_their_own() -> None:
    assert templates(paged()) == ["prepare", "prepare", "stream_tile", "merge"]
    norms = {"q_norm_weight": spec(16), "k_norm_weight": spec(16)}
    assert templates(paged(**norms)) == ["prepare", "prepare", "prepare", "stream_tile", "merge"]


def test_a_launch_does_not_grow_with_the_longest_sequence() -> None:
    """Entries share one numbering of tiles: at most one idle tile for each, wherever the tokens are."""
    p = paged(tokens=4096, batch=64)
    stream = next(d for d in p.dispatches if d.template.endswith("stream_tile"))
    tile = 8 * dict(stream.constants)["per"]  # type: ignore[operator]
    assert stream.groups == 2 * (4096 * 2 // tile + 64)
    assert p.path == "streaming" and p.scratch_bytes == 0


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_a_growing_cache_keeps_its_shaders(capabilities: Capabilities) -> None:
    def sources(pages: int) -> list[str]:
        return [render(d, capabilities) for d in paged(pages=pages, capabilities=capabilities).dispatches]

    assert sources(1) == sources(1000)


def test_bounds_shape_the_launch_only() -> None:
    """Equal steps but for the number of workers that share the keys; the lengths stay on the device."""
    bounded, free = paged(attention_metadata=ints(1, 20)), paged(pages=64)
    assert templates(bounded) == templates(free)
    assert bounded.host_read == {"attention_metadata"} and not free.host_read
    splits = [dict(p.dispatches[-1].uniforms)["splits"].values[0] for p in (bounded, free)]
    assert splits[0] == 1 < splits[1]


def test_caches_are_aliases_or_updated_inputs() -> None:
    p = paged(outputs=("output", "key_cache_out"))
    assert [(a.output, a.input, a.required) for a in p.aliases] == [(1, 3, True)]
    assert p.updated == {4}


def test_latent_values_are_the_keys() -> None:
    p = paged(
        {"kv_num_heads": 1, "kv_cache_layout": "LATENT", "v_head_size": 8, "scale": 0.5},
        key=spec(3, 16),
        value=None,
        key_cache=spec(9, 16, 1, 16),
        value_cache=None,
    )
    assert templates(p) == ["prepare", "stream_tile", "merge"]
    stream = dict(p.dispatches[1].reads)
    assert stream["k"] == stream["v"]
    assert p.outputs[0] is not None and p.outputs[0].shape == (3, 32)


QUANTIZED = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
INT8 = {
    "key_cache": spec(9, 16, 2, 16, dtype=dtypes.int8),
    "value_cache": spec(9, 16, 2, 16, dtype=dtypes.int8),
    "k_scale": spec(1, dtype=dtypes.float32),
    "v_scale": spec(1, dtype=dtypes.float32),
}


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads": 3}, "num_heads=3, kv_num_heads=2"),
        ({"kv_num_heads": 0}, "expected positive numbers"),
        ({"is_causal": 2}, "is_causal=2; expected 0 or 1"),
        ({"local_window_size": 0}, "local_window_size=0; expected -1 or a positive number"),
        ({"k_quant_type": "PER_ROW"}, "k_quant_type='PER_ROW'"),
        ({"qk_norm_epsilon": 0.0}, "qk_norm_epsilon=0.0"),
        ({"softcap": -1.0}, "softcap=-1.0"),
        ({"rotary_offset": 4}, "rotary_offset=4; expected a non-negative multiple of 8"),
        ({"k_cache_dtype": "uint4"}, "k_cache_dtype='uint4'"),
        ({"kv_cache_layout": "SHARED"}, "kv_cache_layout='SHARED'; expected SEPARATE or LATENT"),
        ({"kv_cache_layout": "LATENT"}, "kv_num_heads=2; expected 1"),
        ({"v_head_size": 8}, "v_head_size=8; expected 0 because kv_cache_layout is SEPARATE"),
    ],
)
def test_paged_attention_refuses_attributes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match="^PagedAttention: .*" + message):
        paged(attributes)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ({"query": spec(3, 4, 16)}, {}, r"query has shape \(3, 4, 16\); expected \(tokens, hidden\)"),
        ({"query": spec(3, 66)}, {}, "query has shape .* because of num_heads=4"),
        ({"value": None}, {}, "value is missing; expected key and value"),
        ({"key": None, "value": None, "query": spec(3, 126)}, {}, "kv_num_heads=2 of packed QKV"),
        ({"key": spec(3, 64)}, {}, r"key has shape \(3, 64\); expected \(3, 32\)"),
        ({"key_cache": spec(9, 16, 2, 8)}, {}, r"key_cache has shape .*expected \(9, 16, 2, 16\)"),
        ({"value_cache": spec(8, 16, 2, 16)}, {}, r"value_cache has shape .*expected \(9, 16, 2, 16\)"),
        (
            {"past_seqlens": spec(3, dtype=dtypes.int32)},
            {},
            r"past_seqlens has shape \(3,\); expected \(2,\)",
        ),
        ({"block_table": spec(2, dtype=dtypes.int32)}, {}, r"block_table has shape \(2,\)"),
        (
            {"slot_mapping": spec(2, dtype=dtypes.int32)},
            {},
            r"slot_mapping has shape \(2,\); expected \(3,\)",
        ),
        ({"head_sink": spec(2)}, {}, r"head_sink has shape \(2,\); expected \(4,\)"),
        ({"k_norm_weight": spec(16)}, {}, "q_norm_weight is missing; expected it beside k_norm_weight"),
        ({}, {"do_rotary": 1}, "input cos_cache is required"),
        (
            {"cos_cache": spec(9, 8), "sin_cache": spec(9, 8)},
            {"do_rotary": 1, "rotary_offset": 8},
            "up to 4.* because the head size is 16 and rotary_offset=8",
        ),
        ({"attention_metadata": ints(1)}, {}, r"attention_metadata has shape \(1,\); expected \(2,\) or"),
        ({"attention_metadata": ints(1, -1)}, {}, "no negative bounds"),
        (INT8, {}, "key_cache holds int8 with k_quant_type=NONE; expected k_quant_type PER_TENSOR or"),
        ({}, QUANTIZED, "key_cache holds float16 with k_quant_type=PER_TENSOR; expected k_quant_type NONE"),
        (INT8, QUANTIZED | {"k_cache_dtype": "int4"}, "key_cache has type int8; expected uint8 because"),
        (INT8 | {"k_scale": None}, QUANTIZED, "input k_scale is required"),
        (
            INT8 | {"k_scale": spec(2, 1, 16, dtype=dtypes.float32)},
            QUANTIZED,
            r"k_scale has shape \(2, 1, 16\); expected \(1,\) because of PER_TENSOR",
        ),
        (
            INT8,
            QUANTIZED | {"v_quant_type": "PER_CHANNEL"},
            r"v_scale has shape \(1,\); expected \(2, 1, 16\)",
        ),
        (
            {
                "key_cache": spec(9, 16, 2, 8, dtype=dtypes.uint8),
                "value_cache": spec(9, 16, 2, 8, dtype=dtypes.uint8),
            },
            QUANTIZED,
            "key_cache has type uint8; expected a type that names its elements",
        ),
        ({}, {"kv_num_heads": 1, "kv_cache_layout": "LATENT"}, "value is given; expected none"),
    ],
)
def test_paged_attention_refuses_inputs(
    inputs: dict[str, Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError, match="^PagedAttention: .*" + message):
        paged(attributes, **inputs)


# Updates in place


def call_of(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two sequences, of which one brings two tokens."""
    inputs = {
        "query": half(rng, 3, 32),
        "key": half(rng, 3, 16),
        "value": half(rng, 3, 16),
        "key_cache": half(rng, 5, 4, 1, 16),
        "value_cache": half(rng, 5, 4, 1, 16),
        "cumulative_sequence_length": ints(0, 2, 3),
        "past_seqlens": ints(3, 1),
        "block_table": ints([4, 0], [2, -1]),
    }
    return inputs, {"num_heads": 2, "kv_num_heads": 1}


def test_a_cache_is_updated_without_an_output(device: Device) -> None:
    inputs, attributes = call_of(np.random.default_rng(1))
    want = paged_attention(**inputs, **attributes)
    held = {name: Tensor.from_numpy(inputs[name], device, keep_host=True) for name in CACHES.values()}
    results = run("PagedAttention", inputs | held, attributes, device=device)
    assert isinstance(results[0], Tensor)
    np.testing.assert_allclose(results[0].numpy(), want[0], rtol=1e-3, atol=1e-3)
    for tensor, expected in zip(held.values(), want[1:], strict=True):
        assert tensor.host is None
        np.testing.assert_array_equal(tensor.numpy(), expected)


def test_other_memory_is_refused(device: Device) -> None:
    inputs, attributes = call_of(np.random.default_rng(2))
    before = inputs["key_cache"].copy()
    held = Tensor.from_numpy(inputs["key_cache"], device)
    other = Tensor.empty(held.shape, held.dtype, device)
    for target in (None, other):
        with pytest.raises(ShapeError, match=r"^PagedAttention: output key_cache_out .*input key_cache"):
            run(
                "PagedAttention",
                inputs | {"key_cache": held},
                attributes,
                outputs={"output": None, "key_cache_out": target},
                device=device,
            )
    np.testing.assert_array_equal(held.numpy(), before)


# Containment


@pytest.mark.parametrize("past", [-1, -(2**31), 7, 2**31 - 1])
def test_a_length_that_cannot_be(any_device: Device, past: int) -> None:
    """Its sequence writes nothing and gives zeros, sink or not; its neighbour does not notice."""
    inputs, attributes = call_of(np.random.default_rng(3))
    inputs |= {"past_seqlens": ints(past, 1), "head_sink": half(np.random.default_rng(4), 2)}
    sample = Sample(inputs, attributes, ("output", *CACHES), aliases=CACHES)
    outcome = check_sample("PagedAttention", sample, any_device)
    assert outcome.passed, outcome.message


@pytest.mark.parametrize(
    "name",
    ["unmapped", "table", "slots", "negative offsets", "falling offsets", "offsets beyond", "few offsets"],
)
def test_metadata_on_the_device_is_contained(device: Device, name: str) -> None:
    """Whatever the metadata says, only the cache is written; what is finite stays so."""
    inputs, attributes = call_of(np.random.default_rng(5))
    low, high = -(2**31), 2**31 - 1
    inputs |= {
        "unmapped": {"block_table": ints([-1, -1], [-1, -1])},
        "table": {"block_table": ints([high, low], [5, -2])},
        "slots": {"slot_mapping": ints(high, low, 20)},
        "negative offsets": {"cumulative_sequence_length": ints(low, 2, 3)},
        "falling offsets": {"cumulative_sequence_length": ints(0, 3, 1)},
        "offsets beyond": {"cumulative_sequence_length": ints(0, high, high)},
        "few offsets": {"cumulative_sequence_length": ints(1, 1, 2)},
    }[name]
    held = {}
    for cache in CACHES.values():
        whole = np.full(inputs[cache].size + 64, 7, np.float16)
        whole[32:-32] = inputs[cache].reshape(-1)
        backing = Tensor.from_numpy(whole, device)
        held[cache] = (backing, backing.view(inputs[cache].shape, 32))
    views = {cache: view for cache, (_, view) in held.items()}
    results = run("PagedAttention", inputs | views, attributes, device=device)
    assert isinstance(results[0], Tensor)
    y = results[0].numpy()
    if "offsets" not in name or name == "few offsets":
        assert np.isfinite(y).all()
    if name == "unmapped":
        assert not y.any()
    if name == "few offsets":
        assert y[1].any() and not y[[0, 2]].any(), "tokens around the sequences belong to none"
    for backing, _ in held.values():
        around = backing.numpy()
        assert (around[:32] == 7).all() and (around[-32:] == 7).all()


def test_rows_nobody_may_see_can_hold_anything(any_device: Device) -> None:
    """NaN behind the last token, in front of the window and in unmapped pages reaches no output."""
    rng = np.random.default_rng(6)
    rows, size = 16, 16
    keys, values = (np.full((12, rows, 1, size), np.nan, np.float16) for _ in range(2))
    table = ints([7, -1, 3, 11, 12, 5], [1, 40, -1, -1, -1, -1])
    past = ints(75, 9)
    for b, length in enumerate(past):
        for j in range(length):
            page = table[b, j // rows]
            if 0 <= page < 12 and (b == 1 or j >= 30):
                keys[page, j % rows], values[page, j % rows] = half(rng, 2, 1, size)
    inputs = {
        "query": half(rng, 3, 2 * size),
        "key": half(rng, 3, size),
        "value": half(rng, 3, size),
        "key_cache": keys,
        "value_cache": values,
        "cumulative_sequence_length": ints(0, 2, 3),
        "past_seqlens": past,
        "block_table": table,
    }
    attributes = {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 46}
    want = paged_attention(**inputs, **attributes)[0]
    assert np.isfinite(want).all()
    results = run("PagedAttention", inputs, attributes, device=any_device)
    assert isinstance(results[0], Tensor)
    np.testing.assert_allclose(results[0].numpy(), want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("logical", ["float8e4m3fn", "float4e2m1", "int8", "int4"])
def test_a_quantized_cache_saturates_and_rounds_to_even(device: Device, logical: str) -> None:
    """Ties, both ends, infinities and -0, channel by channel."""
    x = [0.0, -0.0, 0.25, -0.25, 0.5, 1.5, 2.5, -2.5, 3.5, 5.0, -5.0, 7.5, -8.5, 127.5, -200.0, 1e4]
    channels = np.array([*x, 17.0, 19.0, 448.0, 464.0, 480.0, -480.0, np.inf, -np.inf], np.float16)
    size = channels.size
    packed = logical in ("int4", "float4e2m1")
    storage = {"int8": np.int8, "float8e4m3fn": ml_dtypes.float8_e4m3fn}.get(logical, np.uint8)
    cache = np.zeros((2, 2, 1, size // 2 if packed else size), storage)
    inputs = {
        "query": np.zeros((1, size), np.float16),
        "key": channels[None],
        "value": channels[None, ::-1].copy(),
        "key_cache": cache,
        "value_cache": cache,
        "cumulative_sequence_length": ints(0, 1),
        "past_seqlens": ints(2),
        "block_table": ints([-1, 1]),
        "k_scale": np.ones(1, np.float32),
        "v_scale": np.ones(1, np.float32),
    }
    attributes = {
        "num_heads": 1,
        "kv_num_heads": 1,
        "k_cache_dtype": logical,
        "v_cache_dtype": logical,
        "k_quant_type": "PER_TENSOR",
        "v_quant_type": "PER_TENSOR",
    }
    want = paged_attention(**inputs, **attributes)
    held = {name: Tensor.from_numpy(inputs[name], device) for name in CACHES.values()}
    run("PagedAttention", inputs | held, attributes, device=device)
    for got, expected in zip(held.values(), want[1:], strict=True):
        assert expected is not None and got.numpy().tobytes() == expected.tobytes()
    stored = want[1][1, 0, 0]
    if logical == "int8":
        np.testing.assert_array_equal(stored[4:9], [0, 2, 2, -2, 4])
    elif logical == "int4":
        np.testing.assert_array_equal(stored[:4], [0x88, 0x88, 0xA8, 0x6A])


# Decoding


STEPS = 200
HEADS, KV, SIZE = 4, 2, 16


def decode(device: Device, seed: int, logical: str = "") -> None:
    """Sequences that grow by a token a step, in pages dealt in random order, each step compared."""
    rng = np.random.default_rng(seed)
    rows, batch, start = 8, 3, np.array([0, 13, 40])
    pages = -(-(int(start.max()) + STEPS) // rows)
    table = rng.permutation(batch * pages).reshape(batch, pages).astype(np.int32)
    shape = (batch * pages, rows, KV, SIZE)
    quantized = logical == "int8"
    storage = np.int8 if quantized else np.float16
    caches = [(rng.standard_normal(shape) * (20 if quantized else 1)).astype(storage) for _ in range(2)]
    attributes: dict[str, Any] = {"num_heads": HEADS, "kv_num_heads": KV}
    extra: dict[str, Any] = {}
    if quantized:
        attributes |= QUANTIZED
        extra = {"k_scale": np.full(1, 0.0625, np.float32), "v_scale": np.full(1, 0.0625, np.float32)}
    held = dict(zip(CACHES.values(), (Tensor.from_numpy(c, device) for c in caches), strict=True))
    bound = {out: held[name] for out, name in CACHES.items()}
    plans = device.stats.plans_made
    for step in range(STEPS):
        inputs = {
            "query": half(rng, batch, HEADS * SIZE),
            "key": half(rng, batch, KV * SIZE),
            "value": half(rng, batch, KV * SIZE),
            "cumulative_sequence_length": np.arange(batch + 1, dtype=np.int32),
            "past_seqlens": (start + step).astype(np.int32),
            "block_table": table,
            **extra,
        }
        results = run(
            "PagedAttention",
            {**inputs, **held},
            attributes,
            outputs={"output": None, **bound},
            device=device,
        )
        want, *updated = paged_attention(**inputs, key_cache=caches[0], value_cache=caches[1], **attributes)
        caches = [c for c in updated if c is not None]
        assert isinstance(results[0], Tensor)
        np.testing.assert_allclose(results[0].numpy(), want, rtol=1e-3, atol=1e-3, err_msg=f"step {step}")
    for tensor, cache in zip(held.values(), caches, strict=True):
        assert tensor.numpy().tobytes() == cache.tobytes()
    assert device.stats.plans_made - plans <= 4, "lengths that only the device reads need no new plan"


@pytest.mark.parametrize("logical", ["", "int8"])
def test_every_step_agrees(device: Device, logical: str) -> None:
    decode(device, 1, logical)


def test_two_threads_decode_at_once() -> None:
    device = Device.default()
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(decode, device, seed) for seed in (2, 3)]:
            done.result()


def test_a_chunk_equals_its_tokens_one_by_one(device: Device) -> None:
    """A prompt in one call, in ragged chunks or token by token leaves one cache and one answer."""
    rng = np.random.default_rng(7)
    total, size, rows = 23, 16, 4
    q, k, v = half(rng, total, 2 * size), half(rng, total, size), half(rng, total, size)
    table = rng.permutation(8)[None, :6].astype(np.int32)
    attributes = {"num_heads": 2, "kv_num_heads": 1}
    answers, bytes_ = [], []
    for chunk in (total, 5, 1):
        held = [Tensor.from_numpy(np.zeros((8, rows, 1, size), np.float16), device) for _ in range(2)]
        parts = []
        for first in range(0, total, chunk):
            at = slice(first, min(first + chunk, total))
            inputs = [q[at], k[at], v[at], *held, ints(0, at.stop - first), ints(first), table]
            (y,) = run("PagedAttention", inputs, attributes, outputs=("output",), device=device)[:1]
            assert isinstance(y, Tensor)
            parts.append(y.numpy())
        answers.append(np.concatenate(parts))
        bytes_.append([c.numpy().tobytes() for c in held])
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=2e-3, atol=1e-3)
    assert bytes_[0] == bytes_[1] == bytes_[2]


def decoder(
    size: int, rows: int, outputs: dict[str, str], constants: dict[str, np.ndarray] | None = None
) -> InferenceSession:
    """A session of one token over three pages, whose ``outputs`` beside the first are caches."""
    constants = constants or {}
    types = {"cumulative_sequence_length": (TensorProto.INT32, [2]), "past_seqlens": (TensorProto.INT32, [1])}
    types |= {"block_table": (TensorProto.INT32, [1, 3]), "query": (TensorProto.FLOAT16, [1, 2 * size])}
    types |= {name: (TensorProto.FLOAT16, [1, size]) for name in ("key", "value")}
    types |= {name: (TensorProto.FLOAT16, [3, rows, 1, size]) for name in CACHES.values()}
    order = ["query", "key", "value", *CACHES.values(), "cumulative_sequence_length", "past_seqlens"]
    order.append("block_table")
    node = helper.make_node(
        "PagedAttention", order, ["output", *outputs], domain="com.microsoft", num_heads=2, kv_num_heads=1
    )
    made = {"output": types["query"], **{out: types[name] for out, name in outputs.items()}}
    graph = helper.make_graph(
        [node],
        "decode",
        [helper.make_tensor_value_info(name, *types[name]) for name in order if name not in constants],
        [helper.make_tensor_value_info(name, *kind) for name, kind in made.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return InferenceSession(helper.make_model(graph, opset_imports=opsets))


def test_a_session_keeps_caches_that_the_model_holds() -> None:
    """An initializer is updated in a copy, so that every run begins with what the model says."""
    rng = np.random.default_rng(10)
    size, rows = 16, 4
    caches = {name: half(rng, 3, rows, 1, size) for name in CACHES.values()}
    session = decoder(size, rows, {}, caches)
    answers = []
    for past in (2, 5, 2):
        feeds = {"query": half(rng, 1, 2 * size), "key": half(rng, 1, size), "value": half(rng, 1, size)}
        feeds |= {"cumulative_sequence_length": ints(0, 1), "past_seqlens": ints(past)}
        feeds["block_table"] = ints([2, 0, 1])
        want = paged_attention(**feeds, **caches, num_heads=2, kv_num_heads=1)[0]
        answers.append((session.run(None, feeds)[0], want))
    for got, want in answers:
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_session_decodes_in_bound_caches() -> None:
    """Caches that are bound as inputs and as outputs grow from run to run."""
    rng = np.random.default_rng(9)
    size, rows = 16, 4
    session = decoder(size, rows, CACHES)
    binding = session.io_binding()
    caches = [np.zeros((3, rows, 1, size), np.float16) for _ in CACHES]
    for cache, (out, name) in zip(caches, CACHES.items(), strict=True):
        tensor = Tensor.from_numpy(cache, session.device)
        binding.bind_input(name, tensor)
        binding.bind_output(out, tensor)
    binding.bind_output("output")
    table = ints([2, 0, 1])
    for step in range(9):
        fresh = {"query": half(rng, 1, 2 * size), "key": half(rng, 1, size), "value": half(rng, 1, size)}
        feeds = fresh | {"cumulative_sequence_length": ints(0, 1), "past_seqlens": ints(step)}
        feeds["block_table"] = table
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        session.run_with_iobinding(binding)
        held = dict(zip(CACHES.values(), caches, strict=True))
        want, *updated = paged_attention(**feeds, **held, num_heads=2, kv_num_heads=1)
        caches = [cache for cache in updated if cache is not None]
        *got_caches, got = binding.copy_outputs_to_cpu()
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
        for a, b in zip(got_caches, caches, strict=True):
            np.testing.assert_array_equal(a, b)


# Random calls


def test_draws_reach_every_feature() -> None:
    draw = draw_of("PagedAttention")
    assert draw is not None
    drawn = [draw(np.random.default_rng((0, i))) for i in range(120)]
    for name in ("slot_mapping", "head_sink", "cos_cache", "q_norm_weight", "k_scale", "attention_metadata"):
        assert sum(name in s.inputs for s in drawn) >= 5, name
    for name in ("softcap", "is_causal", "local_window_size", "rotary_offset", "kv_cache_layout"):
        assert sum(bool(s.attributes.get(name, 0) != 0) or name == "is_causal" for s in drawn) >= 5, name
    assert {s.inputs["key_cache"].dtype.name for s in drawn} >= {"float16", "bfloat16", "int8", "uint8"}
    assert sum((s.inputs["past_seqlens"] < 0).any() for s in drawn) >= 3
    assert sum((s.inputs["block_table"] < -1).any() for s in drawn) >= 5
    assert sum(bool(s.aliases) for s in drawn) >= 40
