{#
  y[r, k, h] = stream + gate * block[r, h], where the stream is sum_c(mix[r, c, k] * streams[r, c, h])
  or without mix streams[r, k, h], and the gate is gate[r, k, h] (`per_feature`) or gate[r, k].
#}

// Elements h..h+3 of branch r * branches + k. Past a branch's end they mean nothing.
fn extended(branch: u32, h: u32) -> vec4<f32> {
    let r = branch / u.branches;
#% if mix
    var stream = vec4<f32>();
    for (var c = 0u; c < u.branches; c++) {
        let at = r * u.branches + c;
        stream += load_mix(at * u.branches + branch % u.branches) * load4_streams(at * u.width + h);
    }
#% else
    let stream = load4_streams(branch * u.width + h);
#% endif
#% if per_feature
    let gate = load4_gate(branch * u.width + h);
#% else
    let gate = vec4<f32>(load_gate(branch));
#% endif
    return stream + gate * load4_block(r * u.width + h);
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    let h = i % u.width;
    var result = extended(i / u.width, h);
    for (var k = u.width - h; k < n; k++) { result[k] = extended((i + k) / u.width, (i + k) % u.width).x; }
    store4_y(i, result, n);
{% endcall %}
