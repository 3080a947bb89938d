"""Hyper-connections: refusals, gates by branch and by feature, rounding, streams in place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Tensor, plan, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, ShapeError
from webgpu_ops.reference.hyper_connection import hyper_connection_post_mix
from webgpu_ops.reference.samples import draw_of

C, H, R = 3, 10, 4


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, dtypes.float32)


def low_rank(**changes: Any) -> dict[str, Any]:
    shapes = {
        "streams": (2, C * H),
        "norm_scale": (C * H,),
        "down_weight": (C * H, R),
        "up_weight": (R, C * H),
        "inject_weight": (C * H, C),
    }
    return {k: spec(*v) for k, v in (shapes | changes).items()}


@pytest.mark.parametrize(
    ("op", "inputs", "branches", "message"),
    [
        ("PreMix", [spec(2, C * H), spec(2, C)], 4, "streams has shape .* that 4 divides"),
        ("PreMix", [spec(H), spec(1)], 0, r"streams has shape .*; expected \(..., C, H\)"),
        (
            "PreMix",
            [spec(2, C, H), spec(2, 4)],
            0,
            r"pre_mix has shape \(2, 4\); expected \(2, 3\), \(2, 3, 1\)",
        ),
        ("PreMix", [spec(2, C, H), spec(2, C * H)], 0, "pre_mix has shape"),
        ("PostMix", [spec(2, C, H), spec(2, 5), spec(2, C)], 0, r"block_output .*; expected \(2, 10\)"),
        ("PostMix", [spec(2, C, H), spec(2, H), spec(2, C, 2)], 0, "post_mix has shape"),
        ("PostMix", [spec(2, C * H), spec(2, H), spec(2, C * H)], C, "post_mix has shape"),
        ("PostMix", [spec(2, C, H), spec(2, H), spec(2, C), spec(2, C)], 0, "stream_mix has shape"),
        ("LowRankMix", low_rank(norm_scale=(H,)), C, "norm_scale has shape"),
        ("LowRankMix", low_rank(up_weight=(5, C * H)), C, r"up_weight .*; expected \(4, 30\)"),
        ("LowRankMix", low_rank(inject_weight=(C * H, 2)), C, r"inject_weight .*; expected \(30, 3\)"),
        ("LowRankMix", low_rank(prev_block_output=(2, H)), C, "prev_post_gate is missing"),
        ("LowRankMix", low_rank(prev_post_gate=(2, C)), C, "prev_block_output is missing"),
        (
            "LowRankMix",
            low_rank(prev_block_output=(2, H), prev_post_gate=(2, C, 1)),
            C,
            r"prev_post_gate has shape \(2, 3, 1\); expected \(2, 3\)",
        ),
    ],
)
def test_shapes(op: str, inputs: Any, branches: int, message: str) -> None:
    with pytest.raises(ShapeError, match=f"HyperConnection{op}: {message}"):
        plan(f"HyperConnection{op}", inputs, {"num_branches": branches})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_branches": 0}, "num_branches is 0; expected at least 1"),
        ({"num_branches": C, "gate_div": 0.0}, "gate_div is 0"),
        ({"num_branches": C, "epsilon": float("nan")}, "epsilon is nan"),
    ],
)
def test_attributes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"HyperConnectionLowRankMix: {message}"):
        plan("HyperConnectionLowRankMix", low_rank(), attributes)


def test_more_branches_than_a_software_adapter_sums_are_refused() -> None:
    software = Capabilities(device_class="cpu")
    many = 40_000
    with pytest.raises(LimitError, match="HyperConnectionPreMix: streams has 40000 branches"):
        plan("HyperConnectionPreMix", [spec(1, many, 8), spec(1, many)], capabilities=software)
    plan("HyperConnectionPostMix", [spec(1, many, 8), spec(1, 8), spec(1, many)], capabilities=software)


@pytest.mark.parametrize("op", ["PreMix", "PostMix", "LowRankMix"])
def test_kernels_of_gpus(gpu_tiles: Device, op: str) -> None:
    draw = draw_of(f"HyperConnection{op}")
    assert draw is not None
    for seed in range(8):
        outcome = check_sample(f"HyperConnection{op}", draw(np.random.default_rng((3, seed))), gpu_tiles)
        assert outcome.passed, f"seed {seed}: {outcome.message}"


@pytest.mark.parametrize("branches", [1, 3])
def test_streams_of_no_branches_or_features(device: Device, branches: int) -> None:
    for shape in ((2, 0, 5), (2, branches, 0), (0, branches, 5)):
        streams, mix = np.zeros(shape, np.float32), np.zeros(shape[:-1], np.float32)
        (out,) = run("HyperConnectionPreMix", [streams, mix], device=device)
        assert out is not None
        np.testing.assert_array_equal(out.numpy(), np.zeros((shape[0], shape[2]), np.float32))


def test_sums_over_branches_do_not_saturate_in_16_bits(device: Device) -> None:
    """Adding 1 to 2048 in float16, or to 256 in bfloat16, changes nothing."""
    for dtype, branches in ((np.float16, 4096), (ml_dtypes.bfloat16, 1024)):
        streams = np.ones((branches, 3), dtype)
        (out,) = run("HyperConnectionPreMix", [streams, np.ones(branches, dtype)], device=device)
        assert out is not None
        np.testing.assert_array_equal(out.numpy().astype(np.float32), np.full(3, branches, np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("width", [5, 8])
def test_post_mix_without_a_stream_mix_works_in_place(device: Device, dtype: type, width: int) -> None:
    rng = np.random.default_rng(width)
    streams, block, gate = (rng.standard_normal(s).astype(dtype) for s in ((3, C, width), (3, width), (3, C)))
    tensor = Tensor.from_numpy(streams, device)
    dispatches = device.stats.dispatches
    (got,) = run("HyperConnectionPostMix", [tensor, block, gate], outputs={"output": tensor}, device=device)
    assert got is tensor and device.stats.dispatches == dispatches + 1
    want = hyper_connection_post_mix(streams, block, gate)[0].astype(np.float64)
    steps = {np.float32: 1e-6, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}[dtype]
    np.testing.assert_allclose(tensor.numpy().astype(np.float64), want, rtol=steps, atol=steps)


def test_mixed_streams_bound_to_their_input_are_computed_aside(device: Device) -> None:
    rng = np.random.default_rng(1)
    streams, block, gate = (rng.standard_normal(s).astype(np.float32) for s in ((2, C, H), (2, H), (2, C)))
    mix = rng.standard_normal((2, C, C)).astype(np.float32)
    tensor = Tensor.from_numpy(streams, device)
    run("HyperConnectionPostMix", [tensor, block, gate, mix], outputs={"output": tensor}, device=device)
    want = hyper_connection_post_mix(streams, block, gate, mix)[0]
    np.testing.assert_allclose(tensor.numpy(), want, rtol=1e-5, atol=1e-5)


def blocks(rng: np.random.Generator, dtype: type, count: int) -> list[dict[str, np.ndarray]]:
    """The weights of ``count`` blocks."""

    def draw(*of: int) -> np.ndarray:
        return (rng.standard_normal(of) * 0.3).astype(dtype)

    names = ("norm_scale", "down_weight", "up_weight", "inject_weight")
    shapes = ((C * H,), (C * H, R), (R, C * H), (C * H, C))
    return [{n: draw(*s) for n, s in zip(names, shapes, strict=True)} for _ in range(count)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_prologue_is_a_post_mix(device: Device, dtype: type) -> None:
    """Streams threaded through prologues equal, bit for bit, those of separate post-mixes."""
    rng = np.random.default_rng(2)
    streams = Tensor.from_numpy(rng.standard_normal((4, C * H)).astype(dtype), device)
    apart = Tensor.from_numpy(streams.numpy(), device)
    attributes = {"num_branches": C, "gate_mul": 2.0}
    outputs = {"pre_output": None, "post_gate": None, "streams_out": streams}
    before: dict[str, Any] = {}
    for weights in blocks(rng, dtype, 3):
        fused = run(
            "HyperConnectionLowRankMix",
            {"streams": streams, **weights, **before},
            attributes,
            outputs=outputs,
            device=device,
        )
        if before:
            feeds = [apart, before["prev_block_output"], before["prev_post_gate"]]
            run(
                "HyperConnectionPostMix", feeds, {"num_branches": C}, outputs={"output": apart}, device=device
            )
        plain = run("HyperConnectionLowRankMix", {"streams": apart, **weights}, attributes, device=device)
        for a, b in zip(fused[:2], plain[:2], strict=True):
            assert a is not None and b is not None and a.numpy().tobytes() == b.numpy().tobytes()
        assert streams.numpy().tobytes() == apart.numpy().tobytes()
        before = {"prev_block_output": fused[0], "prev_post_gate": fused[1]}


def test_streams_without_a_prologue_are_copied_bit_for_bit(device: Device) -> None:
    rng = np.random.default_rng(3)
    streams = rng.standard_normal((1, C * H)).astype(np.float32)
    streams.view(np.uint32)[0, :3] = [0x7FC12345, 0x80000000, 0x00000001]
    feeds = {"streams": streams, **blocks(rng, np.float32, 1)[0]}
    outputs = ["pre_output", "post_gate", "streams_out"]
    *_, out = run("HyperConnectionLowRankMix", feeds, {"num_branches": C}, outputs=outputs, device=device)
    assert out is not None and out.numpy().tobytes() == streams.tobytes()


def test_the_same_call_gives_the_same_bits(device: Device) -> None:
    rng = np.random.default_rng(4)
    feeds = {"streams": rng.standard_normal((5, C * H)).astype(np.float32), **blocks(rng, np.float32, 1)[0]}
    seen = set()
    for _ in range(3):
        results = run("HyperConnectionLowRankMix", feeds, {"num_branches": C}, device=device)
        seen.add(b"".join(r.numpy().tobytes() for r in results if r is not None))
    assert len(seen) == 1
