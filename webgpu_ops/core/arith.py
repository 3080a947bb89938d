"""Arithmetic written once and translated for every number type.

A template writes ``F("x * 0.5 * (1.0 + erf(x / sqrt(2.0)))")``; :class:`Arith` turns it into infix
WGSL where the type has operators, and into calls of the number libraries (``shaders/lib``) where
it has none: float64 and 64-bit integers live in ``vec2<u32>`` pairs, low word first, on adapters
without the native type.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from .dtypes import DType

KINDS = ("f32", "i32", "u32", "bool", "f64", "i64", "u64")
WIDE = ("f64", "i64", "u64")
FLOATS = ("f32", "f64")
UNSIGNED = ("u32", "u64")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Functions of an expression. Every other called name is WGSL of the template and passes through.
_ROUNDINGS = _names("floor ceil trunc round")
_TESTS = _names("is_nan is_inf")
_NUMERIC = _names(
    "abs sign min max clamp fma pow sqrt exp exp2 expm1 log log2 log1p sin cos tan sinh cosh tanh "
    "asin acos atan erf sigmoid softplus"
)
FUNCTIONS = _ROUNDINGS | _TESTS | _NUMERIC

# Where WGSL's own function is exact or close enough for the type; the others come from the library.
_BUILTIN = {
    "f32": _names("abs sign min max fma sqrt floor ceil trunc round exp exp2 log log2"),
    "f64": _names("abs fma sqrt floor ceil"),
    "i32": _names("abs sign min max"),
    "i64": _names("abs sign min max"),
    "u32": _names("min max"),
    "u64": _names("min max"),
}

# What constants are computed with beforehand.
_FOLDED: dict[str, Callable[..., float]] = {
    name: getattr(math, name) for name in _names("sqrt exp expm1 log log2 log1p sin cos tan tanh erf")
}
_INFIX: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "add"),
    ast.Sub: ("-", "sub"),
    ast.Mult: ("*", "mul"),
    ast.Div: ("/", "div"),
    ast.FloorDiv: ("/", "div"),
    ast.Mod: ("%", "rem"),
    ast.BitAnd: ("&", "and"),
    ast.BitOr: ("|", "or"),
    ast.BitXor: ("^", "xor"),
    ast.LShift: ("<<", "shl"),
    ast.RShift: (">>", "shr"),
}
# A comparison of the library is lt, le or eq with operands possibly swapped, possibly negated.
_COMPARE: dict[type[ast.cmpop], tuple[str, str, bool, bool]] = {
    ast.Lt: ("<", "lt", False, False),
    ast.LtE: ("<=", "le", False, False),
    ast.Gt: (">", "lt", True, False),
    ast.GtE: (">=", "le", True, False),
    ast.Eq: ("==", "eq", False, False),
    ast.NotEq: ("!=", "eq", False, True),
}


@dataclass(frozen=True)
class _Term:
    """A translated subexpression: WGSL text, and whether its type is bool instead of the kind's."""

    text: str
    boolean: bool = False


