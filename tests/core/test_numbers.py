"""The number libraries, run on the adapter against NumPy and ml_dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np
import pytest
import wgpu

from webgpu_ops.core import template
from webgpu_ops.core.arith import Arith, is_native, libraries, prune
from webgpu_ops.core.device import Device

FORMS = {
    "software": frozenset(),
    "mixed": frozenset({"shader-int64"}),
    "native": frozenset({"shader-f64", "shader-int64"}),
}
BOTH = pytest.mark.parametrize("form", ["software", "native"])
NUMPY = {
    "f32": np.float32,
    "i32": np.int32,
    "u32": np.uint32,
    "bool": np.uint32,
    "f64": np.float64,
    "i64": np.int64,
    "u64": np.uint64,
}


def features(form: str) -> frozenset[str]:
    if not FORMS[form] <= set(Device.default().gpu.features):
        pytest.skip(f"the adapter lacks {', '.join(sorted(FORMS[form]))}")
    return FORMS[form]


@cache
def pipeline(body: str, form: str, narrow: tuple[str, ...]) -> wgpu.GPUComputePipeline:
    used = features(form)
    context = {"features": used, "arith_of": lambda kind: Arith(kind, is_native(kind, used))}
    names = libraries({"f32", "f64"}, narrow)
    library = "\n".join(template.render(name.removesuffix(".wgsl"), context) for name in names)
    source = f"""
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> r: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
    let n = arrayLength(&r);
    _ = a[0];  // the layout always has both
    {body}
}}"""
    gpu = Device.default().gpu
    module = gpu.create_shader_module(code=prune(library, source) + source)
    return gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})


def run(body: str, words: np.ndarray, results: int, form: str, narrow: tuple[str, ...] = ()) -> np.ndarray:
    """``results`` words that ``body`` writes to r, from ``words`` in a; one invocation a word of r."""
    gpu, program = Device.default().gpu, pipeline(body, form, narrow)
    storage = wgpu.BufferUsage.STORAGE
    source = gpu.create_buffer_with_data(data=np.ascontiguousarray(words), usage=storage)
    target = gpu.create_buffer(size=4 * results, usage=storage | wgpu.BufferUsage.COPY_SRC)
    group = gpu.create_bind_group(
        layout=program.get_bind_group_layout(0),
        entries=[
            {"binding": 0, "resource": {"buffer": source}},
            {"binding": 1, "resource": {"buffer": target}},
        ],
    )
    encoder = gpu.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(program)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(-(-results // 64))
    compute.end()
    gpu.queue.submit([encoder.finish()])
    return np.frombuffer(gpu.queue.read_buffer(target), np.uint32).copy()


def width(kind: str) -> int:
    return 2 if kind.endswith("64") else 1


def compute(expr: str, kind: str, form: str, *operands: np.ndarray, result: str = "") -> np.ndarray:
    """``expr`` of x, y, ... translated for ``kind``, over arrays of operands.

    ``result`` is the kind of its value where that is not ``kind``.
    """
    used = features(form)
    return evaluate(Arith(kind, is_native(kind, used))(expr), kind, form, *operands, result=result)


def evaluate(wgsl: str, kind: str, form: str, *operands: np.ndarray, result: str = "") -> np.ndarray:
    """WGSL over operands of ``kind`` named x, y, ..."""
    result = result or kind
    columns = [
        np.ascontiguousarray(o, NUMPY[kind]).view(np.uint32).reshape(-1, width(kind)) for o in operands
    ]
    words = np.concatenate(columns, axis=1)
    lines = [f"if (i >= n / {width(result)}u) {{ return; }}"]
    for k, name in enumerate("xyz"[: len(operands)]):
        at = f"i * {words.shape[1]}u + {k * width(kind)}u"
        if kind.endswith("64"):
            lines.append(f"let {name} = {kind}_from_bits(vec2<u32>(a[{at}], a[{at} + 1u]));")
        elif kind == "bool":
            lines.append(f"let {name} = a[{at}] != 0u;")
        else:
            lines.append(f"let {name} = bitcast<{kind}>(a[{at}]);")
    if result.endswith("64"):
        lines.append(f"let v = {result}_bits({wgsl}); r[2u * i] = v.x; r[2u * i + 1u] = v.y;")
    elif result == "bool":
        lines.append(f"r[i] = u32({wgsl});")
    else:
        lines.append(f"r[i] = bitcast<u32>({wgsl});")
    count = len(operands[0]) * width(result)
    return run("\n    ".join(lines), words, count, form).view(NUMPY[result])


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values, where NaN equals NaN and zeros of either sign are alike."""
    wrong = np.flatnonzero(~((got == want) | ((got != got) & (want != want))))
    assert not wrong.size, (
        f"{wrong.size} of {got.size} differ, first {got[wrong[0]]!r}, not {want[wrong[0]]!r}"
    )


