"""Mixtures of experts: routing, grouping, every format of weights, cuts that fit small bindings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, Tensor, UnsupportedError, reference, run
from webgpu_ops import plan as make_plan
from webgpu_ops.compare import TOLERANCES, compare
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.errors import LimitError
from webgpu_ops.reference.samples.experts import packed

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("experts")

CPU = replace(PORTABLE, device_class="cpu")
E8M0, E4M3 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn
Inputs = dict[str, Any]


def mixture(
    tokens: int = 5, experts: int = 4, hidden: int = 8, inter: int = 6, fusion: int = 1, seed: int = 0
) -> Inputs:
    """A call of MoE."""
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    return {
        "input": numbers(tokens, hidden),
        "router_probs": numbers(tokens, experts) * 3,
        "fc1_experts_weights": numbers(experts, fusion * inter, hidden),
        "fc1_experts_bias": numbers(experts, fusion * inter),
        "fc2_experts_weights": numbers(experts, hidden, inter),
        "fc2_experts_bias": numbers(experts, hidden),
    }


def integers(
    bits: int, block: int, tokens: int = 5, experts: int = 3, hidden: int = 64, inter: int = 32
) -> Inputs:
    """A call of QMoE with integer weights and zero points."""
    rng = np.random.default_rng(bits)
    inputs: Inputs = {
        "input": rng.uniform(-1, 1, (tokens, hidden)).astype(np.float32),
        "router_probs": rng.normal(size=(tokens, experts)).astype(np.float32),
    }
    for name, lines, length in (("fc1", inter, hidden), ("fc2", hidden, inter)):
        counts = (experts, lines, length // block) if block else (experts, lines)
        inputs[f"{name}_experts_weights"] = rng.integers(
            0, 256, (experts, lines, length * bits // 8), np.uint8
        )
        size = 1.0 / (2 ** (bits - 1) * length**0.5)
        inputs[f"{name}_scales"] = rng.uniform(size, 2 * size, counts).astype(np.float32)
        inputs[f"{name}_zero_points"] = packed(rng.integers(0, 1 << bits, counts), bits)
    return inputs


def check(op: str, inputs: Inputs, attributes: dict[str, Any], device: Device) -> np.ndarray:
    """The output, which has to be the reference's."""
    (y,) = run(op, inputs, attributes, device=device)
    agree(y.numpy(), op, inputs, attributes)
    return y.numpy()


def agree(got: np.ndarray, op: str, inputs: Inputs, attributes: dict[str, Any]) -> None:
    function = reference.find(op)
    assert function is not None
    arrays = {name: x.numpy() if isinstance(x, Tensor) else x for name, x in inputs.items()}
    comparison = compare(got, function(**arrays, **attributes)[0], TOLERANCES[got.dtype.name])
    assert comparison.agrees, comparison.message


def planned(
    op: str, inputs: Inputs, attributes: dict[str, Any] | None = None, caps: Capabilities = CPU
) -> Plan:
    return make_plan(op, inputs, attributes or {}, capabilities=caps)


def products(plan: Plan) -> list[Any]:
    names = ("experts/tile", "experts/vector", "experts/shared")
    return [d for d in plan.dispatches if d.template in names]


# Routing


def test_tiles_of_every_height(any_device: Device) -> None:
    """Few tokens and many an expert, and tiles that end inside."""
    for tokens, experts, k, hidden, inter in [
        (1, 5, 1, 9, 7),
        (3, 2, 2, 20, 130),
        (40, 2, 1, 12, 5),
        (150, 3, 2, 17, 66),
    ]:
        inputs = mixture(tokens, experts, hidden, inter, seed=tokens)
        check("MoE", inputs, {"k": k, "activation_type": "silu"}, any_device)


@pytest.mark.parametrize("tokens", [2, 18, 70])
def test_sizes_that_are_half_a_step(any_device: Device, tokens: int) -> None:
    """Kernels read 8 or 16 elements at once; what lies behind 8 or 24 belongs to the next row."""
    for hidden, inter in [(8, 24), (24, 8), (40, 40)]:
        inputs = mixture(tokens, 5, hidden, inter, seed=tokens)
        check("MoE", inputs, {"k": 2, "activation_type": "identity"}, any_device)