@dataclass(frozen=True)
class Arith:
    """Arithmetic in one WGSL kind: f32, i32, u32, bool, f64, i64 or u64.

    ``native`` matters to the 64-bit kinds alone: the adapter has the type, else it is ``vec2<u32>``.

    Calling it translates an expression in Python syntax over WGSL names. Understood: numbers,
    ``inf`` and ``nan``, ``+ - * / // % ** << >> & | ^ ~``, comparisons, ``and or not``,
    ``a if c else b`` (both sides are evaluated) and calls of :data:`FUNCTIONS`. Names,
    ``u.alpha``, calls of other names and subscripts pass through with everything inside them, so
    index arithmetic there is plain WGSL, and so do WGSL literals with a suffix (``3u``).

    Division and remainder of integers truncate as in WGSL, and so do those that ``//`` and ``%``
    write; ``//`` of floats is ``floor(a / b)``. An integer divided by zero is itself, remainder 0.
    ``min`` and ``max`` return the number where one side is NaN, as far as the adapter keeps NaNs.

    Raises ValueError for what the kind has no meaning for, e.g. ``sqrt`` of integers.
    """

    kind: str
    native: bool = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"no arithmetic in {self.kind!r}; expected one of {', '.join(KINDS)}")

    @property
    def software(self) -> bool:
        """Whether operators are calls of the number library."""
        return self.kind in WIDE and not self.native

    @property
    def scalar(self) -> str:
        """The WGSL type."""
        return "vec2<u32>" if self.software else self.kind

    @property
    def lowest(self) -> str:
        """The smallest value (finite, for floats)."""
        if self.kind in FLOATS:
            return self.literal(-float(np.finfo(np.float32 if self.kind == "f32" else np.float64).max))
        return self.literal(_integer_range(self.kind)[0])

    @property
    def highest(self) -> str:
        """The largest value (finite, for floats)."""
        if self.kind in FLOATS:
            return self.literal(float(np.finfo(np.float32 if self.kind == "f32" else np.float64).max))
        return self.literal(_integer_range(self.kind)[1])

    def __call__(self, expr: str) -> str:
        """``expr`` as WGSL."""
        return _translate(self, expr)

    def literal(self, value: float) -> str:
        """``value`` as WGSL, exact in this kind: rounded once for floats, refused if an integer
        kind cannot hold it."""
        if self.kind == "bool":
            return "true" if value else "false"
        if self.kind == "f32":
            return _literal_f32(float(value))
        if self.kind == "f64":
            return self._literal_f64(float(value))
        low, high = _integer_range(self.kind)
        if value != int(value) or not low <= value <= high:
            raise ValueError(f"{value!r} is not a value of {self.kind}")
        number = int(value)
        if self.software:
            return _words(number & 0xFFFFFFFFFFFFFFFF)
        suffix = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[self.kind]
        if number == low and low < 0:  # the sign is an operator in WGSL, and -low does not fit
            return f"(-{high}{suffix} - 1{suffix})"
        return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"

    def _literal_f64(self, value: float) -> str:
        bits = int(np.float64(value).view(np.uint64))
        if self.software:
            return _words(bits)
        if not math.isfinite(value) or (value == 0 and bits):
            return f"f64_from_bits({_words(bits)})"
        return f"({value!r}lf)" if value < 0 else f"{value!r}lf"

    def cast(self, expr: str, source: Any) -> str:
        """WGSL ``expr``, a scalar of ``source``, converted to this kind.

        ``source`` is a kind, a DType, or anything with ``.kind`` or ``.dtype``. Floats become
        integers by truncation, saturating; integers change width by wrapping; anything becomes
        bool by ``!= 0``.
        """
        origin = kind_of(source)
        if origin == self.kind:
            return expr
        if self.kind == "bool":
            return f"{origin}_to_bool({expr})" if origin in WIDE else f"bool({expr})"
        if origin == "bool" and self.kind in WIDE:
            return f"{self.kind}_from_u32(u32({expr}))"
        if self.kind in WIDE:
            return f"{self.kind}_from_{origin}({expr})"
        if origin in WIDE:
            return f"{origin}_to_{self.kind}({expr})"
        return f"{self.kind}({expr})"


def kind_of(source: Any) -> str:
    """The arithmetic kind of a kind's name, a DType, a binding (``.dtype``) or an Arith."""
    if isinstance(source, Arith):
        return source.kind
    if isinstance(source, str):
        if source not in KINDS:
            raise ValueError(f"{source!r} is not an arithmetic kind; expected one of {', '.join(KINDS)}")
        return source
    dtype = source if isinstance(source, DType) else source.dtype
    if dtype.kind == "float":
        return "f64" if dtype.bits == 64 else "f32"
    if dtype.kind in ("int", "uint"):
        return ("i" if dtype.kind == "int" else "u") + ("64" if dtype.bits == 64 else "32")
    if dtype.kind == "bool":
        return "bool"
    raise ValueError(f"elements of type {dtype} have no arithmetic")


def is_native(kind: str, features: Collection[str]) -> bool:
    """Whether ``kind`` is a WGSL type under these adapter features.

    float64 needs 64-bit integers too: they alone convert to and from its bits.
    """
    if kind not in WIDE:
        return True
    return "shader-int64" in features and (kind != "f64" or "shader-f64" in features)


def arith_for(dtype: DType, features: Collection[str]) -> Arith:
    """Arithmetic for elements of ``dtype``: narrow floats compute in f32, narrow integers in 32 bits."""
    kind = kind_of(dtype)
    return Arith(kind, is_native(kind, features))


def libraries(kinds: Collection[str], narrow: Collection[str]) -> list[str]:
    """The number libraries a shader includes, in the order in which they depend on each other.

    ``kinds`` are the arithmetic kinds in use, ``narrow`` the names of narrow float types whose
    elements are decoded or encoded. The 64-bit kinds come together, since any may be cast to any;
    :func:`prune` drops what a shader does not call.
    """
    names = ["float32"]
    if set(kinds) & set(WIDE):
        names += ["words", "int64", "float64"]
    for family in ("float16", "bfloat16", "float8", "float4"):
        if any(name.startswith(family) for name in narrow):
            names.append(family)
    return [f"lib/{name}.wgsl" for name in names]


