{# float16 in the low 16 bits of a word; uses lib/float32.wgsl. Infinite above the range, NaN stays
   NaN with its payload's upper bits. #}

fn decode_float16(bits: u32) -> f32 {
    let code = bits & 0x7fffu;
    let word = widen_code(code, 10u, 15u) + select(0u, 112u << 23u, code >= 0x7c00u);
    return bitcast<f32>(word | ((bits & 0x8000u) << 16u));
}

fn encode_float16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    let code = min(narrow_code(size, 10u, 15u), 0x7c00u);
    let nan = 0x7e00u | ((size >> 13u) & 0x3ffu);
    return select(code, nan, size > 0x7f800000u) | ((bits >> 16u) & 0x8000u);
}
