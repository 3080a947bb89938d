"""Small models for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Value = tuple[str, int, Sequence[int | str | None] | None]


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    ir_version: int = 10,
) -> ModelProto:
    """A model of ``nodes``; inputs and outputs are (name, element type, shape); output type 0 is unknown."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [
            helper.make_tensor_value_info(*v) if v[1] else helper.make_empty_tensor_value_info(v[0])
            for v in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def node(op: str, inputs: str, outputs: str, domain: str = "", **attributes: object) -> NodeProto:
    """A node with its names split at spaces; ``-`` stands for a gap."""
    names = [["" if n == "-" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, domain=domain, **attributes)


def contrib(op: str, inputs: str, outputs: str, **attributes: object) -> NodeProto:
    return node(op, inputs, outputs, "com.microsoft", **attributes)


def replay() -> ModelProto:
    """ConvStateReplay of two float32 states: destination_backing is overwritten in place."""
    return model(
        [contrib("ConvStateReplay", "source capture destination metadata", "out")],
        [
            ("source", FLOAT, [4]),
            ("capture", FLOAT, [4]),
            ("destination", FLOAT, [6]),
            ("metadata", INT64, [8]),
        ],
        [("out", FLOAT, None)],
    )


def replay_feeds() -> dict[str, np.ndarray]:
    """One batch, two channels, history 2, capacity 2, one kept; the state lies at element 1."""
    return {
        "source": np.array([1, 2, 3, 4], np.float32),
        "capture": np.array([10, 20, 30, 40], np.float32),
        "destination": np.full(6, -1, np.float32),
        "metadata": np.array([0, 4, 0, 1, 2, 2, 2, 1], np.int64),
    }


REPLAYED = np.array([-1, 2, 10, 4, 20, -1], np.float32)