def close(got: np.ndarray, want: np.ndarray, relative: float, absolute: float = 0.0) -> None:
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=relative, atol=absolute)


# Narrow floats

NARROW = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
}


def codes(name: str) -> np.ndarray:
    """Every code of a narrow type, as NumPy stores it."""
    bits = {"float16": 16, "bfloat16": 16, "float4e2m1": 4}.get(name, 8)
    return np.arange(1 << bits, dtype=np.uint32).astype(np.uint16 if bits == 16 else np.uint8)


def bit_patterns() -> np.ndarray:
    """float32 samples of all exponents, dense around every number a narrow type can hold or tie at."""
    rng = np.random.default_rng(3)
    parts = [rng.integers(0, 1 << 32, 20000, dtype=np.uint32)]
    edges = (np.arange(256, dtype=np.uint32)[:, None] << 23) | (
        np.arange(0, 1 << 23, 1 << 18, dtype=np.uint32)
    )
    for offset in (-1, 0, 1):
        parts.append(edges.ravel() + np.uint32(offset & 0xFFFFFFFF))
    # float16's and bfloat16's ties, among normals and subnormals
    for unit in (12, 13, 15, 16):
        numbers = rng.integers(0, 1 << 31, 8000, dtype=np.uint32) >> unit << unit
        parts += [numbers, numbers + np.uint32(1), numbers - np.uint32(1)]
    small = np.float32(2.0**-25) * np.arange(1, 4096, dtype=np.float32)
    parts += [
        small.view(np.uint32),
        small.view(np.uint32) + np.uint32(1),
        small.view(np.uint32) - np.uint32(1),
    ]
    bits = np.unique(np.concatenate(parts))
    return np.concatenate([bits, bits ^ np.uint32(1 << 31)])


@pytest.mark.parametrize("name", NARROW)
def test_every_code_decodes_exactly(name: str) -> None:
    stored = codes(name)
    with np.errstate(invalid="ignore"):
        want = stored.view(NARROW[name]).astype(np.float32)
    words = stored.astype(np.uint32)
    garbage = (words << (8 * stored.itemsize)) if name != "float4e2m1" else (words << 4)
    got = run(
        f"if (i >= n) {{ return; }} r[i] = bitcast<u32>(decode_{name}(a[i]));",
        words | garbage,
        words.size,
        "software",
        (name,),
    ).view(np.float32)
    numbers = ~np.isnan(want)
    assert (np.isnan(got) == ~numbers).all()
    np.testing.assert_array_equal(got[numbers].view(np.uint32), want[numbers].view(np.uint32))


