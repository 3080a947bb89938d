"""An ONNX model as a session needs it: checked, constants apart, nodes in an order that runs.

Nothing here touches a GPU. A model that cannot be used is refused with one line that names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper
from onnx.inliner import inline_local_functions

from .core import dtypes
from .core.dtypes import DType
from .core.tensor import SparseTensor
from .errors import ModelError, SchemaError, ShapeError, UnsupportedError

Dim = int | str | None


@dataclass(frozen=True)
class NodeArg:
    """A graph input or output.

    ``shape`` holds an int for a fixed dimension, a str for a named one and None for an unknown one;
    it is None where the model states no shape at all. ``type`` is ONNX's spelling, e.g.
    ``tensor(float)``.
    """

    name: str
    type: str
    shape: list[Dim] | None
    dtype: DType | None
    sparse: bool = False


@dataclass(frozen=True)
class GraphNode:
    """A node of the graph with the opset of its domain; the standard domain is ''."""

    proto: NodeProto
    index: int
    domain: str
    opset: int

    @property
    def op(self) -> str:
        return self.proto.op_type

    @property
    def inputs(self) -> list[str]:
        return list(self.proto.input)

    @property
    def outputs(self) -> list[str]:
        return list(self.proto.output)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attribute values as onnx.helper gives them (strings stay bytes)."""
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.proto.attribute}

    @property
    def label(self) -> str:
        """How messages name the node."""
        return f"node {self.proto.name!r}" if self.proto.name else f"node {self.index}"

    @property
    def captured(self) -> set[str]:
        """Names that the node's subgraphs use and do not define: values of the graph around them."""
        return {name for a in self.proto.attribute for g in _subgraphs(a) for name in _free_names(g)}

    def closed_over(self, constants: Mapping[str, np.ndarray]) -> GraphNode:
        """The node with the constants that its subgraphs use written into them."""
        if not self.captured & constants.keys():
            return self
        proto = _copy(self.proto)
        for attribute in proto.attribute:
            for inner in _subgraphs(attribute):
                for name in sorted(_free_names(inner) & constants.keys()):
                    inner.initializer.append(numpy_helper.from_array(constants[name], name))
        return replace(self, proto=proto)


@dataclass(frozen=True)
class Graph:
    """A checked model. ``sparse`` are its sparse initializers; ``defaults`` are the initializers that a
    feed may replace."""

    inputs: list[NodeArg]
    outputs: list[NodeArg]
    constants: dict[str, np.ndarray]
    sparse: dict[str, SparseTensor]
    defaults: dict[str, np.ndarray | SparseTensor]
    nodes: list[GraphNode]
    declared: Mapping[str, DType]


# Reading


