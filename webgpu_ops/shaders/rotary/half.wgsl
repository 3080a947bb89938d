{# A step of float16 arithmetic: the nearest float16. #}
fn half(v: f32) -> f32 { return decode_float16(encode_float16(v)); }
