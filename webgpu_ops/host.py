"""Shape arithmetic on the host.

Exported graphs compute shapes with ordinary operators: Shape, Gather, Concat and their like on a
few integers. Running those on the device would stop the queue at every Reshape, so a session
evaluates them here, with ONNX's own reference operators. Tensors that carry data never come here:
which nodes qualify is decided once, at load, from where their inputs come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TypeProto, helper
from onnx.reference import ReferenceEvaluator

from .errors import ShapeError

HOST_LIMIT = 1024
"""The most elements a tensor may have to take part in host arithmetic."""

_NAMES = """
    Shape Size Constant ConstantOfShape Range Expand Tile Identity Cast CastLike
    Reshape Squeeze Unsqueeze Flatten Transpose Concat Split Slice Gather GatherElements GatherND
    ScatterElements ScatterND Where NonZero CumSum
    Add Sub Mul Div Mod Pow Sqrt Neg Abs Sign Min Max Clip Floor Ceil Round
    Equal Less LessOrEqual Greater GreaterOrEqual And Or Not Xor
    ReduceProd ReduceSum ReduceMax ReduceMin
"""
HOST_OPS = frozenset(_NAMES.split())
"""Standard operators that may run on the host."""

METADATA_OPS = frozenset({"Shape", "Size"})
"""Operators that read a tensor's shape and never its elements."""


def _range_size(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> int:
    if delta == 0:
        raise ShapeError("Range: delta is 0; expected a step other than 0")
    return max(0, math.ceil((limit.item() - start.item()) / delta.item()))


# Operators whose output may be far larger than their inputs: its size, known before it is made.
_GROWTH: dict[str, Callable[..., int]] = {
    "ConstantOfShape": lambda shape: math.prod(shape.tolist()),
    "Expand": lambda x, shape: math.prod(np.broadcast_shapes(x.shape, tuple(shape.tolist()))),
    "Range": _range_size,
    "Tile": lambda x, repeats: x.size * math.prod(repeats.tolist()),
}


class HostNode:
    """One standard operator node, ready to be evaluated on NumPy arrays."""

    def __init__(self, node: NodeProto, opset: int) -> None:
        self.op = node.op_type
        self._names = [name for name in node.input if name]
        unknown = TypeProto()
        graph = helper.make_graph(
            [node],
            self.op,
            [helper.make_value_info(name, unknown) for name in dict.fromkeys(self._names)],
            [helper.make_value_info(name, unknown) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        self._evaluator = ReferenceEvaluator(model)
        self._last: tuple[Any, list[np.ndarray]] = (None, [])

    def fits(self, inputs: Sequence[np.ndarray]) -> bool:
        """Whether the call is small enough for the host; ``inputs`` leaves out gaps."""
        if any(x.dtype == object for x in inputs):  # strings have no other place to go
            return True
        if any(x.size > HOST_LIMIT for x in inputs):
            return False
        growth = _GROWTH.get(self.op)
        if growth is None:
            return True
        try:
            return growth(*inputs) <= HOST_LIMIT
        except (TypeError, ValueError) as error:
            raise self._refusal(inputs, error) from None

    def __call__(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs that the node names, in order; ``inputs`` leaves out gaps.

        The result of the last call is kept, because shapes mostly stay the same from run to run; the
        arrays must not be changed.
        """
        if any(x.dtype == object for x in inputs):
            return self._evaluate(inputs)
        key = [(x.shape, x.dtype, x.tobytes()) for x in inputs]
        last, results = self._last
        if last != key:
            results = self._evaluate(inputs)
            self._last = (key, results)
        return results

    def of_shape(self, shape: tuple[int, ...]) -> list[np.ndarray]:
        """The output of Shape or Size, which read no elements, for a tensor of ``shape``."""
        last, results = self._last
        if last != shape:
            # A stand-in of stride 0 has the shape and none of the memory.
            results = self._evaluate([np.broadcast_to(np.False_, shape)])
            self._last = (shape, results)
        return results

    def _evaluate(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            with np.errstate(all="ignore"):
                results = self._evaluator.run(None, dict(zip(self._names, inputs, strict=True)))
        except Exception as error:  # the reference operators raise whatever NumPy raises
            raise self._refusal(inputs, error) from error
        return [np.asarray(value) for value in results]

    def _refusal(self, inputs: Sequence[np.ndarray], error: Exception) -> ShapeError:
        shapes = ", ".join(f"{n} {x.dtype}{list(x.shape)}" for n, x in zip(self._names, inputs, strict=False))
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ShapeError(f"{self.op}: cannot be evaluated with {shapes}: {reason}")
