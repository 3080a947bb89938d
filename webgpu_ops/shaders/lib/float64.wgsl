{# float64.

   Sees: features, arith_of(kind). Native form (shader-f64 and shader-int64): the operators are
   WGSL's. Software form: every operator is a function on vec2<u32>, the bits of the double, low
   word first, after lib/words.wgsl; results are those of IEEE 754 rounding to nearest even, with
   subnormals, and every NaN result is the canonical quiet one. fma rounds twice there.

   The second half, from f64_min on, is written once for both forms with F, because drivers compute
   what WGSL has for f64 beyond square roots in single precision, if at all. Those functions are
   within 1e-12 of the result, sin, cos and tan for |x| up to 1e5. Polynomials are Chebyshev fits to
   about 1e-17 (erf beyond 1.5: 6e-15). In software they run in loops over tables: drivers inline
   every call, and an addition is long there, so what counts for compilation is how many of them the
   text has.

   F leaves the arguments of functions it does not know alone, so a template that calls f64_... by
   name gives them finished values. #}
#% set F = arith_of("f64")
#% set scalar = F.scalar
#% set L = arith_of("i64")
#% set U = arith_of("u64")
#% if F.native

fn f64_bits(v: f64) -> vec2<u32> {
    let bits = bitcast<u64>(v);
    return vec2<u32>(u32(bits), u32(bits >> 32u));
}

fn f64_from_bits(v: vec2<u32>) -> f64 { return bitcast<f64>((u64(v.y) << 32u) | u64(v.x)); }

fn f64_from_f32(v: f32) -> f64 { return f64(v); }
fn f64_from_i32(v: i32) -> f64 { return f64(v); }
fn f64_from_u32(v: u32) -> f64 { return f64(v); }
fn f64_from_i64(v: i64) -> f64 { return f64(v); }
fn f64_from_u64(v: u64) -> f64 { return f64(v); }
fn f64_to_f32(v: f64) -> f32 { return f32(v); }
fn f64_to_bool(v: f64) -> bool { return !(v == 0.0lf); }

// Drivers have floor and ceil right, but trunc and round of large numbers and the sign of zero wrong.
fn f64_trunc(x: f64) -> f64 { return f64_with_sign(floor(abs(x)), x); }

fn f64_round(x: f64) -> f64 {
    let a = abs(x);
    let down = floor(a);
    let rest = a - down;
    let odd = floor(0.5lf * down) != 0.5lf * down;
    let up = rest > 0.5lf || (rest == 0.5lf && odd);
    return f64_with_sign(select(down, down + 1.0lf, up), x);
}

// x * 2^k: three factors reach across the whole range, from and to subnormals.
fn f64_ldexp(x: f64, k: i32) -> f64 {
    let n = clamp(k, -3000, 3000);
    let third = f64_from_bits(vec2<u32>(0u, u32(n / 3 + 1023) << 20u));
    let rest = f64_from_bits(vec2<u32>(0u, u32(n - 2 * (n / 3) + 1023) << 20u));
    return x * third * third * rest;
}
#% else

fn f64_bits(v: vec2<u32>) -> vec2<u32> { return v; }
fn f64_from_bits(v: vec2<u32>) -> vec2<u32> { return v; }

const F64_NAN = vec2<u32>(0u, 0x7ff80000u);

fn f64_is_zero(x: vec2<u32>) -> bool { return (x.x | (x.y << 1u)) == 0u; }

// A finite |x| = m * 2^e; the highest bit of m is set unless x is zero.
struct F64Parts {
    m: vec2<u32>,
    e: i32,
}

fn f64_parts(x: vec2<u32>) -> F64Parts {
    let biased = (x.y >> 20u) & 0x7ffu;
    let m = vec2<u32>(x.x, (x.y & 0xfffffu) | (u32(biased != 0u) << 20u));
    let zeros = u64_leading_zeros(m);
    return F64Parts(u64_shl(m, zeros), i32(max(biased, 1u)) - 1075 - i32(zeros));
}

// The double nearest to m * 2^e; the lowest bit of m may stand for a non-zero rest below it.
// sign is 0 or 0x80000000.
fn f64_round_bits(sign: u32, e: i32, m: vec2<u32>) -> vec2<u32> {
    if (all(m == vec2<u32>())) { return vec2<u32>(0u, sign); }
    let zeros = u64_leading_zeros(m);
    let biased = e - i32(zeros) + 1086;
    if (biased >= 2047) { return vec2<u32>(0u, sign | 0x7ff00000u); }
    var v = u64_shr_sticky(u64_shl(m, zeros), u32(max(2 - biased, 1)));
    v = u64_add(v, vec2<u32>(0x1ffu + ((v.x >> 10u) & 1u), 0u));
    // The leading one lands in the exponent, and so does a carry out of the rounding.
    let high = (u32(max(biased, 1) - 1) << 20u) + (v.y >> 10u);
    return vec2<u32>((v.x >> 10u) | (v.y << 22u), sign | high);
}

fn f64_neg(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x, a.y ^ 0x80000000u); }
fn f64_abs(a: vec2<u32>) -> vec2<u32> { return vec2<u32>(a.x, a.y & 0x7fffffffu); }

