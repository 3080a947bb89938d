{# 64-bit integers: i64 and u64.

   Sees: features, arith_of(kind). Native form (shader-int64): the operators are WGSL's and only
   conversions are here. Software form: every operator is a function on vec2<u32>, low word first,
   after lib/words.wgsl.

   In both forms: n / 0 = n and n % 0 = 0, as WGSL defines for its own integers; the lowest i64
   divided by -1 is itself. Shift amounts are u32, modulo 64. Conversions from floats truncate and
   saturate, NaN gives 0; conversions to f32 round to nearest even. K_bits and K_from_bits are the
   two words of the value. #}
#% if arith_of("i64").native

fn u64_bits(v: u64) -> vec2<u32> { return vec2<u32>(u32(v), u32(v >> 32u)); }
fn u64_from_bits(v: vec2<u32>) -> u64 { return (u64(v.y) << 32u) | u64(v.x); }
fn i64_bits(v: i64) -> vec2<u32> { return u64_bits(bitcast<u64>(v)); }
fn i64_from_bits(v: vec2<u32>) -> i64 { return bitcast<i64>(u64_from_bits(v)); }

fn u64_from_u32(v: u32) -> u64 { return u64(v); }
fn u64_from_i32(v: i32) -> u64 { return bitcast<u64>(i64(v)); }
fn u64_from_i64(v: i64) -> u64 { return bitcast<u64>(v); }
fn i64_from_u32(v: u32) -> i64 { return bitcast<i64>(u64(v)); }  // i64(v) may extend a sign
fn i64_from_i32(v: i32) -> i64 { return i64(v); }
fn i64_from_u64(v: u64) -> i64 { return bitcast<i64>(v); }

fn u64_to_u32(v: u64) -> u32 { return u32(v); }
fn u64_to_i32(v: u64) -> i32 { return bitcast<i32>(u32(v)); }
fn i64_to_u32(v: i64) -> u32 { return u32(bitcast<u64>(v)); }
fn i64_to_i32(v: i64) -> i32 { return bitcast<i32>(i64_to_u32(v)); }
fn u64_to_bool(v: u64) -> bool { return v != 0lu; }
fn i64_to_bool(v: i64) -> bool { return v != 0li; }

fn u64_to_f32(v: u64) -> f32 { return f32(v); }
fn i64_to_f32(v: i64) -> f32 { return f32(v); }

fn u64_from_f32(v: f32) -> u64 {
    if (is_nan(v) || v <= 0.0f) { return 0lu; }
    if (v >= 18446744073709551616.0f) { return 18446744073709551615lu; }
    return u64(v);
}

fn i64_from_f32(v: f32) -> i64 {
    if (is_nan(v)) { return 0li; }
    if (v >= 9223372036854775808.0f) { return 9223372036854775807li; }
    if (v <= -9223372036854775808.0f) { return -9223372036854775807li - 1li; }
    return i64(v);
}
#% else

fn u64_bits(v: vec2<u32>) -> vec2<u32> { return v; }
fn u64_from_bits(v: vec2<u32>) -> vec2<u32> { return v; }
fn i64_bits(v: vec2<u32>) -> vec2<u32> { return v; }
fn i64_from_bits(v: vec2<u32>) -> vec2<u32> { return v; }

fn u64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return all(a == b); }
fn u64_le(a: vec2<u32>, b: vec2<u32>) -> bool { return !u64_lt(b, a); }
fn u64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, u64_lt(b, a)); }
fn u64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, u64_lt(a, b)); }
fn u64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_divide(a, b).xy; }
fn u64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_divide(a, b).zw; }
fn u64_neg(a: vec2<u32>) -> vec2<u32> { return u64_sub(vec2<u32>(), a); }
fn u64_and(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a & b; }
fn u64_or(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a | b; }
fn u64_xor(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a ^ b; }
fn u64_not(a: vec2<u32>) -> vec2<u32> { return ~a; }

// Two's complement: sum, difference, product and left shift are those of u64.
fn i64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_add(a, b); }
fn i64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_sub(a, b); }
fn i64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return u64_mul(a, b); }
fn i64_shl(a: vec2<u32>, n: u32) -> vec2<u32> { return u64_shl(a, n); }
fn i64_neg(a: vec2<u32>) -> vec2<u32> { return u64_neg(a); }
fn i64_and(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a & b; }
fn i64_or(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a | b; }
fn i64_xor(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return a ^ b; }
fn i64_not(a: vec2<u32>) -> vec2<u32> { return ~a; }

