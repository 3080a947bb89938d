"""One-node models through ONNX's reference evaluator, compared with this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from webgpu_ops import Device, run, schema

# |got - want| <= atol + rtol * |want|, by the output's type.
TOLERANCES = {
    "float32": (2e-5, 2e-6),
    "float16": (2e-3, 2e-3),
    "bfloat16": (1.6e-2, 1.6e-2),
    "float64": (1e-11, 1e-12),
}

NARROW = ("float16", "bfloat16")


def evaluate(
    op: str, inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any], opset: int, outputs: int = 1
) -> list[np.ndarray]:
    """The node's outputs by ONNX's own NumPy code; the narrow floats are computed in float32."""
    narrow = next((x.dtype for x in inputs if x is not None and x.dtype.name in NARROW), None)
    wide = [
        x.astype(np.float32) if narrow is not None and x is not None and x.dtype == narrow else x
        for x in inputs
    ]
    names = ["" if x is None else f"x{i}" for i, x in enumerate(wide)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in zip(names, wide, strict=True)
            if x is not None
        ],
        [helper.make_value_info(f"y{i}", helper.make_tensor_type_proto(0, None)) for i in range(outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    feeds = {n: x for n, x in zip(names, wide, strict=True) if x is not None}
    with np.errstate(all="ignore"):
        results = [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds)]
    return [y.astype(narrow) if narrow is not None and y.dtype == np.float32 else y for y in results]


def close(got: np.ndarray, want: np.ndarray, tolerance: tuple[float, float] | None = None) -> None:
    """Assert equal shapes, and values within the type's tolerance (integers and bools: equal)."""
    assert got.shape == want.shape, f"shape {got.shape}; expected {want.shape}"
    if got.dtype.name not in TOLERANCES:
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    rtol, atol = tolerance or TOLERANCES[got.dtype.name]
    wide = np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)


def check_node(
    device: Device,
    op: str,
    inputs: Sequence[np.ndarray | None],
    opset: int = 18,
    *,
    outputs: int = 1,
    tolerance: tuple[float, float] | None = None,
    want: Sequence[np.ndarray] | None = None,
    **attributes: Any,
) -> None:
    """Run one node here and compare it with ``want``, by default ONNX's own result."""
    if want is None:
        want = evaluate(op, inputs, attributes, opset, outputs)
    found = schema.find(op, "", opset)
    slots = schema.slot_names(found.outputs, outputs)[:outputs]
    results = run(op, inputs, attributes, domain="", opset=opset, outputs=slots, device=device)
    for got, expected in zip((r for r in results if r is not None), want, strict=True):
        array = got.numpy()
        assert array.dtype == expected.dtype, f"type {array.dtype}; expected {expected.dtype}"
        close(array, expected, tolerance)


@pytest.fixture
def check(device: Device) -> Callable[..., None]:
    """:func:`check_node` on the test's device."""
    return partial(check_node, device)
