"""Products with quantized weights: shapes, widths, kernels of both device classes, parts, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, Tensor, UnsupportedError, plan, reference, run
from webgpu_ops.core.plan import Capabilities, Plan, TensorSpec
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.errors import LimitError

BLOCKS = (16, 32, 64, 128, 256)


def n_bits(
    rng: np.random.Generator,
    rows: int,
    k: int,
    n: int,
    bits: int,
    block: int,
    zeros: str = "none",
    dtype: Any = np.float32,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and attributes of a MatMulNBits whose results are about 1."""
    blocks = -(-k // block)
    scale = rng.uniform(0.5, 1.0, (n, blocks)) / (2.0 ** (bits - 1) * np.sqrt(k))
    inputs = {
        "A": rng.standard_normal((rows, k)).astype(dtype),
        "B": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "scales": scale.astype(dtype),
    }
    if zeros == "packed":
        inputs["zero_points"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zeros == "float":
        inputs["zero_points"] = rng.uniform(0, 2.0**bits, (n, blocks)).astype(dtype)
    return inputs, {"K": k, "N": n, "bits": bits, "block_size": block}


def expected(op: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> np.ndarray:
    function = reference.find(op)
    assert function is not None
    return np.asarray(function(**inputs, **attributes)[0])


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    tolerance = {np.dtype(np.float32): 2e-5, np.dtype(np.float16): 2e-3}.get(want.dtype, 1.6e-2)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def check(
    device: Device,
    op: str,
    inputs: Mapping[str, Any],
    attributes: Mapping[str, Any],
    capabilities: Capabilities | None = None,
) -> None:
    """Run a call as ``capabilities`` (default: the device's) would have it and compare."""
    if capabilities is None:
        (got,) = run(op, inputs, attributes, device=device)
    else:
        made = plan(op, inputs, attributes, capabilities=capabilities)
        by_name = {s.name: s for s in made.inputs if s is not None}
        tensors = [Tensor.from_numpy(inputs[s.name], device) if s is not None else None for s in made.inputs]
        assert by_name
        (slot,) = made.outputs
        assert slot is not None
        got = Tensor.from_numpy(np.full(slot.shape, np.nan, slot.dtype.numpy), device)
        device.stream.execute(PreparedPlan(made, device), tensors, [got])
    assert isinstance(got, Tensor)
    close(got.numpy(), expected(op, inputs, attributes))


@pytest.mark.parametrize("bits", range(2, 9))
def test_sizes_blocks_and_widths(device: Device, bits: int) -> None:
    """Every block size and form of zero points, with sizes from 1 to 600."""
    rng = np.random.default_rng(bits)
    for i, (block, zeros) in enumerate(itertools.product(BLOCKS, ("none", "packed", "float"))):
        k, n = (int(d) for d in rng.integers(1, 601, 2))
        check(device, "MatMulNBits", *n_bits(rng, 1 + i % 2, k, n, bits, block, zeros))


def test_every_small_size(device: Device) -> None:
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33):
        for n in (1, 3, 4, 5, 8, 33):
            check(device, "MatMulNBits", *n_bits(rng, 2, k, n, 4, 16, "packed"))


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_kernels_of_both_device_classes(any_device: Device, rows: int) -> None:
    device = any_device
    rng = np.random.default_rng(rows)
    for k, n, bits, block, zeros, dtype in [
        (136, 70, 4, 32, "packed", np.float32),
        (100, 9, 3, 16, "none", np.float16),
        (75, 66, 8, 64, "float", ml_dtypes.bfloat16),
    ]:
        inputs, attributes = n_bits(rng, rows, k, n, bits, block, zeros, dtype)
        inputs["bias"] = rng.standard_normal(n).astype(dtype)
        check(device, "MatMulNBits", inputs, attributes)
    inputs, attributes = n_bits(rng, rows, 75, 20, 5, 16, "packed")
    inputs["g_idx"] = rng.integers(0, 5, 75).astype(np.int32)
    check(device, "MatMulNBits", inputs, attributes)
    for k, n, transposed in [(37, 21, 1), (64, 24, 0), (45, 30, 0)]:
        inner = k if transposed else n
        inputs = {
            "A": rng.standard_normal((rows, inner)).astype(np.float32),
            "B": rng.integers(0, 256, (k * n + 1) // 2).astype(np.uint8),
            "absmax": rng.uniform(0.1, 0.3, -(-k * n // 16)).astype(np.float32),
        }
        attributes = {"K": k, "N": n, "block_size": 16, "quant_type": 1, "transB": transposed}
        check(device, "MatMulBnb4", inputs, attributes)


def test_whole_numbers_are_exact(device: Device) -> None:
    """Codes, zero points and products that float32 holds come out to the last bit."""
    rng = np.random.default_rng(3)
    for bits, extreme in ((8, 255), (7, 0), (2, 255)):
        inputs, attributes = n_bits(rng, 3, 200, 17, bits, 32, "packed")
        inputs["A"] = rng.integers(-60, 60, inputs["A"].shape).astype(np.float32)
        inputs["B"][::2] = extreme
        inputs["scales"] = np.full_like(inputs["scales"], 0.25)
        (got,) = run("MatMulNBits", inputs, attributes, device=device)
        assert isinstance(got, Tensor)
        np.testing.assert_array_equal(got.numpy(), expected("MatMulNBits", inputs, attributes))


def test_one_number_codes_are_exact(device: Device) -> None:
    """Every code of every table times one, which is the code itself."""
    codes = np.arange(256, dtype=np.uint8)
    for quant_type in (0, 1):
        inputs = {
            "A": np.eye(16, dtype=np.float32),
            "B": codes,
            "absmax": np.ones(32, np.float32),
        }
        attributes = {"K": 16, "N": 32, "block_size": 16, "quant_type": quant_type}
        check(device, "MatMulBnb4", inputs, attributes)
    finite = codes[(codes & 0x7F) != 0x7F]
    inputs = {
        "A": np.eye(2, dtype=np.float16),
        "B": np.resize(finite, (128, 2)).view(ml_dtypes.float8_e4m3fn),
        "b_scale": np.ones((128, 1), np.float32),
    }
    (got,) = run("MatMulBlockQuantizedFp8Weight", inputs, device=device)
    assert isinstance(got, Tensor)
    np.testing.assert_array_equal(got.numpy(), inputs["B"].T.astype(np.float16))


def test_activations_that_float8_cannot_hold_saturate(device: Device) -> None:
    """Infinities, and quotients that float32 cannot hold either; a NaN stays one."""
    a = np.zeros((4, 4), ml_dtypes.bfloat16)
    np.fill_diagonal(a, [np.inf, -1e38, np.nan, 3e4])
    inputs = {
        "A": a,
        "B": np.eye(4).astype(ml_dtypes.float8_e4m3fn),
        "b_scale": np.ones((4, 1), np.float32),
        "a_scale": np.array([0.01], np.float32),
    }
    (got,) = run("MatMulBlockQuantizedFp8Weight", inputs, device=device)
    assert isinstance(got, Tensor)
    want = np.diag([4.48, -4.48, np.nan, 4.48])
    want[2] = np.nan
    np.testing.assert_array_equal(got.numpy().astype(np.float32), want.astype(a.dtype).astype(np.float32))


def test_groups_outside_are_contained(device: Device) -> None:
    inputs, attributes = n_bits(np.random.default_rng(1), 2, 64, 8, 4, 16, "packed")
    wild = np.tile(np.array([-5, 0, 3, 900], np.int32), 16)
    inputs["g_idx"] = np.clip(wild, 0, 3)
    want = expected("MatMulNBits", inputs, attributes)
    (got,) = run("MatMulNBits", {**inputs, "g_idx": wild}, attributes, device=device)
    assert isinstance(got, Tensor)
    close(got.numpy(), want)


def test_flat_scales_of_older_models(device: Device) -> None:
    inputs, attributes = n_bits(np.random.default_rng(2), 2, 100, 6, 4, 32, "packed")
    flat = {name: inputs[name].reshape(-1) for name in ("scales", "zero_points")}
    check(device, "MatMulNBits", inputs | flat, attributes)


# Parts


def products(made: Plan) -> int:
    return sum(step.template.startswith("quantized/") for step in made.dispatches)


def test_parts_of_weights(any_device: Device) -> None:
    """Limits so small that ordinary matrices are multiplied in parts."""
    device = any_device
    rng = np.random.default_rng(5)

    def limited(nbytes: int) -> Capabilities:
        return replace(device.capabilities, max_binding_bytes=nbytes)

    for bits, zeros, dtype in ((4, "packed", np.float32), (3, "float", np.float16), (2, "none", np.float32)):
        inputs, attributes = n_bits(rng, 2, 40, 600, bits, 16, zeros, dtype)
        inputs["bias"] = rng.standard_normal(600).astype(dtype)
        caps = limited(2 * max(x[:256].nbytes for name, x in inputs.items() if name not in ("A", "bias")))
        assert products(plan("MatMulNBits", inputs, attributes, capabilities=caps)) == 2
        check(device, "MatMulNBits", inputs, attributes, caps)
    for transposed, k, steps in ((1, 48, 3), (0, 48, 3), (1, 13, 3)):
        n = 600
        inputs = {
            "A": rng.standard_normal((3, k if transposed else n)).astype(np.float32),
            "B": rng.integers(0, 256, -(-k * n // 2)).astype(np.uint8),
            "absmax": rng.uniform(0.05, 0.1, -(-k * n // 32)).astype(np.float32),
        }
        attributes = {"K": k, "N": n, "block_size": 32, "quant_type": 0, "transB": transposed}
        caps = limited(256 * k // 2)
        assert products(plan("MatMulBnb4", inputs, attributes, capabilities=caps)) == steps
        check(device, "MatMulBnb4", inputs, attributes, caps)


def test_long_sums_are_made_in_steps(any_device: Device) -> None:
    """More of the inner dimension than an invocation may go round for, the last step a short one."""
    device = any_device
    rng = np.random.default_rng(7)
    rows, long = (17, 62000) if device.capabilities.device_class == "gpu" else (2, 132000)
    inputs, attributes = n_bits(rng, rows, long + 3, 5, 4, 32, "packed")
    inputs["bias"] = rng.standard_normal(5).astype(np.float32)
    made = plan("MatMulNBits", inputs, attributes, capabilities=device.capabilities)
    assert products(made) == (3 if rows == 17 else 2)
    assert made.scratch_bytes == (products(made) - 1) * rows * 5 * 4
    check(device, "MatMulNBits", inputs, attributes)
    n, k = long + 1, 8
    inputs = {
        "A": (rng.standard_normal((rows, n)) / np.sqrt(n)).astype(np.float32),
        "B": rng.integers(0, 256, k * n // 2).astype(np.uint8),
        "absmax": rng.uniform(0.5, 1.0, -(-k * n // 16)).astype(np.float32),
    }
    attributes = {"K": k, "N": n, "block_size": 16, "quant_type": 1, "transB": 0}
    assert products(plan("MatMulBnb4", inputs, attributes, capabilities=device.capabilities)) > 1
    check(device, "MatMulBnb4", inputs, attributes)


def test_weights_above_the_binding_limit(device: Device) -> None:
    """More than 128 MiB of codes, on a device that may bind no more."""
    k, n, block = 16384, 8300, 128
    rng = np.random.default_rng(6)
    inputs, attributes = n_bits(rng, 1, k, 1, 8, block)
    # Columns repeat, but no two neighbours are alike.
    inputs["B"] = np.resize(rng.integers(0, 256, 1000003).astype(np.uint8), (n, k // block, block))
    inputs["scales"] = np.resize(inputs["scales"], (n, k // block))
    attributes["N"] = n
    assert inputs["B"].nbytes > 128 << 20
    if device.capabilities.max_binding_bytes == 128 << 20:
        made = plan("MatMulNBits", inputs, attributes, capabilities=device.capabilities)
        assert len(made.dispatches) == 2
    (got,) = run("MatMulNBits", inputs, attributes, device=device)
    assert isinstance(got, Tensor)
    result = got.numpy()
    # The reference of every column would fill memory: those at the seam, at the ends, some between.
    columns = np.unique(np.concatenate([[0, 8191, 8192, 8193, n - 1], rng.integers(0, n, 40)]))
    some = {name: inputs[name][columns] for name in ("B", "scales")}
    want = expected("MatMulNBits", inputs | some, {**attributes, "N": len(columns)})
    close(result[:, columns], want)
    assert np.isfinite(result).all()


def test_a_line_larger_than_a_binding_is_refused() -> None:
    inputs, attributes = n_bits(np.random.default_rng(0), 1, 64, 512, 4, 32)
    caps = Capabilities(max_binding_bytes=4096)
    with pytest.raises(LimitError, match=r"B has 16384 bytes in 512 lines; .* at most 4096"):
        plan("MatMulNBits", inputs, attributes, capabilities=caps)


# Plans


def test_nothing_is_dequantized_into_memory() -> None:
    for rows in (1, 200):
        inputs, attributes = n_bits(np.random.default_rng(0), rows, 256, 128, 4, 32)
        for name in ("gpu", "cpu"):
            made = plan("MatMulNBits", inputs, attributes, capabilities=Capabilities(device_class=name))  # type: ignore[arg-type]
            assert made.scratch_bytes == 0
            assert len(made.dispatches) == 1


def test_growing_rows_share_pipelines() -> None:
    inputs, attributes = n_bits(np.random.default_rng(0), 1, 64, 40, 4, 32)
    for name in ("gpu", "cpu"):
        found = set()
        for rows in range(1, 120):
            grown = {**inputs, "A": np.zeros((rows, 64), np.float32)}
            caps = Capabilities(device_class=name)  # type: ignore[arg-type]
            for step in plan("MatMulNBits", grown, attributes, capabilities=caps).dispatches:
                found.add((step.template, step.constants, step.workgroup))
        assert len(found) <= 4


def test_fused_projections_share_one_norm() -> None:
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {
        "A": np.zeros((2, 64), np.float32),
        "skip": np.zeros((2, 64), np.float32),
        "norm_scale": np.ones(64, np.float32),
    }
    for name, n in (("q", 8), ("k", 4), ("v", 4)):
        weights, _ = n_bits(rng, 1, 64, n, 4, 32)
        inputs |= {f"{name}_B": weights["B"], f"{name}_scales": weights["scales"]}
    attributes = {"K": 64, "Nq": 8, "Nkv": 4, "block_size": 32}
    made = plan("MatMulNBitsQkv", inputs, attributes, outputs=["Q", "K", "V", "input_skip_bias_sum"])
    assert [d.template.split("/")[0] for d in made.dispatches] == ["norm"] + ["quantized"] * 3


# Refusals


def spec(*shape: int, dtype: Any = np.float32) -> TensorSpec:
    from webgpu_ops.core import dtypes

    return TensorSpec(shape, dtypes.from_numpy(np.dtype(dtype)))


def refused(
    op: str,
    inputs: Mapping[str, Any],
    attributes: Mapping[str, Any],
    error: type,
    message: str,
    **options: Any,
) -> None:
    with pytest.raises(error, match=message):
        plan(op, inputs, attributes, **options)


def test_refusals_of_n_bits() -> None:
    inputs: dict[str, Any] = {
        "A": spec(2, 64),
        "B": spec(8, 2, 16, dtype=np.uint8),
        "scales": spec(8, 2),
    }
    attributes = {"K": 64, "N": 8, "block_size": 32}
    for change, error, message in [
        ({"A": spec(2, 63)}, ShapeError, r"A has shape \(2, 63\); expected 64 columns because K=64"),
        ({"A": spec()}, ShapeError, "A is a scalar"),
        (
            {"B": spec(8, 16, 2, dtype=np.uint8)},
            ShapeError,
            r"B has shape \(8, 16, 2\); expected \(8, 2, 16\)",
        ),
        ({"scales": spec(8, 1)}, ShapeError, r"scales has shape \(8, 1\); expected \(8, 2\)"),
        (
            {"zero_points": spec(8, 2, dtype=np.uint8)},
            ShapeError,
            r"zero_points has shape .* expected \(8, 1\) because 2 zero points of 4 bits a row, packed",
        ),
        (
            {"zero_points": spec(8, 2, dtype=np.float16)},
            ShapeError,
            "type float16; expected uint8 or A's type",
        ),
        ({"g_idx": spec(63, dtype=np.int32)}, ShapeError, r"g_idx has shape \(63,\)"),
        ({"bias": spec(1, 8)}, ShapeError, r"bias has shape \(1, 8\); expected \(8,\)"),
    ]:
        refused("MatMulNBits", inputs | change, attributes, error, message)
    for change, error, message in [
        ({"block_size": 24}, SchemaError, "block_size is 24; expected a power of two"),
        ({"block_size": 8}, SchemaError, "block_size is 8"),
        ({"bits": 9}, SchemaError, "bits is 9; expected 2 to 8"),
        ({"bits": 1}, SchemaError, "bits is 1"),
        ({"accuracy_level": 5}, SchemaError, "accuracy_level is 5"),
        ({"K": 0}, SchemaError, "K is 0; expected at least 1"),
        ({"weight_prepacked": 1}, UnsupportedError, "weight_prepacked is 1"),
    ]:
        refused("MatMulNBits", inputs, attributes | change, error, message)
    packed = inputs | {"zero_points": spec(8, 1, dtype=np.uint8)}
    refused("MatMulNBits", packed, attributes | {"bits": 8}, ShapeError, r"B has shape .* and bits=8")


def test_refusals_of_fused_projections() -> None:
    inputs: dict[str, Any] = {"A": spec(2, 64)}
    for name in ("gate", "up"):
        inputs |= {f"{name}_B": spec(8, 2, 16, dtype=np.uint8), f"{name}_scales": spec(8, 2)}
    attributes = {"K": 64, "N": 8, "block_size": 32, "activation": "silu"}
    op = "MatMulNBitsMlp"
    refused(op, inputs | {"skip": spec(2, 64)}, attributes, ShapeError, "skip was given without norm_scale")
    refused(op, inputs, attributes | {"activation": "gelu"}, SchemaError, "activation is 'gelu'")
    refused(op, inputs, attributes | {"epsilon": -1.0}, SchemaError, "epsilon is -1.0")
    normed = inputs | {"norm_scale": spec(64)}
    wants = {"outputs": ["Y", "input_skip_bias_sum"]}
    refused(op, normed, attributes, ShapeError, "input_skip_bias_sum is wanted without skip", **wants)
    refused(op, normed | {"skip": spec(64)}, attributes, ShapeError, r"skip has shape \(64,\)")
    refused(op, inputs | {"norm_scale": spec(63)}, attributes, ShapeError, r"norm_scale has shape \(63,\)")
    refused(op, inputs | {"up_bias": spec(9)}, attributes, ShapeError, r"up_bias has shape \(9,\)")


def test_refusals_of_float_weights() -> None:
    bnb = {"A": spec(2, 16), "B": spec(32, dtype=np.uint8), "absmax": spec(4)}
    sizes = {"K": 16, "N": 4, "block_size": 16, "quant_type": 0}
    op = "MatMulBnb4"
    refused(op, bnb, sizes | {"quant_type": 2}, SchemaError, "quant_type is 2")
    refused(op, bnb, sizes | {"block_size": 20}, SchemaError, "block_size is 20")
    refused(
        op, bnb | {"A": spec(2, 4)}, sizes, ShapeError, "expected 16 columns because K=16, N=4 and transB=1"
    )
    refused(op, bnb, sizes | {"transB": 0}, ShapeError, "expected 4 columns because .* transB=0")
    refused(op, bnb | {"B": spec(31, dtype=np.uint8)}, sizes, ShapeError, r"B has shape \(31,\)")
    refused(op, bnb | {"absmax": spec(3)}, sizes, ShapeError, r"absmax has shape \(3,\); expected \(4,\)")

    blob = {"A": spec(2, 64), "B": spec(41, dtype=np.uint8), "B_shape": np.array([64, 1])}
    op = "MatMulFpQ4"
    refused(op, blob, {"blk_quant_type": 0}, ShapeError, r"B has shape \(41,\); expected \(40,\)")
    refused(op, blob, {"blk_quant_type": 3}, SchemaError, "blk_quant_type is 3")
    refused(op, blob | {"B_shape": np.array([64])}, {}, ShapeError, r"B_shape has shape \(1,\)")
    refused(op, blob | {"B_shape": np.array([64, -1])}, {}, ShapeError, r"B_shape is \(64, -1\)")
    refused(op, blob | {"B_shape": np.array([32, 1])}, {}, ShapeError, "A has shape .* expected 32 columns")

    half, byte = np.float16, np.uint8
    fp4: dict[str, Any] = {
        "A": spec(2, 32, dtype=half),
        "B": spec(4, 16, dtype=byte),
        "weight_scale": spec(4, 2, dtype=byte),
        "weight_scale_2": spec(),
    }
    op = "MatMulBlockQuantizedFp4Weight"
    refused(
        op, fp4 | {"A": spec(2, 16, dtype=half)}, {}, ShapeError, r"32 columns because B has shape \(4, 16\)"
    )
    refused(op, fp4, {"block_size": 32}, ShapeError, r"weight_scale has shape \(4, 2\); expected \(4, 1\)")
    refused(op, fp4, {"block_size": 0}, SchemaError, "block_size is 0")
    refused(op, fp4 | {"weight_scale_2": spec(2)}, {}, ShapeError, r"weight_scale_2 has shape \(2,\)")
    refused(op, fp4 | {"B": spec(64, dtype=byte)}, {}, ShapeError, "two dimensions")

    fp8: dict[str, Any] = {
        "A": spec(2, 32, dtype=half),
        "B": spec(4, 32, dtype=ml_dtypes.float8_e4m3fn),
        "b_scale": spec(4, 1),
    }
    op = "MatMulBlockQuantizedFp8Weight"
    refused(
        op, fp8 | {"b_scale": spec(4, 2)}, {}, ShapeError, r"b_scale has shape \(4, 2\); expected \(4, 1\)"
    )
    refused(op, fp8 | {"a_scale": spec(2, 1)}, {}, ShapeError, r"a_scale has shape \(2, 1\)")
    refused(op, fp8 | {"bias": spec(5, dtype=half)}, {}, ShapeError, r"bias has shape \(5,\)")