fn f64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let swap = u64_lt(f64_abs(a), f64_abs(b));
    let big = select(a, b, swap);
    let small = select(b, a, swap);
    let sign = big.y & 0x80000000u;
    let opposite = sign != (small.y & 0x80000000u);
    let e = (big.y >> 20u) & 0x7ffu;
    let f = (small.y >> 20u) & 0x7ffu;
    if (e == 2047u) {
        return select(big, F64_NAN, f64_is_nan(big) || (f == 2047u && opposite));
    }
    // 53 bits and 10 below them
    let m = u64_shl(vec2<u32>(big.x, (big.y & 0xfffffu) | (u32(e != 0u) << 20u)), 10u);
    let n = u64_shl(vec2<u32>(small.x, (small.y & 0xfffffu) | (u32(f != 0u) << 20u)), 10u);
    let aligned = u64_shr_sticky(n, max(e, 1u) - max(f, 1u));
    let sum = select(u64_add(m, aligned), u64_sub(m, aligned), opposite);
    let zero = opposite && all(sum == vec2<u32>());
    return f64_round_bits(select(sign, 0u, zero), i32(max(e, 1u)) - 1085, sum);
}

fn f64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return f64_add(a, f64_neg(b)); }

fn f64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let sign = (a.y ^ b.y) & 0x80000000u;
    if (max(a.y & 0x7fffffffu, b.y & 0x7fffffffu) >= 0x7ff00000u) {
        let undefined = f64_is_nan(a) || f64_is_nan(b) || f64_is_zero(a) || f64_is_zero(b);
        return select(vec2<u32>(0u, sign | 0x7ff00000u), F64_NAN, undefined);
    }
    let p = f64_parts(a);
    let q = f64_parts(b);
    // The upper 64 bits of the 128-bit product, and whether anything is below.
    let ll = u64_mul_words(p.m.x, q.m.x);
    let lh = u64_add(u64_mul_words(p.m.x, q.m.y), vec2<u32>(ll.y, 0u));
    let hl = u64_add(u64_mul_words(p.m.y, q.m.x), vec2<u32>(lh.x, 0u));
    let hh = u64_add(u64_add(u64_mul_words(p.m.y, q.m.y), vec2<u32>(lh.y, 0u)), vec2<u32>(hl.y, 0u));
    return f64_round_bits(sign, p.e + q.e + 64, vec2<u32>(hh.x | u32((ll.x | hl.x) != 0u), hh.y));
}

fn f64_fma(a: vec2<u32>, b: vec2<u32>, c: vec2<u32>) -> vec2<u32> { return f64_add(f64_mul(a, b), c); }

fn f64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let sign = (a.y ^ b.y) & 0x80000000u;
    let a_large = (a.y & 0x7fffffffu) >= 0x7ff00000u;
    let b_large = (b.y & 0x7fffffffu) >= 0x7ff00000u;
    let a_zero = f64_is_zero(a);
    let b_zero = f64_is_zero(b);
    if (f64_is_nan(a) || f64_is_nan(b) || (a_large && b_large) || (a_zero && b_zero)) { return F64_NAN; }
    if (a_large || b_zero) { return vec2<u32>(0u, sign | 0x7ff00000u); }
    if (a_zero || b_large) { return vec2<u32>(0u, sign); }
    let p = f64_parts(a);
    let q = f64_parts(b);
    // Both significands have 11 spare bits below, so halving them is exact and the doubled rest fits.
    var rest = u64_shr(p.m, 1u);
    let divisor = u64_shr(q.m, 1u);
    var quotient = vec2<u32>();
    for (var k = 0u; k < 57u; k++) {
        quotient = vec2<u32>(quotient.x << 1u, (quotient.y << 1u) | (quotient.x >> 31u));
        if (!u64_lt(rest, divisor)) {
            rest = u64_sub(rest, divisor);
            quotient.x |= 1u;
        }
        rest = vec2<u32>(rest.x << 1u, (rest.y << 1u) | (rest.x >> 31u));
    }
    quotient.x |= u32(any(rest != vec2<u32>()));
    return f64_round_bits(sign, p.e - q.e - 56, quotient);
}

