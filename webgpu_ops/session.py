"""Whole ONNX graphs on the device, under onnxruntime's names.

At load the graph becomes a list of steps. Each is one of three things: shape arithmetic on the host
(:mod:`webgpu_ops.host`), a view of a tensor under another shape, or a call of an operator on the
device. Values that flow between steps are tensors on the device or, for shapes and strings, arrays
on the host; each is dropped after its last use, so that its memory returns to the pool.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from . import graph as graphs
from .core import dtypes
from .core.device import Device
from .core.tensor import SparseTensor, Tensor
from .errors import DeviceError, ModelError, ShapeError, WebGpuOpsError
from .graph import NodeArg
from .host import HOST_LIMIT, METADATA_OPS
from .steps import Program, Step, make_steps, name_node

Value = Tensor | np.ndarray | SparseTensor


@dataclass(frozen=True)
class ModelMeta:
    """What a model says about itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


# The session


class InferenceSession:
    """An ONNX model, loaded and ready to run on a device.

    ``model`` is a path, the bytes of a model, or a ModelProto; ``device`` defaults to
    ``Device.default()``. Refused here, in one line, are a file that is missing or no ONNX model
    (ModelError), operators that do not run here (UnsupportedError) and nodes that do not fit their
    operator (SchemaError); types and shapes that do not fit are refused by the run that meets them.
    """

    def __init__(
        self, model: str | os.PathLike[str] | bytes | ModelProto, device: Device | None = None
    ) -> None:
        proto = graphs.load(model)
        graph = graphs.read(proto)
        constants, sparse = dict(graph.constants), dict(graph.sparse)
        self._steps = make_steps(graph, constants, sparse)
        self._inputs = {arg.name: arg for arg in graph.inputs}
        self._outputs = {arg.name: arg for arg in graph.outputs}
        self._meta = ModelMeta(
            producer_name=proto.producer_name,
            graph_name=proto.graph.name,
            domain=proto.domain,
            description=proto.doc_string,
            graph_description=proto.graph.doc_string,
            version=proto.model_version,
            custom_metadata_map={p.key: p.value for p in proto.metadata_props},
        )
        self._device = Device.default() if device is None else device
        if not isinstance(self._device, Device):
            raise DeviceError(f"device is a {type(device).__name__}; expected a webgpu_ops.Device")
        self._device.check_alive()
        self._defaults = graph.defaults
        self._constants = {**self._upload(constants), **sparse}
        self._programs: dict[tuple[str, ...], Program] = {}

    @property
    def device(self) -> Device:
        """The device that the session runs on."""
        return self._device

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run has to feed."""
        return [arg for arg in self._inputs.values() if arg.name not in self._defaults]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that a run may feed and that have a default in the model."""
        return [arg for arg in self._inputs.values() if arg.name in self._defaults]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs of the graph."""
        return list(self._outputs.values())

    def get_modelmeta(self) -> ModelMeta:
        """What the model says about itself."""
        return self._meta

    def get_providers(self) -> list[str]:
        """The name under which onnxruntime would list this package."""
        return ["WebGpuOpsExecutionProvider"]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[np.ndarray]:
        """Run the graph and copy ``output_names`` (None: all) to the host.

        Feeds are arrays, SparseTensors where the graph says so, or Tensors of the session's device.
        An output that an operator writes in place of an input (a state replay) needs no binding
        where that input is fed as an array. ``run_options`` is there for onnxruntime's sake and
        has no effect. Nothing runs if a feed is wrong: ModelError for names and types, ShapeError
        for shapes, DeviceError for tensors of another device.
        """
        names = self._output_names(output_names)
        feeds = self._check_feeds(input_feed)
        return [_to_host(value) for value in self._execute(names, feeds, {})]

    def io_binding(self) -> IOBinding:
        """An empty binding of this session's inputs and outputs to memory on the device."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with the inputs and outputs of ``iobinding``; its results stay on the device."""
        if not isinstance(iobinding, IOBinding):
            raise ModelError(f"the binding is a {type(iobinding).__name__}; expected session.io_binding()")
        if iobinding._session is not self:
            raise ModelError("the binding belongs to another session")
        feeds = self._check_feeds(iobinding._inputs)
        names = tuple(iobinding._outputs)
        bound = {name: tensor for name, tensor in iobinding._outputs.items() if tensor is not None}
        self._check_bound(names, feeds, bound)
        iobinding._results = self._detached(names, feeds, bound, self._execute(names, feeds, bound))

    # Checks of a call

    def _output_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        if names is None:
            return tuple(self._outputs)
        if isinstance(names, str):
            raise ModelError(f"output_names is the string {names!r}; expected a sequence of names or None")
        if not isinstance(names, Iterable):
            raise ModelError(
                f"output_names is a {type(names).__name__}; expected a sequence of names or None"
            )
        names = tuple(names)
        for name in names:
            self._output_arg(name)
        return names

    def _output_arg(self, name: str) -> NodeArg:
        if not isinstance(name, str) or name not in self._outputs:
            raise ModelError(f"the model has no output {name!r}; its outputs are {_listed(self._outputs)}")
        return self._outputs[name]

    def _input_arg(self, name: str) -> NodeArg:
        if not isinstance(name, str) or name not in self._inputs:
            raise ModelError(f"the model has no input {name!r}; its inputs are {_listed(self._inputs)}")
        return self._inputs[name]

    def _check_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Value]:
        if not isinstance(feeds, Mapping):
            raise ModelError(f"feeds are a {type(feeds).__name__}; expected a mapping from input names")
        self._device.check_alive()
        checked: dict[str, Value] = {name: self._feed(self._input_arg(name), v) for name, v in feeds.items()}
        for name in self._inputs:
            if name not in checked:
                if name not in self._defaults:
                    raise ModelError(f"input {name!r} was not fed; the model needs {_listed(self._inputs)}")
                checked[name] = self._defaults[name]
        return checked

    def _feed(self, arg: NodeArg, value: Any) -> Value:
        """``value`` as input ``arg``, checked against what the model declares."""
        what = f"input {arg.name!r}"
        if isinstance(value, SparseTensor) != arg.sparse:
            came, want = type(value).__name__, "a webgpu_ops.SparseTensor" if arg.sparse else "a dense tensor"
            raise ModelError(f"{what} is a {came}; expected {want} of type {arg.type}")
        if isinstance(value, Tensor):
            value.check_device(self._device, what)
        elif not isinstance(value, SparseTensor):
            value = _as_array(arg, value)
        self._check_fit(what, arg, value)
        return value

    def _check_fit(self, what: str, arg: NodeArg, value: Value) -> None:
        dtype = _dtype(value)
        if arg.dtype is not None and dtype != arg.dtype:
            came = f"sparse_{dtype.type_string}" if arg.sparse else dtype.type_string
            raise ModelError(f"{what} has type {came}; expected {arg.type}")
        if arg.shape is None:
            return
        fits = len(value.shape) == len(arg.shape) and all(
            not isinstance(want, int) or want == d for want, d in zip(arg.shape, value.shape, strict=True)
        )
        if not fits:
            want = ", ".join("?" if d is None else str(d) for d in arg.shape)
            raise ShapeError(
                f"{what} has shape {tuple(value.shape)} (rank {len(value.shape)}); "
                f"expected ({want}) (rank {len(arg.shape)})"
            )

    def _check_bound(
        self, names: tuple[str, ...], feeds: Mapping[str, Value], bound: Mapping[str, Tensor]
    ) -> None:
        """Refuse outputs bound to memory that is still read, or written, for something else."""
        program = self._program(names)
        end = len(program.steps)
        made = {name: i for i, step in enumerate(program.steps) for name in step.named_outputs}
        seen: dict[str, Tensor] = {}
        for name, tensor in bound.items():
            for other, earlier in seen.items():
                if tensor.overlaps(earlier):
                    raise ModelError(f"outputs {other!r} and {name!r} are bound to the same memory")
            seen[name] = tensor
            for source, value in feeds.items():
                if not isinstance(value, Tensor) or not tensor.overlaps(value):
                    continue
                last, written = program.last.get(source, -1), made.get(name, end)
                if last > written or (last == written == end and name != source):
                    reader = "as an output"
                    if last < end:
                        node = program.steps[last].node
                        reader = f"by {node.label} ({node.op})"
                    raise ModelError(
                        f"output {name!r} is bound to the memory of input {source!r}, "
                        f"which is read {reader} after the output is written"
                    )

    # Running

    def _upload(self, constants: Mapping[str, np.ndarray]) -> dict[str, Value]:
        """Constants where their users want them: on the device, or on the host for the host only."""
        on_device = {n for step in self._steps for n in step.device_reads}
        used = {n for step in self._steps for n in step.reads} | self._outputs.keys()
        placed: dict[str, Value] = {}
        for name in constants.keys() & used:
            array = constants[name]
            if name in on_device and array.dtype != object:
                placed[name] = Tensor.from_numpy(array, self._device, keep_host=array.size <= HOST_LIMIT)
            else:
                placed[name] = array
        return placed

    def _program(self, names: tuple[str, ...]) -> Program:
        program = self._programs.get(names)
        if program is None:
            program = self._programs[names] = Program.make(self._steps, names)
        return program

    def _execute(
        self, names: tuple[str, ...], feeds: Mapping[str, Value], bound: Mapping[str, Tensor]
    ) -> list[Value]:
        """Record all steps that ``names`` need; ``bound`` outputs are written where they say."""
        program = self._program(names)
        values: dict[str, Value] = {**self._constants, **feeds}
        callers = {n for n, v in feeds.items() if isinstance(v, Tensor)}
        for i, step in enumerate(program.steps):
            try:
                results = self._run_step(step, i, program, values, callers, bound)
            except WebGpuOpsError as error:
                if len(self._steps) > 1:
                    name_node(error, step.node)
                raise
            values.update((n, v) for n, v in zip(step.outputs, results, strict=False) if n and v is not None)
            for name in program.free[i]:
                values.pop(name, None)
        for name in bound.keys() & {*feeds, *self._constants}:
            values[name] = self._place(name, values[name], bound[name])
        return [values[name] for name in names]

    def _run_step(
        self,
        step: Step,
        index: int,
        program: Program,
        values: dict[str, Value],
        callers: Collection[str],
        bound: Mapping[str, Tensor],
    ) -> Sequence[Value | None]:
        results = self._on_host(step, values) or self._as_view(step, values)
        if results is not None:
            return [
                self._place(n, v, bound[n]) if n in bound else v
                for n, v in zip(step.outputs, results, strict=False)
            ]
        kernel = step.kernel()
        inputs: list[Value | None] = []
        owned, kept = [], []
        for slot, name in zip(kernel.input_names, step.inputs, strict=False):
            value = values[name] if name else None
            # An array that only this step reads is left to the operator: it may not need it on the device.
            if isinstance(value, np.ndarray) and program.uses[name] > 1 and value.dtype != object:
                value = values[name] = Tensor.from_numpy(value, self._device, keep_host=True)
            inputs.append(value)
            if name:
                origin = program.root[name]
                if origin in self._constants:
                    kept.append(slot)
                elif program.last[origin] == index and origin not in callers:
                    owned.append(slot)
        targets = {s: bound[n] for s, n in zip(kernel.output_names, step.outputs, strict=False) if n in bound}
        return kernel.run(self._device, inputs, targets, owned=owned, kept=kept)

    def _on_host(self, step: Step, values: Mapping[str, Value]) -> list[np.ndarray] | None:
        """The results of shape arithmetic, or None if the step is none or has grown too large."""
        if step.host is None:
            return None
        if step.node.op in METADATA_OPS:
            return step.host.of_shape(values[step.inputs[0]].shape)
        operands = []
        for name in step.inputs:
            if name:
                known = _host_value(values[name])
                if known is None:
                    return None
                operands.append(known)
        return step.host(operands) if step.host.fits(operands) else None

    def _as_view(self, step: Step, values: Mapping[str, Value]) -> list[Value] | None:
        """The input under its new shape, without a copy; None if the step is no view operator."""
        if not step.is_view:
            return None
        data = values[step.inputs[0]]
        operands = [_host_value(values[name]) for name in step.inputs[1:] if name]
        if isinstance(data, SparseTensor) or any(v is None for v in operands):
            return None
        shape = step.view_shape(tuple(data.shape), [v for v in operands if v is not None])
        return [data.view(shape) if isinstance(data, Tensor) else data.reshape(shape)]

    def _place(self, name: str, value: Value, target: Tensor) -> Tensor:
        """Copy a value that no operator wrote itself into the tensor bound to output ``name``."""
        if tuple(value.shape) != target.shape or _dtype(value) != target.dtype:
            raise ShapeError(
                f"output {name!r} is bound to {target.dtype} {target.shape}; "
                f"expected {_dtype(value)} {tuple(value.shape)}"
            )
        if isinstance(value, Tensor):
            target.host = None
            self._device.stream.copy(value, target)
        else:
            target.write(_to_host(value))
        return target

    def _detached(
        self,
        names: tuple[str, ...],
        feeds: Mapping[str, Value],
        bound: Mapping[str, Tensor],
        results: Sequence[Value],
    ) -> list[Value]:
        """``results`` as tensors; those not bound share memory with no feed, constant or other one."""
        program = self._program(names)
        taken = {*self._constants, *feeds}
        detached: list[Value] = []
        for name, value in zip(names, results, strict=True):
            origin = program.root.get(name, name)
            if isinstance(value, np.ndarray) and value.dtype != object:
                value = Tensor.from_numpy(value, self._device, keep_host=True)
            elif isinstance(value, Tensor) and origin in taken and name not in bound:
                copy = Tensor.empty(value.shape, value.dtype, self._device)
                self._device.stream.copy(value, copy)
                value = copy
            taken.add(origin)
            detached.append(value)
        return detached


