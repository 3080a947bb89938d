{# float32: exact bounds, infinities and NaNs made and tested by their bits, and the functions that
   WGSL lacks or that adapters compute too coarsely (errors of builtins reach 4e-4 for asin and
   tanh loses all relative accuracy near 0).

   Sees nothing that changes it. Polynomials are Chebyshev fits; errors stated are absolute for
   results up to 1 and relative otherwise. #}

// In hexadecimal: some compilers round the decimal digits to infinity.
const F32_MAX: f32 = 0x1.fffffep+127f;
const F32_LOWEST: f32 = -0x1.fffffep+127f;

// WGSL refuses constant expressions that are not finite, hence the variables.
fn inf_f32() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}

fn nan_f32() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

// By bits: compilers may assume that floats are finite and remove x != x.
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }

fn with_sign_f32(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}

// erf within 1.2e-7. From 1 on, -log2(1 - erf) is a polynomial in all but name.
fn erf_f32(x: f32) -> f32 {
    let a = abs(x);
    if (a < 1.0f) {
        let z = x * x;
        var p = 7.87587506e-5f;
        p = fma(p, z, -0.000801686429f);
        p = fma(p, z, 0.00518908742f);
        p = fma(p, z, -0.026854212f);
        p = fma(p, z, 0.112835947f);
        p = fma(p, z, -0.376126267f);
        p = fma(p, z, 1.12837917f);
        return x * p;
    }
    if (is_nan(x)) { return x; }
    let t = min(a, 4.0f);
    var q = 1.91479706e-5f;
    q = fma(q, t, -0.000457243471f);
    q = fma(q, t, 0.00495183632f);
    q = fma(q, t, -0.0326117928f);
    q = fma(q, t, 0.149003156f);
    q = fma(q, t, 0.922085923f);
    q = fma(q, t, 1.62432119f);
    q = fma(q, t, 0.00110495693f);
    return with_sign_f32(1.0f - exp2(-q), x);
}

fn expm1_f32(x: f32) -> f32 {
    if (abs(x) > 0.5f) { return exp(x) - 1.0f; }
    var p = 0.000199621762f;
    p = fma(p, x, 0.00139977734f);
    p = fma(p, x, 0.00833318207f);
    p = fma(p, x, 0.0416653042f);
    p = fma(p, x, 0.166666671f);
    p = fma(p, x, 0.500000043f);
    return fma(p * x, x, x);
}

fn log1p_f32(x: f32) -> f32 {
    if (abs(x) > 0.1f) { return log(1.0f + x); }
    // 2 atanh(s)
    let s = x / (2.0f + x);
    let z = s * s;
    return 2.0f * s * (1.0f + z * (0.333333333f + z * (0.2f + z * 0.142857143f)));
}

fn tanh_f32(x: f32) -> f32 {
    let a = abs(x);
    if (a < 0.55f) {
        let z = x * x;
        var p = -0.00661022783f;
        p = fma(p, z, 0.0213093887f);
        p = fma(p, z, -0.0539094288f);
        p = fma(p, z, 0.133331137f);
        p = fma(p, z, -0.33333332f);
        return fma(p * z, x, x);
    }
    if (is_nan(x)) { return x; }
    let e = exp(-2.0f * min(a, 16.0f));
    return with_sign_f32((1.0f - e) / (1.0f + e), x);
}

fn sinh_f32(x: f32) -> f32 {
    let a = abs(x);
    if (a < 1.0f) {
        let z = x * x;
        let p = 0.166666666f + z * (0.00833333968f + z * (0.00019838102f + z * 2.80628026e-6f));
        return fma(p * z, x, x);
    }
    let half = exp(0.5f * a);  // in two factors: the result is finite a little beyond exp's range
    return with_sign_f32((0.5f * half) * half - 0.5f / half / half, x);
}

fn cosh_f32(x: f32) -> f32 {
    let half = exp(0.5f * abs(x));
    return (0.5f * half) * half + 0.5f / half / half;
}

// x in turns, as a fraction of 2^32 that wraps; for |x| >= 0.5. With x = m * 2^e, whole m times the
// bits of 2^e / (2 pi) below the point is right modulo 1: within two units, whatever the size of x.
fn turns_f32(x: f32) -> u32 {
    var digits = array<u32, 7>(
        0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);  // 1 / (2 pi)
    let bits = bitcast<u32>(x);
    let m = (bits & 0x7fffffu) | 0x800000u;
    let skip = min((bits >> 23u) & 0xffu, 254u) - 118u;  // e + 32
    let word = skip >> 5u;
    let s = skip & 31u;
    let high = (digits[word] << s) | ((digits[word + 1u] >> 1u) >> (31u - s));
    let low = (digits[word + 1u] << s) | ((digits[word + 2u] >> 1u) >> (31u - s));
    let t = m * high + u32(f32(m) * (f32(low) * 2.3283064e-10f));
    return select(t, 0u - t, (bits >> 31u) != 0u);
}

