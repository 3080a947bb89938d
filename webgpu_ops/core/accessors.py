"""The WGSL that core writes in front of a template: storage variables and their accessors.

naga rejects pointers to storage as function parameters, so every binding gets functions of its
own. A binding is ``direct`` (its variable has the element's own type and starts at its first
element) or in ``words`` (its variable is an array of u32 and the binding starts ``u.<name>_base``
words in: views, packed small tensors, and buffers bound under two names).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import dtypes
from .dtypes import DType

Form = Literal["direct", "words"]

VECTOR_SCALARS = ("f32", "i32", "u32", "bool")
_NATIVE_64 = {"float64": "f64", "int64": "i64", "uint64": "u64"}


@dataclass(frozen=True)
class Variable:
    """A storage variable: ``element`` is its WGSL element type."""

    name: str
    element: str
    writable: bool

    @property
    def atomic(self) -> bool:
        return self.element == "atomic<u32>"

    def declaration(self, binding: int) -> str:
        access = "read_write" if self.writable else "read"
        return f"@group(0) @binding({binding}) var<storage, {access}> {self.name}: array<{self.element}>;"


@dataclass(frozen=True)
class Binding:
    """What a template knows about a tensor: its type, and the WGSL type of its elements."""

    name: str
    dtype: DType
    scalar: str
    writable: bool
    form: Form
    variable: str

    @property
    def vector(self) -> bool:
        return self.scalar in VECTOR_SCALARS

    @property
    def quad(self) -> str:
        """The WGSL type of four elements."""
        return f"vec4<{self.scalar}>" if self.vector else f"array<{self.scalar}, 4>"


def scalar_of(dtype: DType, features: frozenset[str]) -> str:
    """The WGSL type in which elements of ``dtype`` are computed."""
    if dtype.name in _NATIVE_64:
        native = "shader-int64" in features and (dtype.kind != "float" or "shader-f64" in features)
        return _NATIVE_64[dtype.name] if native else "vec2<u32>"
    if dtype == dtypes.complex64:
        return "vec2<f32>"
    if dtype.kind == "float":
        return "f32"
    if dtype.kind == "bool":
        return "bool"
    if dtype.bits == 64:
        return "vec2<u32>"
    if dtype.bits == 128:
        return "vec4<u32>"
    return "i32" if dtype.kind == "int" else "u32"


def direct_element(dtype: DType, writable: bool, features: frozenset[str]) -> str:
    """The element type of a variable that holds nothing but ``dtype``."""
    if dtype == dtypes.float16 and "shader-f16" in features:
        return "f16"
    if dtype.per_word > 1:
        return "atomic<u32>" if writable else "u32"
    return scalar_of(dtype, features)


def accessors(binding: Binding, variable: Variable) -> str:
    """The functions ``load_``, ``load4_``, ``store_`` and ``store4_`` of one binding."""
    name, scalar, quad = binding.name, binding.scalar, binding.quad
    text = [f"alias {name}_t = {scalar};", f"alias {name}_quad = {quad};"]
    if binding.dtype.per_word > 1 and variable.element != "f16":
        text += _packed(binding, variable)
    else:
        text += _whole(binding, variable)
    return "\n".join(text)


def _whole(b: Binding, v: Variable) -> list[str]:
    """Elements of one or more words, or native f16."""
    name, scalar = b.name, b.scalar
    if b.form == "direct":
        loaded, stored = f"{v.name}[i]", f"{v.name}[i] = v;"
        if v.element == "f16":
            loaded, stored = f"f32({v.name}[i])", f"{v.name}[i] = f16(v);"
    else:
        n = b.dtype.words
        words = [_get(v, f"u.{name}_base + i * {n}u + {k}u") for k in range(n)]
        loaded = _from_words(scalar, words)
        stored = " ".join(
            _put(v, f"u.{name}_base + i * {n}u + {k}u", part) for k, part in enumerate(_to_words(scalar, n))
        )
    text = [f"fn load_{name}(i: u32) -> {scalar} {{ return {loaded}; }}"]
    parts = ", ".join(f"load_{name}(i + {k}u)" for k in range(4))
    text.append(f"fn load4_{name}(i: u32) -> {b.quad} {{ return {b.quad}({parts}); }}")
    if b.writable:
        text.append(f"fn store_{name}(i: u32, v: {scalar}) {{ {stored} }}")
        text.append(f"fn store4_{name}(i: u32, v: {b.quad}, n: u32) {{ var q = v; {_each(name)} }}")
    return text


def _packed(b: Binding, v: Variable) -> list[str]:
    """Two or four elements a word; a lone element is stored by compare-and-swap."""
    name, per, bits = b.name, b.dtype.per_word, b.dtype.bits
    base = f"u.{name}_base + " if b.form == "words" else ""
    mask = f"{(1 << bits) - 1:#x}u"

    def field(word: str, k: str) -> str:
        return _decode(b.dtype, word, k)

    lines = [
        f"fn word_{name}(w: u32) -> u32 {{ return {_get(v, base + 'w')}; }}",
        f"fn load_{name}(i: u32) -> {b.scalar} {{",
        f"    let word = word_{name}(i / {per}u);",
        f"    return {field('word', f'(i % {per}u) * {bits}u')};",
        "}",
        f"fn load4_{name}(i: u32) -> {b.quad} {{",
        f"    if (i % {per}u == 0u) {{",
        f"        let w0 = word_{name}(i / {per}u);",
    ]
    if per == 2:
        lines.append(f"        let w1 = word_{name}(i / 2u + 1u);")
    fast = ", ".join(field("w0" if per == 4 or k < 2 else "w1", f"{(k % per) * bits}u") for k in range(4))
    slow = ", ".join(f"load_{name}(i + {k}u)" for k in range(4))
    lines += [
        f"        return {b.quad}({fast});",
        "    }",
        f"    return {b.quad}({slow});",
        "}",
    ]
    if not b.writable:
        return lines
    encoded = [_encode(b.dtype, f"v[{k}]") for k in range(4)]
    lines += [
        f"fn store_{name}(i: u32, v: {b.scalar}) {{",
        f"    let shift = (i % {per}u) * {bits}u;",
        f"    let field = ({_encode(b.dtype, 'v')} & {mask}) << shift;",
        f"    let keep = ~({mask} << shift);",
        f"    let w = {base}i / {per}u;",
        f"    var old = atomicLoad(&{v.name}[w]);",
        "    loop {",
        f"        let swap = atomicCompareExchangeWeak(&{v.name}[w], old, (old & keep) | field);",
        "        if (swap.exchanged) { break; }",
        "        old = swap.old_value;",
        "    }",
        "}",
        f"fn store4_{name}(i: u32, v: {b.quad}, n: u32) {{",
        f"    if (n == 4u && i % {per}u == 0u) {{",
        f"        let w = {base}i / {per}u;",
    ]
    if per == 4:
        word = " | ".join(f"(({e} & {mask}) << {8 * k}u)" for k, e in enumerate(encoded))
        lines.append(f"        atomicStore(&{v.name}[w], {word});")
    else:
        for w in range(2):
            low, high = encoded[2 * w], encoded[2 * w + 1]
            lines.append(
                f"        atomicStore(&{v.name}[w + {w}u], ({low} & {mask}) | (({high} & {mask}) << 16u));"
            )
    lines += ["        return;", "    }", f"    var q = v; {_each(name)}", "}"]
    return lines


def _each(name: str) -> str:
    return f"for (var k = 0u; k < n; k++) {{ store_{name}(i + k, q[k]); }}"


def _get(v: Variable, index: str) -> str:
    return f"atomicLoad(&{v.name}[{index}])" if v.atomic else f"{v.name}[{index}]"


def _put(v: Variable, index: str, value: str) -> str:
    return f"atomicStore(&{v.name}[{index}], {value});" if v.atomic else f"{v.name}[{index}] = {value};"


def _from_words(scalar: str, words: list[str]) -> str:
    if scalar == "u32":
        return words[0]
    if scalar in ("f32", "i32"):
        return f"bitcast<{scalar}>({words[0]})"
    if scalar == "vec2<f32>":
        return f"bitcast<vec2<f32>>(vec2<u32>({', '.join(words)}))"
    if scalar in ("vec2<u32>", "vec4<u32>"):
        return f"{scalar}({', '.join(words)})"
    joined = f"(u64({words[1]}) << 32u) | u64({words[0]})"
    return joined if scalar == "u64" else f"bitcast<{scalar}>({joined})"


def _to_words(scalar: str, n: int) -> list[str]:
    if scalar == "u32":
        return ["v"]
    if scalar in ("f32", "i32"):
        return ["bitcast<u32>(v)"]
    if scalar == "vec2<f32>":
        return ["bitcast<u32>(v.x)", "bitcast<u32>(v.y)"]
    if scalar in ("vec2<u32>", "vec4<u32>"):
        return [f"v[{k}]" for k in range(n)]
    return ["u32(bitcast<u64>(v))", "u32(bitcast<u64>(v) >> 32u)"]


def _decode(dtype: DType, word: str, shift: str) -> str:
    if dtype.kind == "float":
        return f"decode_{dtype.name}({word} >> {shift})"
    width = 4 if dtype.name in ("int4", "uint4") else dtype.bits
    if dtype.kind == "int":
        return f"extractBits(bitcast<i32>({word}), {shift}, {width}u)"
    value = f"extractBits({word}, {shift}, {width}u)"
    return f"({value} != 0u)" if dtype.kind == "bool" else value


def _encode(dtype: DType, value: str) -> str:
    if dtype.kind == "float":
        return f"encode_{dtype.name}({value})"
    if dtype.kind == "bool":
        return f"select(0u, 1u, {value})"
    word = f"bitcast<u32>({value})" if dtype.kind == "int" else value
    return f"({word} & 0xfu)" if dtype.name in ("int4", "uint4") else word
