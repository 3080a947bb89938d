"""What a call will do, decided without a GPU.

An operator's ``plan`` receives a :class:`Builder` holding the call's inputs as symbolic
:class:`Slot` objects, checks them, declares outputs and scratch, and appends steps. The result, a
:class:`Plan`, is pure data: it can be printed and tested without an adapter, and the stream binds
real buffers to its slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..errors import LimitError, ShapeError, UnsupportedError
from . import dtypes
from .dtypes import DType

Shape = tuple[int, ...]
DeviceClass = Literal["gpu", "cpu"]

# How often an invocation may go round its loops, all of them together, in one dispatch. llvmpipe ends
# every loop of an invocation, silently, once they went round 65535 times in total, and long dispatches
# look like a hang to GPU drivers. Half of that leaves room for the loops inside a step.
MAX_ROUNDS = 1 << 15


@dataclass(frozen=True)
class Capabilities:
    """What plans and shaders may use; the defaults are the portable path every adapter has."""

    features: frozenset[str] = frozenset()
    max_storage_buffers: int = 8
    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_invocations: int = 256
    max_workgroups: int = 65535
    max_workgroup_bytes: int = 16384
    offset_alignment: int = 256
    device_class: DeviceClass = "gpu"


PORTABLE = Capabilities()


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of a tensor that may not exist yet.

    The type may be given as NumPy or ml_dtypes have it, or by its name (``"bfloat16"``).
    """

    shape: Shape
    dtype: DType

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, DType):
            object.__setattr__(self, "dtype", dtypes.of(self.dtype))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


Role = Literal["input", "output", "scratch", "constant"]


