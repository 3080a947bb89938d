"""The steps that a graph becomes, and when each of their values is used last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import graph as graphs
from . import schema as schemas
from .api import Node, supported_ops
from .core import dtypes
from .core.tensor import SparseTensor
from .errors import SchemaError, ShapeError, UnsupportedError, WebGpuOpsError
from .graph import Graph, GraphNode, NodeArg
from .host import HOST_LIMIT, HOST_OPS, METADATA_OPS, HostNode

VIEW_OPS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


class Step:
    """A node of the graph and the ways it can run."""

    def __init__(self, node: GraphNode, declared: Mapping[str, dtypes.DType]) -> None:
        self.node = node
        self.inputs = node.inputs
        self.outputs = node.outputs
        self.named_outputs = [name for name in self.outputs if name]
        self.reads = list(dict.fromkeys(name for name in self.inputs if name))
        self.is_view = node.domain == "" and node.op in VIEW_OPS
        self.host: HostNode | None = None
        self._attributes = node.attributes if self.is_view else {}
        self._declared = declared
        self._kernel: Node | None = None

    @property
    def device_reads(self) -> list[str]:
        """The inputs that the step wants on the device, as far as can be known before it runs."""
        return [] if self.host else self.inputs[:1] if self.is_view else self.reads

    def kernel(self) -> Node:
        """The operator on the device, made when first asked for."""
        if self._kernel is None:
            node = self.node
            schema = schemas.find(node.op, node.domain, node.opset)
            names = schemas.slot_names(schema.outputs, len(self.outputs))
            stated = {s: self._declared.get(n) for s, n in zip(names, self.outputs, strict=False)}
            self._kernel = Node(
                node.op,
                node.domain,
                node.opset,
                {a.name: a for a in node.proto.attribute},
                present=[bool(name) for name in self.inputs],
                wanted=[bool(name) for name in self.outputs],
                declared={s: dtype for s, dtype in stated.items() if dtype is not None},
            )
        return self._kernel

    def view_shape(self, shape: tuple[int, ...], operands: Sequence[np.ndarray]) -> tuple[int, ...]:
        """The shape that a view operator gives a tensor of ``shape``; ShapeError if it does not fit."""
        op, attributes = self.node.op, self._attributes
        if op == "Identity":
            return shape
        if op == "Flatten":
            axis = int(attributes.get("axis", 1))
            axis += len(shape) if axis < 0 else 0
            rows = int(np.prod(shape[:axis], dtype=np.int64))
            return rows, int(np.prod(shape[axis:], dtype=np.int64))
        if op == "Reshape":
            wanted = operands[0].tolist() if operands else list(attributes.get("shape", ()))
            return _reshaped(shape, wanted, keep_zero=bool(attributes.get("allowzero", 0)))
        given = operands[0].tolist() if operands else attributes.get("axes")
        axes = None if given is None else [int(a) for a in np.ravel(given)]
        return _squeezed(shape, axes) if op == "Squeeze" else _unsqueezed(shape, axes or [])


def _reshaped(shape: tuple[int, ...], wanted: list[int], keep_zero: bool) -> tuple[int, ...]:
    refusal = ShapeError(f"Reshape: data of shape {shape} does not fit shape {wanted}")
    size = int(np.prod(shape, dtype=np.int64))
    dims = []
    for i, d in enumerate(wanted):
        if d == 0 and not keep_zero:
            if i >= len(shape):
                raise refusal
            d = shape[i]
        dims.append(int(d))
    if dims.count(-1) == 1:
        known = int(np.prod([d for d in dims if d != -1], dtype=np.int64))
        if known == 0 or size % known:
            raise refusal
        dims[dims.index(-1)] = size // known
    if min(dims, default=0) < 0 or int(np.prod(dims, dtype=np.int64)) != size:
        raise refusal
    return tuple(dims)


def _squeezed(shape: tuple[int, ...], axes: list[int] | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(d for d in shape if d != 1)
    gone = {a + len(shape) if a < 0 else a for a in axes}
    if any(not 0 <= a < len(shape) or shape[a] != 1 for a in gone):
        raise ShapeError(f"Squeeze: data of shape {shape} has no single elements along axes {axes}")
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def _unsqueezed(shape: tuple[int, ...], axes: list[int]) -> tuple[int, ...]:
    rank = len(shape) + len(axes)
    new = {a + rank if a < 0 else a for a in axes}
    if len(new) != len(axes) or any(not 0 <= a < rank for a in new):
        raise ShapeError(f"Unsqueeze: axes {axes} do not fit data of shape {shape}")
    rest = iter(shape)
    return tuple(1 if i in new else next(rest) for i in range(rank))


@dataclass(frozen=True)
class Program:
    """The steps that some outputs need, and when each value is used last.

    ``root`` maps a value to the one whose memory it views; ``last`` maps a root to the number of
    the last step that uses it or a view of it (the number of steps, if it is an output).
    """

    steps: list[Step]
    free: list[list[str]]
    root: dict[str, str]
    last: dict[str, int]
    uses: dict[str, int]

    @classmethod
    def make(cls, steps: Sequence[Step], outputs: Iterable[str]) -> Program:
        outputs = list(outputs)
        needed, chosen = set(outputs), []
        for step in reversed(steps):
            if needed.intersection(step.named_outputs):
                chosen.append(step)
                needed.update(step.reads)
        chosen.reverse()
        root: dict[str, str] = {}
        final: dict[str, int] = {}
        uses: dict[str, int] = {}
        for i, step in enumerate(chosen):
            for name in step.reads:
                final[name] = i
                uses[name] = uses.get(name, 0) + 1
            for name in step.named_outputs:
                final[name] = i
                root[name] = root.get(step.reads[0], step.reads[0]) if step.is_view else name
        final.update(dict.fromkeys(outputs, len(chosen)))
        free: list[list[str]] = [[] for _ in range(len(chosen) + 1)]
        last: dict[str, int] = {}
        for name, i in final.items():
            free[i].append(name)
            origin = root.setdefault(name, name)
            last[origin] = max(last.get(origin, -1), i)
        return cls(chosen, free, root, last, uses)


def make_steps(graph: Graph, constants: dict[str, np.ndarray], sparse: dict[str, SparseTensor]) -> list[Step]:
    """The steps of ``graph``; what can be computed from constants alone is, and joins them.

    ``sparse`` constants become dense ones unless operators that take sparse tensors read them.
    """
    _refuse_unsupported(graph)
    for name in list(sparse):
        if not _wanted_sparse(graph, name):
            constants[name] = sparse.pop(name).toarray()
    on_host = {arg.name for arg in graph.inputs if _is_metadata(arg)}
    steps: list[Step] = []
    for node in graph.nodes:
        try:
            step = _make_step(node, graph, constants, sparse, on_host)
        except WebGpuOpsError as error:
            if len(graph.nodes) > 1:
                name_node(error, node)
            raise
        if step is not None:
            steps.append(step)
    return steps


def _make_step(
    node: GraphNode,
    graph: Graph,
    constants: dict[str, np.ndarray],
    sparse: dict[str, SparseTensor],
    on_host: set[str],
) -> Step | None:
    """The step of a node, or None if its outputs could be added to ``constants`` or ``sparse``.

    ``on_host`` holds the values that shape arithmetic may use, and grows by the node's outputs.
    """
    schema = schemas.find(node.op, node.domain, node.opset)
    attributes = {a.name: a for a in node.proto.attribute}
    schemas.check_node(schema, [bool(n) for n in node.inputs], [bool(n) for n in node.outputs], attributes)
    if node.domain == "" and node.op == "Constant":
        name, value = node.outputs[0], graphs.constant_value(node)
        if isinstance(value, np.ndarray):
            constants[name] = value
        elif _wanted_sparse(graph, name):
            sparse[name] = value
        else:
            constants[name] = value.toarray()
        return None
    step = Step(node.closed_over(constants), graph.declared)
    if step.node.captured:
        names = ", ".join(sorted(step.node.captured))
        raise UnsupportedError(
            f"{node.op}: its subgraph uses {names} of the graph around it; only constants can be used so"
        )
    if node.domain == "" and node.op in HOST_OPS:
        small = all(name in on_host or _is_small(constants.get(name)) for name in step.reads)
        if small or node.op in METADATA_OPS:
            step.host = HostNode(node.proto, node.opset)
    if step.host and constants.keys() >= set(step.reads):
        folded = _fold(step, step.host, constants)
        if folded is not None:
            constants.update(folded)
            return None
        step.host = None  # it makes something large, which is the device's work
    if step.host:
        on_host.update(step.named_outputs)
    elif not step.is_view:
        step.kernel()
    return step


def _wanted_sparse(graph: Graph, name: str) -> bool:
    """Whether some operator wants value ``name`` sparse."""
    for node in graph.nodes:
        if name not in node.inputs:
            continue
        try:
            schema = schemas.find(node.op, node.domain, node.opset)
        except SchemaError:  # refused where the node's step is made
            continue
        for parameter, read in zip(schema.inputs, node.inputs, strict=False):
            types = schema.allowed_types(parameter)
            if read == name and all(t.startswith("sparse_tensor") for t in types):
                return True
    return False


def _refuse_unsupported(graph: Graph) -> None:
    """One error for all operators of the graph that can run in none of the three ways."""
    available = supported_ops()
    missing: dict[tuple[str, str], list[GraphNode]] = {}
    for node in graph.nodes:
        if (node.domain, node.op) in available or (node.domain == "" and node.op in HOST_OPS | VIEW_OPS):
            continue
        missing.setdefault((node.domain, node.op), []).append(node)
    parts = []
    for (domain, op), nodes in missing.items():
        where = nodes[0].label if len(nodes) == 1 else f"{len(nodes)} nodes"
        try:
            schemas.find(op, domain, nodes[0].opset)
        except SchemaError as error:
            parts.append(f"{error} ({where})")
        else:
            parts.append(f"{op}: no WebGPU implementation of {domain or 'ai.onnx'}:{op} ({where})")
    if parts:
        raise UnsupportedError("; ".join(parts))


def _is_metadata(arg: NodeArg) -> bool:
    """Whether an input holds sizes, lengths or text rather than data for the device."""
    if arg.dtype is None or arg.sparse:
        return False
    few = arg.shape is not None and len(arg.shape) <= 1
    return arg.dtype == dtypes.string or (few and (arg.dtype.is_integer or arg.dtype == dtypes.bool_))


def _is_small(constant: np.ndarray | None) -> bool:
    return constant is not None and (constant.size <= HOST_LIMIT or constant.dtype == object)


def _fold(step: Step, host: HostNode, constants: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The outputs of a host step whose inputs are all constants, if they are small."""
    operands = [constants[name] for name in step.inputs if name]
    if step.node.op in METADATA_OPS:
        results = host.of_shape(operands[0].shape)
    elif host.fits(operands):
        results = host(operands)
    else:
        return None
    return dict(zip(step.named_outputs, results, strict=True))


def name_node(error: WebGpuOpsError, node: GraphNode) -> None:
    """Let the message of ``error`` say at which node it came up."""
    error.args = (f"{node.label}: {error}",)