@pytest.mark.parametrize("name", NARROW)
def test_encoding_rounds_to_nearest_even(name: str) -> None:
    dtype = NARROW[name]
    values = bit_patterns().view(np.float32)
    with np.errstate(all="ignore"):
        want = values.astype(dtype)
        if name.startswith("float8"):  # ONNX saturates where ml_dtypes overflows
            largest = np.float32(ml_dtypes.finfo(dtype).max)
            want = np.clip(values, -largest, largest).astype(dtype)
        if name == "float8e8m0":
            want[values == 0] = ml_dtypes.finfo(dtype).smallest_normal
            want[np.isinf(values)] = np.nan
        if name == "float4e2m1":
            want[np.isnan(values)] = 6 * np.where(np.signbit(values[np.isnan(values)]), -1, 1)
    body = f"if (i >= n) {{ return; }} r[i] = encode_{name}(bitcast<f32>(a[i]));"
    got = run(body, values.view(np.uint32), values.size, "software", (name,))
    assert got.max() < 1 << (4 if name == "float4e2m1" else 8 * np.dtype(dtype).itemsize)
    decoded = got.astype(codes(name).dtype).view(dtype)
    numbers = ~np.isnan(want.astype(np.float32))
    assert (np.isnan(decoded.astype(np.float32)) == ~numbers).all()
    wrong = np.flatnonzero(decoded[numbers].view(codes(name).dtype) != want[numbers].view(codes(name).dtype))
    assert not wrong.size, f"{wrong.size} wrong, first {values[numbers][wrong[0]]!r}"


# float32

FINE = np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(1e-30, 1e-2, 400)]).astype(np.float32)
erf = np.vectorize(math.erf, otypes=[np.float64])


@pytest.mark.parametrize(
    ("expr", "reference", "values", "relative", "absolute"),
    [
        ("erf(x)", erf, FINE, 3e-7, 0),
        ("tanh(x)", np.tanh, FINE, 1e-6, 0),
        ("sinh(x)", np.sinh, FINE, 3e-6, 0),
        ("cosh(x)", np.cosh, FINE, 3e-6, 0),
        ("expm1(x)", np.expm1, FINE, 3e-6, 0),
        ("log1p(x)", np.log1p, np.abs(FINE), 2e-6, 0),
        ("log1p(x)", np.log1p, -np.abs(FINE) / 13, 2e-6, 0),
        ("sin(x)", np.sin, FINE, 0, 2e-7),
        ("cos(x)", np.cos, FINE, 0, 2e-7),
        ("sin(x)", np.sin, FINE * 8000, 0, 2e-7),
        ("cos(x)", np.cos, FINE * 8000, 0, 2e-7),
        ("tan(x)", np.tan, FINE / 8, 1e-6, 0),
        ("asin(x)", np.arcsin, FINE / 12, 1e-6, 0),
        ("acos(x)", np.arccos, FINE / 12, 1e-6, 2e-7),
        ("atan(x)", np.arctan, FINE * 4, 1e-6, 0),
        ("sigmoid(x)", lambda x: 1 / (1 + np.exp(-x)), FINE * 6, 5e-6, 0),
        ("softplus(x)", lambda x: np.logaddexp(0, x), FINE * 6, 5e-6, 0),
    ],
)
def test_f32_functions(
    expr: str, reference: Callable[..., np.ndarray], values: np.ndarray, relative: float, absolute: float
) -> None:
    close(compute(expr, "f32", "software", values), reference(values.astype(np.float64)), relative, absolute)


