"""Longformer attention: who sees whom, what a plan costs, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, plan, run
from webgpu_ops.core import dtypes
from webgpu_ops.core.plan import PORTABLE, Capabilities, Plan, TensorSpec
from webgpu_ops.core.program import render
from webgpu_ops.errors import LimitError

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("longformer")

ROWS, HIDDEN, HEADS = 16, 12, 2


def call(seed: int = 0, batch: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "input": normal(batch, ROWS, HIDDEN),
        "weight": normal(HIDDEN, 3 * HIDDEN) / 3,
        "bias": normal(3 * HIDDEN),
        "mask": np.zeros((batch, ROWS), np.float32),
        "global_weight": normal(HIDDEN, 3 * HIDDEN) / 3,
        "global_bias": normal(3 * HIDDEN),
        "global": np.zeros((batch, ROWS), np.int32),
    }


def attend(device: Device, inputs: dict[str, Any], window: int) -> np.ndarray:
    (y,) = run("LongformerAttention", inputs, {"num_heads": HEADS, "window": window}, device=device)
    return y.numpy()


def attention(device: Device, inputs: dict[str, Any], prefix: str) -> np.ndarray:
    """Attention of all tokens to all unmasked ones, by the operator of that name."""
    x = {"input": inputs["input"], "weights": inputs[f"{prefix}weight"], "bias": inputs[f"{prefix}bias"]}
    x["mask_index"] = (inputs["mask"] >= 0).astype(np.int32)
    y = run("Attention", x, {"num_heads": HEADS, "mask_filter_value": -1e30}, device=device)[0]
    return y.numpy()


def test_a_window_of_everything_is_attention(device: Device) -> None:
    """Eight tokens on each side of sixteen do not reach from end to end: the middle ones see all."""
    inputs = call()
    inputs["mask"][1, 11:] = -1
    y, want = attend(device, inputs, ROWS // 2), attention(device, inputs, "")
    np.testing.assert_allclose(y[:, 7:9], want[:, 7:9], atol=1e-5)
    assert not y[1, 11:].any()


def test_tokens_that_are_all_global_have_attention_of_their_own(device: Device) -> None:
    inputs = call()
    inputs["global"][:] = 1
    inputs["mask"][0, ::3] = -10000
    y, want = attend(device, inputs, 1), attention(device, inputs, "global_")
    shown = inputs["mask"] >= 0
    np.testing.assert_allclose(y[shown], want[shown], atol=1e-5)
    assert not y[~shown].any()


@pytest.mark.parametrize("seen", [False, True], ids=["local", "global"])
def test_a_far_token_matters_if_it_is_global(device: Device, seen: bool) -> None:
    inputs = call(1, 1)
    inputs["global"][0, 3] = seen
    before = attend(device, inputs, 2)
    inputs["input"][0, 3] += 1
    changed = (attend(device, inputs, 2) != before).any(axis=(0, 2))
    near = np.abs(np.arange(ROWS) - 3) <= 2
    assert changed.tolist() == (near | seen).tolist()


def test_a_global_token_counts_once(device: Device) -> None:
    """A global token inside the window is no different from a local one, to the others."""
    inputs = call(2, 1)
    before = attend(device, inputs, 4)
    inputs["global"][0, 5] = 1
    after = attend(device, inputs, 4)
    near = [i for i in range(ROWS) if 0 < abs(i - 5) <= 4]
    np.testing.assert_allclose(after[0, near], before[0, near], atol=1e-5)
    assert np.abs(after[0, 5] - before[0, 5]).max() > 0.01


def test_nothing_is_shown(device: Device) -> None:
    inputs = call()
    inputs["mask"][:] = -10000
    inputs["global"][:] = 1
    assert not attend(device, inputs, 2).any()


def test_no_tokens(device: Device) -> None:
    inputs = {k: v[:, :0] if k in ("input", "mask", "global") else v for k, v in call().items()}
    assert attend(device, inputs, 2).shape == (2, 0, HIDDEN)


# Plans


def planned(rows: int, hidden: int = 64, *, capabilities: Capabilities = PORTABLE) -> Plan:
    shapes = {name: x.shape for name, x in call(batch=1).items()}
    shapes |= {"input": (1, rows, hidden), "mask": (1, rows), "global": (1, rows)}
    for prefix in ("", "global_"):
        shapes |= {f"{prefix}weight": (hidden, 3 * hidden), f"{prefix}bias": (3 * hidden,)}
    inputs = {
        name: TensorSpec(shape, dtypes.int32 if name == "global" else dtypes.float32)
        for name, shape in shapes.items()
    }
    return plan("LongformerAttention", inputs, {"num_heads": HEADS, "window": 32}, capabilities=capabilities)


def test_memory_grows_with_the_tokens_alone() -> None:
    few, many = planned(4096).scratch_bytes, planned(16384).scratch_bytes
    assert many <= 4 * few + 4096


def test_a_longer_sequence_keeps_its_shaders() -> None:
    few, many = ([render(d, PORTABLE) for d in planned(n).dispatches] for n in (8192, 16384))
    assert few == many


def test_many_tokens_are_sorted_by_more_invocations() -> None:
    def lanes(rows: int) -> int:
        cpu = replace(PORTABLE, device_class="cpu")
        return next(
            d.workgroup for d in planned(rows, 2, capabilities=cpu).dispatches if "tokens" in d.template
        )

    assert lanes(1 << 15) == 8
    assert lanes(1 << 20) == 128
    with pytest.raises(LimitError, match="LongformerAttention: 4194304 tokens are more than"):
        lanes(1 << 22)


@pytest.mark.parametrize(
    ("change", "attributes", "message"),
    [
        ({}, {"window": 3}, "input has sequence length 16; expected a multiple of 6 because window=3"),
        ({}, {"num_heads": 5}, "input has 12 channels; expected a positive multiple of num_heads=5"),
        ({"input": (2, ROWS)}, {}, r"input has shape \(2, 16\); expected \(batch, sequence, hidden\)"),
        ({"weight": (HIDDEN, HIDDEN)}, {}, r"weight has shape \(12, 12\); expected \(12, 36\)"),
        ({"global_weight": (3, 36)}, {}, r"global_weight has shape \(3, 36\); expected \(12, 36\)"),
        ({"bias": (HIDDEN,)}, {}, r"bias has shape \(12,\); expected \(36,\)"),
        ({"global_bias": (1,)}, {}, r"global_bias has shape \(1,\); expected \(36,\)"),
        ({"mask": (2, ROWS, 1)}, {}, r"mask has shape \(2, 16, 1\); expected \(2, 16\)"),
        ({"global": (1, ROWS)}, {}, r"global has shape \(1, 16\); expected \(2, 16\)"),
    ],
)
def test_refused_shapes(change: dict[str, tuple[int, ...]], attributes: dict[str, int], message: str) -> None:
    inputs = call()
    inputs |= {name: np.zeros(shape, inputs[name].dtype) for name, shape in change.items()}
    with pytest.raises(ShapeError, match=f"LongformerAttention: {message}"):
        plan("LongformerAttention", inputs, {"num_heads": HEADS, "window": 2} | attributes)


@pytest.mark.parametrize("name", ["num_heads", "window"])
def test_refused_attributes(name: str) -> None:
    with pytest.raises(SchemaError, match=f"LongformerAttention: {name}=0; expected a positive number"):
        plan("LongformerAttention", call(), {"num_heads": HEADS, "window": 2, name: 0})