_DECLARATION = re.compile(r"^(?:fn|const|struct|alias|override|var(?:<\w+>)?)\s+(\w+)", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*")


def prune(library: str, body: str) -> str:
    """The declarations of ``library`` that ``body`` uses, directly or through each other, in order.

    ``library`` is top-level WGSL whose declarations start at the beginning of a line; its comments
    are dropped. Drivers compile what is left, so a kernel pays only for the arithmetic it does.
    """
    text = _COMMENT.sub("", library)
    starts = list(_DECLARATION.finditer(text))
    ends = [m.start() for m in starts[1:]] + [len(text)]
    parts = {m[1]: text[m.start() : end].strip() for m, end in zip(starts, ends, strict=True)}
    used: set[str] = set()
    pending = set(_WORD.findall(body)) & parts.keys()
    while pending:
        name = pending.pop()
        used.add(name)
        pending |= (set(_WORD.findall(parts[name])) & parts.keys()) - used
    return "\n".join(text for name, text in parts.items() if name in used)


def _integer_range(kind: str) -> tuple[int, int]:
    if kind == "bool":
        return 0, 1
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)


def _words(bits: int) -> str:
    return f"vec2<u32>({bits & 0xFFFFFFFF:#010x}u, {bits >> 32:#010x}u)"


def _literal_f32(value: float) -> str:
    with np.errstate(over="ignore"):
        number = np.float32(value)
    if np.isnan(number):
        return "nan_f32()"
    if np.isinf(number):
        return "inf_f32()" if number > 0 else "(-inf_f32())"
    size = abs(float(number))
    # Compilers disagree on decimal digits at both ends of the range, and on the sign of zero.
    if size > 3.4e38:
        return f"({float(number).hex()}f)"
    if 0 < size < 1.1754944e-38 or (size == 0 and np.signbit(number)):
        return f"bitcast<f32>({int(number.view(np.uint32)):#010x}u)"
    text = str(number)
    text = text if "." in text or "e" in text else f"{text}.0"
    return f"({text}f)" if number < 0 else f"{text}f"


# Translation

_CALLEE = re.compile(
    r"(?P<name>[A-Za-z_]\w*(?:\.\w+)*)"
    r"(?P<generic>(?<=vec2|vec3|vec4)<\s*\w+\s*>|(?<=array|tcast)<[\w\s,<>]*>)?\s*(?P<open>[(\[])"
)
_SUFFIXED = re.compile(r"(?:0[xX][0-9a-fA-F]+[ui]|\d+\.?\d*(?:[eE][+-]?\d+)?(?:l[fiu]|[fui]))\b")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*|\d[\w.]*")
_KEYWORDS = _names("and or not if else in is")