@dataclass(frozen=True)
class Slot(TensorSpec):
    """A tensor of the call, or a part of it: input, output, scratch or constant number ``index``.

    ``offset`` is where a part starts in the tensor, in bytes; None is the tensor itself.
    """

    role: Role
    index: int
    name: str
    offset: int | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    def as_bits(self) -> Slot:
        """The same memory, moved bit for bit (NaN payloads and signed zeros survive)."""
        return replace(self, dtype=self.dtype.as_bits())

    def as_type(self, dtype: DType) -> Slot:
        """The same memory read as another type; the last dimension scales with the element size."""
        if dtype.itemsize == self.dtype.itemsize:
            return replace(self, dtype=dtype)
        last = self.shape[-1] * self.dtype.itemsize
        if last % dtype.itemsize:
            raise ShapeError(f"{self.name}: {last} bytes a row do not hold whole {dtype} elements")
        return replace(self, shape=(*self.shape[:-1], last // dtype.itemsize), dtype=dtype)

    def reshape(self, *shape: int) -> Slot:
        """The same memory under another shape of equal size."""
        if math.prod(shape) != self.size:
            raise ShapeError(f"{self.name}: cannot view shape {self.shape} as {shape}")
        return replace(self, shape=shape)

    def rows(self, start: int, count: int) -> Slot:
        """The part of the memory that ``count`` slices of the first dimension take, from ``start`` on.

        It has to start at a multiple of 4 bytes.
        """
        step = math.prod(self.shape[1:]) * self.dtype.itemsize
        offset = (self.offset or 0) + start * step
        if start < 0 or count < 0 or start + count > self.shape[0]:
            raise ShapeError(f"{self.name}: no rows {start} to {start + count} in shape {self.shape}")
        if offset % 4:
            raise ShapeError(f"{self.name}: row {start} of shape {self.shape} starts inside a word")
        return replace(self, shape=(count, *self.shape[1:]), offset=offset)


UniformKind = Literal["u32", "i32", "f32", "i64", "u64", "f64"]
_INTEGERS = {
    "u32": (0, (1 << 32) - 1),
    "i32": (-(1 << 31), (1 << 31) - 1),
    "i64": (-(1 << 63), (1 << 63) - 1),
    "u64": (0, (1 << 64) - 1),
}


@dataclass(frozen=True)
class Uniform:
    """A typed uniform; one value is a scalar, several are an array read with ``u_<name>(i)``."""

    kind: UniformKind
    values: tuple[Any, ...]
    scalar: bool


def _uniform(kind: UniformKind, value: Any) -> Uniform:
    if isinstance(value, (list, tuple, np.ndarray)):
        return Uniform(kind, tuple(value), scalar=False)
    return Uniform(kind, (value,), scalar=True)


def u32(value: Any) -> Uniform:
    return _uniform("u32", value)


def i32(value: Any) -> Uniform:
    return _uniform("i32", value)


def f32(value: Any) -> Uniform:
    return _uniform("f32", value)


def i64(value: Any) -> Uniform:
    return _uniform("i64", value)


def u64(value: Any) -> Uniform:
    return _uniform("u64", value)


def f64(value: Any) -> Uniform:
    return _uniform("f64", value)


def uniform_of(value: Any, dtype: DType) -> Uniform:
    """``value`` as a uniform of the type in which ``dtype`` computes."""
    if dtype == dtypes.float64:
        return f64(value)
    if dtype.is_float:
        return f32(value)
    if dtype.bits == 64:
        return i64(value) if dtype.kind == "int" else u64(value)
    return i32(value) if dtype.kind == "int" else u32(value)


def as_uniform(value: Any) -> Uniform:
    """Plain Python values: int (and tuples of int) are u32, float is f32."""
    if isinstance(value, Uniform):
        return value
    if isinstance(value, (bool, int, np.integer)):
        return u32(int(value))
    if isinstance(value, (float, np.floating)):
        return f32(float(value))
    if isinstance(value, (list, tuple)):
        return u32(tuple(int(v) for v in value))
    raise TypeError(f"not a uniform: {value!r}")


Constant = bool | int | str | DType | None | tuple[Any, ...]


@dataclass(frozen=True)
class Dispatch:
    """One shader run: template, bindings by name (None = absent), uniforms, constants, groups."""

    template: str
    reads: tuple[tuple[str, Slot | None], ...]
    writes: tuple[tuple[str, Slot | None], ...]
    uniforms: tuple[tuple[str, Uniform], ...]
    constants: tuple[tuple[str, Constant], ...]
    workgroup: int
    groups: int


@dataclass(frozen=True)
class Copy:
    """``count`` elements moved bit for bit; offsets in elements of the slots' own type."""

    source: Slot
    target: Slot
    source_offset: int
    target_offset: int
    count: int


@dataclass(frozen=True)
class Fill:
    """Every byte of ``target`` set to zero."""

    target: Slot


Step = Dispatch | Copy | Fill


@dataclass(frozen=True)
class Alias:
    """Output ``output`` shares the allocation of input ``input``.

    ``required`` means anything else is refused; otherwise the caller chose to bind it so.
    """

    output: int
    input: int
    required: bool


@dataclass(frozen=True)
class Compressed:
    """Sparse input number ``input``, compressed along ``axis``: its three arrays are the inputs from
    number ``first`` on."""

    input: int
    axis: int
    first: int


@dataclass(frozen=True)
class Plan:
    """Everything a call will do. ``outputs`` holds None for outputs nobody asked for.

    ``constants`` are arrays the steps read, uploaded once for a prepared plan. ``measured`` maps an
    output to the scratch slot in which the steps leave its shape: see ``Builder.measure``. ``updated``
    holds the inputs that the steps overwrite without an output that says so.
    ``compressed`` lists what the last of the ``inputs`` are made of: see ``Builder.compressed``.
    """

    op: str
    path: str
    inputs: tuple[Slot | None, ...]
    outputs: tuple[Slot | None, ...]
    host_outputs: Mapping[int, np.ndarray]
    scratch: tuple[Slot, ...]
    constants: tuple[np.ndarray, ...]
    measured: Mapping[int, Slot]
    steps: tuple[Step, ...]
    aliases: tuple[Alias, ...]
    in_place: frozenset[tuple[int, int]]
    host_read: frozenset[str]
    compressed: tuple[Compressed, ...]
    fence: bool
    updated: frozenset[int] = frozenset()

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        return tuple(s for s in self.steps if isinstance(s, Dispatch))

    @property
    def scratch_bytes(self) -> int:
        return sum(s.nbytes for s in self.scratch)

    def __str__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """A printable summary: path, outputs, scratch and steps."""
        lines = [f"{self.op}: {self.path}"]
        for i, out in enumerate(self.outputs):
            if out is not None:
                most = "at most " if i in self.measured else ""
                lines.append(f"  output {out.name}: {out.dtype} {most}{list(out.shape)}")
        for alias in self.aliases:
            source, target = self.inputs[alias.input], self.outputs[alias.output]
            if source is not None and target is not None:
                word = "must share" if alias.required else "shares"
                lines.append(f"  {target.name} {word} the allocation of {source.name}")
        for s in self.scratch:
            lines.append(f"  scratch {s.name}: {s.dtype} {list(s.shape)} ({s.nbytes} bytes)")
        for step in self.steps:
            if isinstance(step, Dispatch):
                lines.append(f"  dispatch {step.template} x {step.groups} groups of {step.workgroup}")
            elif isinstance(step, Copy):
                lines.append(f"  copy {step.source.name} -> {step.target.name}: {step.count} elements")
            else:
                lines.append(f"  zero {step.target.name}")
        return "\n".join(lines)


@dataclass
class Builder:
    """The call as an operator's ``plan`` sees it, and the plan as it grows.

    ``inputs`` and ``output_names`` follow the schema's order; a missing input is None. The values of
    a variadic parameter X are ``variadic["X"]`` and also inputs named ``X[0]``, ``X[1]``, ...; its
    outputs are named likewise. ``declared`` holds output types that the model declares, ``stored`` what
    is known of each sparse input (SparseTensor.counts). ``host`` is how an operator reads a value on
    the CPU: it is allowed for what the operator's text calls CPU metadata, for what determines an
    output's shape, and, where it happens to be there already, for early refusals.
    """

    op: str
    inputs: Mapping[str, Slot | None]
    output_names: Sequence[str]
    wanted: frozenset[str]
    caps: Capabilities
    host_values: Mapping[str, np.ndarray] = field(default_factory=dict)
    fetch: Callable[[str], np.ndarray] | None = None
    bound: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, int] = field(default_factory=dict)
    variadic: Mapping[str, Sequence[Slot | None]] = field(default_factory=dict)
    declared: Mapping[str, DType] = field(default_factory=dict)
    stored: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    path: str = "direct"
    steps: list[Step] = field(default_factory=list)
    scratch_slots: list[Slot] = field(default_factory=list)
    constant_arrays: list[np.ndarray] = field(default_factory=list)
    measured: dict[str, Slot] = field(default_factory=dict)
    output_slots: dict[str, Slot] = field(default_factory=dict)
    host_output_values: dict[str, np.ndarray] = field(default_factory=dict)
    aliases: list[Alias] = field(default_factory=list)
    in_place: set[tuple[int, int]] = field(default_factory=set)
    host_read: set[str] = field(default_factory=set)
    parts: list[Slot] = field(default_factory=list)
    compressed_inputs: list[Compressed] = field(default_factory=list)
    updated: set[int] = field(default_factory=set)
    needs_fence: bool = False

    # What came in

    def get(self, name: str) -> Slot | None:
        """Input ``name``, or None where the node leaves it out."""
        return self.inputs[name]

    def need(self, name: str) -> Slot:
        """Input ``name``, refused where it is missing."""
        slot = self.inputs[name]
        if slot is None:
            raise ShapeError(f"{self.op}: input {name} is required here and was not given")
        return slot

    def compressed(self, name: str, axis: int) -> tuple[Slot, Slot, Slot]:
        """The sparse matrix ``name`` by its rows (``axis`` 0) or by its columns (1).

        Three slots, whatever format the caller gave: the stored values, row by row; the column of
        each; and where the values of each row begin, with their number at the end (both uint32).
        They are uploaded like any input, so the plan depends on how many values there are alone.
        ``need(name)`` has the dense shape and no memory.
        """
        sparse = self.need(name)
        count, first = self.stored[name][0], len(self.inputs) + len(self.parts)
        kinds: tuple[tuple[str, Shape, DType], ...] = (
            ("values", (count,), sparse.dtype),
            ("positions", (count,), dtypes.uint32),
            ("offsets", (sparse.shape[axis] + 1,), dtypes.uint32),
        )
        values, positions, offsets = (
            Slot(shape, dtype, "input", first + i, f"{name}.{part}")
            for i, (part, shape, dtype) in enumerate(kinds)
        )
        self.parts += [values, positions, offsets]
        self.compressed_inputs.append(Compressed(sparse.index, axis, first))
        return values, positions, offsets

    def longest(self, name: str, axis: int) -> int:
        """How many values a row (``axis`` 0) or column (1) of sparse ``name`` has at most."""
        return self.stored[name][1 + axis]

    def host(self, name: str) -> np.ndarray:
        """The value of input ``name`` on the CPU; the plan then depends on it.

        A value that lives on the device is read back, so use it for CPU metadata and shapes only.
        """
        self.need(name)
        self.host_read.add(name)
        known = self.host_values.get(name)
        if known is not None:
            return known
        if self.fetch is None:
            raise UnsupportedError(f"{self.op}: planning needs the value of {name}; give it as a NumPy array")
        return self.fetch(name)

    def host_if_known(self, name: str) -> np.ndarray | None:
        """The value of input ``name`` where the caller gave it on the CPU: for early refusals.

        A value that lives on the device stays there, and no later call waits for it.
        """
        known = self.host_values.get(name)
        if known is not None:
            self.host_read.add(name)
        return known

    def wants(self, name: str) -> bool:
        """Whether the node has output ``name``."""
        return name in self.wanted

    def shares(self, output: str, source: str) -> bool:
        """Whether the caller bound output ``output`` to exactly the memory of input ``source``.

        Asking promises that the steps then work in place. Where nobody asks, such an output is
        computed elsewhere and copied.
        """
        if self.bound.get(output) != source:
            return False
        self.in_place.add((list(self.output_names).index(output), self.need(source).index))
        return True

    def same_buffer(self, first: str, second: str) -> bool:
        """Whether two inputs live in one allocation."""
        return first in self.buffers and self.buffers[first] == self.buffers.get(second)

    # Refusals

    def refuse(self, name: str, came: str, expected: str) -> ShapeError:
        return ShapeError(f"{self.op}: {name} {came}; expected {expected}")

    def check(self, ok: bool, name: str, came: str, expected: str) -> None:
        """Refuse the call unless ``ok``: '<op>: <name> <came>; expected <expected>'."""
        if not ok:
            raise self.refuse(name, came, expected)

    def check_rounds(self, name: str, came: str, rounds: int) -> None:
        """Refuse a call for which an invocation of a software adapter goes round its loops too often.

        For what no use of the operator comes near; see MAX_ROUNDS.
        """
        if self.caps.device_class == "cpu" and rounds > MAX_ROUNDS:
            raise LimitError(
                f"{self.op}: {name} {came}; expected less, because it takes one invocation {rounds} rounds "
                f"of its loops and software adapters allow {MAX_ROUNDS}"
            )

    def check_shape(self, name: str, *expected: int | str, why: str = "") -> None:
        """Refuse input ``name`` (if present) unless its shape is ``expected``.

        An integer must match exactly; a string names a free dimension, e.g. ``"batch"``.
        """
        slot = self.inputs[name]
        if slot is None:
            return
        good = len(slot.shape) == len(expected) and all(
            isinstance(e, str) or s == e for s, e in zip(slot.shape, expected, strict=True)
        )
        if not good:
            want = ", ".join(str(e) for e in expected) + ("," if len(expected) == 1 else "")
            reason = f" because {why}" if why else ""
            raise ShapeError(f"{self.op}: {name} has shape {slot.shape}; expected ({want}){reason}")

    # What goes out

    def output(self, name: str, shape: Sequence[int], dtype: DType) -> Slot:
        """Declare output ``name``; where the node does not want it, the slot is scratch."""
        if name not in self.wanted:
            return self.scratch(name, shape, dtype)
        slot = Slot(tuple(int(d) for d in shape), dtype, "output", list(self.output_names).index(name), name)
        self.output_slots[name] = slot
        return slot

    def output_if_wanted(self, name: str, shape: Sequence[int], dtype: DType) -> Slot | None:
        """Declare output ``name`` if the node has it, else None: no memory is spent."""
        return self.output(name, shape, dtype) if name in self.wanted else None

    def host_output(self, name: str, value: np.ndarray) -> None:
        """Declare output ``name`` as a value known already while planning (shapes, sizes)."""
        if name in self.wanted:
            self.output(name, value.shape, dtypes.from_numpy(value.dtype))
            self.host_output_values[name] = value

    def must_share(self, output: str, source: str) -> None:
        """State that ``output`` has to be prebound to the allocation of input ``source``."""
        slot = self.need(source)
        if output in self.wanted and output in self.output_slots:
            self.aliases.append(Alias(self.output_slots[output].index, slot.index, required=True))

    def updates(self, name: str) -> Slot:
        """Input ``name`` as memory to write: for an input that, by the operator's text, it updates."""
        slot = self.need(name)
        self.updated.add(slot.index)
        return slot

    def scratch(self, name: str, shape: Sequence[int], dtype: DType) -> Slot:
        """Memory that lives for this call only; its content is unspecified at the start."""
        slot = Slot(tuple(int(d) for d in shape), dtype, "scratch", len(self.scratch_slots), name)
        self.scratch_slots.append(slot)
        return slot

    def constant(self, name: str, array: np.ndarray) -> Slot:
        """An array made while planning (a table, text as bytes), which the steps only read."""
        slot = Slot(array.shape, dtypes.from_numpy(array.dtype), "constant", len(self.constant_arrays), name)
        self.constant_arrays.append(array)
        return slot

    def measure(self, output: str, shape: Slot) -> None:
        """Let the steps decide the shape of output ``output``, which was declared at its largest.

        They write it into the scratch slot ``shape`` (uint32, one number a dimension) and the
        elements, without gaps, into the front of the output. The call then waits for its work.
        """
        if shape.role != "scratch" or shape.dtype != dtypes.uint32:
            raise TypeError(f"{self.op}: the shape of {output} has to be a uint32 scratch slot")
        if output in self.wanted:
            self.measured[output] = shape

    # What happens

    def dispatch(
        self,
        template: str,
        *,
        reads: Mapping[str, Slot | None],
        writes: Mapping[str, Slot | None],
        uniforms: Mapping[str, Any] | None = None,
        constants: Mapping[str, Constant] | None = None,
        threads: int | None = None,
        groups: int | None = None,
        workgroup: int = 64,
    ) -> None:
        """Append a run of ``shaders/<template>.wgsl``.

        Give ``threads`` (invocations, rounded up to whole groups) or ``groups``. Groups beyond the
        adapter's limit fold into y; the template reads ``group`` and must check its own bounds.
        A dispatch of nothing is dropped.
        """
        if groups is None:
            if threads is None:
                raise TypeError("dispatch needs threads or groups")
            groups = -(-threads // workgroup)
        if groups == 0:
            return
        self._on_device(*reads.values(), *writes.values())
        if workgroup > self.caps.max_invocations:
            raise LimitError(
                f"{self.op}: {template} wants {workgroup} invocations a workgroup; "
                f"the adapter allows {self.caps.max_invocations}"
            )
        typed = tuple((k, as_uniform(v)) for k, v in (uniforms or {}).items())
        for name, uniform in typed:
            if uniform.kind in _INTEGERS:
                low, high = _INTEGERS[uniform.kind]
                for v in uniform.values:
                    if not low <= v <= high:
                        raise LimitError(f"{self.op}: {name} of {template} is {v}; expected {low} to {high}")
        self.steps.append(
            Dispatch(
                template,
                tuple(reads.items()),
                tuple(writes.items()),
                typed,
                tuple(sorted((constants or {}).items())),
                workgroup,
                groups,
            )
        )

    def _on_device(self, *slots: Slot | None) -> None:
        for slot in slots:
            if slot is not None and slot.dtype == dtypes.string:
                raise UnsupportedError(
                    f"{self.op}: {slot.name} holds strings, which have no place on the device; "
                    "expected numbers or booleans"
                )

    def lanes(self, least: int, rounds: int) -> int | None:
        """How many invocations should share ``rounds`` of loops: ``least``, doubled until none of them
        exceeds MAX_ROUNDS; None where a whole workgroup is too few."""
        count = least
        while rounds > count * MAX_ROUNDS:
            count *= 2
        return count if count <= self.caps.max_invocations else None

    def copy(
        self,
        source: Slot,
        target: Slot,
        *,
        source_offset: int = 0,
        target_offset: int = 0,
        count: int | None = None,
    ) -> None:
        """Append a bit-exact copy of ``count`` elements (default: all of ``source``)."""
        n = source.size if count is None else count
        self._on_device(source, target)
        if n:
            self.steps.append(Copy(source, target, source_offset, target_offset, n))

    def zero(self, target: Slot) -> None:
        """Append a fill with zero bytes."""
        if target.size:
            self.steps.append(Fill(target))

    def fence(self) -> None:
        """The call returns only after its work was proved finished."""
        self.needs_fence = True

    def finish(self) -> Plan:
        outputs = tuple(self.output_slots.get(name) for name in self.output_names)
        for name in self.wanted:
            if name not in self.output_slots:
                raise UnsupportedError(f"{self.op}: output {name} is not available for these inputs")
        names = list(self.output_names)
        inputs = (*self.inputs.values(), *self.parts)
        return Plan(
            op=self.op,
            path=self.path,
            inputs=inputs,
            outputs=outputs,
            host_outputs={names.index(k): v for k, v in self.host_output_values.items()},
            scratch=tuple(self.scratch_slots),
            constants=tuple(self.constant_arrays),
            measured={names.index(k): v for k, v in self.measured.items()},
            steps=tuple(self.steps),
            aliases=tuple(self.aliases),
            in_place=frozenset(self.in_place),
            host_read=frozenset(self.host_read),
            compressed=tuple(self.compressed_inputs),
            fence=self.needs_fence,
            updated=frozenset(self.updated),
        )