class IOBinding:
    """Inputs and outputs of a session tied to memory on its device.

    Bind, call ``session.run_with_iobinding``, read ``get_outputs``. Inputs and outputs stay bound
    from run to run. Only bound outputs are computed.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, Tensor | None] = {}
        self._results: list[Value] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Feed an array (or SparseTensor) to input ``name``; it is uploaded at each run."""
        self._inputs[name] = self._session._feed(self._session._input_arg(name), array)

    def bind_input(self, name: str, tensor: Tensor) -> None:
        """Feed a tensor of the session's device to input ``name``."""
        arg = self._session._input_arg(name)
        if not isinstance(tensor, Tensor):
            raise ModelError(f"input {name!r} is bound to a {type(tensor).__name__}; expected a Tensor")
        self._inputs[name] = self._session._feed(arg, tensor)

    def bind_output(self, name: str, tensor: Tensor | None = None) -> None:
        """Ask for output ``name``, written into ``tensor`` or, if None, into new memory.

        The tensor may be the one that is bound to an input: the operator then works in place.
        """
        arg = self._session._output_arg(name)
        if tensor is not None:
            if not isinstance(tensor, Tensor):
                raise ModelError(f"output {name!r} is bound to a {type(tensor).__name__}; expected a Tensor")
            tensor.check_device(self._session.device, f"output {name!r}")
            self._session._check_fit(f"output {name!r}", arg, tensor)
        self._outputs[name] = tensor

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, and the results of the last run."""
        self._outputs.clear()
        self._results = []

    def get_outputs(self) -> list[Any]:
        """The results of the last run in the order of binding: Tensors, and arrays for strings."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """The results of the last run as arrays."""
        return [_to_host(value) for value in self._results]

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: uploads are in order with the run that reads them."""

    def synchronize_outputs(self, timeout: float | None = None) -> None:
        """Wait until the last run has finished; CompletionError if it does not."""
        self._session.device.fence().wait(timeout)