def _closing(text: str, start: int) -> int:
    """One past the bracket that closes the one at ``start``."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "([") - (text[i] in ")]")
        if depth == 0:
            return i + 1
    raise ValueError(f"unbalanced brackets in {text!r}")


def _hide(expr: str) -> tuple[str, dict[str, str]]:
    """``expr`` with each piece of foreign WGSL replaced by a name, and what the names stand for."""
    hidden: dict[str, str] = {}
    out: list[str] = []
    i = 0

    def put(text: str) -> None:
        name = f"_wgsl{len(hidden)}"
        hidden[name] = text
        out.append(f" {name} ")

    while i < len(expr):
        callee, suffixed = _CALLEE.match(expr, i), _SUFFIXED.match(expr, i)
        foreign = callee is not None and callee["name"] not in _KEYWORDS
        if callee is not None and callee["open"] == "(" and callee["name"] in FUNCTIONS:
            foreign = False
        if callee is not None and foreign:
            end = _closing(expr, callee.end() - 1)
            while end < len(expr) and expr[end] in "[.":
                member = re.match(r"\.\w+", expr[end:])
                end = end + member.end() if member else _closing(expr, end)
            put(expr[i:end])
            i = end
        elif suffixed is not None:
            put(suffixed[0])
            i = suffixed.end()
        elif (name := _NAME.match(expr, i)) is not None:
            out.append(name[0])
            i = name.end()
        else:
            out.append(expr[i])
            i += 1
    return "".join(out), hidden


@cache
def _translate(arith: Arith, expr: str) -> str:
    text, hidden = _hide(expr)
    try:
        tree = ast.parse(f"({text})", mode="eval")
        return _Translator(arith, hidden).term(tree.body).text
    except SyntaxError as error:
        raise ValueError(f"not an expression: {expr!r} ({error.msg})") from error
    except ValueError as error:
        raise ValueError(f"{error} (in {expr!r}, computed in {arith.kind})") from error


class _Translator:
    """One walk over one syntax tree."""

    def __init__(self, arith: Arith, hidden: dict[str, str]) -> None:
        self.a = arith
        self.kind = arith.kind
        self.hidden = hidden

    def term(self, node: ast.expr) -> _Term:
        number = self.number(node)
        if number is not None:
            return _Term(self.a.literal(number), boolean=isinstance(number, bool))
        match node:
            case ast.Name(id=name):
                return _Term(self.hidden.get(name, name))
            case ast.Attribute(value=value, attr=attr):
                return _Term(f"{self.term(value).text}.{attr}")
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(op, operand)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(left, op, right)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                sides = [left, *rest]
                tests = [self.compare(sides[i], op, sides[i + 1]) for i, op in enumerate(ops)]
                return _Term(tests[0] if len(tests) == 1 else f"({' && '.join(tests)})", boolean=True)
            case ast.BoolOp(op=op, values=values):
                word = " && " if isinstance(op, ast.And) else " || "
                return _Term(f"({word.join(self.condition(v) for v in values)})", boolean=True)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yes, no = self.term(body), self.term(orelse)
                return _Term(f"select({no.text}, {yes.text}, {self.condition(test)})", yes.boolean)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(name, args)
        raise ValueError(f"{ast.unparse(node)!r} has no WGSL form")

    def condition(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return "true" if node.value else "false"
        return self.term(node).text

    def number(self, node: ast.expr) -> bool | int | float | None:
        """The value of a constant subexpression; a bool only for True and False."""
        found = self._fold(node)
        if isinstance(found, bool):
            return found if self.kind == "bool" else None
        return found

    def _fold(self, node: ast.expr) -> bool | int | float | None:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name(id="inf" | "nan" as name) if self.kind in FLOATS:
                return float(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._fold(operand)
                if value is None:
                    return None
                return -float(value) if self.kind in FLOATS else -value
            case ast.BinOp(left=left, op=op, right=right) if self.kind in FLOATS:
                a, b = self._fold(left), self._fold(right)
                return None if a is None or b is None else _fold_binary(op, float(a), float(b))
            case ast.Call(func=ast.Name(id=name), args=[arg]) if self.kind in FLOATS and name in _FOLDED:
                value = self._fold(arg)
                try:
                    return None if value is None else _FOLDED[name](value)
                except (ValueError, OverflowError):
                    return None
        return None

    def unary(self, op: ast.unaryop, operand: ast.expr) -> _Term:
        if isinstance(op, ast.Not):
            return _Term(f"!{self.condition(operand)}", boolean=True)
        value = self.term(operand)
        if isinstance(op, ast.UAdd):
            return value
        if isinstance(op, ast.Invert):
            if self.kind == "bool" or value.boolean:
                return _Term(f"!{value.text}", boolean=True)
            self.integers_only("~")
            return _Term(f"{self.kind}_not({value.text})" if self.a.software else f"~{value.text}")
        if self.kind == "bool":
            raise ValueError("bool has no negation but 'not'")
        if self.a.software:
            return _Term(f"{self.kind}_neg({value.text})")
        if self.kind in UNSIGNED:
            return _Term(f"({self.a.literal(0)} - {value.text})")
        return _Term(f"(-{value.text})")

    def integers_only(self, what: str) -> None:
        if self.kind in FLOATS:
            raise ValueError(f"{what} needs integers")

    def binary(self, left: ast.expr, op: ast.operator, right: ast.expr) -> _Term:
        if isinstance(op, ast.Pow):
            return self.power(left, right)
        if type(op) not in _INFIX:
            raise ValueError(f"operator {type(op).__name__} has no WGSL form")
        sign, name = _INFIX[type(op)]
        a, b = self.term(left), self.term(right)
        if name in ("and", "or", "xor") and (self.kind == "bool" or (a.boolean and b.boolean)):
            return _Term(f"({a.text} {'!=' if name == 'xor' else sign} {b.text})", boolean=True)
        if self.kind == "bool":
            raise ValueError(f"bool has no operator {sign}")
        if name in ("and", "or", "xor", "shl", "shr"):
            self.integers_only(sign)
        amount = b.text
        if name in ("shl", "shr") and self.kind != "u32":
            count = self._fold(right)
            amount = f"{count}u" if isinstance(count, int) else Arith("u32").cast(b.text, self.kind)
        if self.a.software:
            text = f"{self.kind}_{name}({a.text}, {amount})"
        elif name == "rem" and self.kind == "f64":
            text = f"f64_rem({a.text}, {b.text})"
        else:
            text = f"({a.text} {sign} {amount})"
        if isinstance(op, ast.FloorDiv) and self.kind in FLOATS:
            text = f"f64_floor({text})" if self.a.software else f"floor({text})"
        return _Term(text)

    def power(self, left: ast.expr, right: ast.expr) -> _Term:
        """Small whole powers of something cheap to repeat are products; the rest is ``pow``."""
        exponent = self._fold(right)
        if isinstance(left, (ast.Name, ast.Attribute)) and exponent in (1, 2, 3, 4):
            base: ast.expr = left
            for _ in range(int(exponent) - 1):
                base = ast.BinOp(left=base, op=ast.Mult(), right=left)
            return self.term(base)
        return self.call("pow", [left, right])

    def compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> str:
        if type(op) not in _COMPARE:
            raise ValueError(f"comparison {type(op).__name__} has no WGSL form")
        sign, name, swap, negate = _COMPARE[type(op)]
        a, b = self.term(left), self.term(right)
        if not self.a.software and name == "eq" and negate and self.kind in FLOATS and not a.boolean:
            return f"!({a.text} == {b.text})"  # compilers take != of a NaN for false
        if not self.a.software or a.boolean or b.boolean:
            return f"({a.text} {sign} {b.text})"
        first, second = (b.text, a.text) if swap else (a.text, b.text)
        return f"{'!' if negate else ''}{self.kind}_{name}({first}, {second})"

    def call(self, name: str, args: list[ast.expr]) -> _Term:
        if name not in FUNCTIONS:
            raise ValueError(f"{name} is not a function of expressions")
        counts = {"clamp": (3, 3), "fma": (3, 3), "pow": (2, 2), "min": (2, 99), "max": (2, 99)}
        least, most = counts.get(name, (1, 1))
        if not least <= len(args) <= most:
            raise ValueError(f"{name} takes {least if least == most else 'two or more'} arguments")
        if self.kind == "bool":
            raise ValueError(f"bool has no {name}")
        if name in ("min", "max") and len(args) > 2:
            return self.apply(name, [self.call(name, args[:-1]), self.term(args[-1])])
        terms = [self.term(arg) for arg in args]
        if name == "clamp":
            return self.apply("min", [self.apply("max", terms[:2]), terms[2]])
        if name in _TESTS:
            return self.test(name, terms)
        if self.kind in FLOATS:
            return self.apply(name, terms)
        if name in _ROUNDINGS or (name == "abs" and self.kind in UNSIGNED):
            return terms[0]
        if name == "sign" and self.kind in UNSIGNED:
            return self.apply("min", [terms[0], _Term(self.a.literal(1))])
        if name == "fma":
            x, y, z = (t.text for t in terms)
            if self.a.software:
                return _Term(f"{self.kind}_add({self.kind}_mul({x}, {y}), {z})")
            return _Term(f"({x} * {y} + {z})")
        if name in ("abs", "sign", "min", "max"):
            return self.apply(name, terms)
        raise ValueError(f"{self.kind} has no {name}")

    def test(self, name: str, terms: list[_Term]) -> _Term:
        if self.kind not in FLOATS:
            return _Term("false", boolean=True)
        prefix = "f64_" if self.kind == "f64" else ""
        return _Term(f"{prefix}{name}({terms[0].text})", boolean=True)

    def apply(self, name: str, terms: list[_Term]) -> _Term:
        """A call of the builtin or of the library's function."""
        args = ", ".join(t.text for t in terms)
        if not self.a.software and name in _BUILTIN[self.kind]:
            return _Term(f"{name}({args})")
        return _Term(f"{name}_f32({args})" if self.kind == "f32" else f"{self.kind}_{name}({args})")


def _fold_binary(op: ast.operator, a: float, b: float) -> float | None:
    try:
        match op:
            case ast.Add():
                return a + b
            case ast.Sub():
                return a - b
            case ast.Mult():
                return a * b
            case ast.Div():
                return a / b
            case ast.Pow():
                return math.pow(a, b)
    except (ZeroDivisionError, OverflowError, ValueError):
        pass
    return None
