{#
  y[r, h] = scale * sum_c(streams[r, c, h] * gate), where the gate is mix[r, c, h] (`per_feature`) or
  mix[r, c]; with `activate` it is the sigmoid of that, rounded to its type. Sums in float32.
#}

// Elements h..h+3 of row r. Where a row ends before, only its own elements mean something.
fn reduced(r: u32, h: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var c = 0u; c < u.branches; c++) {
        let branch = r * u.branches + c;
#% if per_feature
        var gate = load4_mix(branch * u.width + h);
#% else
        var gate = vec4<f32>(load_mix(branch));
#% endif
#% if activate
        for (var k = 0u; k < 4u; k++) {
            let g = sigmoid_f32(gate[k]);
            gate[k] = {% if mix.dtype.bits == 32 %}g{% else %}decode_{{ mix.dtype.name }}(encode_{{ mix.dtype.name }}(g)){% endif %};
        }
#% endif
        sum += load4_streams(branch * u.width + h) * gate;
    }
    return sum * u.scale;
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    let h = i % u.width;
    var result = reduced(i / u.width, h);
    for (var k = u.width - h; k < n; k++) { result[k] = reduced((i + k) / u.width, (i + k) % u.width).x; }
    store4_y(i, result, n);
{% endcall %}
