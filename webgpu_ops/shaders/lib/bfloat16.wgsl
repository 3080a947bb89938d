{# bfloat16 in the low 16 bits of a word: the upper half of a float32. NaN stays NaN with its
   payload's upper bits. #}

fn decode_bfloat16(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }

fn encode_bfloat16(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