def test_ties_go_to_the_lower_expert(any_device: Device) -> None:
    inputs = mixture(tokens=4, experts=100)
    inputs["router_probs"] = np.zeros((4, 100), np.float32)
    inputs["router_probs"][1, 70:] = 1
    inputs["router_probs"][2, [99, 3]] = 5
    inputs["router_probs"][3] = -np.arange(100) // 30
    check("MoE", inputs, {"k": 4, "normalize_routing_weights": 1}, any_device)


def test_unusual_logits(any_device: Device) -> None:
    """Masked experts, and NaN, which chooses existing experts and spoils its own token alone."""
    inputs = mixture(tokens=4, experts=6)
    inputs["router_probs"][0, :5] = -np.inf
    inputs["router_probs"][2] = np.nan
    y = run("MoE", inputs, {"k": 3}, device=any_device)[0].numpy()
    assert np.isnan(y[2]).all()
    rest = [0, 1, 3]
    kept = {name: x[rest] if len(x) == 4 else x for name, x in inputs.items()}
    agree(y[rest], "MoE", kept, {"k": 3})


def test_all_of_many_experts(device: Device) -> None:
    """Every expert is chosen, in an order that a software adapter's loops have to share."""
    inputs = mixture(tokens=2, experts=700, hidden=4, inter=3)
    inputs["router_probs"] = np.round(inputs["router_probs"])
    check("MoE", inputs, {"k": 700}, device)
    with pytest.raises(LimitError, match="router_probs has 3000 experts, of which k=3000 are chosen"):
        planned("MoE", mixture(tokens=1, experts=3000, hidden=4, inter=3), {"k": 3000})


def test_an_expert_without_tokens_is_not_read(any_device: Device) -> None:
    inputs = mixture(tokens=3, experts=7)
    inputs["router_probs"][:, [0, 2, 5]] -= 20
    spoilt = dict(inputs)
    for name in inputs:
        if name.startswith("fc"):
            spoilt[name] = inputs[name].copy()
            spoilt[name][[0, 2, 5]] = np.nan
    y = check("MoE", inputs, {"k": 2, "normalize_routing_weights": 1}, any_device)
    (z,) = run("MoE", spoilt, {"k": 2, "normalize_routing_weights": 1}, device=any_device)
    np.testing.assert_array_equal(z.numpy(), y)


def test_no_tokens(device: Device) -> None:
    inputs = mixture(tokens=2)
    inputs |= {name: inputs[name][:0] for name in ("input", "router_probs")}
    assert check("MoE", inputs, {}, device).shape == (0, 8)


@pytest.mark.parametrize(("hidden", "inter"), [(0, 4), (5, 0)])
def test_nothing_to_multiply(device: Device, hidden: int, inter: int) -> None:
    assert check("MoE", mixture(3, 2, hidden, inter), {"k": 2}, device).shape == (3, hidden)


# Work


@pytest.mark.parametrize("caps", [CPU, PORTABLE], ids=["cpu", "gpu"])
@pytest.mark.parametrize("tokens", [1, 4, 64])
def test_work_grows_with_tokens_not_with_experts(caps: Capabilities, tokens: int) -> None:
    """With 64 experts as many workgroups as with 4096, and never more than full tiles and an end each."""

    def spec(experts: int) -> Inputs:
        def of(*shape: int) -> TensorSpec:
            return TensorSpec(shape, dtypes.float16)

        return {
            "input": of(tokens, 64),
            "router_probs": of(tokens, experts),
            "fc1_experts_weights": of(experts, 32, 64),
            "fc2_experts_weights": of(experts, 64, 32),
        }

    k = 2
    few, many = (planned("MoE", spec(experts), {"k": k}, caps) for experts in (64, 4096))
    for plan, experts in ((few, 64), (many, 4096)):
        assert len(products(plan)) == 2
        for step in products(plan):
            rows = dict(step.constants)["rows"]
            tiles = dict(step.uniforms)["tiles"].values[0]
            assert tiles <= tokens * k // rows + min(tokens * k, experts)
            assert step.groups % tiles == 0
    if tokens * k <= 64:
        assert [d.groups for d in few.dispatches] == [d.groups for d in many.dispatches]
        assert few.scratch_bytes == many.scratch_bytes


