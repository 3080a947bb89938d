{#
  narrowed(x): float64 x rounded to odd in float32, so that rounding the result again to a narrower
  type gives what rounding x once would: an inexact float32 is the neighbour whose last bit is 1.
#}
fn narrowed(x: {{ F.scalar }}) -> f32 {
    let near = {{ arith("f32").cast("x", F) }};
    let back = {{ F.cast("near", "f32") }};
    let bits = bitcast<u32>(near);
    if ({{ F("back == x") }} || (bits & 1u) == 1u) { return near; }
    return bitcast<f32>(select(bits + 1u, bits - 1u, {{ F("abs(back) > abs(x)") }}));
}
