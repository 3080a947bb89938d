"""Rotary embeddings: what is refused, what plans depend on, and what samples do not reach."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Tensor, plan, reference, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import SchemaError, ShapeError, UnsupportedError
from webgpu_ops.reference import samples

BFLOAT16 = ml_dtypes.bfloat16


def spec(*shape: int, dtype: Any = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def ids(*shape: int) -> TensorSpec:
    return spec(*shape, dtype=dtypes.int64)


def bf16(*shape: int) -> TensorSpec:
    return spec(*shape, dtype=dtypes.bfloat16)


HALF = {"dtype": dtypes.float16}
ROTARY = {
    "input": spec(2, 5, 24),
    "position_ids": ids(2, 5),
    "cos_cache": spec(9, 4),
    "sin_cache": spec(9, 4),
}
STREAMS = ROTARY | {"position_ids": ids(3, 2, 5)}
STANDARD = {"X": spec(2, 5, 24), "cos_cache": spec(9, 4), "sin_cache": spec(9, 4), "position_ids": ids(2, 5)}
NORM = {
    "X": bf16(2, 3, 4, 20),
    "scale": spec(20),
    "position_ids": ids(2, 3),
    "cosine": bf16(9, 4),
    "sine": bf16(9, 4),
}
GEMMA = {"emb": spec(2, 3, 6), **{n: spec(2, 4, 3, 6, **HALF) for n in ("q", "q_rot", "k", "k_rot")}}
ANGLE = np.random.default_rng(5).uniform(-3, 3, (9, 4))
CACHES = {"cos_cache": np.cos(ANGLE).astype(np.float32), "sin_cache": np.sin(ANGLE).astype(np.float32)}


def refuse(
    op: str, base: dict[str, Any], changes: dict[str, Any], attributes: dict[str, Any], text: str
) -> None:
    domain = "" if base is STANDARD else "com.microsoft"
    with pytest.raises((ShapeError, SchemaError, UnsupportedError), match=f"^{op}: ") as caught:
        plan(op, base | changes, attributes, domain=domain, opset=23 if base is STANDARD else 1)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "attributes", "text"),
    [
        ({"input": spec(5, 24)}, {}, "input has shape (5, 24)"),
        ({"input": spec(2, 5, 20)}, {}, "divisible by 8"),
        ({"input": spec(2, 3, 5, 7)}, {}, "head size 7"),
        ({"input": spec(2, 3, 5, 10)}, {}, "cos_cache has shape (9, 4); expected (positions, 5)"),
        ({"position_ids": ids(5)}, {}, "position_ids has shape (5,); expected (1,) or (2, 5)"),
        ({"position_ids": ids(2, 4)}, {}, "(2, 4)"),
        ({"position_ids": np.array([5])}, {}, "holds 5; expected positions in [0, 4]"),
        ({"position_ids": np.full((2, 5), -1)}, {}, "holds -1"),
        ({"position_ids": np.full((2, 5), 9)}, {}, "because cos_cache has 9 rows"),
        ({"position_ids": ids(1), "cos_cache": spec(4, 4), "sin_cache": spec(4, 4)}, {}, "at least 5"),
        ({"sin_cache": spec(8, 4)}, {}, "sin_cache has shape (8, 4); expected (9, 4)"),
        ({"cos_cache": spec(9)}, {}, "cos_cache has shape (9,)"),
        ({}, {"num_heads": 5}, "num_heads=5"),
        ({}, {"num_heads": 2}, "cos_cache has shape (9, 4); expected (positions, 6)"),
        ({"input": spec(2, 3, 5, 8)}, {"num_heads": 2}, "2 heads because num_heads=2"),
        ({}, {"rotary_embedding_dim": 8}, "without num_heads"),
        ({}, {"rotary_embedding_dim": 7, "num_heads": 3}, "expected an even number"),
        ({}, {"rotary_embedding_dim": 10, "num_heads": 3}, "at most the head size, 8"),
        ({}, {"rotary_embedding_dim": 4, "num_heads": 2}, "cos_cache"),
        ({}, {"rotary_embedding_dim": -2, "num_heads": 3}, "not negative"),
        ({}, {"interleaved": 2}, "interleaved is 2; expected 0 or 1"),
        ({}, {"scale": 0.5}, "scale is 0.5"),
    ],
)
def test_rotary_refusals(changes: dict[str, Any], attributes: dict[str, Any], text: str) -> None:
    refuse("RotaryEmbedding", ROTARY, changes, attributes, text)


@pytest.mark.parametrize(
    ("changes", "attributes", "text"),
    [
        ({}, {"mrope_section": [2, 2]}, "expected three numbers"),
        ({}, {"mrope_section": [5, -1, 0]}, "expected three numbers"),
        ({}, {"mrope_section": [2, 1, 2]}, "5 pairs; expected 4"),
        ({}, {"mrope_section": [2, 1, 1], "mrope_layout": 2}, "mrope_layout is 2"),
        ({"position_ids": ids(2, 5)}, {"mrope_section": [2, 1, 1]}, "expected (3, 2, 5)"),
        ({"position_ids": np.full((3, 2, 5), 9)}, {"mrope_section": [2, 1, 1]}, "holds 9"),
    ],
)
def test_m_rotary_refusals(changes: dict[str, Any], attributes: dict[str, Any], text: str) -> None:
    refuse("MRotaryEmbedding", STREAMS, changes, attributes, text)


@pytest.mark.parametrize(
    ("changes", "attributes", "text"),
    [
        ({}, {}, "num_heads is missing"),
        ({"position_ids": None}, {"num_heads": 3}, "cos_cache has shape (9, 4); expected (2, 5, 4)"),
        ({"position_ids": ids(1)}, {"num_heads": 3}, "position_ids has shape (1,)"),
        ({}, {"num_heads": 3, "rotary_embedding_dim": 4}, "expected (positions, 2)"),
    ],
)
def test_standard_refusals(changes: dict[str, Any], attributes: dict[str, Any], text: str) -> None:
    refuse("RotaryEmbedding", STANDARD, changes, attributes, text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"emb": spec(2, 3, 8)}, "q has shape (2, 4, 3, 6)"),
        ({"emb": spec(3, 6)}, "emb has shape (3, 6)"),
        ({"k": spec(2, 2, 3, 6, **HALF)}, "k has shape (2, 2, 3, 6); expected (2, 4, 3, 6)"),
    ],
)
def test_gemma_refusals(changes: dict[str, Any], text: str) -> None:
    refuse("GemmaRotaryEmbedding", GEMMA, changes, {}, text)


@pytest.mark.parametrize(
    ("changes", "attributes", "text"),
    [
        ({}, {"epsilon": -1.0}, "epsilon is -1.0"),
        ({}, {"epsilon": float("inf")}, "epsilon is inf"),
        ({}, {"rotary_embedding_dim": 7}, "positive even"),
        ({}, {"rotary_embedding_dim": 0}, "positive even"),
        ({}, {"rotary_embedding_dim": 22}, "at most the normalized width, 20"),
        ({}, {"input_start": 1, "input_width": 20}, "at least 21 channels"),
        ({}, {"input_start": -1}, "input_start is -1"),
        ({}, {"input_start": 21}, "at least 41 channels"),
        ({}, {"input_width": 8}, "scale has shape (20,)"),
        ({}, {"flatten_batch": 2}, "flatten_batch is 2"),
        ({"X": bf16(6, 4, 20)}, {}, "X has shape (6, 4, 20)"),
        ({"cosine": bf16(9, 5)}, {}, "cosine has shape (9, 5)"),
        ({"sine": bf16(8, 4)}, {}, "sine has shape (8, 4)"),
        ({"position_ids": ids(3, 2)}, {}, "position_ids has shape (3, 2)"),
        ({"position_ids": np.array([4])}, {"flatten_batch": 1}, "expected positions in [0, 3]"),
        ({"prefill_numerics": np.array(2, np.int32)}, {}, "prefill_numerics is 2; expected 0 or 1"),
        ({"prefill_numerics": np.zeros(2, np.int32)}, {}, "prefill_numerics has shape (2,)"),
        ({"prefill_numerics": spec(dtype=dtypes.int32)}, {}, "give it as a NumPy array"),
    ],
)
def test_rms_norm_rotary_refusals(changes: dict[str, Any], attributes: dict[str, Any], text: str) -> None:
    refuse("RMSNormRotary", NORM, changes, {"rotary_embedding_dim": 8} | attributes, text)


def test_plans_differ_in_uniforms_alone() -> None:
    """Sequences, positions, batches and (evenly divided) head sizes share a pipeline."""

    def keys(batch: int, sequence: int, size: int, one: bool) -> set:
        inputs = {
            "input": spec(batch, 3, sequence, size),
            "position_ids": ids(1) if one else ids(batch, sequence),
            "cos_cache": spec(sequence + 7, size // 2),
            "sin_cache": spec(sequence + 7, size // 2),
        }
        return {(d.template, d.constants, d.workgroup) for d in plan("RotaryEmbedding", inputs).dispatches}

    assert keys(1, 2, 64, True) == keys(3, 500, 128, True)
    assert keys(1, 1, 64, False) == keys(3, 500, 128, False)


def test_norm_lanes_follow_the_width() -> None:
    def lanes(width: int, device_class: Any) -> Any:
        inputs = NORM | {"X": bf16(2, 3, 4, width), "scale": spec(width)}
        caps = Capabilities(device_class=device_class)
        (step,) = plan("RMSNormRotary", inputs, {"rotary_embedding_dim": 8}, capabilities=caps).dispatches
        return dict(step.constants)["lanes"]

    assert [lanes(w, "gpu") for w in (8, 20, 64, 256, 1000)] == [2, 8, 16, 64, 64]
    assert lanes(256, "cpu") == 1


def test_empty_calls_do_nothing() -> None:
    for shape in ((0, 5, 24), (2, 0, 24), (2, 5, 0)):
        inputs = ROTARY | {"input": spec(*shape), "position_ids": ids(*shape[:2])}
        made = plan("RotaryEmbedding", inputs)
        assert not made.dispatches and made.outputs[0].shape == shape


@pytest.mark.parametrize("interleaved", [0, 1])
def test_positions_on_the_device_are_clamped(device: Device, interleaved: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 16)).astype(np.float32)
    wild = np.array([[-1, -(2**40), 2**31, 2**32 + 3, 2**62, 9, 8, 3]])
    inputs = {"input": x, "position_ids": Tensor.from_numpy(wild, device), **CACHES}
    attributes = {"interleaved": interleaved}
    (y,) = run("RotaryEmbedding", inputs, attributes, device=device)
    tame = np.clip(wild, 0, 8)
    (want,) = reference.find("RotaryEmbedding")(x, tame, **CACHES, **attributes)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    (y,) = run(
        "RotaryEmbedding",
        inputs | {"position_ids": Tensor.from_numpy(np.array([2**32 - 1]), device)},
        attributes,
        device=device,
    )
    (want,) = reference.find("RotaryEmbedding")(x, np.full((1, 8), 8), **CACHES, **attributes)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
    # What follows a position before the tables comes to lie in them.
    before = Tensor.from_numpy(np.array([-3]), device)
    (y,) = run("RotaryEmbedding", inputs | {"position_ids": before}, attributes, device=device)
    tame = np.clip(np.arange(-3, 5), 0, 8)[None]
    (want,) = reference.find("RotaryEmbedding")(x, tame, **CACHES, **attributes)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)


def test_an_output_may_take_the_place_of_the_input(device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 24)).astype(np.float16)
    caches = {k: v.astype(np.float16) for k, v in CACHES.items()}
    at = np.array([2])
    tensor = Tensor.from_numpy(x, device)
    (y,) = run(
        "RotaryEmbedding",
        {"input": tensor, "position_ids": at, **caches},
        outputs={"output": tensor},
        device=device,
    )
    (want,) = reference.find("RotaryEmbedding")(x, at, **caches)
    assert y is tensor
    np.testing.assert_allclose(y.numpy().astype(float), want.astype(float), rtol=1e-3, atol=1e-3)


def test_packed_batches_are_sequences_like_others(device: Device) -> None:
    x = np.random.default_rng(0).standard_normal((1, 30, 16)).astype(np.float32)
    at = np.arange(30)[None] % 9  # more tokens than the tables have rows
    for op, more in (("RotaryEmbedding", {}), ("MRotaryEmbedding", {"mrope_section": [1, 1, 2]})):
        where = np.stack([at, at[:, ::-1], at * 0]) if more else at
        attributes = {"is_packed_batching": 1, **more}
        inputs = {"input": x, "position_ids": where, **CACHES}
        (y,) = run(op, inputs, attributes, device=device)
        (want,) = reference.find(op)(**inputs, **attributes)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)


def test_decoding_steps_share_a_pipeline(device: Device) -> None:
    rng = np.random.default_rng(0)
    created = None
    for step in range(1, 9):
        x = rng.standard_normal((2, 1, 24)).astype(np.float32)
        at = np.array([step])
        (y,) = run("RotaryEmbedding", {"input": x, "position_ids": at, **CACHES}, device=device)
        (want,) = reference.find("RotaryEmbedding")(x, at, **CACHES)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-6)
        created = device.stats.pipelines_created if created is None else created
    assert device.stats.pipelines_created == created


@pytest.mark.parametrize("reach", [10.0, 5e3, 9e4, 2e6])
def test_gemma_keeps_its_angles_apart(device: Device, reach: float) -> None:
    """Thousands of radians leave sine and cosine as good as small angles do."""
    rng = np.random.default_rng(int(reach))
    emb = rng.uniform(-reach, reach, (1, 64, 64)).astype(np.float32)
    one, zero = np.ones((1, 1, 64, 64), np.float16), np.zeros((1, 1, 64, 64), np.float16)
    inputs = {"emb": emb, "q": one, "q_rot": zero, "k": zero, "k_rot": one}
    cos, sin = run("GemmaRotaryEmbedding", inputs, outputs=("output1", "output2"), device=device)
    for got, f in ((cos, np.cos), (sin, np.sin)):
        want = f(emb.astype(np.float64)).astype(np.float16)[:, None]
        off = got.numpy().view(np.int16).astype(int) - want.view(np.int16).astype(int)
        assert np.abs(off).max() <= 1  # next to a tie of float16 the sine may fall to either side
        assert (off == 0).mean() > 0.998


@pytest.mark.parametrize("attributes", [{}, {"use_fp32_arithmetic": 0}, {"prefill": 1}, {"flatten_batch": 1}])
def test_rms_norm_rotary_to_the_bit(device: Device, attributes: dict[str, int]) -> None:
    """Rows of +-1 normalize to themselves, so that only the rotation's own roundings are left."""
    rng = np.random.default_rng(3)
    attributes = {"rotary_embedding_dim": 12, "epsilon": 0.0} | attributes
    prefill = attributes.pop("prefill", None)
    angle = rng.uniform(-3, 3, (40, 6))
    inputs = {
        "X": rng.choice([-1, 1], (2, 11, 3, 18)).astype(BFLOAT16),
        "scale": rng.choice([0.5, 1.0, 2.0], 18).astype(np.float32),
        "position_ids": np.array([7]),
        "cosine": np.cos(angle).astype(BFLOAT16),
        "sine": np.sin(angle).astype(BFLOAT16),
        "prefill_numerics": None if prefill is None else np.array(prefill, np.int32),
    }
    inputs = {k: v for k, v in inputs.items() if v is not None}
    got = run("RMSNormRotary", inputs, attributes, outputs=("Y", "normalized_fp32"), device=device)
    want = reference.find("RMSNormRotary")(**inputs, **attributes)
    for g, w in zip(got, want, strict=True):
        assert g.numpy().shape == w.shape and g.numpy().tobytes() == w.tobytes()


