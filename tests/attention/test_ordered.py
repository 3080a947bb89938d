"""Attentions of int8 matrices in cublasLt's orders: equal in every order, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, SchemaError, ShapeError, plan, run
from webgpu_ops.reference.ordered import COL, COL4_4R2_8C, COL32, COL32_2R_4R4, ROW, to_order

# One worker keeps the pipelines of a file.
pytestmark = pytest.mark.xdist_group("ordered attention")

BATCH, ROWS, HIDDEN = 2, 8, 32


def floats(x: Any) -> np.ndarray:
    return np.asarray(x, np.float32)


def matrices(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.int8)


def self_attention() -> tuple[dict[str, Any], dict[str, Any]]:
    """A call of QOrderedAttention in row-major order; weights as matrices."""
    rng = np.random.default_rng(5)
    inputs: dict[str, Any] = {"input": matrices(rng, BATCH, ROWS, HIDDEN), "scale_input": floats(0.02)}
    for x in "QKV":
        inputs |= {
            f"{x}_weight": matrices(rng, HIDDEN, HIDDEN),
            f"{x}_bias": floats(rng.standard_normal(HIDDEN)),
            f"scale_{x}_weight": floats(0.0016),
            f"scale_{x}_gemm": floats(0.03),
        }
    inputs |= {
        "scale_QKT_gemm": floats(0.2),
        "scale_QKT_softmax": floats(0.008),
        "scale_values_gemm": floats(0.015),
        "mask_index": floats([6, 8]).astype(np.int32),
    }
    return inputs, {"num_heads": 2, "unidirectional": 1}


def longformer() -> tuple[dict[str, Any], dict[str, Any]]:
    """A call of QOrderedLongformerAttention in row-major order; weights as matrices."""
    rng = np.random.default_rng(6)
    inputs: dict[str, Any] = {"input": matrices(rng, BATCH, ROWS, HIDDEN), "scale_input": floats(0.02)}
    for prefix, gemm in (("", "scale_qkv_gemm"), ("global_", "scale_global_gemm")):
        inputs |= {
            f"{prefix}weight": matrices(rng, HIDDEN, 3 * HIDDEN),
            f"scale_{prefix}weight": floats(0.0016),
            f"{prefix}bias": floats(rng.normal(0, 20, 3 * HIDDEN)),
            gemm: floats(0.03),
        }
    inputs |= {
        "scale_bias": floats(1),
        "mask": np.zeros((BATCH, ROWS), np.float16),
        "global": np.eye(BATCH, ROWS, dtype=np.int32),
        "scale_output": floats(0.015),
    }
    return inputs, {"num_heads": 2, "window": 2}


CALLS = {"QOrderedAttention": self_attention, "QOrderedLongformerAttention": longformer}


def ordered(op: str, outer: int, order: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The call of ``op`` with its matrices in these orders."""
    inputs, attributes = CALLS[op]()
    attributes |= {"order_input": outer, "order_output": outer, "order_weight": order}
    if op == "QOrderedLongformerAttention":
        attributes["order_global_weight"] = order
    for name in [n for n in inputs if n.endswith("weight") and not n.startswith("scale")]:
        w = inputs[name]
        # The memory of a weight is column-major, or its transpose in a tiled order.
        inputs[name] = to_order(w, COL) if order == COL else to_order(w.T, order).reshape(w.shape)
    inputs["input"] = to_order(inputs["input"], outer)
    return inputs, attributes


@pytest.mark.parametrize("op", CALLS)
def test_the_order_of_memory_changes_nothing_else(device: Device, op: str) -> None:
    results = {}
    for outer, order in ((ROW, COL), (COL32, COL4_4R2_8C), (COL32, COL32_2R_4R4)):
        inputs, attributes = ordered(op, outer, order)
        (y,) = run(op, inputs, attributes, device=device)
        results[order] = y.numpy()
    want = results.pop(COL)
    assert np.unique(want).size > 50
    for y in results.values():
        np.testing.assert_array_equal(y, to_order(want, COL32))


def test_a_row_that_sees_nothing_is_zeros(device: Device) -> None:
    inputs, attributes = ordered("QOrderedAttention", ROW, COL)
    # Entry 0 sees the keys from 3 on and, like all, none after its own; entry 1 none at all.
    inputs["mask_index"] = np.array([8, 4, 3, 4], np.int32)
    (y,) = run("QOrderedAttention", inputs, attributes, device=device)
    y = y.numpy()
    assert not y[0, :3].any() and not y[1].any()
    assert y[0, 3:].any(axis=1).all()


