{# Elementwise gates whose steps are each rounded to the type of `out`; see families/gating.py. #}
fn rounded(v: f32) -> f32 {
#% if out.dtype.bits == 32
    return v;
#% else
    return decode_{{ out.dtype.name }}(encode_{{ out.dtype.name }}(v));
#% endif
}

fn gated_add(x: f32, y: f32, gate: f32) -> f32 { return x + rounded(y * gate); }

fn scaled_silu(x: f32, scale: f32) -> f32 {
    let z = rounded(scale * x);
    return z * rounded(sigmoid_f32(z));
}

fn scaled_sigmoid(x: f32, divisor: f32, factor: f32) -> f32 {
    return rounded(sigmoid_f32(rounded(x / divisor))) * factor;
}
