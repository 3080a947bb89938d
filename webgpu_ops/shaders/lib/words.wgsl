{# Unsigned 64-bit integers as vec2<u32>, low word first: what int64 and float64 share.

   Sees: features, arith_of(kind). Renders to nothing where both 64-bit kinds are native. The names
   are those that arith_of("u64") calls where u64 is not native; float64 also uses them where u64
   is native and f64 is not. #}
#% if arith_of("f64").software or arith_of("u64").software

fn u64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + u32(low < a.x));
}

fn u64_sub(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - u32(a.x < b.x));
}

fn u64_lt(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// The full product of two words; WGSL has no high half of a multiplication.
fn u64_mul_words(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let cross = al * bh + (mid & 0xffffu);
    return vec2<u32>((cross << 16u) | (low & 0xffffu), ah * bh + (mid >> 16u) + (cross >> 16u));
}

fn u64_mul(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = u64_mul_words(a.x, b.x);
    return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}

// Shifts by n modulo 64. Shifting twice keeps every amount below 32.
fn u64_shl(a: vec2<u32>, n: u32) -> vec2<u32> {
    let s = n & 31u;
    let low = a.x << s;
    let high = (a.y << s) | ((a.x >> 1u) >> (31u - s));
    return select(vec2<u32>(low, high), vec2<u32>(0u, low), (n & 32u) != 0u);
}

fn u64_shr(a: vec2<u32>, n: u32) -> vec2<u32> {
    let s = n & 31u;
    let high = a.y >> s;
    let low = (a.x >> s) | ((a.y << 1u) << (31u - s));
    return select(vec2<u32>(low, high), vec2<u32>(high, 0u), (n & 32u) != 0u);
}

// Shift right by any n; the lowest bit also says whether a one was shifted out.
fn u64_shr_sticky(a: vec2<u32>, n: u32) -> vec2<u32> {
    if (n > 63u) { return vec2<u32>(u32(any(a != vec2<u32>())), 0u); }
    let kept = u64_shr(a, n);
    return vec2<u32>(kept.x | u32(any(u64_shl(kept, n) != a)), kept.y);
}

fn u64_leading_zeros(a: vec2<u32>) -> u32 {
    return select(32u + countLeadingZeros(a.x), countLeadingZeros(a.y), a.y != 0u);
}

// Quotient in xy, remainder in zw. n / 0 = n and n % 0 = 0, as WGSL defines for its own integers.
fn u64_divide(n: vec2<u32>, d: vec2<u32>) -> vec4<u32> {
    if (all(d == vec2<u32>())) { return vec4<u32>(n, 0u, 0u); }
    if (n.y == 0u) {
        if (d.y != 0u) { return vec4<u32>(0u, 0u, n); }
        return vec4<u32>(n.x / d.x, 0u, n.x % d.x, 0u);
    }
    let skip = countLeadingZeros(n.y);
    var q = u64_shl(n, skip);
    var r = vec2<u32>();
    for (var k = skip; k < 64u; k++) {
        let carry = r.y >> 31u;
        r = vec2<u32>((r.x << 1u) | (q.y >> 31u), (r.y << 1u) | (r.x >> 31u));
        q = vec2<u32>(q.x << 1u, (q.y << 1u) | (q.x >> 31u));
        if (carry == 1u || !u64_lt(r, d)) {
            r = u64_sub(r, d);
            q.x |= 1u;
        }
    }
    return vec4<u32>(q, r);
}

// The float32 nearest to m * 2^e, as bits; sign is 0 or 0x80000000.
fn u64_round_f32(sign: u32, e: i32, m: vec2<u32>) -> u32 {
    if (all(m == vec2<u32>())) { return sign; }
    let zeros = u64_leading_zeros(m);
    let biased = e - i32(zeros) + 190;
    if (biased >= 255) { return sign | 0x7f800000u; }
    let top = u64_shl(m, zeros);
    let full = top.y | u32(top.x != 0u);
    let shift = u32(clamp(2 - biased, 1, 31));
    var v = full >> shift;
    v |= u32((v << shift) != full);
    v += 0x3fu + ((v >> 7u) & 1u);
    return sign | ((u32(max(biased, 1) - 1) << 23u) + (v >> 7u));
}
#% endif
