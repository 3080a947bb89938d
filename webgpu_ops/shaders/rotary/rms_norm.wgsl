{#
  RMS-normalizes u.width channels of every row, rounds them to bfloat16, and turns the first ones:
  pairs (p, p + u.pairs). `lanes` invocations share a row.

  divide  x / rms, else x times the reciprocal
  narrow  the rotation rounds every product to bfloat16, else the result alone
#}
{% include "rotary/angle.wgsl" %}

#% if lanes > 1
var<workgroup> squares: array<f32, WG>;
#% endif

fn bf16(v: f32) -> f32 { return decode_bfloat16(encode_bfloat16(v)); }

fn normal(at: u32, c: u32, rms: f32) -> f32 {
    return bf16(load_x(at + c) {{ "/" if divide else "*" }} rms * load_scale(c));
}

{% set product = "bf16" if narrow else "" %}
fn turned(at: u32, c: u32, rms: f32, x: f32, token: u32) -> f32 {
    if (c >= 2u * u.pairs) { return x; }
    let first = c < u.pairs;
    let other = normal(at, select(c - u.pairs, c + u.pairs, first), rms);
    let a = angle(token, c % u.pairs);
    return {{ product }}(x * a.x) + {{ product }}(other * select(a.y, -a.y, first));
}

{% call kernel() %}
    let worker = lane % {{ lanes }}u;
    let row = thread / {{ lanes }}u;
    let at = row * u.stride + u.start;

    var square = 0.0;
    if (row < u.rows) {
        for (var c = worker * 4u; c < u.width; c += {{ lanes * 4 }}u) {
            let x = load4_x(at + c);
            for (var k = 0u; k < min(4u, u.width - c); k++) { square += x[k] * x[k]; }
        }
    }
#% if lanes > 1
    squares[lane] = square;
    workgroupBarrier();
    square = 0.0;
    for (var n = 0u; n < {{ lanes }}u; n++) { square += squares[lane - worker + n]; }
#% endif
    if (row >= u.rows) { return; }
    let rms = {{ "" if divide else "1.0 / " }}sqrt(square / f32(u.width) + u.epsilon);

    let token = row / u.heads;
    for (var c = worker * 4u; c < u.width; c += {{ lanes * 4 }}u) {
        let n = min(4u, u.width - c);
        var x: vec4<f32>;
        var y: vec4<f32>;
        for (var k = 0u; k < n; k++) {
            x[k] = normal(at, c + k, rms);
            y[k] = turned(at, c + k, rms, x[k], token);
        }
        store4_y(row * u.width + c, y, n);
#% if normalized
        store4_normalized(row * u.width + c, x, n);
#% endif
    }
{% endcall %}