def test_f32_functions_far_out() -> None:
    x = np.array([1e30, -1e30, 3e38, -3e38, 100, -100, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        same(compute("tanh(x)", "f32", "software", x), np.tanh(x))
        same(compute("erf(x)", "f32", "software", x), erf(x).astype(np.float32))
        close(compute("atan(x)", "f32", "software", x), np.arctan(x), 1e-6)
        close(compute("softplus(x)", "f32", "software", x[:6]), np.logaddexp(0, x[:6]), 1e-6, 1e-37)
        close(compute("sigmoid(x)", "f32", "software", x[:6]), [1, 0, 1, 0, 1, 0], 1e-6, 1e-37)
        same(compute("is_nan(x)", "f32", "software", x, result="bool"), np.isnan(x))
        same(compute("is_inf(x)", "f32", "software", x, result="bool"), np.isinf(x))


def test_f32_pow() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(0.01, 30, 500).astype(np.float32)
    y = rng.uniform(-9, 9, 500).astype(np.float32)
    x = np.concatenate([x, x * rng.choice([-1, 1], 500).astype(np.float32)])
    y = np.concatenate([y, np.rint(y)])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    close(compute("pow(x, y)", "f32", "software", x, y), want, 1e-5)
    special = np.array([0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 101, -0.5, np.inf, -np.inf, np.nan], np.float32)
    x, y = (g.ravel() for g in np.meshgrid(special, special))
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    defined = ~np.isinf(y)  # what an infinite exponent does is left to the adapter
    got = compute("pow(x, y)", "f32", "software", x, y)[defined]
    np.testing.assert_allclose(got, want[defined], rtol=1e-5, atol=1e-37)


def test_f32_literals_are_exact() -> None:
    values = [0.1, 1 / 3, 3.4028234663852886e38, -3.4028234663852886e38, 1e-45, 1.1754943508222875e-38]
    values += [-0.0, 16777217.0, 2.0**-126, math.inf, -math.inf, math.nan, 123456.789e-30, 65504.0]
    arith = Arith("f32")
    cases = "".join(f"case {k}u: {{ v = {arith.literal(x)}; }} " for k, x in enumerate(values))
    body = f"var v = 0.0f; switch (i) {{ {cases} default: {{ return; }} }} r[i] = bitcast<u32>(v);"
    got = run(body, np.zeros(1, np.uint32), len(values), "software").view(np.float32)
    want = np.array(values, np.float32)
    assert ((got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))).all()
    bounds = run("r[0] = bitcast<u32>(F32_MAX); r[1] = bitcast<u32>(F32_LOWEST);", got, 2, "software")
    assert bounds.tolist() == [0x7F7FFFFF, 0xFF7FFFFF]


# float64

TINY = [5e-324, -5e-324, 1e-310, 2.225073858507201e-308, 2.2250738585072014e-308]
HUGE = [1.7976931348623157e308, -1.7976931348623157e308, 4503599627370495.5, 4503599627370496.0, 2.0**53 + 2]
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, 3, 1 / 3, np.inf, -np.inf, np.nan, *TINY, *HUGE])


