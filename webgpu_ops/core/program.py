"""From a dispatch to a compiled pipeline.

The frozen :class:`Variant` is the only thing a template sees and the whole pipeline-cache key: a
value cannot be baked into WGSL without being in the key.
"""

from __future__ import annotations

import itertools
import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import wgpu

from ..errors import ShaderError
from . import template as templates
from .accessors import Binding, Variable, accessors, direct_element, scalar_of
from .arith import Arith, arith_for, libraries, prune
from .dtypes import DType
from .plan import Capabilities, Constant, Dispatch, Uniform

if TYPE_CHECKING:
    from .device import Device

_uids = itertools.count(1)

NATIVE_TYPES = frozenset({"shader-f16", "shader-f64", "shader-int64"})


@dataclass(frozen=True)
class Placement:
    """Where a bound tensor lives: the variable it shares, and whether that one is plain words."""

    variable: str
    words: bool


@dataclass(frozen=True)
class UniformField:
    """A member of the uniform struct; ``count`` is None for a scalar."""

    name: str
    kind: str
    count: int | None


@dataclass(frozen=True)
class Variant:
    """A template with everything that shapes its text."""

    template: str
    bindings: tuple[Binding, ...]
    absent: tuple[str, ...]
    variables: tuple[Variable, ...]
    uniforms: tuple[UniformField, ...]
    constants: tuple[tuple[str, Constant], ...]
    workgroup: int
    features: frozenset[str]
    device_class: str

    def render(self) -> str:
        """The whole WGSL module."""
        kinds: set[str] = set()
        narrow: set[str] = set()

        def arith(of: Binding | DType) -> Arith:
            found = arith_for(of.dtype if isinstance(of, Binding) else of, self.features)
            kinds.add(found.kind)
            return found

        context: dict[str, Any] = {name: None for name in self.absent}
        context |= {b.name: b for b in self.bindings}
        context |= dict(self.constants)
        provided = {
            "arith": arith,
            "kernel": templates.kernel(self.workgroup),
            "WG": self.workgroup,
            "features": self.features,
            "device_class": self.device_class,
        }
        hidden = sorted(context.keys() & provided.keys())
        if hidden:
            what = ", ".join(hidden)
            raise ShaderError(f"shader {self.template}: {what} is a name that every template has")
        context |= provided
        body = templates.render(self.template, context)
        for b in self.bindings:
            if b.dtype.kind in ("float", "int", "uint", "bool"):
                arith(b)
            if b.dtype.kind == "float" and b.dtype.bits < 32:
                narrow.add(b.dtype.name)
        by_name = {v.name: v for v in self.variables}
        own = [self._uniform_struct()]
        own += [v.declaration(i) for i, v in enumerate(self.variables, 1)]
        own += [accessors(b, by_name[b.variable]) for b in self.bindings]
        code = "\n".join(own) + "\n\n" + body
        library_context = {"features": self.features, "arith_of": self._arith_of}
        names = [name.removesuffix(".wgsl") for name in libraries(kinds, narrow)]
        library = "\n".join(templates.render(name, library_context) for name in names)
        head = "enable f16;\n" if any(v.element == "f16" for v in self.variables) else ""
        return f"{head}const WG: u32 = {self.workgroup}u;\n{prune(library, code)}\n{code}"

    def _arith_of(self, kind: str) -> Arith:
        native = "shader-int64" in self.features and (kind != "f64" or "shader-f64" in self.features)
        return Arith(kind, native)

    def _uniform_struct(self) -> str:
        members, functions = [], []
        for f in self.uniforms:
            scalar = self._uniform_scalar(f.kind)
            if f.count is None:
                members.append(f"    {f.name}: {scalar},")
                continue
            per = 2 if f.kind in ("i64", "u64", "f64") else 4
            members.append(f"    {f.name}: array<vec4<u32>, {max(1, -(-f.count // per))}>,")
            if per == 4:
                word = f"u.{f.name}[i / 4u][i % 4u]"
                value = word if f.kind == "u32" else f"bitcast<{scalar}>({word})"
            else:
                pair = f"vec2<u32>(u.{f.name}[i / 2u][(i % 2u) * 2u], u.{f.name}[i / 2u][(i % 2u) * 2u + 1u])"
                value = pair
                if scalar != "vec2<u32>":
                    joined = f"(u64({pair}.y) << 32u) | u64({pair}.x)"
                    value = joined if scalar == "u64" else f"bitcast<{scalar}>({joined})"
            functions.append(f"fn u_{f.name}(i: u32) -> {scalar} {{ return {value}; }}")
        members = members or ["    unused: u32,"]
        return "\n".join(
            [
                "struct Uniforms {",
                *members,
                "}",
                "@group(0) @binding(0) var<uniform> u: Uniforms;",
                *functions,
            ]
        )

    def _uniform_scalar(self, kind: str) -> str:
        if kind in ("u32", "i32", "f32"):
            return kind
        return self._arith_of(kind).scalar