def test_scores_that_are_not_rounded(device: Device) -> None:
    """Without the scales of scores and shares these stay as they are: near the rounded ones."""
    inputs, attributes = ordered("QOrderedAttention", ROW, COL)
    (rounded,) = run("QOrderedAttention", inputs, attributes, device=device)
    for name in ("scale_QKT_gemm", "scale_QKT_softmax"):
        del inputs[name]
    (y,) = run("QOrderedAttention", inputs, attributes, device=device)
    apart = np.abs(y.numpy().astype(int) - rounded.numpy())
    assert 0 < apart.max() <= 12


SELF, LONG = CALLS


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        (SELF, {"K_bias": (30,)}, r"K_bias has shape \(30,\); expected \(32,\)"),
        (SELF, {"K_weight": (HIDDEN, 16)}, r"K_weight has shape \(32, 16\); expected \(32, 32\)"),
        (SELF, {"scale_V_weight": (3,)}, r"scale_V_weight has shape \(3,\); expected \(32,\)"),
        (SELF, {"scale_Q_gemm": (32,)}, r"scale_Q_gemm has shape \(32,\); expected one element"),
        (SELF, {"mask_index": (3 * BATCH + 2,)}, r"mask_index has shape \(8,\); expected \(2,\) or \(4,\)"),
        (SELF, {"mask_index": (BATCH, ROWS + 1)}, r"mask_index has shape \(2, 9\); expected"),
        (SELF, {"past": (2, BATCH, 2, 4, 16)}, "past is given; expected none"),
        (SELF, {"attention_bias": (1, 1, ROWS, ROWS)}, "attention_bias is given; expected none"),
        (LONG, {"input": (BATCH, 6, HIDDEN)}, "input has sequence length 6; expected a multiple of 4"),
        (LONG, {"global_bias": (HIDDEN,)}, r"global_bias has shape \(32,\); expected \(96,\)"),
        (LONG, {"scale_bias": (2,)}, r"scale_bias has shape \(2,\); expected one element"),
        (LONG, {"scale_output": (2,)}, r"scale_output has shape \(2,\); expected one element"),
    ],
)
def test_refused_inputs(op: str, change: dict[str, tuple[int, ...]], message: str) -> None:
    inputs, attributes = ordered(op, ROW, COL)
    types = {"past": np.int8, "attention_bias": np.float32}
    for name, shape in change.items():
        inputs[name] = np.zeros(shape, types.get(name) or inputs[name].dtype)
    with pytest.raises(ShapeError, match=f"{op}: {message}"):
        plan(op, inputs, attributes)


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        (SELF, {"order_weight": ROW}, "order_weight is ROW; expected one of COL, COL4_4R2_8C, COL32_2R_4R4"),
        (SELF, {"order_weight": 9}, "order_weight is 9; expected one of 0"),
        (SELF, {"order_input": COL32}, "order_input is COL32; expected ROW because order_weight is COL"),
        (SELF, {"order_output": COL}, "order_output is COL; expected ROW because order_weight is COL"),
        (SELF, {"num_heads": 0}, "num_heads=0; expected a positive number"),
        (SELF, {"unidirectional": 2}, "unidirectional=2; expected 0 or 1"),
        (
            SELF,
            {"qkv_hidden_sizes": [32, 32, 16]},
            r"qkv_hidden_sizes=\[32, 32, 16\]; expected \[32, 32, 32\]",
        ),
        (LONG, {"order_global_weight": ROW}, "order_global_weight is ROW; expected one of COL"),
        (LONG, {"order_weight": COL32_2R_4R4}, "order_input is ROW; expected COL32 because order_weight is"),
        (LONG, {"window": 0}, "window=0; expected a positive number"),
    ],
)
def test_refused_attributes(op: str, change: dict[str, Any], message: str) -> None:
    inputs, attributes = ordered(op, ROW, COL)
    with pytest.raises(SchemaError, match=f"{op}: {message}"):
        plan(op, inputs, attributes | change)


@pytest.mark.parametrize("op", CALLS)
def test_refused_tiles(op: str) -> None:
    """A matrix in a tiled order has to consist of whole tiles."""
    inputs, attributes = ordered(op, COL32, COL4_4R2_8C)
    half = {name: x[..., :16] if name == "input" else x for name, x in inputs.items()}
    for name in [n for n in inputs if n.endswith("weight") and not n.startswith("scale")]:
        half[name] = np.ascontiguousarray(inputs[name][:16])
        if op == LONG:
            half[name] = np.ascontiguousarray(half[name][:, :48])
            half[name.replace("weight", "bias")] = inputs[name.replace("weight", "bias")][:48]
    with pytest.raises(ShapeError, match=f"{op}: .* expected multiples of 1 and 32 in order COL32"):
        plan(op, half, attributes)
