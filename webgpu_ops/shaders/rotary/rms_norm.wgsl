{#
  RMS-normalizes u.width channels of every row, rounds them to bfloat16, and turns the first ones:
  pairs (p, p + u.pairs). `lanes` invocations share a row.

  divide  x / rms, else x times the reciprocal
  narrow  the rotation rounds every product to bfloat16, else the result alone
  whole   u.width and u.pairs are multiples of four
#}
{% include "rotary/angle.wgsl" %}

#% if lanes > 1
var<workgroup> squares: array<f32, WG>;
#% endif

{% set kind = "vec4<f32>" if whole else "f32" %}
{% set suffix = "4" if whole else "" %}
fn bf16(v: {{ kind }}) -> {{ kind }} {
#% if whole
    return vec4<f32>({% for k in range(4) %}decode_bfloat16(encode_bfloat16(v[{{ k }}])){{ ", " if not loop.last }}{% endfor %});
#% else
    return decode_bfloat16(encode_bfloat16(v));
#% endif
}

// Channel c, or the four from c on, before the rotation.
fn normal(at: u32, c: u32, rms: f32) -> {{ kind }} {
    return bf16(load{{ suffix }}_x(at + c) {{ "/" if divide else "*" }} rms * load{{ suffix }}_scale(c));
}

fn keep(at: u32, y: {{ kind }}, normal: {{ kind }}) {
    store{{ suffix }}_y(at, y{{ ", 4u" if whole }});
#% if normalized
    store{{ suffix }}_normalized(at, normal{{ ", 4u" if whole }});
#% endif
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

    // A step takes pairs first, and then what does not turn.
    let table = table_at(row / u.heads, 0u);
    let target_row = row * u.width;
{% set step = 4 if whole else 1 %}
{% set product = "bf16" if narrow else "" %}
    for (var c = worker * {{ step }}u; c < u.width - u.pairs; c += {{ lanes * step }}u) {
        let other = c + u.pairs;
        if (c >= u.pairs) {
            let x = normal(at, other, rms);
            keep(target_row + other, x, x);
            continue;
        }
        let cosine = load{{ suffix }}_cos(table + c);
        let sine = load{{ suffix }}_sin(table + c);
        let first = normal(at, c, rms);
        let second = normal(at, other, rms);
        keep(target_row + c, {{ product }}(first * cosine) - {{ product }}(second * sine), first);
        keep(target_row + other, {{ product }}(second * cosine) + {{ product }}(first * sine), second);
    }
{% endcall %}