fn f64_sqrt(a: vec2<u32>) -> vec2<u32> {
    if (f64_is_zero(a)) { return a; }
    if (a.y >= 0x7ff00000u) { return select(F64_NAN, a, all(a == vec2<u32>(0u, 0x7ff00000u))); }
    let p = f64_parts(a);
    let odd = u32(p.e) & 1u;
    var digits = u64_shr(p.m, odd);
    var rest = vec2<u32>();
    var root = vec2<u32>();
    // One binary digit of the root a step, from two of the radicand: 32 steps, then 24 beyond its point.
    for (var k = 0u; k < 56u; k++) {
        rest = vec2<u32>((rest.x << 2u) | (digits.y >> 30u), (rest.y << 2u) | (rest.x >> 30u));
        digits = vec2<u32>(digits.x << 2u, (digits.y << 2u) | (digits.x >> 30u));
        let trial = vec2<u32>((root.x << 2u) | 1u, (root.y << 2u) | (root.x >> 30u));
        root = vec2<u32>(root.x << 1u, (root.y << 1u) | (root.x >> 31u));
        if (!u64_lt(rest, trial)) {
            rest = u64_sub(rest, trial);
            root.x |= 1u;
        }
    }
    root.x |= u32(any(rest != vec2<u32>()));
    return f64_round_bits(0u, (p.e + i32(odd)) / 2 - 24, root);
}

// Words whose order as u64 is the order of the doubles; both zeros are alike.
fn f64_order(x: vec2<u32>) -> vec2<u32> {
    if (f64_is_zero(x)) { return vec2<u32>(0u, 0x80000000u); }
    let negative = (x.y >> 31u) != 0u;
    return select(vec2<u32>(x.x, x.y | 0x80000000u), ~x, negative);
}

fn f64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return !f64_is_nan(a) && !f64_is_nan(b) && u64_lt(f64_order(a), f64_order(b));
}

fn f64_le(a: vec2<u32>, b: vec2<u32>) -> bool {
    return !f64_is_nan(a) && !f64_is_nan(b) && !u64_lt(f64_order(b), f64_order(a));
}

fn f64_eq(a: vec2<u32>, b: vec2<u32>) -> bool {
    return !f64_is_nan(a) && (all(a == b) || (f64_is_zero(a) && f64_is_zero(b)));
}

// A whole number near x. mode: 0 towards zero, 1 down, 2 up, 3 nearest, ties to even.
fn f64_round_to(x: vec2<u32>, mode: u32) -> vec2<u32> {
    let sign = x.y & 0x80000000u;
    let e = i32((x.y >> 20u) & 0x7ffu) - 1023;
    if (e >= 52 || f64_is_zero(x)) { return x; }
    let m = vec2<u32>(x.x, (x.y & 0xfffffu) | 0x100000u);
    let shift = u32(min(52 - e, 54));
    var whole = u64_shr(m, shift);
    // The fraction as a binary point in front of its bits; the last bit is sticky.
    let fraction = u64_shl(m, 64u - shift);
    let half = vec2<u32>(0u, 0x80000000u);
    let above = u64_lt(half, fraction) || (all(half == fraction) && (whole.x & 1u) != 0u);
    let down = sign != 0u && mode == 1u;
    let up = sign == 0u && mode == 2u;
    if (((down || up) && any(fraction != vec2<u32>())) || (mode == 3u && above)) {
        whole = u64_add(whole, vec2<u32>(1u, 0u));
    }
    return f64_round_bits(sign, 0, whole);
}

fn f64_trunc(x: vec2<u32>) -> vec2<u32> { return f64_round_to(x, 0u); }
fn f64_floor(x: vec2<u32>) -> vec2<u32> { return f64_round_to(x, 1u); }
fn f64_ceil(x: vec2<u32>) -> vec2<u32> { return f64_round_to(x, 2u); }
fn f64_round(x: vec2<u32>) -> vec2<u32> { return f64_round_to(x, 3u); }

fn f64_from_u32(v: u32) -> vec2<u32> { return f64_round_bits(0u, 0, vec2<u32>(v, 0u)); }
fn f64_from_i32(v: i32) -> vec2<u32> {
    let bits = bitcast<u32>(v);
    return f64_round_bits(bits & 0x80000000u, 0, vec2<u32>(select(bits, 0u - bits, v < 0), 0u));
}