# Values


def _as_array(arg: NodeArg, value: Any) -> np.ndarray:
    """A feed as an array in C order and native byte order; bit patterns as the type they stand for."""
    known = isinstance(value, (list, tuple, bool, int, float, str)) or hasattr(value, "__array__")
    if not known:
        raise ModelError(
            f"input {arg.name!r} is a {type(value).__name__}; expected a NumPy array or a webgpu_ops.Tensor"
        )
    try:
        array = np.asarray(value)
        dtype = dtypes.from_numpy(array.dtype)
    except (TypeError, ValueError) as error:
        raise ModelError(f"input {arg.name!r} is no array of an ONNX type: {error}") from error
    if dtype == dtypes.string:
        words = [_text(arg, v) for v in array.ravel()]
        return np.array(words, dtype=object).reshape(array.shape)
    # Without ml_dtypes these types travel as plain words of the same size.
    if arg.dtype in _AS_WORDS and array.dtype == np.dtype(f"uint{arg.dtype.bits}"):
        array = array.view(arg.dtype.numpy)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _text(arg: NodeArg, value: Any) -> str:
    """An element of a feed of strings."""
    if not isinstance(value, (str, bytes)):
        kind = type(value).__name__
        raise ModelError(f"input {arg.name!r} holds {value!r} of type {kind}; expected str or bytes")
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise ModelError(f"input {arg.name!r} holds {value!r}; expected text in UTF-8") from None


_AS_WORDS = {t for t in dtypes.ALL if t == dtypes.bfloat16 or t.name.startswith("float8")}


def _dtype(value: Value) -> dtypes.DType:
    return dtypes.from_numpy(value.dtype) if isinstance(value, np.ndarray) else value.dtype


def _host_value(value: Value) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    return value.host if isinstance(value, Tensor) else None


def _to_host(value: Value) -> np.ndarray:
    """A result as an array that is the caller's own."""
    if isinstance(value, SparseTensor):
        return value.toarray()
    array = value.numpy() if isinstance(value, Tensor) else value
    return array if isinstance(value, Tensor) and array.flags.writeable else array.copy()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
