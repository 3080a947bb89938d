"""The arithmetic translator, as text; test_numbers runs what it writes."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops.core import dtypes
from webgpu_ops.core.arith import KINDS, Arith, arith_for, kind_of, libraries, prune

F32 = Arith("f32")
I32 = Arith("i32")
U32 = Arith("u32")
BOOL = Arith("bool")
SOFT = Arith("f64", native=False)
NATIVE = Arith("f64")
SOFT_I64 = Arith("i64", native=False)


@pytest.mark.parametrize(
    ("arith", "expr", "wgsl"),
    [
        (F32, "x + y * 2", "(x + (y * 2.0f))"),
        (NATIVE, "x + y * 2", "(x + (y * 2.0lf))"),
        (SOFT, "x + y * z", "f64_add(x, f64_mul(y, z))"),
        (SOFT, "-x / y", "f64_div(f64_neg(x), y)"),
        (F32, "a if a > b else b", "select(b, a, (a > b))"),
        (SOFT, "a if a > b else b", "select(b, a, f64_lt(b, a))"),
        (SOFT, "a >= b and not a != b", "(f64_le(b, a) && !!f64_eq(a, b))"),
        (F32, "x != y", "!(x == y)"),
        (I32, "x != y", "(x != y)"),
        (F32, "0 < x <= 1", "((0.0f < x) && (x <= 1.0f))"),
        (F32, "erf(x) + exp(x) + tanh(x)", "((erf_f32(x) + exp(x)) + tanh_f32(x))"),
        (NATIVE, "exp(sqrt(x))", "f64_exp(sqrt(x))"),
        (SOFT, "exp(sqrt(x))", "f64_exp(f64_sqrt(x))"),
        (F32, "clamp(x, lo, hi)", "min(max(x, lo), hi)"),
        (SOFT, "max(a, b, c)", "f64_max(f64_max(a, b), c)"),
        (F32, "x ** 2", "(x * x)"),
        (F32, "f(x) ** 2", "(f(x) * f(x))"),
        (F32, "(x + y) ** 2.5", "pow_f32((x + y), 2.5f)"),
        (F32, "x // y", "floor((x / y))"),
        (SOFT, "x % y", "f64_rem(x, y)"),
        (NATIVE, "x % y", "f64_rem(x, y)"),
        (I32, "x // y % 3", "((x / y) % 3i)"),
        (I32, "x << 3 | y >> n", "((x << 3u) | (y >> u32(n)))"),
        (SOFT_I64, "x << 3 | y >> n", "i64_or(i64_shl(x, 3u), i64_shr(y, i64_to_u32(n)))"),
        (U32, "~x & -y", "(~x & (0u - y))"),
        (U32, "abs(floor(x))", "x"),
        (SOFT_I64, "sign(x) == 0", "i64_eq(i64_sign(x), vec2<u32>(0x00000000u, 0x00000000u))"),
        (I32, "is_nan(x)", "false"),
        (SOFT, "is_nan(x) == is_nan(y)", "(f64_is_nan(x) == f64_is_nan(y))"),
        (BOOL, "not a or a ^ b", "(!a || (a != b))"),
        (BOOL, "True if a == b else False", "select(false, true, (a == b))"),
        (F32, "\n  x\n  + 1\n", "(x + 1.0f)"),
    ],
)
def test_translates(arith: Arith, expr: str, wgsl: str) -> None:
    assert arith(expr) == wgsl


@pytest.mark.parametrize("arith", [F32, SOFT])
@pytest.mark.parametrize(
    "foreign",
    [
        "load_x(i * 4u + u.width / 2u)",
        "u_shape(i - 1)",
        "u.alpha",
        "tile[lane % 8u].xy[0]",
        "bitcast<f32>(words[i] << 16u)",
        "vec2<u32>(0u, 1u)",
        "dot(max(a, 0), b)",
        "7u",
    ],
)
def test_foreign_wgsl_passes_through(arith: Arith, foreign: str) -> None:
    assert arith(foreign) == foreign
    inside = arith(f"max({foreign}, y) + {foreign}")
    assert inside.count(foreign) == 2
    assert arith(arith("x * 0.5")) == arith("x * 0.5")


def test_constants_are_computed_beforehand() -> None:
    assert F32("x * sqrt(2.0)") == "(x * 1.4142135f)"
    assert F32("x * (1 / 3)") == "(x * 0.33333334f)"
    assert SOFT("1 / sqrt(2.0)") == SOFT.literal(1 / np.sqrt(2.0))
    assert F32("-inf") == "(-inf_f32())"
    assert SOFT("nan") == "vec2<u32>(0x00000000u, 0x7ff80000u)"
    assert I32("1 - 2") == "(1i - 2i)"


@pytest.mark.parametrize(
    ("arith", "expr"),
    [
        (I32, "sqrt(x)"),
        (F32, "x & y"),
        (BOOL, "a + b"),
        (I32, "x * 0.5"),
        (U32, "x + (-1)"),
        (Arith("u64"), "18446744073709551616"),
        (F32, "x +"),
        (F32, "x @ y"),
        (F32, "exp(x, y)"),
        (F32, "load(x"),
        (F32, "[x]"),
        (F32, "x in y"),
    ],
)
def test_refuses_what_has_no_meaning(arith: Arith, expr: str) -> None:
    with pytest.raises(ValueError):
        arith(expr)


def test_refusals_name_the_expression() -> None:
    with pytest.raises(ValueError, match=r"i32 has no sqrt \(in 'sqrt\(x\)', computed in i32\)"):
        I32("sqrt(x)")


def test_literals_at_the_ends_of_the_ranges() -> None:
    assert I32.lowest == "(-2147483647i - 1i)"
    assert Arith("i64").lowest == "(-9223372036854775807li - 1li)"
    assert SOFT_I64.lowest == "vec2<u32>(0x00000000u, 0x80000000u)"
    assert Arith("u64").highest == "18446744073709551615lu"
    assert F32.highest == "(0x1.fffffe0000000p+127f)"
    assert F32.literal(1e-45) == "bitcast<f32>(0x00000001u)"
    assert F32.literal(-0.0) == "bitcast<f32>(0x80000000u)"
    assert NATIVE.literal(np.inf) == "f64_from_bits(vec2<u32>(0x00000000u, 0x7ff00000u))"
    assert BOOL.literal(True) == "true"


def test_casts() -> None:
    assert F32.cast("x", "f32") == "x"
    assert F32.cast("x", dtypes.int8) == "f32(x)"
    assert F32.cast("x", dtypes.float64) == "f64_to_f32(x)"
    assert SOFT.cast("x", SOFT_I64) == "f64_from_i64(x)"
    assert SOFT_I64.cast("x", "bool") == "i64_from_u32(u32(x))"
    assert BOOL.cast("x", "f64") == "f64_to_bool(x)"
    assert F32(f"x * {F32.cast('load_y(i)', dtypes.bool_)}") == "(x * f32(load_y(i)))"
    with pytest.raises(ValueError, match="vec2<u32>"):
        F32.cast("x", "vec2<u32>")


def test_the_kind_of_every_element_type() -> None:
    everything = frozenset({"shader-f64", "shader-int64"})
    for dtype in dtypes.ALL:
        if dtype.kind in ("complex", "string"):
            with pytest.raises(ValueError, match=dtype.name):
                kind_of(dtype)
            continue
        arith = arith_for(dtype, everything)
        assert arith.kind in KINDS and not arith.software
        assert arith_for(dtype, frozenset()).software == (dtype.bits == 64)
    assert arith_for(dtypes.float16, everything).scalar == "f32"
    assert arith_for(dtypes.int4, everything).scalar == "i32"
    assert arith_for(dtypes.float64, everything).scalar == "f64"
    assert arith_for(dtypes.float64, {"shader-f64"}).scalar == "vec2<u32>"
    assert arith_for(dtypes.uint64, {"shader-int64"}).scalar == "u64"


def test_libraries_come_in_order_of_need() -> None:
    assert libraries({"i32"}, set()) == ["lib/float32.wgsl"]
    assert libraries({"f32"}, {"float8e5m2", "float16"}) == [
        "lib/float32.wgsl",
        "lib/float16.wgsl",
        "lib/float8.wgsl",
    ]
    names = libraries({"f64"}, {"float4e2m1"})
    assert names.index("lib/words.wgsl") < names.index("lib/int64.wgsl") < names.index("lib/float64.wgsl")
    assert names[-1] == "lib/float4.wgsl"


def test_prune_keeps_what_is_reached() -> None:
    library = """
// helper() in a comment keeps nothing
const ONE = 1u;
fn helper() -> u32 { return ONE; }
struct Pair {
    a: u32,
}
fn used() -> u32 {
    return helper();
}
fn unused() -> Pair { return Pair(used()); }
"""
    kept = prune(library, "fn main() { _ = used(); }")
    assert "const ONE" in kept and "fn helper" in kept and "fn used" in kept
    assert "unused" not in kept and "Pair" not in kept
    assert prune(library, "fn main() {}") == ""