fn f64_from_u64(v: {{ U.scalar }}) -> vec2<u32> { return f64_round_bits(0u, 0, u64_bits(v)); }
fn f64_from_i64(v: {{ L.scalar }}) -> vec2<u32> {
    let bits = i64_bits(v);
    let sign = bits.y & 0x80000000u;
    return f64_round_bits(sign, 0, select(bits, u64_sub(vec2<u32>(), bits), sign != 0u));
}

fn f64_from_f32(v: f32) -> vec2<u32> {
    let bits = bitcast<u32>(v);
    let sign = bits & 0x80000000u;
    let biased = (bits >> 23u) & 0xffu;
    let fraction = bits & 0x7fffffu;
    if (biased == 255u) { return select(vec2<u32>(0u, sign | 0x7ff00000u), F64_NAN, fraction != 0u); }
    let m = fraction | (u32(biased != 0u) << 23u);
    return f64_round_bits(sign, i32(max(biased, 1u)) - 150, vec2<u32>(m, 0u));
}

fn f64_to_f32(v: vec2<u32>) -> f32 {
    let sign = v.y & 0x80000000u;
    var bits = sign | 0x7f800000u;
    if (f64_is_nan(v)) {
        bits |= 0x400000u;
    } else if (!f64_is_inf(v)) {
        let p = f64_parts(v);
        bits = u64_round_f32(sign, p.e, p.m);
    }
    return bitcast<f32>(bits);
}

fn f64_to_bool(v: vec2<u32>) -> bool { return !f64_is_zero(v); }

fn f64_ldexp(x: vec2<u32>, k: i32) -> vec2<u32> {
    if (f64_is_zero(x) || (x.y & 0x7fffffffu) >= 0x7ff00000u) { return x; }
    let p = f64_parts(x);
    return f64_round_bits(x.y & 0x80000000u, p.e + clamp(k, -4000, 4000), p.m);
}
#% endif

// Integers from doubles: truncated, saturating; NaN gives 0.

// The words of |x| truncated, all ones where it does not fit 64 bits.
fn f64_truncate_words(x: {{ scalar }}) -> vec2<u32> {
    let bits = f64_bits(x);
    let e = i32((bits.y >> 20u) & 0x7ffu) - 1023;
    if (e < 0 || f64_is_nan(x)) { return vec2<u32>(); }
    if (e > 63) { return ~vec2<u32>(); }
    let m = vec2<u32>(bits.x, (bits.y & 0xfffffu) | 0x100000u);
    let left = vec2<u32>(m.x << 11u, (m.y << 11u) | (m.x >> 21u));
    let n = u32(63 - e);
    let s = n & 31u;
    let high = left.y >> s;
    let low = (left.x >> s) | ((left.y << 1u) << (31u - s));
    return select(vec2<u32>(low, high), vec2<u32>(high, 0u), n > 31u);
}

fn f64_to_u32(v: {{ scalar }}) -> u32 {
    let m = f64_truncate_words(v);
    return select(select(m.x, 0xffffffffu, m.y != 0u), 0u, (f64_bits(v).y >> 31u) != 0u);
}

fn f64_to_i32(v: {{ scalar }}) -> i32 {
    let m = f64_truncate_words(v);
    let negative = (f64_bits(v).y >> 31u) != 0u;
    let magnitude = select(min(m.x, 0x7fffffffu + u32(negative)), 0x7fffffffu + u32(negative), m.y != 0u);
    return bitcast<i32>(select(magnitude, 0u - magnitude, negative));
}

fn u64_from_f64(v: {{ scalar }}) -> {{ U.scalar }} {
    return u64_from_bits(select(f64_truncate_words(v), vec2<u32>(), (f64_bits(v).y >> 31u) != 0u));
}

fn i64_from_f64(v: {{ scalar }}) -> {{ L.scalar }} {
    let m = f64_truncate_words(v);
    let negative = (f64_bits(v).y >> 31u) != 0u;
    if ((m.y >> 31u) != 0u) {
        return i64_from_bits(select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative));
    }
    let minus = vec2<u32>(0u - m.x, ~m.y + u32(m.x == 0u));
    return i64_from_bits(select(m, minus, negative));
}

fn f64_is_nan(x: {{ scalar }}) -> bool {
    let bits = f64_bits(x);
    let high = bits.y & 0x7fffffffu;
    return high > 0x7ff00000u || (high == 0x7ff00000u && bits.x != 0u);
}

