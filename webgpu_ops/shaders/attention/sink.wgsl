// A row's running softmax: maximum x and sum y. It starts with the sink, a logit without a value.
fn empty_row(h: u32) -> vec2<f32> {
#% if sink
    let x = load_sink(h);
    if (bitcast<u32>(x) != 0xff800000u) { return vec2<f32>(x, 1.0); }
#% else
    if (u.zero_sink == 1u) { return vec2<f32>(0.0, 1.0); }
#% endif
    return vec2<f32>(F32_LOWEST, 0.0);
}

// The accumulated values over the row's sum; a row that saw nothing is zeros.
fn finished(acc: vec4<f32>, sum: f32) -> vec4<f32> {
    return select(acc / sum, vec4<f32>(0.0), vec4<bool>(sum == 0.0));
}