def variant_of(dispatch: Dispatch, placements: Sequence[Placement], capabilities: Capabilities) -> Variant:
    """The Variant of a dispatch whose present bindings (reads, then writes) are placed as given."""
    features = capabilities.features & NATIVE_TYPES
    present = [(n, s.dtype, False) for n, s in dispatch.reads if s is not None]
    present += [(n, s.dtype, True) for n, s in dispatch.writes if s is not None]
    bindings = []
    elements: dict[str, set[str]] = {}
    writable: set[str] = set()
    for (name, dtype, writes), place in zip(present, placements, strict=True):
        form = "words" if place.words else "direct"
        bindings.append(
            Binding(name, dtype, scalar_of(dtype, features), writes, form, place.variable)  # type: ignore[arg-type]
        )
        if writes:
            writable.add(place.variable)
    for b in bindings:
        shared = b.variable in writable
        if b.form == "direct":
            element = direct_element(b.dtype, shared, features)
        else:
            element = "atomic<u32>" if b.dtype.per_word > 1 and b.writable else "u32"
        elements.setdefault(b.variable, set()).add(element)
    variables = tuple(
        Variable(name, "atomic<u32>" if "atomic<u32>" in found else min(found), name in writable)
        for name, found in elements.items()
    )
    uniforms = [
        UniformField(name, value.kind, None if value.scalar else len(value.values))
        for name, value in dispatch.uniforms
    ]
    uniforms += [UniformField(f"{b.name}_base", "u32", None) for b in bindings if b.form == "words"]
    return Variant(
        template=dispatch.template,
        bindings=tuple(bindings),
        absent=tuple(n for n, s in (*dispatch.reads, *dispatch.writes) if s is None),
        variables=variables,
        uniforms=tuple(uniforms),
        constants=dispatch.constants,
        workgroup=dispatch.workgroup,
        features=features,
        device_class=capabilities.device_class,
    )


def render(dispatch: Dispatch, capabilities: Capabilities) -> str:
    """The WGSL a dispatch uses when each tensor has a buffer of its own."""
    names = [n for n, s in (*dispatch.reads, *dispatch.writes) if s is not None]
    return variant_of(dispatch, [Placement(f"{n}_data", False) for n in names], capabilities).render()


_FORMATS = {"u32": "I", "i32": "i", "f32": "f", "i64": "q", "u64": "Q", "f64": "d"}


@dataclass(frozen=True)
class UniformLayout:
    """Byte offsets of the uniform struct's members, and its size."""

    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, fields: Sequence[UniformField]) -> UniformLayout:
        at, offsets = 0, []
        for f in fields:
            width = 8 if f.kind in ("i64", "u64", "f64") else 4
            align, size = (width, width) if f.count is None else (16, -(-max(1, f.count) * width // 16) * 16)
            at = -(-at // align) * align
            offsets.append(at)
            at += size
        return cls(tuple(offsets), max(16, -(-at // 16) * 16))

    def pack(self, values: Sequence[Uniform]) -> bytearray:
        data = bytearray(self.size)
        for offset, value in zip(self.offsets, values, strict=True):
            struct.pack_into(f"<{len(value.values)}{_FORMATS[value.kind]}", data, offset, *value.values)
        return data


class Program:
    """A compiled Variant."""

    def __init__(self, variant: Variant, device: Device) -> None:
        self.uid = next(_uids)
        self.variant = variant
        self.layout = UniformLayout.of(variant.uniforms)
        self.source = variant.render()
        gpu = device.gpu
        entries: list[dict[str, Any]] = [
            {
                "binding": 0,
                "visibility": wgpu.ShaderStage.COMPUTE,
                "buffer": {
                    "type": wgpu.BufferBindingType.uniform,
                    "has_dynamic_offset": True,
                    "min_binding_size": self.layout.size,
                },
            }
        ]
        for i, v in enumerate(variant.variables, 1):
            kind = wgpu.BufferBindingType.storage if v.writable else wgpu.BufferBindingType.read_only_storage
            entries.append({"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}})
        try:
            self.bind_layout = gpu.create_bind_group_layout(entries=entries)
            module = gpu.create_shader_module(code=self.source, label=variant.template)
            self.pipeline = gpu.create_compute_pipeline(
                layout=gpu.create_pipeline_layout(bind_group_layouts=[self.bind_layout]),
                compute={"module": module, "entry_point": "main"},
            )
        except wgpu.GPUError as error:
            raise ShaderError(
                f"shader {variant.template} does not compile: {error}\n{templates.numbered(self.source)}"
            ) from error


class ProgramCache:
    """Programs by Variant; beyond ``limit`` the one unused for longest goes.

    A prepared plan holds on to its programs, so what still runs is never compiled again.
    """

    def __init__(self, device: Device, limit: int = 256) -> None:
        self._device = device
        self._limit = limit
        self._programs: OrderedDict[Variant, Program] = OrderedDict()

    def __len__(self) -> int:
        return len(self._programs)

    def get(self, variant: Variant) -> Program:
        found = self._programs.get(variant)
        if found is not None:
            self._programs.move_to_end(variant)
            return found
        program = self._programs[variant] = Program(variant, self._device)
        self._device.stats.pipelines_created += 1
        if len(self._programs) > self._limit:
            self._programs.popitem(last=False)
        return program