fn f64_is_inf(x: {{ scalar }}) -> bool {
    let bits = f64_bits(x);
    return (bits.y & 0x7fffffffu) == 0x7ff00000u && bits.x == 0u;
}

fn f64_with_sign(magnitude: {{ scalar }}, sign: {{ scalar }}) -> {{ scalar }} {
    let bits = f64_bits(magnitude);
    return f64_from_bits(vec2<u32>(bits.x, (bits.y & 0x7fffffffu) | (f64_bits(sign).y & 0x80000000u)));
}

fn f64_min(a: {{ scalar }}, b: {{ scalar }}) -> {{ scalar }} { return {{ F("b if b < a or is_nan(a) else a") }}; }
fn f64_max(a: {{ scalar }}, b: {{ scalar }}) -> {{ scalar }} { return {{ F("b if a < b or is_nan(a) else a") }}; }

fn f64_sign(x: {{ scalar }}) -> {{ scalar }} {
    return {{ F("x if x == 0 or is_nan(x) else f64_with_sign(%s, x)" % F.literal(1)) }};
}

// The exponent of a positive x, larger by 1023, as if subnormals had a leading one.
fn f64_exponent(x: {{ scalar }}) -> i32 {
    let bits = f64_bits(x);
    let zeros = select(32u + countLeadingZeros(bits.x), countLeadingZeros(bits.y), bits.y != 0u);
    return select(i32(bits.y >> 20u), 12 - i32(zeros), bits.y < 0x100000u);
}

// The remainder of truncating division, exact like C's fmod: subtracts the largest b * 2^k, whose
// bits are made by hand, until nothing fits.
fn f64_rem(a: {{ scalar }}, b: {{ scalar }}) -> {{ scalar }} {
    if (f64_is_nan(a) || f64_is_nan(b) || f64_is_inf(a) || {{ F("b == 0") }}) { return {{ F("nan") }}; }
    let divisor = {{ F("abs(b)") }};
    var rest = {{ F("abs(a)") }};
    if (f64_is_inf(b)) { return a; }
    while ({{ F("divisor <= rest") }}) {
        let distance = f64_exponent(rest) - f64_exponent(divisor);
        var step = f64_ldexp(divisor, distance);
        if ({{ F("rest < step") }}) { step = f64_ldexp(divisor, distance - 1); }
        rest = {{ F("rest - step") }};
    }
    return f64_with_sign(rest, a);
}

// Constants are cases of a switch: compilers take longest over arrays indexed by variables.
#% macro table(name, numbers)
fn f64_{{ name }}_at(k: u32) -> {{ scalar }} {
    switch (k) {
#% for number in numbers[:-1]
        case {{ loop.index0 }}u: { return {{ F(number) }}; }
#% endfor
        default: { return {{ F(numbers[-1]) }}; }
    }
}
#% endmacro

// A polynomial by Horner's rule, highest power first, in the given row of a table.
#% macro polynomial(name, rows)
#% set count = rows[0].split() | length
#% if F.native
fn f64_{{ name }}(x: f64, row: u32) -> f64 {
    var v = 0.0lf;
#% for k in range(count)
#% set ns = namespace(c=F(rows[0].split()[k]))
#% for numbers in rows[1:]
#% set ns.c = "select(%s, %s, row == %du)" % (ns.c, F(numbers.split()[k]), loop.index)
#% endfor
    v = v * x + {{ ns.c }};
#% endfor
    return v;
}
#% else
{{ table(name, (rows | join(" ")).split()) }}
fn f64_{{ name }}(x: vec2<u32>, row: u32) -> vec2<u32> {
    var v = {{ F("0") }};
    for (var k = row * {{ count }}u; k < (row + 1u) * {{ count }}u; k++) {
        v = {{ F("v * x + f64_" ~ name ~ "_at(k)") }};
    }
    return v;
}
#% endif
#% endmacro

// x - n * c for a constant c in parts so short that their products with n are exact.
#% macro reduction(name, parts)
{{ table("reduce_" ~ name, parts) }}
fn f64_reduce_{{ name }}(x: {{ scalar }}, n: {{ scalar }}) -> {{ scalar }} {
    var r = x;
    for (var k = 0u; k < {{ parts | length }}u; k++) {
        r = {{ F("fma(-n, f64_reduce_" ~ name ~ "_at(k), r)") }};
    }
    return r;
}
#% endmacro

