"""Running and planning single operators."""

from __future__ import annotations

import hashlib
import reprlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import families as _families  # noqa: F401  (registers every descriptor)
from . import schema as schemas
from .core import dtypes
from .core.device import Device
from .core.dtypes import DType
from .core.plan import PORTABLE, Builder, Capabilities, Plan, Shape, Slot, TensorSpec
from .core.stream import PreparedPlan
from .core.tensor import SparseTensor, Tensor
from .errors import DeviceError, SchemaError, ShapeError, UnsupportedError
from .families import registry
from .schema import OperatorSchema

Value = Tensor | np.ndarray | SparseTensor
PLANS_PER_NODE = 256
CONSTANT_BYTES = 64 << 20  # of device memory that the constants of a node's plans may keep


def supported_ops() -> frozenset[tuple[str, str]]:
    """All operators that can run, as (domain, name); the standard domain is ''."""
    return registry.supported()


class Node:
    """One operator call site: checked wiring, its descriptor, and the plans made for it so far.

    ``present`` says slot by slot which inputs come; ``wanted`` names the outputs. A session keeps
    a node and runs it many times.
    """

    def __init__(
        self,
        op: str,
        domain: str = schemas.CONTRIB,
        opset: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        present: Sequence[bool],
        wanted: Sequence[bool],
        declared: Mapping[str, DType] | None = None,
    ) -> None:
        self.schema = schemas.find(op, domain, opset)
        self.op = op
        checked = schemas.check_node(self.schema, present, wanted, attributes or {})
        self.opset = self.schema.since_version if opset is None else opset
        self.descriptor = registry.describe(self.schema.domain, op, self.opset, checked)
        self.input_names = schemas.slot_names(self.schema.inputs, len(present))
        self.output_names = schemas.slot_names(self.schema.outputs, len(wanted))
        self.wanted = frozenset(n for n, w in zip(self.output_names, wanted, strict=False) if w)
        self.declared = dict(declared or {})
        self._host_reads: OrderedDict[Any, frozenset[str]] = OrderedDict()
        self._plans: OrderedDict[Any, PreparedPlan] = OrderedDict()

    def plan(
        self,
        inputs: Sequence[Value | TensorSpec | None],
        capabilities: Capabilities,
        *,
        bound: Mapping[str, str] | None = None,
        buffers: Mapping[str, int] | None = None,
    ) -> Plan:
        """A fresh plan; ``bound`` maps outputs to the inputs whose memory they share."""
        named = dict(zip(self.input_names, (*inputs, *[None] * len(self.input_names)), strict=False))
        self._check_types(named)
        slots: dict[str, Slot | None] = {}
        host: dict[str, np.ndarray] = {}
        for i, (name, value) in enumerate(named.items()):
            slots[name] = None if value is None else Slot(*_spec(value), "input", i, name)
            known = _host_value(value)
            if known is not None:
                host[name] = known

        def fetch(name: str) -> np.ndarray:
            value = named[name]
            if isinstance(value, Tensor):
                return value.numpy()
            raise UnsupportedError(f"{self.op}: planning needs the value of {name}; give it as a NumPy array")

        builder = Builder(
            op=self.op,
            inputs=slots,
            output_names=self.output_names,
            wanted=self.wanted,
            caps=capabilities,
            host_values=host,
            fetch=fetch,
            bound=bound or {},
            buffers=buffers or {},
            variadic=self._variadic(slots),
            declared=self.declared,
            stored={n: v.counts for n, v in named.items() if isinstance(v, SparseTensor)},
        )
        self.descriptor.plan(builder)
        return builder.finish()

    def run(
        self,
        device: Device,
        inputs: Sequence[Value | None],
        bound: Mapping[str, Tensor] | None = None,
        *,
        own_arrays: bool = True,
        owned: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> list[Tensor | np.ndarray | None]:
        """Record the call and return its outputs in slot order (None for those not wanted).

        ``bound`` gives outputs an existing allocation. Inputs named in ``owned``, and with
        ``own_arrays`` those given as arrays, are the callee's to overwrite where the operator has
        to work in place; those named in ``kept`` stay as they are: where the operator updates one, it
        updates a copy. Outputs known while planning come back as arrays.
        """
        bound = dict(bound or {})
        values = list(inputs)
        for name, value in zip(self.input_names, values, strict=False):
            if isinstance(value, Tensor):
                value.check_device(device, f"{self.op}: input {name}")
        self._check_targets(device, bound)
        with device.lock:
            device.check_alive()
            prepared = self._prepare(device, values, bound)
            plan = prepared.plan
            values += [None] * (len(plan.inputs) - len(values))
            for part in plan.compressed:
                sparse = values[part.input]
                if isinstance(sparse, SparseTensor):
                    values[part.first : part.first + 3] = sparse.compressed(part.axis)
            feeds = [v if isinstance(v, Tensor) else None for v in values]
            for i in prepared.used_inputs | {a.input for a in plan.aliases}:
                value = values[i]
                if isinstance(value, np.ndarray):
                    feeds[i] = Tensor.from_numpy(value, device)
            for i in plan.updated:
                feed = feeds[i]
                if feed is not None and self.input_names[i] in kept:
                    values[i] = feeds[i] = copy = Tensor.empty(feed.shape, feed.dtype, device)
                    device.stream.copy(feed, copy)
            self._bind_required(plan, values, feeds, bound, own_arrays, owned)
            outputs: list[Tensor | None] = []
            copies: list[tuple[Tensor, Tensor]] = []
            for i, slot in enumerate(plan.outputs):
                if slot is None or i in plan.host_outputs:
                    outputs.append(None)
                    continue
                given = bound.get(slot.name)
                if given is None or i in plan.measured:
                    outputs.append(Tensor.empty(slot.shape, slot.dtype, device))
                    continue
                self._check_bound(slot, slot.shape, given)
                if self._must_detour(plan, i, given, feeds):
                    detour = Tensor.empty(slot.shape, slot.dtype, device)
                    copies.append((detour, given))
                    given = detour
                outputs.append(given)
            measured = device.stream.execute(prepared, feeds, outputs)
            results: list[Tensor | np.ndarray | None] = list(outputs)
            for i, shape in measured.items():
                slot, whole = plan.outputs[i], outputs[i]
                if slot is not None and whole is not None:
                    results[i] = whole.view(shape)
                    given = bound.get(slot.name)
                    if given is not None:
                        self._check_bound(slot, shape, given)
                        device.stream.copy(whole.view(shape), given)
                        results[i] = given
            for detour, target in copies:
                device.stream.copy(detour, target)
                results[outputs.index(detour)] = target
            for i, array in plan.host_outputs.items():
                results[i] = array
            for i in plan.updated:
                updated = values[i]
                if isinstance(updated, Tensor):
                    updated.host = None
            for name, tensor in bound.items():
                tensor.host = None
                value = plan.host_outputs.get(self.output_names.index(name))
                if value is not None:
                    tensor.write(value)
                    results[self.output_names.index(name)] = tensor
            return results

    # Plans by what they depend on

    def _prepare(
        self, device: Device, values: list[Value | None], bound: Mapping[str, Tensor]
    ) -> PreparedPlan:
        named = dict(zip(self.input_names, values, strict=False))
        shares = {
            output: name
            for output, tensor in bound.items()
            for name, value in named.items()
            if isinstance(value, Tensor) and tensor.same_memory(value)
        }
        buffers = {n: v.buffer.uid for n, v in named.items() if isinstance(v, Tensor)}
        first: dict[int, int] = {}
        places = tuple(
            (first.setdefault(v.buffer.uid, i) if isinstance(v, Tensor) else None, _host_value(v) is None)
            for i, v in enumerate(values)
        )
        specs = tuple(None if v is None else (*_spec(v), _stored(v)) for v in values)
        key = (device.uid, specs, places, tuple(sorted(shares.items())))
        reads = self._host_reads.get(key)
        if reads is not None:
            full = (key, self._host_key(reads, named))
            found = self._plans.get(full)
            if found is not None:
                self._plans.move_to_end(full)
                return found
        plan = self.plan(values, device.capabilities, bound=shares, buffers=buffers)
        prepared = PreparedPlan(plan, device)
        device.stats.plans_made += 1
        self._host_reads[key] = plan.host_read
        self._plans[key, self._host_key(plan.host_read, named)] = prepared
        held = sum(p.constant_bytes for p in tuple(self._plans.values()))
        while len(self._plans) > PLANS_PER_NODE or (held > CONSTANT_BYTES and len(self._plans) > 1):
            held -= self._plans.popitem(last=False)[1].constant_bytes
        if len(self._host_reads) > PLANS_PER_NODE:
            self._host_reads.popitem(last=False)
        return prepared

    def _host_key(self, reads: Collection[str], named: Mapping[str, Value | None]) -> tuple[Any, ...]:
        parts: list[Any] = []
        for name in sorted(reads):
            value = _host_value(named.get(name))
            if value is None and isinstance(named.get(name), Tensor):
                value = named[name].numpy()  # type: ignore[union-attr]
            parts.append(
                None
                if value is None
                else tuple(value.reshape(-1).tolist())
                if value.dtype == object
                else _fingerprint(value.tobytes())
            )
        return tuple(parts)

    # Wiring

    def _variadic(self, slots: Mapping[str, Slot | None]) -> dict[str, list[Slot | None]]:
        return {
            p.name: [s for n, s in slots.items() if n.startswith(f"{p.name}[")]
            for p in self.schema.inputs
            if p.variadic
        }

    def _check_types(self, named: Mapping[str, Value | TensorSpec | None]) -> None:
        types: dict[str, Any] = {}
        for p in self.schema.inputs:
            if p.variadic:
                types[p.name] = [
                    _type(v) for n, v in named.items() if n.startswith(f"{p.name}[") and v is not None
                ]
            elif named.get(p.name) is not None:
                types[p.name] = _type(named[p.name])
        schemas.check_types(self.schema, types)

    def _bind_required(
        self,
        plan: Plan,
        values: Sequence[Value | None],
        feeds: Sequence[Tensor | None],
        bound: dict[str, Tensor],
        own_arrays: bool,
        owned: Collection[str],
    ) -> None:
        for alias in plan.aliases:
            if not alias.required:
                continue
            output, source = self.output_names[alias.output], self.input_names[alias.input]
            tensor, given = feeds[alias.input], bound.get(output)
            if tensor is None:
                continue
            if given is None and (
                source in owned or (own_arrays and isinstance(values[alias.input], np.ndarray))
            ):
                bound[output] = tensor
            elif given is None or not given.same_memory(tensor):
                came = "was not bound" if given is None else "is bound to other memory"
                raise ShapeError(
                    f"{self.op}: output {output} {came}; expected the allocation of input {source}, "
                    f"given as outputs={{'{output}': ...}}"
                )

    def _check_targets(self, device: Device, bound: Mapping[str, Tensor]) -> None:
        """Refuse what no output can be bound to, and memory that two outputs would write."""
        seen: dict[str, Tensor] = {}
        for name, tensor in bound.items():
            if name not in self.wanted:
                raise SchemaError(
                    f"{self.op}: no output {name} to bind; it has {', '.join(self.output_names)}"
                )
            if not isinstance(tensor, Tensor):
                raise SchemaError(
                    f"{self.op}: output {name} is bound to a {type(tensor).__name__}; "
                    "expected a webgpu_ops.Tensor, or None for new memory"
                )
            tensor.check_device(device, f"{self.op}: output {name}")
            for other, earlier in seen.items():
                if tensor.overlaps(earlier):
                    raise ShapeError(
                        f"{self.op}: output {name} is bound to memory of output {other}; "
                        "expected memory of its own"
                    )
            seen[name] = tensor

    def _check_bound(self, slot: Slot, shape: Shape, given: Tensor) -> None:
        if given.shape != shape or given.dtype != slot.dtype:
            raise ShapeError(
                f"{self.op}: output {slot.name} is bound to {given.dtype} {given.shape}; "
                f"expected {slot.dtype} {shape}"
            )

    @staticmethod
    def _must_detour(plan: Plan, output: int, given: Tensor, feeds: Sequence[Tensor | None]) -> bool:
        """Whether a bound output overlaps an input that the steps do not expect to overwrite."""
        allowed = {i for o, i in plan.in_place if o == output}
        allowed |= {a.input for a in plan.aliases if a.output == output}
        for i, feed in enumerate(feeds):
            if feed is not None and i not in allowed and feed.overlaps(given):
                return True
        return False


def _fingerprint(data: bytes) -> bytes:
    """What stands for a host value in the key of its plan: itself, or a digest where it is large."""
    return data if len(data) <= 256 else hashlib.sha256(data).digest()


def run(
    op: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = schemas.CONTRIB,
    opset: int | None = None,
    outputs: Sequence[str] | Mapping[str, Tensor | None] | None = None,
    device: Device | None = None,
) -> list[Tensor | np.ndarray | None]:
    """Run one operator.

    ``inputs`` holds arrays or tensors in the schema's order (None for a gap), or by name.
    ``outputs`` names the wanted outputs, or maps them to existing tensors to write into (None =
    allocate); by default the operator's required outputs are wanted. Returns tensors in the
    schema's order, None for what is not wanted; strings stay arrays on the host. Raises
    WebGpuOpsError before anything is written.
    """
    schema = schemas.find(op, domain, opset)
    device = Device.default() if device is None else device
    if not isinstance(device, Device):
        raise DeviceError(f"{op}: device is a {type(device).__name__}; expected a webgpu_ops.Device")
    values = [_value(v, schema, i) for i, v in enumerate(_in_order(schema, inputs))]
    names = _wanted(schema, outputs)
    bound = {k: v for k, v in outputs.items() if v is not None} if isinstance(outputs, Mapping) else {}
    node = _node(schema, opset, attributes or {}, tuple(v is not None for v in values), names)
    results = node.run(device, values, bound, own_arrays=False)
    return [
        Tensor.from_numpy(r, device, keep_host=True) if isinstance(r, np.ndarray) and r.dtype != object else r
        for r in results
    ]


def plan(
    op: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = schemas.CONTRIB,
    opset: int | None = None,
    outputs: Sequence[str] | None = None,
    capabilities: Capabilities = PORTABLE,
) -> Plan:
    """What ``run`` would do, without a GPU.

    ``inputs`` are arrays, tensors or ``TensorSpec``s; values that determine the plan (CPU metadata)
    have to be arrays. ``capabilities`` default to what every adapter has.
    """
    schema = schemas.find(op, domain, opset)
    values = [_value(v, schema, i) for i, v in enumerate(_in_order(schema, inputs))]
    node = _node(
        schema, opset, attributes or {}, tuple(v is not None for v in values), _wanted(schema, outputs)
    )
    return node.plan(values, capabilities)


_NODES: OrderedDict[Any, Node] = OrderedDict()


def _node(
    schema: OperatorSchema,
    opset: int | None,
    attributes: Mapping[str, Any],
    present: tuple[bool, ...],
    names: Collection[str],
) -> Node:
    """The node of a call, kept for the next call with the same attributes and wiring."""
    if not isinstance(attributes, Mapping):
        raise SchemaError(
            f"{schema.name}: attributes are a {type(attributes).__name__}; expected a mapping by name"
        )
    slots = schemas.slot_names(schema.outputs, max(len(schema.outputs), len(names)))
    wanted = [n in names for n in slots]

    def make() -> Node:
        return Node(schema.name, schema.domain, opset, attributes, present=present, wanted=wanted)

    try:
        frozen = tuple(
            (k, type(v), tuple(v) if isinstance(v, list) else v) for k, v in sorted(attributes.items())
        )
        key = (schema.domain, schema.name, opset, frozen, present, tuple(wanted))
        found = _NODES.get(key)
    except TypeError:  # an attribute that cannot be hashed, such as a tensor
        return make()
    if found is None:
        found = _NODES[key] = make()
        if len(_NODES) > PLANS_PER_NODE:
            _NODES.popitem(last=False)
    return found


def _in_order(schema: OperatorSchema, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    if not isinstance(inputs, Mapping):
        if isinstance(inputs, (Tensor, np.ndarray, SparseTensor)) or not isinstance(inputs, Iterable):
            came = "one tensor" if hasattr(inputs, "shape") else f"a {type(inputs).__name__}"
            raise SchemaError(
                f"{schema.name}: inputs came as {came}; expected a sequence or a mapping by name"
            )
        return list(inputs)
    parameters = {p.name: p for p in schema.inputs}
    for name in inputs:
        if name not in parameters:
            raise SchemaError(f"{schema.name}: no input {name}; expected {', '.join(parameters)}")
    ordered: list[Any] = []
    for name, p in parameters.items():
        value = inputs.get(name)
        if p.variadic:
            ordered += [] if value is None else list(value)
        else:
            ordered.append(value)
    while ordered and ordered[-1] is None:
        ordered.pop()
    return ordered


def _wanted(schema: OperatorSchema, outputs: Collection[str] | None) -> list[str]:
    if outputs is None:
        return list(schema.required_outputs)
    if isinstance(outputs, str):
        raise SchemaError(f"{schema.name}: outputs is the string {outputs!r}; expected a sequence of names")
    if not isinstance(outputs, Iterable):
        raise SchemaError(f"{schema.name}: outputs is a {type(outputs).__name__}; expected names")
    names = {p.name for p in schema.outputs if not p.variadic}
    variadic = tuple(f"{p.name}[" for p in schema.outputs if p.variadic)
    for name in outputs:
        if name not in names and not (variadic and name.startswith(variadic)):
            raise SchemaError(
                f"{schema.name}: no output {name}; it gives {', '.join(p.name for p in schema.outputs)}"
            )
    return list(outputs)


def _value(value: Any, schema: OperatorSchema, index: int) -> Any:
    if value is None or isinstance(value, (Tensor, SparseTensor, TensorSpec)):
        return value
    names = schemas.slot_names(schema.inputs, index + 1)
    name = names[index] if index < len(names) else f"number {index}"
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
        try:
            dtypes.from_numpy(array.dtype)
        except SchemaError as error:
            raise SchemaError(f"{schema.name}: input {name}: {error}") from None
        if array.dtype.kind == "T":  # its bytes may be addresses of the text, not the text
            array = array.astype(object)
        if array.dtype == object:
            _check_strings(array, schema, name)
        return dtypes.native(array)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    raise SchemaError(
        f"{schema.name}: input {name} is a {type(value).__name__}; "
        "expected a NumPy array or a webgpu_ops.Tensor"
    )


def _check_strings(array: np.ndarray, schema: OperatorSchema, name: str) -> None:
    """Refuse what is no text among objects; where an input takes no strings, its type is refused later."""
    parameter = next((p for p in schema.inputs if p.name == name.partition("[")[0]), None)
    if parameter is None or "tensor(string)" not in schema.allowed_types(parameter):
        return
    for i, element in enumerate(array.flat):
        if not isinstance(element, (str, bytes)):
            place = list(map(int, np.unravel_index(i, array.shape)))
            raise SchemaError(
                f"{schema.name}: input {name} holds {reprlib.repr(element)} of type {type(element).__name__} "
                f"at {place}; expected str or bytes because it takes strings"
            )


def _spec(value: Value | TensorSpec) -> tuple[tuple[int, ...], DType]:
    if isinstance(value, np.ndarray):
        return value.shape, dtypes.from_numpy(value.dtype)
    return value.shape, value.dtype


def _stored(value: Value) -> tuple[int, ...] | None:
    """What a plan may know of the values of a sparse tensor."""
    return value.counts if isinstance(value, SparseTensor) else None


def _type(value: Any) -> DType | str:
    dtype = _spec(value)[1]
    return f"sparse_{dtype.type_string}" if isinstance(value, SparseTensor) else dtype


def _host_value(value: Any) -> np.ndarray | None:
    if isinstance(value, np.ndarray):
        return value
    return value.host if isinstance(value, Tensor) else None
