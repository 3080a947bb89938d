"""ONNX Attention: paths, masks that are short, lengths that lie, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.program import render
from webgpu_ops.errors import SchemaError, ShapeError, WebGpuOpsError
from webgpu_ops.reference.attention_variants import onnx_attention

CPU = replace(PORTABLE, device_class="cpu")


def spec(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorSpec:
    return TensorSpec(shape, dtype)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def planned(
    attributes: dict[str, Any] | None = None,
    *,
    opset: int = 24,
    outputs: tuple[str, ...] = ("Y",),
    capabilities: Capabilities = PORTABLE,
    **inputs: Any,
) -> Plan:
    """The plan of 3 queries in 4 heads over 5 keys in 2; ``inputs`` replaces or adds some."""
    given = {"Q": spec(2, 4, 3, 8), "K": spec(2, 2, 5, 8), "V": spec(2, 2, 5, 6)} | inputs
    return plan(
        "Attention",
        given,
        attributes or {},
        domain="",
        opset=opset,
        outputs=outputs,
        capabilities=capabilities,
    )


def shape_of(p: Plan, output: int) -> tuple[int, ...]:
    slot = p.outputs[output]
    assert slot is not None
    return slot.shape


PAST = {"past_key": spec(2, 2, 7, 8), "past_value": spec(2, 2, 7, 6)}


def test_nothing_is_written_that_nobody_wants() -> None:
    p = planned(Q=spec(8, 32, 512, 64), K=spec(8, 8, 512, 64), V=spec(8, 8, 512, 64))
    assert p.path == "streaming" and p.scratch_bytes == 0
    assert [d.template for d in p.dispatches] == ["attention/stream_tile"]


def test_outputs_have_the_shapes_of_the_text() -> None:
    p = planned(outputs=("Y", "present_key", "present_value", "qk_matmul_output"), **PAST)
    assert [shape_of(p, n) for n in range(4)] == [(2, 4, 3, 6), (2, 2, 12, 8), (2, 2, 12, 6), (2, 4, 3, 12)]
    flat = planned(
        {"q_num_heads": 4, "kv_num_heads": 2}, Q=spec(2, 3, 32), K=spec(2, 5, 16), V=spec(2, 5, 12)
    )
    assert shape_of(flat, 0) == (2, 3, 24)


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_memory_does_not_hold_the_scores(capabilities: Capabilities) -> None:
    """2,048 queries over 8,192 keys: the matrix would be 64 MiB a head."""
    p = planned(
        {"is_causal": 1},
        Q=spec(1, 2, 2048, 64),
        K=spec(1, 2, 8192, 64),
        V=spec(1, 2, 8192, 64),
        nonpad_kv_seqlen=spec(1, dtype=dtypes.int64),
        capabilities=capabilities,
    )
    assert p.scratch_bytes < 8 << 20


@pytest.mark.parametrize("capabilities", [PORTABLE, CPU], ids=["gpu", "cpu"])
def test_lengths_do_not_enter_shaders(capabilities: Capabilities) -> None:
    def sources(keys: int) -> list[str]:
        p = planned(
            {"is_causal": 1},
            Q=spec(1, 4, 1, 64),
            K=spec(1, 2, keys, 64),
            V=spec(1, 2, keys, 64),
            attn_mask=spec(1, keys, dtype=dtypes.bool_),
            capabilities=capabilities,
        )
        return [render(d, capabilities) for d in p.dispatches]

    assert sources(3) == sources(70) == sources(9000)


def test_float64_takes_the_materialized_path() -> None:
    wide = {name: spec(1, 1, 4, 8, dtype=dtypes.float64) for name in "QKV"}
    assert planned(**wide).path == "materialized in float64"
    assert planned({"softmax_precision": 11}).path == "materialized in float64"
    assert planned({"softmax_precision": 10}).path != "materialized in float64"


@pytest.mark.parametrize("mode", range(4))
@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_padding_keys_in_every_stage(device: Device, mode: int, wide: bool) -> None:
    """Raw products cover the padding; later stages say -inf or nothing there, in both paths."""
    t = np.float64 if wide else np.float32
    inputs = {
        "Q": normal(1, 2, 2, 3, 8).astype(t),
        "K": normal(2, 2, 2, 6, 8).astype(t),
        "V": normal(3, 2, 2, 6, 8).astype(t),
        "attn_mask": normal(4, 3, 4).astype(t),
        "nonpad_kv_seqlen": np.array([4, 1]),
    }
    attributes = {"is_causal": 1, "qk_matmul_output_mode": mode, "softcap": 2.0}
    y, scores = (
        r.numpy()
        for r in run(
            "Attention",
            inputs,
            attributes,
            domain="",
            opset=24,
            outputs=("Y", "qk_matmul_output"),
            device=device,
        )
        if isinstance(r, Tensor)
    )
    want = onnx_attention(**inputs, **attributes)
    np.testing.assert_allclose(y, want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, want[3], rtol=1e-5, atol=1e-6)
    assert not y[1, :, :2].any()  # queries before the only key


@pytest.mark.parametrize("length", [-1, 7, 2**31 - 1, 2**40])
def test_lengths_on_the_device_are_contained(device: Device, length: int) -> None:
    """A length that lies leaves the other batch entries alone, and reads no key that is not there."""
    q, k, v = normal(1, 2, 1, 2, 8), normal(2, 2, 1, 5, 8), normal(3, 2, 1, 5, 8)
    lengths = Tensor.from_numpy(np.array([length, 3]), device)
    lengths.host = None
    inputs = {"Q": q, "K": k, "V": v, "nonpad_kv_seqlen": lengths}
    y = run("Attention", inputs, {}, domain="", opset=24, device=device)[0]
    assert isinstance(y, Tensor)
    got = y.numpy()
    assert np.isfinite(got).all()
    want = onnx_attention(q, k, v, nonpad_kv_seqlen=np.array([5, 3]))[0]
    np.testing.assert_allclose(got[1], want[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "inputs", "message"),
    [
        ({"qk_matmul_output_mode": 4}, {}, "qk_matmul_output_mode=4; expected 0, 1, 2 or 3"),
        ({"is_causal": 2}, {}, "is_causal=2; expected 0 or 1"),
        ({"softcap": -1.0}, {}, "softcap=-1.0"),
        ({"softmax_precision": 7}, {}, r"softmax_precision=7; expected one of 1 \(float32\)"),
        ({"q_num_heads": 0}, {}, "q_num_heads=0; expected a positive number"),
        ({"q_num_heads": 3}, {}, r"Q has shape \(2, 4, 3, 8\); expected q_num_heads=3 heads"),
        ({}, {"Q": spec(2, 3, 8)}, r"K has shape \(2, 2, 5, 8\); expected 3 dimensions"),
        (
            {"q_num_heads": 4},
            {"Q": spec(2, 3, 32), "K": spec(2, 5, 16), "V": spec(2, 5, 16)},
            "kv_num_heads is not given; expected it because Q has three dimensions",
        ),
        (
            {"q_num_heads": 4, "kv_num_heads": 2},
            {"Q": spec(2, 3, 30), "K": spec(2, 5, 16), "V": spec(2, 5, 16)},
            r"Q has shape \(2, 3, 30\); expected channels of 4 heads",
        ),
        ({}, {"Q": spec(2, 3, 3, 8)}, "Q has 3 heads; expected a multiple of the 2 heads of K"),
        ({}, {"K": spec(2, 2, 5, 9)}, r"K has shape \(2, 2, 5, 9\); expected \(2, 2, 5, 8\)"),
        ({}, {"V": spec(2, 2, 4, 8)}, r"V has shape \(2, 2, 4, 8\); expected \(2, 2, 5, 8\)"),
        ({}, {"V": spec(2, 2, 5, 8, dtype=dtypes.float16)}, "V has type float16; expected float32"),
        ({}, {"past_key": spec(2, 2, 7, 8)}, "past_value is missing"),
        ({}, PAST | {"past_value": spec(2, 2, 6, 6)}, r"past_value has shape \(2, 2, 6, 6\)"),
        ({}, {"attn_mask": spec(3, 6)}, r"attn_mask has shape \(3, 6\); expected a shape that broadcasts"),
        ({}, {"attn_mask": spec(3, 5, dtype=dtypes.int64)}, "attn_mask has type int64; expected bool"),
        ({}, {"attn_mask": spec(1, 2, 4, 3, 5)}, "attn_mask has shape"),
        ({}, {"nonpad_kv_seqlen": spec(3, dtype=dtypes.int64)}, r"nonpad_kv_seqlen has shape \(3,\)"),
        ({}, PAST | {"nonpad_kv_seqlen": spec(2, dtype=dtypes.int64)}, "past_key is used; expected none"),
    ],
)
def test_refuses(attributes: dict[str, Any], inputs: dict[str, Any], message: str) -> None:
    with pytest.raises((ShapeError, SchemaError), match="^Attention: .*" + message):
        planned(attributes, **inputs)


def test_a_short_mask_needs_opset_24() -> None:
    planned(attn_mask=spec(3, 4))
    with pytest.raises(ShapeError, match=r"attn_mask has shape \(3, 4\)"):
        planned(attn_mask=spec(3, 4), opset=23)
    planned(attn_mask=spec(3, 1), opset=23)


def test_windows_and_lengths_need_their_opset() -> None:
    with pytest.raises(WebGpuOpsError):
        planned({"left_window_size": 2})
    with pytest.raises(WebGpuOpsError):
        planned(nonpad_kv_seqlen=spec(2, dtype=dtypes.int64), opset=23)
    with pytest.raises(ShapeError, match="present_key is used"):
        planned(nonpad_kv_seqlen=spec(2, dtype=dtypes.int64), outputs=("Y", "present_key"))