{{ reduction("ln2", ["0.6931471803691238", "1.9082149292705877e-10"]) }}
// the powers 12 to 1 of expm1
{{ table("expm1", ["2.0918137737642736e-9", "2.511004920481866e-8", "2.7557263279088497e-7",
    "2.7557240887229869e-6", "2.4801587336442238e-5", "0.00019841269890076403", "0.0013888888888879074",
    "0.0083333333333195896", "0.041666666666666677", "0.16666666666666681", "0.5", "1.0"]) }}
// e^r * 2^k - (1 if minus_one else 0), where |r| <= ln(2) / 2
fn f64_exp_reduced(r: {{ scalar }}, k: i32, minus_one: bool) -> {{ scalar }} {
    var last = {{ F("1") }};
    if (minus_one) { last = {{ F("1 - f64_ldexp(last, -k)") }}; }
    var v = {{ F("0") }};
    for (var n = 0u; n <= 12u; n++) {
        var c = last;
        if (n < 12u) { c = f64_expm1_at(n); }
        v = {{ F("v * r + c") }};
    }
    return f64_ldexp(v, k);
}

fn f64_exp_or_expm1(x: {{ scalar }}, minus_one: bool) -> {{ scalar }} {
    if (f64_is_nan(x)) { return x; }
    if ({{ F("x > 800") }}) { return {{ F("inf") }}; }
    if (minus_one && {{ F("x < -50") }}) { return {{ F("-1") }}; }
    if ({{ F("x < -800") }}) { return {{ F("0") }}; }
    let n = {{ F("round(x * 1.4426950408889634)") }};
    return f64_exp_reduced(f64_reduce_ln2(x, n), f64_to_i32(n), minus_one);
}

fn f64_exp(x: {{ scalar }}) -> {{ scalar }} { return f64_exp_or_expm1(x, false); }
fn f64_expm1(x: {{ scalar }}) -> {{ scalar }} {
    if ({{ F("x == 0") }}) { return x; }
    return f64_exp_or_expm1(x, true);
}

fn f64_exp2(x: {{ scalar }}) -> {{ scalar }} {
    if (f64_is_nan(x)) { return x; }
    if ({{ F("x > 1100") }}) { return {{ F("inf") }}; }
    if ({{ F("x < -1100") }}) { return {{ F("0") }}; }
    let n = {{ F("round(x)") }};
    return f64_exp_reduced({{ F("(x - n) * 0.6931471805599453") }}, f64_to_i32(n), false);
}

