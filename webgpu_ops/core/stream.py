"""Recording plans into one compute pass, and moving data to and from the host.

Work is recorded as commands and submitted in batches; a read-back or a fence flushes. Uniforms of a
batch share one arena that is written once before the submission and bound with dynamic offsets.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import wgpu

from ..errors import CompletionError, DeviceError, LimitError
from .fence import Fence, wait_for
from .memory import size_class
from .plan import Copy, Dispatch, Fill, Plan, Shape, Slot, u32
from .program import Placement, Program, variant_of
from .tensor import Tensor

if TYPE_CHECKING:
    from .device import Device

ARENA_BYTES = 64 << 10
BATCH = 256
BIND_GROUPS = 8192


@dataclass(frozen=True)
class _Range:
    """A binding: bytes ``start`` to ``start + size`` of the buffer of tensor number ``tensor``."""

    tensor: int
    start: int
    size: int


class PreparedDispatch:
    """A dispatch with what does not change from run to run."""

    def __init__(self, dispatch: Dispatch, max_workgroups: int) -> None:
        present = [(n, s, False) for n, s in dispatch.reads if s is not None]
        present += [(n, s, True) for n, s in dispatch.writes if s is not None]
        self.dispatch = dispatch
        self.names = tuple(n for n, _, _ in present)
        self.slots: tuple[Slot, ...] = tuple(s for _, s, _ in present)
        self.writes = tuple(w for _, _, w in present)
        self.direct: tuple[Program, bytes] | None = None
        x = min(dispatch.groups, max_workgroups)
        self.groups = (x, -(-dispatch.groups // x))


class PreparedPlan:
    """A plan made ready for one device: its dispatches, checked against the limits."""

    def __init__(self, plan: Plan, device: Device) -> None:
        caps = device.capabilities
        self.plan = plan
        self.steps: list[PreparedDispatch | Copy | Fill] = []
        used: set[int] = set()
        for step in plan.steps:
            if isinstance(step, Dispatch):
                prepared = PreparedDispatch(step, caps.max_workgroups)
                if prepared.groups[1] > caps.max_workgroups:
                    raise LimitError(
                        f"{plan.op}: {step.template} needs {step.groups} workgroups; "
                        f"the adapter allows {caps.max_workgroups} squared"
                    )
                for name, slot in zip(prepared.names, prepared.slots, strict=True):
                    if slot.nbytes > caps.max_binding_bytes:
                        raise LimitError(
                            f"{plan.op}: {slot.name} ({name} of {step.template}) has {slot.nbytes} bytes; "
                            f"the adapter binds at most {caps.max_binding_bytes}"
                        )
                self.steps.append(prepared)
                slots: Sequence[Slot] = prepared.slots
            else:
                self.steps.append(step)
                slots = (step.source, step.target) if isinstance(step, Copy) else (step.target,)
            used.update(s.index for s in slots if s.role == "input")
        self.used_inputs = frozenset(used)
        self.constants = [Tensor.from_numpy(array, device) for array in plan.constants]
        self.constant_bytes = sum(array.nbytes for array in plan.constants)


class Stream:
    """The one queue of a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pending: list[tuple[Any, ...]] = []
        self._pending_uids: set[int] = set()
        self._arena_data = bytearray()
        self._arena: wgpu.GPUBuffer | None = None
        self._alignment = max(16, int(device.adapter.limits["min-uniform-buffer-offset-alignment"]))
        if device.capabilities.offset_alignment == 256:
            self._alignment = 256
        self._bind_groups: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._groups_of: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
        self._staging: dict[int, list[wgpu.GPUBuffer]] = defaultdict(list)
        self._tick: wgpu.GPUBuffer | None = None

    # Plans

    def execute(
        self,
        prepared: PreparedPlan,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor | None],
    ) -> dict[int, Shape]:
        """Record a plan's steps. Inputs it does not touch on the device may be None.

        Returns the shapes of the outputs that the plan measures, for which it waits.
        """
        plan, device = prepared.plan, self._device
        with device.lock:
            device.check_alive()
            scratch = [Tensor.empty(s.shape, s.dtype, device) for s in plan.scratch]
            staged: list[tuple[Tensor, Tensor]] = []
            table: dict[str, list[Tensor | None]] = {"input": list(inputs), "scratch": list(scratch)}
            table |= {"output": list(outputs), "constant": list(prepared.constants)}
            for role in ("input", "output"):
                for i, tensor in enumerate(table[role]):
                    if tensor is not None and tensor.offset % 4:
                        table[role][i] = self._stage(tensor, staged)
            for step in prepared.steps:
                if isinstance(step, PreparedDispatch):
                    self._dispatch(step, [_resolve(table, s) for s in step.slots])
                elif isinstance(step, Copy):
                    self.copy(
                        _resolve(table, step.source),
                        _resolve(table, step.target),
                        step.source_offset,
                        step.target_offset,
                        step.count,
                    )
                else:
                    self.zero(_resolve(table, step.target))
            originals = {id(t) for t in (*outputs, *(inputs[i] for i in plan.updated)) if t is not None}
            for original, aligned in staged:
                if id(original) in originals:
                    self.copy(aligned, original)
            measured = {i: tuple(scratch[s.index].numpy().tolist()) for i, s in plan.measured.items()}
        if plan.fence:
            self.fence().wait()
        return measured

    def _stage(self, tensor: Tensor, staged: list[tuple[Tensor, Tensor]]) -> Tensor:
        """An aligned stand-in for a view that starts inside a word; one for each such view."""
        for original, aligned in staged:
            if original.same_memory(tensor):
                return aligned
        aligned = Tensor.empty(tensor.shape, tensor.dtype, self._device)
        self.copy(tensor, aligned)
        staged.append((tensor, aligned))
        return aligned

    def _dispatch(self, step: PreparedDispatch, tensors: list[Tensor]) -> None:
        alignment = self._device.capabilities.offset_alignment
        uids = [t.buffer.uid for t in tensors]
        simple = len(set(uids)) == len(uids) <= self._device.capabilities.max_storage_buffers and not any(
            t.offset % alignment for t in tensors
        )
        if simple:
            if step.direct is None:
                placements = [Placement(f"{n}_data", False) for n in step.names]
                program = self._program(step.dispatch, placements)
                data = program.layout.pack([v for _, v in step.dispatch.uniforms])
                step.direct = (program, bytes(data))
            program, uniforms = step.direct
            ranges = [
                _Range(i, t.offset, max(16, -(-s.nbytes // 16) * 16))
                for i, (t, s) in enumerate(zip(tensors, step.slots, strict=True))
            ]
        else:
            program, uniforms, ranges, tensors = self._place(step, tensors)
        key = (program.uid, *((tensors[r.tensor].buffer.uid, r.start, r.size) for r in ranges))
        group = self._bind_groups.get(key)
        if group is None:
            group = self._bind(
                key, program, [(tensors[r.tensor].buffer.gpu, r.start, r.size) for r in ranges]
            )
        else:
            self._bind_groups.move_to_end(key)
        room = -(-len(uniforms) // self._alignment) * self._alignment
        if len(self._arena_data) + room > ARENA_BYTES:
            self.flush()
        at = len(self._arena_data)
        self._arena_data += uniforms
        self._arena_data += bytes(room - len(uniforms))
        self._record(("dispatch", program.pipeline, group, at, *step.groups), *tensors)
        self._device.stats.dispatches += 1

    def _place(
        self, step: PreparedDispatch, tensors: list[Tensor]
    ) -> tuple[Program, bytes, list[_Range], list[Tensor]]:
        """Bindings for views, for buffers bound twice, and for more tensors than bindings."""
        caps = self._device.capabilities
        by_buffer: dict[int, list[int]] = defaultdict(list)
        for i, t in enumerate(tensors):
            by_buffer[t.buffer.uid].append(i)
        variable: dict[int, str] = {}
        words: dict[int, bool] = {}
        members: dict[str, list[int]] = {}
        for indices in by_buffer.values():
            together = len(indices) > 1 and any(step.writes[i] for i in indices)
            for group in [indices] if together else [[i] for i in indices]:
                first = group[0]
                name = f"{step.names[first]}_data"
                alike = all(
                    tensors[i].offset == tensors[first].offset
                    and step.slots[i].dtype == step.slots[first].dtype
                    for i in group
                )
                members[name] = group
                for i in group:
                    variable[i] = name
                    words[i] = not alike or bool(tensors[first].offset % caps.offset_alignment)
        excess = len(members) - caps.max_storage_buffers
        if excess > 0:
            small = sorted(
                (step.slots[g[0]].nbytes, n) for n, g in members.items() if not any(step.writes[i] for i in g)
            )
            if len(small) < excess + 1:
                raise LimitError(
                    f"{step.dispatch.template} writes too many tensors for the adapter's "
                    f"{caps.max_storage_buffers} storage bindings"
                )
            packed = [members.pop(n)[0] for _, n in small[: excess + 1]]
            tensors = list(tensors)
            tensors.append(self._pack([tensors[i] for i in packed], [step.slots[i].nbytes for i in packed]))
            for i in packed:
                variable[i], words[i] = "packed_data", True
            members["packed_data"] = packed
        ranges: dict[str, _Range] = {}
        bases: dict[int, int] = {}
        for name, group in members.items():
            if name == "packed_data":
                at = 0
                for i in group:
                    bases[i] = at // 4
                    at += -(-step.slots[i].nbytes // 16) * 16
                ranges[name] = _Range(len(tensors) - 1, 0, max(16, at))
                continue
            low = min(tensors[i].offset for i in group)
            start = low // caps.offset_alignment * caps.offset_alignment
            end = max(tensors[i].offset + step.slots[i].nbytes for i in group)
            size = max(16, -(-(end - start) // 16) * 16)
            if size > caps.max_binding_bytes:
                raise LimitError(
                    f"{step.dispatch.template}: views of one buffer span {size} bytes; "
                    f"the adapter binds at most {caps.max_binding_bytes}"
                )
            ranges[name] = _Range(group[0], start, size)
            for i in group:
                bases[i] = (tensors[i].offset - start) // 4
        placements = [Placement(variable[i], words[i]) for i in range(len(step.names))]
        program = self._program(step.dispatch, placements)
        values = [v for _, v in step.dispatch.uniforms]
        values += [u32(bases[i]) for i in range(len(step.names)) if words[i]]
        ordered = [ranges[v.name] for v in program.variant.variables]
        return program, bytes(program.layout.pack(values)), ordered, tensors

    def _pack(self, tensors: list[Tensor], sizes: list[int]) -> Tensor:
        """Small read-only tensors copied into one buffer, each from a multiple of 16 bytes on."""
        from . import dtypes

        room = [-(-n // 16) * 16 for n in sizes]
        packed = Tensor.empty((max(16, sum(room)),), dtypes.uint8, self._device)
        at = 0
        for tensor, n, r in zip(tensors, sizes, room, strict=True):
            if n:
                self._copy_words(tensor, tensor.offset, packed, at, -(-n // 4) * 4)
            at += r
        return packed

    def _program(self, dispatch: Dispatch, placements: list[Placement]) -> Program:
        return self._device.programs.get(variant_of(dispatch, placements, self._device.capabilities))

    def _bind(
        self, key: tuple[Any, ...], program: Program, ranges: list[tuple[wgpu.GPUBuffer, int, int]]
    ) -> Any:
        entries: list[dict[str, Any]] = [
            {
                "binding": 0,
                "resource": {"buffer": self._uniform_arena(), "offset": 0, "size": program.layout.size},
            }
        ]
        for i, (gpu, start, size) in enumerate(ranges, 1):
            entries.append({"binding": i, "resource": {"buffer": gpu, "offset": start, "size": size}})
        group = self._device.gpu.create_bind_group(layout=program.bind_layout, entries=entries)
        self._bind_groups[key] = group
        for part in key[1:]:
            self._groups_of[part[0]].add(key)
        if len(self._bind_groups) > BIND_GROUPS:
            old, _ = self._bind_groups.popitem(last=False)
            for part in old[1:]:
                self._groups_of[part[0]].discard(old)
        return group

    def _uniform_arena(self) -> wgpu.GPUBuffer:
        if self._arena is None:
            self._arena = self._device.gpu.create_buffer(
                size=ARENA_BYTES, usage=wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
            )
        return self._arena

    def forget(self, uid: int) -> None:
        """Drop the bind groups that name a buffer which leaves the pool."""
        for key in self._groups_of.pop(uid, ()):
            self._bind_groups.pop(key, None)
            for part in key[1:]:
                if part[0] != uid:
                    self._groups_of[part[0]].discard(key)

    # Data

    def copy(
        self,
        source: Tensor,
        target: Tensor,
        source_offset: int = 0,
        target_offset: int = 0,
        count: int | None = None,
    ) -> None:
        """Record a bit-exact copy of ``count`` elements; both tensors have elements of one size."""
        item = source.dtype.itemsize
        n = source.size - source_offset if count is None else count
        if n == 0:
            return
        with self._device.lock:
            at, to = source.offset + source_offset * item, target.offset + target_offset * item
            nbytes = n * item
            same = source.buffer is target.buffer
            if same and at == to:
                return
            if same and at < to + nbytes and to < at + nbytes:
                between = Tensor.empty((n,), source.dtype, self._device)
                self.copy(source, between, source_offset, 0, n)
                self.copy(between, target, 0, target_offset, n)
                return
            whole = target.exclusive and target_offset + n == target.size
            if not (at % 4 or to % 4 or same) and (nbytes % 4 == 0 or whole):
                self._copy_words(source, at, target, to, -(-nbytes // 4) * 4)
                return
            self._copy_elements(_aligned(source, at, nbytes), _aligned(target, to, nbytes), at, to, n)

    def _copy_words(self, source: Tensor, at: int, target: Tensor, to: int, nbytes: int) -> None:
        self._record(("copy", source.buffer.gpu, at, target.buffer.gpu, to, nbytes), source, target)

    def _copy_elements(self, source: Tensor, target: Tensor, at: int, to: int, count: int) -> None:
        item = source.dtype.itemsize
        reads = Slot(source.shape, source.dtype, "input", 0, "source")
        writes = Slot(target.shape, target.dtype, "output", 0, "target")
        uniforms = {
            "source_offset": (at - source.offset) // item,
            "target_offset": (to - target.offset) // item,
            "count": count,
        }
        step = Dispatch(
            "core/copy",
            (("source", reads),),
            (("target", writes),),
            tuple((k, u32(v)) for k, v in uniforms.items()),
            (),
            64,
            -(-(count + 3) // 256) + 1,
        )
        self._dispatch(PreparedDispatch(step, self._device.capabilities.max_workgroups), [source, target])

    def zero(self, target: Tensor) -> None:
        """Record that every byte of a tensor becomes zero."""
        if target.size == 0:
            return
        with self._device.lock:
            if target.offset % 4 == 0 and (target.nbytes % 4 == 0 or target.exclusive):
                nbytes = -(-target.nbytes // 4) * 4
                self._record(("zero", target.buffer.gpu, target.offset, nbytes), target)
                return
            aligned = _aligned(target, target.offset, target.nbytes)
            slot = Slot(aligned.shape, aligned.dtype, "output", 0, "target")
            offset = (target.offset - aligned.offset) // target.dtype.itemsize
            step = Dispatch(
                "core/zero",
                (),
                (("target", slot),),
                (("offset", u32(offset)), ("count", u32(target.size))),
                (),
                64,
                -(-target.size // 64),
            )
            self._dispatch(PreparedDispatch(step, self._device.capabilities.max_workgroups), [aligned])

    def upload(self, target: Tensor, array: np.ndarray) -> None:
        """Write an array's bytes into a tensor."""
        if array.nbytes == 0:
            return
        data = array.reshape(-1).view(np.uint8)
        with self._device.lock:
            self._device.check_alive()
            if target.offset % 4 or (data.nbytes % 4 and not target.exclusive):
                between = Tensor.from_numpy(array, self._device)
                self.copy(between, target)
                return
            if target.buffer.uid in self._pending_uids:
                self.flush()
            if data.nbytes % 4:
                data = np.concatenate([data, np.zeros(-data.nbytes % 4, np.uint8)])
            self._device.gpu.queue.write_buffer(target.buffer.gpu, target.offset, data)
            self._device.stats.uploads += 1

    def download(self, source: Tensor) -> bytes | memoryview:
        """Wait for all work and return a tensor's bytes."""
        if source.nbytes == 0:
            return b""
        with self._device.lock:
            self._device.check_alive()
            start = source.offset // 4 * 4
            nbytes = -(-(source.offset + source.nbytes - start) // 4) * 4
            room = size_class(nbytes)
            staging = self._staging[room].pop() if self._staging[room] else None
            if staging is None:
                staging = self._device.gpu.create_buffer(
                    size=room, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
                )
            self._record(("copy", source.buffer.gpu, start, staging, 0, nbytes))
            self.flush()
            wait_for(staging.map_async(wgpu.MapMode.READ, 0, nbytes), None, "a read-back")
            data = staging.read_mapped(0, nbytes, copy=True)
            staging.unmap()
            if len(self._staging[room]) < 4 and room <= 16 << 20:
                self._staging[room].append(staging)
            self._device.stats.downloads += 1
            skip = source.offset - start
            return data[skip : skip + source.nbytes]

    # Submission

    def _record(self, command: tuple[Any, ...], *tensors: Tensor) -> None:
        self._pending.append(command)
        self._pending_uids.update(t.buffer.uid for t in tensors)
        if len(self._pending) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Submit everything recorded so far."""
        with self._device.lock:
            if not self._pending:
                return
            self._device.check_alive()
            pending, arena = self._pending, self._arena_data
            self._pending, self._arena_data, self._pending_uids = [], bytearray(), set()
            try:
                if arena:
                    self._device.gpu.queue.write_buffer(self._uniform_arena(), 0, arena)
                encoder = self._device.gpu.create_command_encoder()
                compute = None
                for command in pending:
                    if command[0] == "dispatch":
                        _, pipeline, group, offset, x, y = command
                        if compute is None:
                            compute = encoder.begin_compute_pass()
                        compute.set_pipeline(pipeline)
                        compute.set_bind_group(0, group, [offset])
                        compute.dispatch_workgroups(x, y)
                        continue
                    if compute is not None:
                        compute.end()
                        compute = None
                    if command[0] == "copy":
                        encoder.copy_buffer_to_buffer(*command[1:])
                    else:
                        encoder.clear_buffer(*command[1:])
                if compute is not None:
                    compute.end()
                self._device.gpu.queue.submit([encoder.finish()])
            except wgpu.GPUError as error:
                raise CompletionError(f"the adapter refused recorded work: {error}") from error
            self._device.stats.submits += 1

    def fence(self) -> Fence:
        """Submit everything, followed by a copy whose completion proves that it all finished."""
        with self._device.lock:
            self._device.check_alive()
            gpu = self._device.gpu
            if self._tick is None:
                self._tick = gpu.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_SRC)
            proof = gpu.create_buffer(size=4, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
            self._record(("copy", self._tick, 0, proof, 0, 4))
            self.flush()
            return Fence(proof)


def _resolve(table: dict[str, list[Tensor | None]], slot: Slot) -> Tensor:
    tensor = table[slot.role][slot.index]
    if tensor is None:
        raise DeviceError(f"{slot.role} {slot.name} has no tensor on the device")
    if slot.offset is None:
        return tensor
    exclusive = tensor.exclusive and slot.offset + slot.nbytes == tensor.nbytes
    return Tensor(
        tensor.device,
        tensor.buffer,
        slot.shape,
        slot.dtype,
        tensor.offset + slot.offset,
        exclusive=exclusive,
    )


def _aligned(tensor: Tensor, at: int, nbytes: int) -> Tensor:
    """The same memory from a word boundary on, up to the last byte wanted, moved as bits."""
    bits = tensor.dtype.as_bits()
    start = at // 4 * 4
    return Tensor(tensor.device, tensor.buffer, ((at + nbytes - start) // bits.itemsize,), bits, start)