def test_rows_shared_by_lanes(gpu_tiles: Device) -> None:
    draw = samples.draw_of("RMSNormRotary")
    assert draw is not None
    for seed in range(20):
        outcome = check_sample("RMSNormRotary", draw(np.random.default_rng((8, seed))), gpu_tiles)
        assert outcome.passed, f"draw {seed}: {outcome.message}"


def test_prefill_numerics_may_live_on_the_device(device: Device) -> None:
    rng = np.random.default_rng(4)
    inputs = {
        "X": rng.choice([-1, 1], (1, 4, 2, 8)).astype(BFLOAT16),
        "scale": np.ones(8, np.float32),
        "position_ids": np.array([0]),
        "cosine": rng.uniform(-1, 1, (4, 4)).astype(BFLOAT16),
        "sine": rng.uniform(-1, 1, (4, 4)).astype(BFLOAT16),
    }
    function = reference.find("RMSNormRotary")
    attributes = {"rotary_embedding_dim": 8, "epsilon": 0.0}
    for value in (0, 1):
        flag = np.array([value], np.int32)
        given = inputs | {"prefill_numerics": Tensor.from_numpy(flag, device)}
        y, _ = run("RMSNormRotary", given, attributes, device=device)
        want, _ = function(**inputs, prefill_numerics=flag, **attributes)
        assert y.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_onnxruntime_agrees(device: Device, rank: int, interleaved: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    rng = np.random.default_rng(rank + interleaved)
    shape = (2, 3, 6, 20) if rank == 4 else (2, 6, 60)
    attributes = {"num_heads": 3, "rotary_embedding_dim": 12, "interleaved": interleaved}
    angle = rng.uniform(-3, 3, (30, 6))
    inputs = {
        "input": rng.standard_normal(shape).astype(np.float32),
        "position_ids": rng.integers(0, 30, (2, 6)),
        "cos_cache": np.cos(angle).astype(np.float32),
        "sin_cache": np.sin(angle).astype(np.float32),
    }
    node = helper.make_node("RotaryEmbedding", list(inputs), ["output"], domain="com.microsoft", **attributes)
    types = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, types[v.dtype], v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    (y,) = run("RotaryEmbedding", inputs, attributes, device=device)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