{{ polynomial("atanh2_over_s", [
    "0.13086767009948174 0.13268759668560613 0.15386240205813478 0.18181795630884753
     0.22222222391800469 0.2857142857080323 0.40000000000000878 0.66666666666666666 2.0"]) }}
// log(x), log2(x) where base_2, or log(1 + x) where plus_one: k log(2) + 2 atanh(s) with |s| < 0.172.
// No step relies on the rounding of 1 + x: compilers may cancel that.
fn f64_log_of(x: {{ scalar }}, base_2: bool, plus_one: bool) -> {{ scalar }} {
    var top = x;
    var bottom = {{ F("2") }};
    var k = 0;
    if (!plus_one || {{ F("x < -0.25 or x > 0.375 or is_nan(x)") }}) {
        var y = x;
        if (plus_one) { y = {{ F("1 + x") }}; }
        if ({{ F("y == 0") }}) { return {{ F("-inf") }}; }
        if ({{ F("not y > 0") }}) { return {{ F("nan") }}; }
        if (f64_is_inf(y)) { return y; }
        var bits = f64_bits(y);
        if (bits.y < 0x100000u) {
            bits = f64_bits(f64_ldexp(y, 54));
            k = -54;
        }
        let below = (bits.y & 0xfffffu) <= 0x6a09eu;  // sqrt(2), where m changes sides
        k += i32(bits.y >> 20u) - select(1022, 1023, below);
        let m = vec2<u32>(bits.x, (bits.y & 0xfffffu) | select(0x3fe00000u, 0x3ff00000u, below));
        top = {{ F("f64_from_bits(m) - 1") }};
    }
    bottom = {{ F("top + bottom") }};
    let s = {{ F("top / bottom") }};
    let log_m = {{ F("s * f64_atanh2_over_s(f64_square(s), 0u)") }};
    let scaled = {{ F("log_m * (1.4426950408889634 if base_2 else 1)") }};
    let unit = {{ F("1 if base_2 else 0.6931471805599453") }};
    return {{ F("f64_from_i32(k) * unit + scaled") }};
}

fn f64_log(x: {{ scalar }}) -> {{ scalar }} { return f64_log_of(x, false, false); }
fn f64_log2(x: {{ scalar }}) -> {{ scalar }} { return f64_log_of(x, true, false); }
fn f64_log1p(x: {{ scalar }}) -> {{ scalar }} {
    if ({{ F("x == 0") }}) { return x; }
    return f64_log_of(x, false, true);
}

{{ reduction("half_pi", ["1.5707963267341256", "6.077100506303966e-11", "2.0222662487959506e-21"]) }}
{{ polynomial("sin_over_r_and_cos", [
    "0.0 -7.5866910941979584e-13 1.6058531516797759e-10 -2.5052106231802838e-8 2.755731921933731e-6
     -0.00019841269841265063 0.0083333333333333315 -0.16666666666666667 1.0",
    "4.7410828742306502e-14 -1.1470361186987483e-11 2.0876754982465085e-9 -2.7557319218188735e-7
     2.48015873015782e-5 -0.0013888888888888882 0.041666666666666667 -0.5 1.0"]) }}
// sin(x + quadrants * pi / 2)
fn f64_sin_shifted(x: {{ scalar }}, quadrants: i32) -> {{ scalar }} {
    if (f64_is_nan(x) || f64_is_inf(x)) { return {{ F("nan") }}; }
    let n = {{ F("round(x * 0.6366197723675814)") }};
    let r = f64_reduce_half_pi(x, n);
    let q = f64_to_i32(n) + quadrants;
    let odd = (q & 1) != 0;
    let v = {{ F("f64_sin_over_r_and_cos(f64_square(r), u32(q & 1)) * (1 if odd else r)") }};
    let bits = f64_bits(v);
    return f64_from_bits(vec2<u32>(bits.x, bits.y ^ (u32(q & 2) << 30u)));
}

fn f64_square(x: {{ scalar }}) -> {{ scalar }} { return {{ F("x * x") }}; }
fn f64_sin(x: {{ scalar }}) -> {{ scalar }} { return f64_sin_shifted(x, 0); }
fn f64_cos(x: {{ scalar }}) -> {{ scalar }} { return f64_sin_shifted(x, 1); }
fn f64_tan(x: {{ scalar }}) -> {{ scalar }} { return {{ F("f64_sin(x) / f64_cos(x)") }}; }

// From t = e^|x| - 1; beyond 20 from e^(|x| - ln 2), which overflows where they do.
fn f64_sinh_or_cosh(x: {{ scalar }}, cosh: bool) -> {{ scalar }} {
    let a = {{ F("abs(x)") }};
    let large = {{ F("a > 20") }};
    let t = f64_exp_or_expm1({{ F("a - (0.6931471805599453 if large else 0)") }}, !large);
    if (large) { return t; }
    let e = {{ F("t + 1") }};
    let opposite = {{ F("(1 if cosh else t) / e") }};
    return {{ F("0.5 * ((e if cosh else t) + opposite)") }};
}

fn f64_sinh(x: {{ scalar }}) -> {{ scalar }} { return f64_with_sign(f64_sinh_or_cosh(x, false), x); }
fn f64_cosh(x: {{ scalar }}) -> {{ scalar }} { return f64_sinh_or_cosh(x, true); }

fn f64_tanh(x: {{ scalar }}) -> {{ scalar }} {
    if (f64_is_nan(x)) { return x; }
    let t = f64_exp_or_expm1({{ F("2 * min(abs(x), 22)") }}, true);
    return f64_with_sign({{ F("t / (t + 2)") }}, x);
}

{{ polynomial("atan_over_t", [
    "0.016284375050043394 -0.03456931506332609 0.045515447340221617 -0.052304436406869477
     0.058789275544738068 -0.066664247602005201 0.076922963680422971 -0.090909087532591129
     0.11111111105150588 -0.14285714285659778 0.19999999999999804 -0.33333333333333333 1.0"]) }}
fn f64_atan(x: {{ scalar }}) -> {{ scalar }} {
    if (f64_is_nan(x)) { return x; }
    let a = {{ F("abs(x)") }};
    var top = a;
    var bottom = {{ F("1") }};
    var base = {{ F("0") }};
    if ({{ F("a > 2.414213562373095") }}) {
        top = {{ F("-1") }};
        bottom = a;
        base = {{ F("1.5707963267948966") }};
    } else if ({{ F("a > 0.4142135623730951") }}) {
        top = {{ F("a - 1") }};
        bottom = {{ F("a + 1") }};
        base = {{ F("0.7853981633974483") }};
    }
    let t = {{ F("top / bottom") }};
    return f64_with_sign({{ F("base + t * f64_atan_over_t(f64_square(t), 0u)") }}, x);
}

fn f64_asin(x: {{ scalar }}) -> {{ scalar }} { return {{ F("atan(x / sqrt((1 - x) * (1 + x)))") }}; }
fn f64_acos(x: {{ scalar }}) -> {{ scalar }} { return {{ F("2 * atan(sqrt((1 - x) / (1 + x)))") }}; }

// erf(x) / x in powers of x^2 up to 1.5, then erf around 2.375 up to 3.25 and around 4.625 up to 6.
{{ polynomial("erf_pieces", [
    "0.0 0.0 0.0 -9.8548936319730087e-15 3.2537896660097213e-13 -6.1758411722331913e-12
     9.257929022544437e-11 -1.2254075631992835e-9 1.4801276360093684e-8 -1.6365135951628024e-7
     1.6462051744758016e-6 -1.4925646319299433e-5 0.00012055332795419676 -0.00085483270174991086
     0.0052239776253172547 -0.026866170645115375 0.1128379167095502 -0.3761263890318375
     1.1283791670955126",
    "-1.9547093223079284e-8 7.3718081043198098e-8 6.329102703861416e-8 -9.0900372573705501e-7
     1.6884153941868286e-6 3.13267640452836e-6 -2.0806364838607819e-5 3.1613911570927539e-5
     5.4707658965923996e-5 -0.00033752940866949123 0.00059411100719777595 0.00012326990898961877
     -0.0031140790142246935 0.0083573928066974432 -0.013133213564738816 0.01373053350628281
     -0.0095153849214507547 0.0040064778616550829 0.99921706178210888",
    "1.6469634663897074e-11 -4.7638920726237133e-11 -7.2322552940310897e-11 5.2017236952233451e-10
     -1.389407084734668e-9 3.6284509844550226e-9 -8.8335129513724553e-9 1.717877614325026e-8
     -2.760840106785441e-8 3.8666747127312924e-8 -4.7023519092576491e-8 4.8579213680884829e-8
     -4.2167867388144239e-8 3.0400246455976753e-8 -1.7752781471600388e-8 8.0652766499397141e-9
     -2.6775390527893577e-9 5.7884963812254402e-10 0.99999999993878389"]) }}
fn f64_erf(x: {{ scalar }}) -> {{ scalar }} {
    if (f64_is_nan(x)) { return x; }
    let a = {{ F("abs(x)") }};
    if ({{ F("a >= 6") }}) { return f64_with_sign({{ F("1") }}, x); }
    let small = {{ F("a < 1.5") }};
    let middle = {{ F("a < 3.25") }};
    let row = select(select(2u, 1u, middle), 0u, small);
    let t = {{ F("x * x if small else a - (2.375 if middle else 4.625)") }};
    return f64_with_sign({{ F("f64_erf_pieces(t, row) * (a if small else 1)") }}, x);
}

fn f64_pow(x: {{ scalar }}, y: {{ scalar }}) -> {{ scalar }} {
    if ({{ F("y == 0 or x == 1") }}) { return {{ F("1") }}; }
    if (f64_is_nan(x) || f64_is_nan(y)) { return {{ F("nan") }}; }
    let a = {{ F("abs(x)") }};
    let half = {{ F("0.5 * y") }};
    let whole = {{ F("y == trunc(y)") }};
    let odd = whole && {{ F("half != trunc(half)") }};
    let negative = (f64_bits(x).y >> 31u) != 0u;
    var p: {{ scalar }};
    if ({{ F("a == 0") }} || f64_is_inf(a)) {
        p = {{ F("0") }};
        if ({{ F("a == 0") }} == {{ F("y < 0") }}) { p = {{ F("inf") }}; }
    } else if (negative && !whole && !f64_is_inf(y)) {
        return {{ F("nan") }};
    } else {
        p = {{ F("exp(y * log(a))") }};
        if (f64_is_nan(p)) { p = {{ F("1") }}; }  // (-1)^inf
    }
    if (negative && odd) { return {{ F("-p") }}; }
    return p;
}

fn f64_sigmoid(x: {{ scalar }}) -> {{ scalar }} {
    let e = {{ F("exp(-abs(x))") }};
    return {{ F("(e if x < 0 else 1) / (1 + e)") }};
}

fn f64_softplus(x: {{ scalar }}) -> {{ scalar }} { return {{ F("max(x, 0) + log1p(exp(-abs(x)))") }}; }