fn i64_is_negative(a: vec2<u32>) -> bool { return (a.y >> 31u) != 0u; }
fn i64_eq(a: vec2<u32>, b: vec2<u32>) -> bool { return all(a == b); }
fn i64_le(a: vec2<u32>, b: vec2<u32>) -> bool { return !i64_lt(b, a); }
fn i64_min(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_lt(b, a)); }
fn i64_max(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, i64_lt(a, b)); }
fn i64_abs(a: vec2<u32>) -> vec2<u32> { return select(a, u64_neg(a), i64_is_negative(a)); }

fn i64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return bitcast<i32>(a.y) < bitcast<i32>(b.y) || (a.y == b.y && a.x < b.x);
}

fn i64_sign(a: vec2<u32>) -> vec2<u32> {
    if (i64_is_negative(a)) { return ~vec2<u32>(); }
    return vec2<u32>(u32(any(a != vec2<u32>())), 0u);
}

fn i64_shr(a: vec2<u32>, n: u32) -> vec2<u32> {
    let flip = vec2<u32>(0u - (a.y >> 31u));
    return u64_shr(a ^ flip, n) ^ flip;
}

fn i64_div(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let q = u64_divide(i64_abs(a), i64_abs(b)).xy;
    return select(q, u64_neg(q), i64_is_negative(a) != i64_is_negative(b));
}

fn i64_rem(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let r = u64_divide(i64_abs(a), i64_abs(b)).zw;
    return select(r, u64_neg(r), i64_is_negative(a));
}

fn u64_from_u32(v: u32) -> vec2<u32> { return vec2<u32>(v, 0u); }
fn u64_from_i32(v: i32) -> vec2<u32> { return vec2<u32>(bitcast<u32>(v), bitcast<u32>(v >> 31u)); }
fn u64_from_i64(v: vec2<u32>) -> vec2<u32> { return v; }
fn i64_from_u32(v: u32) -> vec2<u32> { return vec2<u32>(v, 0u); }
fn i64_from_i32(v: i32) -> vec2<u32> { return u64_from_i32(v); }
fn i64_from_u64(v: vec2<u32>) -> vec2<u32> { return v; }

fn u64_to_u32(v: vec2<u32>) -> u32 { return v.x; }
fn u64_to_i32(v: vec2<u32>) -> i32 { return bitcast<i32>(v.x); }
fn i64_to_u32(v: vec2<u32>) -> u32 { return v.x; }
fn i64_to_i32(v: vec2<u32>) -> i32 { return bitcast<i32>(v.x); }
fn u64_to_bool(v: vec2<u32>) -> bool { return any(v != vec2<u32>()); }
fn i64_to_bool(v: vec2<u32>) -> bool { return any(v != vec2<u32>()); }

fn u64_to_f32(v: vec2<u32>) -> f32 { return bitcast<f32>(u64_round_f32(0u, 0, v)); }
fn i64_to_f32(v: vec2<u32>) -> f32 {
    return bitcast<f32>(u64_round_f32(v.y & 0x80000000u, 0, i64_abs(v)));
}

// |v| truncated; all ones where it does not fit. bits must not be those of a NaN.
fn u64_truncate_f32(bits: u32) -> vec2<u32> {
    let e = i32((bits >> 23u) & 0xffu) - 127;
    if (e < 0) { return vec2<u32>(); }
    if (e > 63) { return ~vec2<u32>(); }
    return u64_shr(vec2<u32>(0u, (bits << 8u) | 0x80000000u), u32(63 - e));
}

fn u64_from_f32(v: f32) -> vec2<u32> {
    let bits = bitcast<u32>(v);
    if (is_nan(v) || (bits >> 31u) != 0u) { return vec2<u32>(); }
    return u64_truncate_f32(bits);
}

fn i64_from_f32(v: f32) -> vec2<u32> {
    if (is_nan(v)) { return vec2<u32>(); }
    let bits = bitcast<u32>(v);
    let magnitude = u64_truncate_f32(bits);
    let negative = (bits >> 31u) != 0u;
    if ((magnitude.y >> 31u) != 0u) {
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
    }
    return select(magnitude, u64_neg(magnitude), negative);
}
#% endif