// sin(x + quadrants * pi / 2); within 1e-7.
fn sin_shifted_f32(x: f32, quadrants: i32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan_f32(); }
    var q = quadrants;
    var r = x;
    if (abs(x) >= 4096.0f) {
        let t = turns_f32(x);
        let n = (t + 0x20000000u) >> 30u;
        q += i32(n);
        r = f32(bitcast<i32>(t - (n << 30u))) * 1.46291808e-9f;  // 2 pi / 2^32
    } else {
        let n = round(x * 0.636619772f);
        q += i32(n);
        // pi / 2 in parts short enough that the products are exact even where fma rounds twice.
        r = fma(n, -1.5703125f, x);
        r = fma(n, -0.00048375129f, r);
        r = fma(n, -7.54978995e-8f, r);
    }
    let z = r * r;
    var v = r + r * z * (-0.166666667f + z * (0.00833333187f + z * (-0.000198400865f + z * 2.72498952e-6f)));
    if ((q & 1) != 0) {
        v = 1.0f + z * (-0.5f + z * (0.0416666666f + z * (-0.00138888851f + z * (2.47998618e-5f
            - z * 2.72371086e-7f))));
    }
    return select(v, -v, (q & 2) != 0);
}

fn sin_f32(x: f32) -> f32 { return sin_shifted_f32(x, 0); }
fn cos_f32(x: f32) -> f32 { return sin_shifted_f32(x, 1); }
fn tan_f32(x: f32) -> f32 { return sin_shifted_f32(x, 0) / sin_shifted_f32(x, 1); }

// asin of a in 0..0.5
fn asin_small_f32(a: f32) -> f32 {
    let z = a * a;
    let p = 0.166666724f + z * (0.0749885507f + z * (0.0450013801f + z * (0.0265545422f + z * 0.0380850236f)));
    return fma(p * z, a, a);
}

fn asin_f32(x: f32) -> f32 {
    let a = abs(x);
    if (!(a <= 1.0f)) { return nan_f32(); }
    if (a <= 0.5f) { return with_sign_f32(asin_small_f32(a), x); }
    return with_sign_f32(1.57079633f - 2.0f * asin_small_f32(sqrt(0.5f * (1.0f - a))), x);
}

fn acos_f32(x: f32) -> f32 {
    let a = abs(x);
    if (!(a <= 1.0f)) { return nan_f32(); }
    if (a <= 0.5f) { return 1.57079633f - with_sign_f32(asin_small_f32(a), x); }
    let v = 2.0f * asin_small_f32(sqrt(0.5f * (1.0f - a)));
    return select(v, 3.14159265f - v, x < 0.0f);
}

fn atan_f32(x: f32) -> f32 {
    let a = abs(x);
    var t = a;
    var base = 0.0f;
    if (a > 2.41421356f) {
        t = -1.0f / min(a, F32_MAX);
        base = 1.57079633f;
    } else if (a > 0.414213562f) {
        t = (a - 1.0f) / (a + 1.0f);
        base = 0.785398163f;
    }
    if (is_nan(x)) { return x; }
    let z = t * t;
    let p = -0.333333318f + z * (0.199995403f + z * (-0.142639498f + z * (0.107436683f - z * 0.0645171887f)));
    return with_sign_f32(base + fma(p * z, t, t), x);
}

// WGSL's pow knows no negative base. Whole powers up to 64 are products; 0^0 = 1.
fn pow_f32(x: f32, y: f32) -> f32 {
    let whole = y == trunc(y);
    if (whole && abs(y) <= 64.0f) {
        var p = 1.0f;
        var square = x;
        for (var n = u32(abs(y)); n != 0u; n >>= 1u) {
            if ((n & 1u) != 0u) { p *= square; }
            square *= square;
        }
        return select(p, 1.0f / p, y < 0.0f);
    }
    if (x == 1.0f) { return 1.0f; }
    if (is_nan(x) || is_nan(y) || (x < 0.0f && !whole && !is_inf(x))) { return nan_f32(); }
    let a = abs(x);
    var p: f32;
    if (a == 0.0f || is_inf(a)) {
        p = select(inf_f32(), 0.0f, (a == 0.0f) == (y > 0.0f));
    } else {
        p = exp2(y * log2(a));
    }
    // Floats from 2^24 on are even.
    let odd = whole && abs(y) < 16777216.0f && (i32(y) & 1) != 0;
    return select(p, -p, odd && (bitcast<u32>(x) >> 31u) != 0u);
}

fn sigmoid_f32(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(1.0f, e, x < 0.0f) / (1.0f + e);
}

fn softplus_f32(x: f32) -> f32 { return max(x, 0.0f) + log1p_f32(exp(-abs(x))); }

// Floats narrower than f32, for lib/float16, float8 and float4: a code is the magnitude's bits with
// `mantissa` bits below the exponent and the given bias; signs, infinities and NaNs are the
// callers'. All on bits: adapters may flush subnormals, and their own packing rounds as it likes.

fn widen_code(code: u32, mantissa: u32, bias: u32) -> u32 {
    let normal = (code << (23u - mantissa)) + ((127u - bias) << 23u);
    let unit = bitcast<f32>((128u - bias - mantissa) << 23u);  // the smallest subnormal, normal in f32
    return select(normal, bitcast<u32>(f32(code) * unit), code < (1u << mantissa));
}

// The code nearest to the finite magnitude with these f32 bits, ties to even; unbounded above.
fn narrow_code(bits: u32, mantissa: u32, bias: u32) -> u32 {
    let lowest = 128u - bias;  // the f32 exponent of the smallest normal
    let e = max(bits >> 23u, 1u);
    let m = (bits & 0x7fffffu) | (u32(bits >= 0x800000u) << 23u);
    let shift = min(23u - mantissa + max(lowest, e) - e, 25u);
    let rounded = (m + (1u << (shift - 1u)) - 1u + ((m >> shift) & 1u)) >> shift;
    return ((max(lowest, e) - lowest) << mantissa) + rounded;
}