def load(source: str | os.PathLike[str] | bytes | ModelProto) -> ModelProto:
    """The model at a path, in bytes, or as given; external data is read from beside the path.

    Anything that is not an ONNX model raises ModelError.
    """
    if isinstance(source, ModelProto):
        return _checked(source, "model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked(_parse(bytes(source), "model"), "model")
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(f"a model is a path, bytes or a ModelProto; got {type(source).__name__}")
    path = Path(source)
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    if path.is_dir():
        raise ModelError(f"{path}: is a folder; expected an ONNX file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    model = _checked(_parse(content, str(path)), str(path))
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # onnx raises its checker's, the file system's and other errors
        reason = str(error).splitlines()[0]
        raise ModelError(f"{path}: its external data cannot be read: {reason}") from error
    return model


def _parse(content: bytes, label: str) -> ModelProto:
    try:
        return ModelProto.FromString(content)
    except DecodeError:
        raise ModelError(f"{label}: not an ONNX model ({len(content)} bytes that do not parse)") from None


def _checked(model: ModelProto, label: str) -> ModelProto:
    # Almost any short text parses as an empty protobuf message.
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(f"{label}: not an ONNX model (it has no graph or no IR version)")
    if not model.graph.output:
        raise ModelError(f"{label}: the graph has no outputs")
    return model


def read(model: ModelProto) -> Graph:
    """The graph of ``model``: checked for names and order, operators not yet looked at."""
    if model.functions:
        model = inline_local_functions(model)
    graph = model.graph
    _refuse_repeated("graph input", (value.name for value in graph.input))
    names = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    _refuse_repeated("initializer", names)
    constants = {t.name: _array(t, f"initializer {t.name}") for t in graph.initializer}
    sparse = {
        t.values.name: _sparse(t, f"sparse initializer {t.values.name}") for t in graph.sparse_initializer
    }
    inputs = [_node_arg(value) for value in graph.input]
    # Since IR version 4 an initializer that is also a graph input is only that input's default.
    defaults: dict[str, np.ndarray | SparseTensor] = {}
    if model.ir_version >= 4:
        for arg in inputs:
            if arg.name in constants:
                defaults[arg.name] = constants.pop(arg.name)
            elif arg.name in sparse:
                default = sparse.pop(arg.name)
                defaults[arg.name] = default if arg.sparse else default.toarray()
    inputs = [arg for arg in inputs if arg.name not in constants and arg.name not in sparse]
    known = {*constants, *sparse, *(arg.name for arg in inputs)}
    nodes = _ordered(_nodes(model), known)
    outputs = [_node_arg(value) for value in graph.output]
    known |= {name for n in nodes for name in n.outputs}
    for arg in outputs:
        if arg.name not in known:
            raise ModelError(f"graph output {arg.name!r} is produced by no node")
    return Graph(inputs, outputs, constants, sparse, defaults, nodes, _declared(graph))


def _refuse_repeated(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError(f"{what} {name!r} is defined twice")
        seen.add(name)


def _nodes(model: ModelProto) -> list[GraphNode]:
    opsets = {_domain(o.domain): o.version for o in model.opset_import}
    nodes = []
    for index, proto in enumerate(model.graph.node):
        domain = _domain(proto.domain)
        if domain not in opsets:
            raise ModelError(
                f"node {proto.name or index} ({proto.op_type}) is of domain {domain or 'ai.onnx'!r}, "
                f"which the model does not import"
            )
        # A copy: a part of a message keeps the whole message alive, weights and all.
        nodes.append(GraphNode(_copy(proto), index, domain, opsets[domain]))
    return nodes


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _ordered(nodes: list[GraphNode], known: set[str]) -> list[GraphNode]:
    """``nodes`` so that each comes after what it reads; the order given is kept where it holds."""
    producer: dict[str, GraphNode] = {}
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in producer or name in known:
                raise ModelError(f"{node.label} ({node.op}): value {name!r} is defined twice")
            producer[name] = node
    reads = {node.index: {n for n in node.inputs if n} | node.captured for node in nodes}
    for node in nodes:
        for name in sorted(reads[node.index]):
            if name not in known and name not in producer:
                raise ModelError(f"{node.label} ({node.op}): input {name!r} is defined nowhere")
    ordered: list[GraphNode] = []
    ready = set(known)
    waiting = nodes
    while waiting:
        blocked = []
        for node in waiting:
            if reads[node.index] <= ready:
                ordered.append(node)
                ready.update(filter(None, node.outputs))
            else:
                blocked.append(node)
        if len(blocked) == len(waiting):
            names = ", ".join(f"{node.label} ({node.op})" for node in blocked[:4])
            raise ModelError(f"the graph has a cycle through {names}")
        waiting = blocked
    return ordered


def _subgraphs(attribute: AttributeProto) -> list[onnx.GraphProto]:
    return ([attribute.g] if attribute.type == AttributeProto.GRAPH else []) + list(attribute.graphs)


def _free_names(graph: onnx.GraphProto) -> set[str]:
    defined = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    defined |= {name for node in graph.node for name in node.output}
    used = {name for node in graph.node for name in node.input} | {v.name for v in graph.output}
    for node in graph.node:
        for attribute in node.attribute:
            for inner in _subgraphs(attribute):
                used |= _free_names(inner)
    return used - defined - {""}


# Values


def _array(tensor: TensorProto, label: str) -> np.ndarray:
    if tensor.data_location == TensorProto.EXTERNAL:
        file = next((e.value for e in tensor.external_data if e.key == "location"), "another file")
        raise ModelError(f"{label} keeps its data in {file!r}; open the model by its path")
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # to_array raises what protobuf, NumPy and ml_dtypes raise
        raise ModelError(f"{label}: its data cannot be read: {error}") from error
    if tensor.data_type == TensorProto.STRING:
        decoded = [v.decode() if isinstance(v, bytes) else str(v) for v in array.ravel()]
        array = np.array(decoded, dtype=object).reshape(array.shape)
    return array


def _sparse(tensor: onnx.SparseTensorProto, label: str) -> SparseTensor:
    values, indices = _array(tensor.values, label), _array(tensor.indices, label)
    if values.dtype == object:
        raise UnsupportedError(f"{label}: holds strings; expected numbers")
    try:
        return SparseTensor.from_coo(values, indices, tuple(tensor.dims))
    except ShapeError as error:
        raise ModelError(f"{label}: {error}") from error


def constant_value(node: GraphNode) -> np.ndarray | SparseTensor:
    """The value of a Constant node."""
    attributes = node.attributes
    if len(attributes) != 1:
        raise ModelError(f"{node.label} (Constant): has {len(attributes)} attributes; expected one value")
    ((name, value),) = attributes.items()
    label = f"{node.label} (Constant)"
    if name == "value":
        return _array(value, label)
    if name == "sparse_value":
        return _sparse(value, label)
    if name in ("value_float", "value_floats"):
        return np.array(value, np.float32)
    if name in ("value_int", "value_ints"):
        return np.array(value, np.int64)
    if name == "value_string":
        return np.array(value.decode(), dtype=object)
    if name == "value_strings":
        return np.array([v.decode() for v in value], dtype=object)
    raise ModelError(f"{label}: attribute {name!r} is not known")


def _node_arg(value: ValueInfoProto) -> NodeArg:
    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type", None):
        raise UnsupportedError(
            f"graph value {value.name!r} is a {kind.removesuffix('_type')}; only tensors are supported"
        )
    if kind is None or not getattr(value.type, kind).elem_type:
        return NodeArg(value.name, "", None, None)
    tensor = getattr(value.type, kind)
    try:
        dtype = dtypes.from_onnx(tensor.elem_type)
    except SchemaError as error:
        raise UnsupportedError(f"graph value {value.name!r}: {error}") from None
    shape = [_dim(d) for d in tensor.shape.dim] if tensor.HasField("shape") else None
    sparse = kind == "sparse_tensor_type"
    spelling = f"sparse_{dtype.type_string}" if sparse else dtype.type_string
    return NodeArg(value.name, spelling, shape, dtype, sparse)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    # Some exporters write -1 for a dimension they do not know.
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return dim.dim_param or None


def _declared(graph: onnx.GraphProto) -> dict[str, DType]:
    """The element types that the model states for its values."""
    known = {t.onnx: t for t in dtypes.ALL}
    stated = {v.name: known.get(v.type.tensor_type.elem_type) for v in (*graph.value_info, *graph.output)}
    return {name: dtype for name, dtype in stated.items() if dtype is not None}