def test_sixty_four_experts(any_device: Device) -> None:
    inputs = mixture(tokens=6, experts=64, hidden=12, inter=10)
    y = check("MoE", inputs, {"k": 4, "normalize_routing_weights": 1}, any_device)
    again = run("MoE", inputs, {"k": 4, "normalize_routing_weights": 1}, device=any_device)[0].numpy()
    assert y.tobytes() == again.tobytes()


def test_other_sizes_make_no_pipelines(device: Device) -> None:
    for tokens, experts in [(2, 40), (3, 50), (4, 60)]:
        inputs = mixture(tokens, experts, hidden=8 * tokens, inter=8)
        run("MoE", inputs, {"activation_type": "identity"}, device=device)[0].numpy()
        if tokens == 2:
            before = len(device.programs)
    assert len(device.programs) == before


# Formats of weights


@pytest.mark.parametrize(("bits", "block"), [(2, 16), (2, 0), (4, 32), (4, 0), (8, 16), (8, 0)])
def test_integers(any_device: Device, bits: int, block: int) -> None:
    attributes = {"expert_weight_bits": bits, "k": 2} | ({"block_size": block} if block else {})
    check("QMoE", integers(bits, block), attributes, any_device)


def test_zero_points_of_odd_rows_are_padded(any_device: Device) -> None:
    """Column-wise zero points of 5 rows of 2 bits: two bytes an expert."""
    rng = np.random.default_rng(0)
    inputs = integers(8, 0, hidden=5, inter=8)
    inputs["fc2_experts_weights"] = rng.integers(0, 256, (3, 5, 2), np.uint8)
    inputs["fc2_zero_points"] = packed(rng.integers(0, 4, (3, 5)), 2)
    inputs["fc2_scales"] = rng.uniform(0.1, 0.3, (3, 5)).astype(np.float32)
    attributes = {"fc1_expert_weight_bits": 8, "fc2_expert_weight_bits": 2}
    check("QMoE", inputs, attributes, any_device)


def test_packed_zero_points_of_three_bits_are_not_needed(any_device: Device) -> None:
    """On the device their values are not known, and can only be 4."""
    inputs = three_bits()
    for name, shape in (("fc1_zero_points", (2, 64, 1)), ("fc2_zero_points", (2, 64, 1))):
        inputs[name] = Tensor.from_numpy(packed(np.full((*shape[:2], 2), 4)[..., : shape[2]], 3), any_device)
    inputs["fc1_zero_points"] = Tensor.from_numpy(packed(np.full((2, 64, 2), 4), 3), any_device)
    check("QMoE", inputs, THREE_BITS, any_device)


THREE_BITS = {
    "expert_weight_bits": 3,
    "activation_type": "swiglu",
    "swiglu_fusion": 1,
    "weights_prepacked": 0,
    "block_size": 32,
}


def three_bits() -> Inputs:
    rng = np.random.default_rng(3)
    half = np.float16
    return {
        "input": rng.uniform(-1, 1, (3, 64)).astype(half),
        "router_probs": rng.uniform(-1, 1, (3, 2)).astype(half),
        "fc1_experts_weights": rng.integers(0, 256, (2, 64, 24), np.uint8),
        "fc1_scales": rng.uniform(0.01, 0.05, (2, 64, 2)).astype(half),
        "fc2_experts_weights": rng.integers(0, 256, (2, 64, 12), np.uint8),
        "fc2_scales": rng.uniform(0.01, 0.05, (2, 64, 1)).astype(half),
    }


