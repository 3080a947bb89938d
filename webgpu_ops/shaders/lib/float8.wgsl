{# The 8-bit floats in the low byte of a word; uses lib/float32.wgsl. Encoding saturates to the
   largest finite value, infinities too, as ONNX's Cast does by default; NaN stays NaN.

   e4m3fn has no infinity and NaN at both ends; e5m2 is IEEE-like; the fnuz types have neither
   infinity nor -0, and 0x80 is their NaN; e8m0 is a power of two without sign or zero. #}

fn with_sign_float8(code: u32, bits: u32) -> u32 { return code | ((bits >> 24u) & 0x80u); }

#% macro codec(name, mantissa, bias, largest)
#% set unsigned = name.endswith("fnuz")
fn decode_{{ name }}(bits: u32) -> f32 {
    let code = bits & 0x7fu;
    let sign = (bits & 0x80u) << 24u;
#% if unsigned
    let word = select(widen_code(code, {{ mantissa }}u, {{ bias }}u) | sign, 0x7fc00000u, (bits & 0xffu) == 0x80u);
    return bitcast<f32>(word);
#% elif name == "float8e5m2"
    let word = widen_code(code, {{ mantissa }}u, {{ bias }}u) + select(0u, 112u << 23u, code >= 0x7cu);
    return bitcast<f32>(word | sign);
#% else
    let word = select(widen_code(code, {{ mantissa }}u, {{ bias }}u), 0x7fc00000u, code == 0x7fu);
    return bitcast<f32>(word | sign);
#% endif
}

fn encode_{{ name }}(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    let code = min(narrow_code(size, {{ mantissa }}u, {{ bias }}u), {{ largest }}u);
#% if unsigned
    let signed = select(code, with_sign_float8(code, bits), code != 0u);
    return select(signed, 0x80u, size > 0x7f800000u);
#% else
    return with_sign_float8(select(code, 0x7fu, size > 0x7f800000u), bits);
#% endif
}
#% endmacro

{{ codec("float8e4m3fn", 3, 7, "0x7e") }}
{{ codec("float8e4m3fnuz", 3, 8, "0x7f") }}
{{ codec("float8e5m2", 2, 15, "0x7b") }}
{{ codec("float8e5m2fnuz", 2, 16, "0x7f") }}

fn decode_float8e8m0(bits: u32) -> f32 {
    let code = bits & 0xffu;
    let number = select(code << 23u, 0x400000u, code == 0u);
    return bitcast<f32>(select(number, 0x7fc00000u, code == 0xffu));
}

// To the nearest power of two, halfway up (and all above 2^-127 up to 2^-126, as ONNX and ml_dtypes
// have it). Zero becomes the smallest; what is negative or not finite becomes NaN.
fn encode_float8e8m0(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let size = bits & 0x7fffffffu;
    let code = select(min((size + 0x400000u) >> 23u, 0xfeu), u32(size > 0x400000u), size < 0x800000u);
    let number = size < 0x7f800000u && (bits <= 0x80000000u);
    return select(0xffu, code, number);
}

// float8e4m3fn(x / s) * s. One step of division by hand: WGSL's own may miss the last bits, and with
// them a tie. Where the quotient saturates the step means nothing, and could make infinity a NaN.
fn through_float8e4m3fn(x: f32, s: f32) -> f32 {
    let q = x / s;
    let near = fma(fma(-q, s, x), 1.0 / s, q);
    return decode_float8e4m3fn(encode_float8e4m3fn(select(q, near, abs(q) < 512.0))) * s;
}
