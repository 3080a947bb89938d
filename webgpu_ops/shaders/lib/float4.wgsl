{# float4e2m1 in the low 4 bits of a word; uses lib/float32.wgsl. It has neither infinity nor NaN:
   encoding saturates to 6, NaN included. #}

fn decode_float4e2m1(bits: u32) -> f32 {
    return bitcast<f32>(widen_code(bits & 7u, 1u, 1u) | ((bits & 8u) << 28u));
}

fn encode_float4e2m1(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    return min(narrow_code(bits & 0x7fffffffu, 1u, 1u), 7u) | ((bits >> 28u) & 8u);
}