def nvfp4(tokens: int = 3, experts: int = 2, hidden: int = 32, inter: int = 16) -> Inputs:
    rng = np.random.default_rng(4)
    inputs: Inputs = {
        "input": rng.uniform(-1, 1, (tokens, hidden)).astype(np.float32),
        "router_probs": rng.uniform(-1, 1, (tokens, experts)).astype(np.float32),
    }
    for name, lines, length in (("fc1", inter, hidden), ("fc2", hidden, inter)):
        inputs[f"{name}_experts_weights"] = rng.integers(0, 256, (experts, length, lines // 2), np.uint8)
        inputs[f"{name}_scales"] = rng.uniform(0.1, 0.5, (experts, lines, length // 16)).astype(E4M3)
        inputs[f"{name}_global_scale"] = rng.uniform(0.2, 0.9, experts).astype(np.float32)
    return inputs


@pytest.mark.parametrize("prepacked", [-1, 0, 1])
def test_nvfp4_layouts(any_device: Device, prepacked: int) -> None:
    check("QMoE", nvfp4(), {"quant_type": "nvfp4", "weights_prepacked": prepacked}, any_device)


@pytest.mark.parametrize("block", [1, 12, 40, 128])
def test_float8_in_square_blocks(any_device: Device, block: int) -> None:
    rng = np.random.default_rng(block)
    inputs: Inputs = {
        "input": rng.uniform(-1, 1, (4, 50)).astype(np.float32),
        "router_probs": rng.uniform(-1, 1, (4, 3)).astype(np.float32),
    }
    for name, lines, length in (("fc1", 21, 50), ("fc2", 50, 21)):
        inputs[f"{name}_experts_weights"] = rng.uniform(-1, 1, (3, lines, length)).astype(E4M3)
        counts = (3, -(-lines // block), -(-length // block))
        inputs[f"{name}_scales"] = rng.uniform(0.1, 0.5, counts).astype(np.float32)
    check("QMoE", inputs, {"quant_type": "fp8", "block_size": block, "k": 2}, any_device)


def test_activations_of_8_bits(any_device: Device) -> None:
    """Scales of all, of an expert, and of blocks of each expert's tokens; saturation at 448."""
    rng = np.random.default_rng(5)
    inputs: Inputs = {
        "input": (rng.integers(-15, 16, (4, 64)) / 4).astype(np.float32),
        "router_probs": rng.uniform(-1, 1, (4, 3)).astype(np.float32),
    }
    inputs["input"][0, :3] = [2000, -5000, 447]
    for name, lines, length in (("fc1", 32, 64), ("fc2", 64, 32)):
        inputs[f"{name}_experts_weights"] = rng.integers(0, 256, (3, lines, length // 2), np.uint8)
        inputs[f"{name}_scales"] = (2.0 ** rng.integers(-5, -2, (3, lines, length // 32))).astype(E8M0)
        inputs[f"{name}_global_scale"] = np.array([1, 0.5, 2], np.float32)
    attributes = {"quant_type": "wfp4afp8", "k": 2}
    check("QMoE", inputs, attributes, any_device)
    inputs["fc1_act_scale"] = np.array([0.5, 1, 2], np.float32)
    inputs["fc2_act_scale"] = np.array([4], np.float32)
    check("QMoE", inputs, attributes, any_device)
    inputs["fc1_act_block_scale"] = (2.0 ** rng.integers(-2, 2, (3, 4, 2))).astype(E8M0)
    inputs["fc2_act_block_scale"] = np.full((1, 1, 1), 0.5).astype(E8M0)
    check("QMoE", inputs, attributes, any_device)


# Sizes beyond a binding


def run_with(caps: Capabilities, op: str, inputs: Inputs, attributes: dict[str, Any], device: Device) -> Any:
    """The call as planned for an adapter with other limits."""
    plan = planned(op, inputs, attributes, caps)
    feeds = [None if s is None else Tensor.from_numpy(inputs[s.name], device) for s in plan.inputs]
    out = plan.outputs[0]
    assert out is not None
    y = Tensor.empty(out.shape, out.dtype, device)
    device.stream.execute(PreparedPlan(plan, device), feeds, [y])
    return plan, y.numpy()


@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_weights_beyond_a_binding_are_read_in_parts(device: Device, device_class: Any) -> None:
    """Cuts lie inside experts, and inside tiles of columns."""
    caps = replace(device.capabilities, device_class=device_class, max_binding_bytes=20_000)
    inputs = mixture(tokens=9, experts=5, hidden=22, inter=150)
    plan, y = run_with(caps, "MoE", inputs, {"k": 2}, device)
    firsts = [dict(d.uniforms)["first"].values[0] for d in products(plan)]
    assert len(firsts) == 8 and any(first % 150 for first in firsts)
    agree(y, "MoE", inputs, {"k": 2})

    caps = replace(caps, max_binding_bytes=6_000)
    inputs = integers(4, 16, tokens=3, experts=4, hidden=32, inter=112)
    attributes = {"k": 2, "block_size": 16}
    plan, y = run_with(caps, "QMoE", inputs, attributes, device)
    assert len(products(plan)) > 2
    agree(y, "QMoE", inputs, attributes)


def test_codes_across_lines_are_cut_between_experts(device: Device) -> None:
    caps = replace(device.capabilities, max_binding_bytes=2100)
    inputs = nvfp4(tokens=3, experts=7, hidden=64, inter=16)
    plan, y = run_with(caps, "QMoE", inputs, {"quant_type": "nvfp4", "k": 2}, device)
    assert len(products(plan)) > 2
    agree(y, "QMoE", inputs, {"quant_type": "nvfp4", "k": 2})
    with pytest.raises(LimitError, match=r"fc1_experts_weights has 3584 bytes in 112 lines; .* at most 300"):
        planned("QMoE", inputs, {"quant_type": "nvfp4"}, replace(caps, max_binding_bytes=300))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_many_tokens_in_chunks(device: Device, dtype: Any) -> None:
    """300 tokens in chunks of 128, with sizes that end inside words."""
    caps = replace(device.capabilities, max_binding_bytes=20_000)
    inputs = mixture(tokens=300, experts=3, hidden=11, inter=9, seed=1)
    inputs = {name: x.astype(dtype) for name, x in inputs.items()}
    plan, y = run_with(caps, "MoE", inputs, {"k": 2}, device)
    assert len(products(plan)) == 6
    agree(y, "MoE", inputs, {"k": 2})


@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_chunks_of_any_size_fit(device_class: Any) -> None:
    """The last chunk may have lower tiles, and then more of them, than the first."""

    def of(*shape: int) -> TensorSpec:
        return TensorSpec(shape, dtypes.float32)

    for experts, k in [(3, 1), (16, 1), (33, 2)]:
        caps = replace(PORTABLE, device_class=device_class, max_binding_bytes=4 * k * 64 * 150)
        for tokens in range(151, 400, 5):
            weights = {"fc1_experts_weights": of(experts, 16, 64), "fc2_experts_weights": of(experts, 64, 16)}
            call = {"input": of(tokens, 64), "router_probs": of(tokens, experts), **weights}
            made = planned("MoE", call, {"k": k}, caps)
            assert sum(d.template == "experts/group" for d in made.dispatches) == -(-tokens // 128)


def test_many_pairs_are_ordered(device: Device) -> None:
    """More than one workgroup orders at once, and than a software adapter's loops walk carelessly."""
    inputs = mixture(tokens=8200, experts=50, hidden=2, inter=1)
    check("MoE", inputs, {"k": 4}, device)


def test_chunks_of_8_bit_activations_find_their_scales(device: Device) -> None:
    rng = np.random.default_rng(6)
    caps = replace(device.capabilities, max_binding_bytes=17_000)
    inputs: Inputs = {
        "input": (rng.integers(-15, 16, (140, 32)) / 4).astype(np.float32),
        "router_probs": rng.uniform(-1, 1, (140, 2)).astype(np.float32),
        "fc1_act_block_scale": (2.0 ** rng.integers(-2, 2, (2, 140, 1))).astype(E8M0),
    }
    for name in ("fc1", "fc2"):
        inputs[f"{name}_experts_weights"] = rng.integers(0, 256, (2, 32, 16), np.uint8)
        inputs[f"{name}_scales"] = (2.0 ** rng.integers(-5, -2, (2, 32, 1))).astype(E8M0)
        inputs[f"{name}_global_scale"] = np.ones(2, np.float32)
    plan, y = run_with(caps, "QMoE", inputs, {"quant_type": "wfp4afp8"}, device)
    assert len(products(plan)) == 4
    agree(y, "QMoE", inputs, {"quant_type": "wfp4afp8"})


# Refusals


def of(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("changes", "attributes", "error", "message"),
    [
        ({}, {"activation_type": "tanh"}, SchemaError, "activation_type is 'tanh'; expected one of gelu"),
        ({}, {"k": 0}, SchemaError, "k is 0; expected at least 1"),
        ({}, {"k": 5}, ShapeError, r"router_probs has shape \(5, 4\); expected at least k=5 experts"),
        ({}, {"swiglu_fusion": 3}, SchemaError, "swiglu_fusion is 3; expected 0, 1 or 2"),
        ({}, {"use_sparse_mixer": 1}, SchemaError, "k is 1; expected 2 because use_sparse_mixer"),
        ({}, {"use_sparse_mixer": 1, "k": 2}, ShapeError, "expected 8 or 16 experts"),
        ({"router_probs": of((4, 4))}, {}, ShapeError, r"router_probs has shape \(4, 4\); expected \(5, exp"),
        ({"input": of((8,))}, {}, ShapeError, r"input has shape \(8,\); expected two or three"),
        ({"fc1_experts_weights": of((6, 8))}, {}, ShapeError, r"fc1_experts_weights has shape \(6, 8\)"),
        ({"fc1_experts_weights": of((3, 6, 8))}, {}, ShapeError, r"expected \(4, 6, 8\) because there are 4"),
        ({"fc2_experts_weights": of((4, 8, 3))}, {}, ShapeError, r"expected \(4, 8, 6\) because"),
        (
            {"fc2_experts_bias": of((4, 6))},
            {},
            ShapeError,
            r"fc2_experts_bias has shape \(4, 6\); expected \(4",
        ),
        ({}, {"activation_type": "swiglu"}, ShapeError, "fc3_experts_weights is missing; expected the up"),
        ({"fc3_experts_bias": of((4, 6))}, {}, ShapeError, "fc3_experts_bias was given; expected fc3_exp"),
        (
            {"fc3_experts_weights": of((4, 6, 8))},
            {"activation_type": "swiglu", "swiglu_fusion": 2},
            ShapeError,
            "fc3_experts_weights was given; expected nothing here because fc1 holds both",
        ),
        (
            {"fc1_experts_weights": of((4, 7, 8))},
            {"activation_type": "swiglu", "swiglu_fusion": 1},
            ShapeError,
            "fc1_experts_weights has 7 rows an expert; expected an even number",
        ),
    ],
)
def test_moe_refuses(changes: Inputs, attributes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=f"MoE: .*{message}"):
        planned("MoE", mixture() | changes, attributes)


BYTES = np.uint8


@pytest.mark.parametrize(
    ("changes", "attributes", "error", "message"),
    [
        ({}, {"quant_type": "int5"}, SchemaError, "quant_type is 'int5'; expected one of int, fp8"),
        ({}, {"weights_prepacked": 1}, UnsupportedError, "weights_prepacked is 1, another provider's"),
        ({}, {"weights_prepacked": 2}, SchemaError, "weights_prepacked is 2; expected -1, 0 or 1"),
        ({}, {"expert_weight_bits": 5}, SchemaError, "fc1 has weights of 5 bits; expected 2 or 3 or 4 or 8"),
        ({}, {"block_size": 24}, SchemaError, "block_size is 24; expected a power of two"),
        ({}, {"block_size": 8}, SchemaError, "block_size is 8; expected a power of two of at least 16"),
        (
            {},
            {"block_size": 128},
            ShapeError,
            "fc1_experts_weights has rows of 64 weights; expected a multiple",
        ),
        ({}, {}, ShapeError, r"fc1_scales has shape \(3, 32, 4\); expected \(3, 32\)"),
        ({"fc1_scales": None}, {"block_size": 16}, ShapeError, "input fc1_scales is required here"),
        (
            {"fc2_zero_points": of((3, 64, 2), BYTES)},
            {"block_size": 16},
            ShapeError,
            "fc2_zero_points has sha",
        ),
        (
            {"fc1_scales": of((3, 32, 4), E8M0), "fc2_scales": of((3, 64, 2), E8M0)},
            {"block_size": 16},
            ShapeError,
            "fc1_scales has type float8e8m0",
        ),
        ({"fc1_global_scale": of((3,))}, {"block_size": 16}, ShapeError, "fc1_global_scale was given"),
        (
            {"fc2_act_scale": of((1,))},
            {"block_size": 16},
            ShapeError,
            "fc2_act_scale was given; expected noth",
        ),
        (
            {"router_weights": of((5, 4))},
            {"block_size": 16},
            ShapeError,
            r"router_weights has shape \(5, 4\)",
        ),
        (
            {
                "fc1_experts_weights": of((3, 32, 32), E4M3),
                "fc2_experts_weights": of((3, 64, 16), E4M3),
                "fc1_zero_points": None,
                "fc2_zero_points": None,
            },
            {"block_size": 16},
            ShapeError,
            "fc1_experts_weights has type float8e4m3fn; expected uint8",
        ),
        (
            {},
            {"activation_type": "swiglu", "swiglu_fusion": 1, "fc3_expert_weight_bits": 8},
            SchemaError,
            "fc3_expert_weight_bits is 8; expected 4, as fc1",
        ),
        ({}, {"quant_type": "fp8"}, ShapeError, "fc1_zero_points was given; expected nothing here"),
        (
            {},
            {"quant_type": "fp4", "expert_weight_bits": 3},
            SchemaError,
            "fc1 has weights of 3 bits; expected 4",
        ),
    ],
)
def test_qmoe_refuses(changes: Inputs, attributes: dict[str, Any], error: type, message: str) -> None:
    inputs = {name: x for name, x in (integers(4, 16) | changes).items() if x is not None}
    with pytest.raises(error, match=f"QMoE: .*{message}"):
        planned("QMoE", inputs, attributes)


@pytest.mark.parametrize(
    ("changes", "attributes", "error", "message"),
    [
        ({}, {"activation_type": "silu"}, SchemaError, "activation_type is 'silu'; expected 'swiglu' with"),
        ({}, {"weights_prepacked": -1}, SchemaError, "weights_prepacked is -1; expected 0 with"),
        ({}, {"swiglu_fusion": 2}, SchemaError, "swiglu_fusion is 2; expected 1 with"),
        ({}, {"block_size": 16}, SchemaError, "block_size is 16; expected 32 or 64 or 128"),
        ({}, {"fc1_expert_weight_bits": 4}, SchemaError, "fc3 has weights of 3 bits; expected 4, as fc1"),
        (
            {"fc1_scales": of((2, 64, 2)), "fc2_scales": of((2, 64, 1))},
            {},
            ShapeError,
            "fc1_scales has type float32; expected input's type",
        ),
        ({"fc1_scales": np.full((2, 64, 2), -1, np.float16)}, {}, ShapeError, "fc1_scales holds -1.0"),
        ({"fc2_scales": np.full((2, 64, 1), np.nan, np.float16)}, {}, ShapeError, "fc2_scales holds nan"),
        ({"fc1_zero_points": of((2, 64, 1), BYTES)}, {}, ShapeError, "fc1_zero_points holds 0; expected 4"),
        (
            {"fc1_zero_points": np.full((2, 64, 1), 0xE4, BYTES)},
            {},
            ShapeError,
            "has padding bits that are set",
        ),
        ({"fc1_act_scale": of((1,))}, {}, ShapeError, "fc1_act_scale was given; expected nothing"),
    ],
)
def test_three_bits_refuse(changes: Inputs, attributes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=f"QMoE: .*{message}"):
        planned("QMoE", three_bits() | changes, THREE_BITS | attributes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc2_global_scale": None}, "fc2_global_scale is missing; expected a scale of each expert"),
        ({"fc1_global_scale": of((3,))}, r"fc1_global_scale has shape \(3,\); expected \(2,\)"),
        (
            {"fc1_scales": of((2, 16, 2), E8M0), "fc2_scales": of((2, 32, 1), E8M0)},
            "fc1_scales has type float8e8m0; expected float8e4m3fn",
        ),
        ({"fc1_experts_weights": of((2, 16, 16), BYTES)}, r"fc1_experts_weights has shape .*\(2, 32, 16\)"),
    ],
)
def test_nvfp4_refuses(changes: Inputs, message: str) -> None:
    inputs = {name: x for name, x in (nvfp4() | changes).items() if x is not None}
    with pytest.raises(ShapeError, match=f"QMoE: .*{message}"):
        planned("QMoE", inputs, {"quant_type": "nvfp4"})