def doubles(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs: all bit patterns, moderate numbers, near-equal numbers, and all pairs of special ones."""
    rng = np.random.default_rng(11)
    wild = rng.integers(0, 1 << 64, n, dtype=np.uint64).view(np.float64)
    tame = rng.standard_normal(n) * 10.0 ** rng.integers(-5, 5, n)
    with np.errstate(all="ignore"):
        x = np.concatenate([wild, tame, tame, wild, np.repeat(SPECIAL, SPECIAL.size)])
        near = tame * (1 + rng.integers(-5, 5, n) * 2.0**-52)
        other = [rng.permutation(wild), rng.permutation(tame), near, wild * rng.standard_normal(n)]
        y = np.concatenate([*other, np.tile(SPECIAL, SPECIAL.size)])
    return x, y


@BOTH
@pytest.mark.parametrize(
    ("expr", "reference"),
    [
        ("x + y", np.add),
        ("x - y", np.subtract),
        ("x * y", np.multiply),
        ("x / y", np.divide),
        ("x % y", np.fmod),
        ("min(x, y)", np.fmin),
        ("max(x, y)", np.fmax),
    ],
)
def test_f64_arithmetic_is_exact(expr: str, reference: Callable[..., np.ndarray], form: str) -> None:
    x, y = doubles(2000)
    with np.errstate(all="ignore"):
        same(compute(expr, "f64", form, x, y), reference(x, y))


@BOTH
@pytest.mark.parametrize("expr", ["x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y"])
def test_f64_comparisons(expr: str, form: str) -> None:
    x, y = doubles(200)
    want = eval(expr, {"x": x, "y": y})
    same(compute(expr, "f64", form, x, y, result="bool"), want)


@BOTH
@pytest.mark.parametrize(
    ("expr", "reference"),
    [
        ("sqrt(x)", np.sqrt),
        ("floor(x)", np.floor),
        ("ceil(x)", np.ceil),
        ("trunc(x)", np.trunc),
        ("round(x)", np.rint),
        ("abs(x)", np.abs),
        ("-x", np.negative),
        ("sign(x)", np.sign),
    ],
)
def test_f64_functions_are_exact(expr: str, reference: Callable[..., np.ndarray], form: str) -> None:
    x, _ = doubles(2000)
    x = np.concatenate([x, np.arange(-40, 40) / 4.0, np.abs(x)])
    with np.errstate(all="ignore"):
        same(compute(expr, "f64", form, x), reference(x))


@BOTH
def test_f64_keeps_the_sign_of_zero(form: str) -> None:
    x = np.array([-0.0, -0.25, 0.0, 0.25])
    for expr in ("round(x)", "trunc(x)", "x * x * x * 5e-324", "x + x"):
        assert np.signbit(compute(expr, "f64", form, x)).tolist() == [True, True, False, False], expr
    assert not np.signbit(compute("x - x", "f64", form, x)).any()


def spread(low: float, high: float, tiny: bool = True) -> np.ndarray:
    rng = np.random.default_rng(13)
    parts = [np.linspace(low, high, 257), rng.uniform(max(low, -2), min(high, 2), 200)]
    if tiny:
        parts.append(np.geomspace(1e-14, 0.5, 60) * rng.choice([-1, 1], 60))
    return np.concatenate(parts)


POSITIVE = np.concatenate(
    [np.geomspace(5e-324, 1e308, 300), spread(0.4, 2.5, False), [1 + 2.0**-52, 1 - 2.0**-53]]
)


@BOTH
@pytest.mark.parametrize(
    ("expr", "reference", "values"),
    [
        ("exp(x)", np.exp, spread(-744, 709.7)),
        ("exp2(x)", np.exp2, spread(-1074, 1023.9)),
        ("expm1(x)", np.expm1, spread(-60, 709)),
        ("log(x)", np.log, POSITIVE),
        ("log2(x)", np.log2, POSITIVE),
        ("log1p(x)", np.log1p, spread(-0.999, 30)),
        ("sin(x)", np.sin, np.concatenate([spread(-1e5, 1e5), np.arange(1, 60) * (math.pi / 2)])),
        ("cos(x)", np.cos, np.concatenate([spread(-1e5, 1e5), np.arange(1, 60) * (math.pi / 2)])),
        ("tan(x)", np.tan, spread(-1e5, 1e5)),
        ("sinh(x)", np.sinh, spread(-710, 710)),
        ("cosh(x)", np.cosh, spread(-710, 710)),
        ("tanh(x)", np.tanh, spread(-40, 40)),
        ("asin(x)", np.arcsin, spread(-1, 1)),
        ("acos(x)", np.arccos, spread(-1, 1)),
        ("atan(x)", np.arctan, spread(-1e3, 1e3)),
        ("erf(x)", erf, spread(-7, 7)),
        ("sigmoid(x)", lambda x: 1 / (1 + np.exp(-x)), spread(-700, 700)),
        ("softplus(x)", lambda x: np.logaddexp(0, x), spread(-30, 700)),
    ],
)
def test_f64_transcendental(
    expr: str, reference: Callable[..., np.ndarray], values: np.ndarray, form: str
) -> None:
    # Below the normal range an ulp is more than 1e-12 of the result.
    close(compute(expr, "f64", form, values), reference(values), 1e-12, 5e-324)


@BOTH
def test_f64_functions_far_out(form: str) -> None:
    x = np.array([0.0, 1e300, -1e300, np.inf, -np.inf, np.nan, 800.0, -800.0])
    with np.errstate(all="ignore"):
        exp = compute("exp(x)", "f64", form, x)
        same(exp, np.exp(x))
        same(compute("tanh(x)", "f64", form, x), np.tanh(x))
        same(compute("erf(x)", "f64", form, x), erf(x))
        same(compute("log(x)", "f64", form, np.maximum(x, -1)) >= 0, np.log(np.maximum(x, -1)) >= 0)
        same(compute("is_nan(x)", "f64", form, x, result="bool"), np.isnan(x))
        same(compute("is_inf(x)", "f64", form, x, result="bool"), np.isinf(x))


@BOTH
def test_f64_pow(form: str) -> None:
    rng = np.random.default_rng(5)
    special = [0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 101, -0.5, np.inf, -np.inf, np.nan]
    corner_x, corner_y = (g.ravel() for g in np.meshgrid(special, special))
    x = np.concatenate([10.0 ** rng.uniform(-30, 30, 500), corner_x])
    y = np.concatenate([rng.uniform(-10, 10, 500), corner_y])
    with np.errstate(all="ignore"):
        want = np.power(x, y)
    close(compute("pow(x, y)", "f64", form, x, y), want, 1e-12)


@BOTH
def test_one_expression_for_both_forms(form: str) -> None:
    x = np.linspace(-3, 3, 200)
    want = np.where(x > 0, x * 0.5 * (1 + erf(x / math.sqrt(2))), x**2 - 1 / 3)
    got = compute("x * 0.5 * (1.0 + erf(x / sqrt(2.0))) if x > 0 else x ** 2 - 1 / 3", "f64", form, x)
    close(got, want, 1e-12, 1e-16)


# 64-bit integers


def integers(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(17)
    info = np.iinfo(NUMPY[kind])
    wide = rng.integers(info.min, info.max, n, dtype=NUMPY[kind], endpoint=True)
    short = wide >> rng.integers(0, 63, n).astype(NUMPY[kind])
    edges = np.array([0, 1, 2, 3, 7, 2**31, 2**32 - 1, 2**32, int(info.max), int(info.min)], NUMPY[kind])
    if kind == "i64":
        edges = np.concatenate([edges, -edges[:-1]])
    x = np.concatenate([wide, short, wide, np.repeat(edges, edges.size)])
    y = np.concatenate([rng.permutation(wide), rng.permutation(short), short, np.tile(edges, edges.size)])
    return x, y


def truncated(x: int, y: int) -> tuple[int, int]:
    """C's quotient and remainder, and WGSL's answer to zero."""
    if y == 0:
        return x, 0
    q = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return q, x - q * y


@BOTH
@pytest.mark.parametrize("kind", ["i64", "u64"])
def test_64_bit_integers(kind: str, form: str) -> None:
    x, y = integers(kind, 300)
    with np.errstate(all="ignore"):
        for expr in ("x + y", "x - y", "x * y", "x & y", "x | y", "x ^ y", "~x", "-x"):
            same(compute(expr, kind, form, x, y), eval(expr, {"x": x, "y": y}))
        for expr in ("x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y"):
            same(compute(expr, kind, form, x, y, result="bool"), eval(expr, {"x": x, "y": y}))
        functions = {"min": np.minimum, "max": np.maximum}
        for name, function in functions.items():
            same(compute(f"{name}(x, y)", kind, form, x, y), function(x, y))
        same(compute("abs(x)", kind, form, x), np.abs(x))
        same(compute("sign(x)", kind, form, x), np.sign(x))


@BOTH
@pytest.mark.parametrize("kind", ["i64", "u64"])
def test_64_bit_division_truncates(kind: str, form: str) -> None:
    x, y = integers(kind, 300)
    want = np.array([truncated(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)], object)
    mask = (1 << 64) - 1
    wrapped = np.array([[int(v) & mask for v in pair] for pair in want], np.uint64).view(NUMPY[kind])
    same(compute("x // y", kind, form, x, y), wrapped[:, 0])
    same(compute("x % y", kind, form, x, y), wrapped[:, 1])


@BOTH
@pytest.mark.parametrize("kind", ["i64", "u64"])
def test_64_bit_shifts(kind: str, form: str) -> None:
    x, _ = integers(kind, 100)
    x = np.repeat(x[:150], 8)
    n = np.tile(np.array([0, 1, 17, 31, 32, 33, 62, 63], NUMPY[kind]), x.size // 8)
    same(compute("x << y", kind, form, x, n), x << n)
    same(compute("x >> y", kind, form, x, n), x >> n)
    same(compute("(x << 40) >> 3", kind, form, x), (x << NUMPY[kind](40)) >> NUMPY[kind](3))


# Conversions


def samples(kind: str) -> np.ndarray:
    """Values of a kind where conversions go wrong; floats without NaN."""
    rng = np.random.default_rng(19)
    if kind == "bool":
        return np.array([0, 1], np.uint32)
    if kind in ("i64", "u64"):
        return integers(kind, 300)[0]
    if kind in ("i32", "u32"):
        info = np.iinfo(NUMPY[kind])
        random = rng.integers(info.min, info.max, 300, dtype=NUMPY[kind], endpoint=True)
        return np.concatenate([random, np.array([info.min, info.max, 0, 1, 16777217], NUMPY[kind])])
    powers = 2.0 ** np.arange(-3, 66)
    edges = np.concatenate([powers, powers * (1 - 2.0**-24), powers * (1 + 2.0**-23), powers - 0.5])
    numbers = rng.standard_normal(500) * 10.0 ** rng.integers(-40, 25, 500)
    every = np.concatenate([edges, -edges, numbers, [0, -0.0, 0.999, -0.999, np.inf, -np.inf, 1e39, 1e-45]])
    if kind == "f64":
        ties = (1 + rng.integers(0, 1 << 24, 300) * 2.0**-24) * 2.0 ** rng.integers(-150, 128, 300)
        every = np.concatenate([every, ties, -ties, doubles(300)[0]])
    with np.errstate(over="ignore", invalid="ignore"):
        every = every.astype(NUMPY[kind])
    return every[~np.isnan(every)]


def converted(values: np.ndarray, target: str) -> np.ndarray:
    if target == "bool":
        return (values != 0).astype(np.uint32)
    dtype = NUMPY[target]
    if values.dtype.kind != "f" or target in ("f32", "f64"):
        with np.errstate(over="ignore"):
            return values.astype(dtype)
    info = np.iinfo(dtype)
    whole = [info.max if v > info.max else info.min if v < info.min else int(v) for v in values.tolist()]
    return np.array(whole, dtype)


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("source", ["f64", "i64", "u64"])
def test_conversions_of_64_bits(source: str, form: str) -> None:
    used = features(form)
    values = samples(source)
    for target in NUMPY:
        if target != source:
            text = Arith(target, is_native(target, used)).cast("x", source)
            same(evaluate(text, source, form, values, result=target), converted(values, target))


@pytest.mark.parametrize("form", list(FORMS))
@pytest.mark.parametrize("source", ["f32", "i32", "u32", "bool"])
def test_conversions_to_64_bits(source: str, form: str) -> None:
    used = features(form)
    values = samples(source)
    for target in ("f64", "i64", "u64"):
        text = Arith(target, is_native(target, used)).cast("x", source)
        same(evaluate(text, source, form, values, result=target), converted(values, target))


@BOTH
def test_nan_converts(form: str) -> None:
    used = features(form)
    for source in ("f32", "f64"):
        to_bool = Arith("bool").cast("x", source)
        nan = np.array([np.nan, -np.nan], NUMPY[source])
        for target in ("i64", "u64"):
            text = Arith(target, is_native(target, used)).cast("x", source)
            assert not evaluate(text, source, form, nan, result=target).any()
        assert evaluate(to_bool, source, form, nan, result="bool").all()
        assert compute("x != y", source, form, nan, nan, result="bool").all()
    assert np.isnan(evaluate("f64_to_f32(x)", "f64", form, np.array([np.nan, -np.nan]), result="f32")).all()
    assert np.isnan(evaluate("f64_from_f32(x)", "f32", form, np.array([np.nan]), result="f64")).all()


@BOTH
def test_literals_of_64_bits(form: str) -> None:
    used = features(form)
    values = {
        "f64": [0.1, -1 / 3, 1e300, 5e-324, 1.7976931348623157e308, -0.0, math.inf, -math.inf, 2.0**60],
        "i64": [0, -1, 2**63 - 1, -(2**63), 2**40 + 3],
        "u64": [0, 1, 2**64 - 1, 2**63],
    }
    for kind, numbers in values.items():
        arith = Arith(kind, is_native(kind, used))
        for number in numbers:
            got = evaluate(arith.literal(number), kind, form, np.zeros(1, NUMPY[kind]))
            assert got.tobytes() == np.array([number], NUMPY[kind]).tobytes(), (kind, number)
