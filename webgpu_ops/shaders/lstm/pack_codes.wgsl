{#
  Eight-bit weights [direction][k][gate * hidden + unit] as step.wgsl reads them: words of four along k
  [direction][k / 4][gate * padded + unit], each int8 (uint8 - 128), zeros as padding. sums holds each
  column's sum less the zero points. An invocation packs four columns.
#}
{% call kernel() %}
    let units = u.padded / 4u;
    let unit = thread % units * 4u;
    let gate = thread / units % 4u;
    let dir = thread / units / 4u;
    if (dir >= u.directions) { return; }
    let column = gate * u.padded + unit;
    var sum = vec4<i32>();
    for (var word = 0u; word < u.inner; word++) {
        var packed = vec4<u32>();
        for (var s = 0u; s < 4u && word * 4u + s < u.hidden; s++) {
            var codes = load4_x((dir * u.hidden + word * 4u + s) * 4u * u.hidden + gate * u.hidden + unit);
            for (var c = 0u; c < 4u; c++) {
                packed[c] |= ((u32(codes[c]) & 255u){{ " ^ 128u" if x.scalar == "u32" }}) << (8u * s);
            }
        }
        for (var c = 0u; c < 4u; c++) {
            sum[c] += dot4I8Packed(packed[c], 0x01010101u);
        }
        store4_y((dir * u.inner + word) * 4u * u.padded + column, packed, 4u);
    }
    for (var c = 0u; c < 4u; c++) {
        let at = gate * u.hidden + min(unit + c, u.hidden - 1u);
        let zero = load_zero(dir * u.channels + select(0u, at, u.channels > 1u));
        sum[c] -= i32(u.hidden) * ({{ "i32(zero) - 128" if x.scalar == "u32" else "zero" }});
    }
    store4_sums(dir * 4u * u.padded + column, sum, 4u);
{% endcall %}
