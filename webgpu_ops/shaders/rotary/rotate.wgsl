{#
  y = x with the first 2 * u.pairs channels of every head turned, the others as they are.

  interleaved  pairs are (2p, 2p + 1), else (p, p + u.pairs)
  whole        four channels at a multiple of four turn alike, and so do their partners
#}
{% include "rotary/angle.wgsl" %}

fn token_of(row: u32) -> u32 {
    return row / u.batch_rows * u.sequence + row / u.row_step % u.sequence;
}
#% if not whole

fn turned(i: u32) -> f32 {
    let c = i % u.channels;
    let x = load_x(i);
    if (c >= 2u * u.pairs) { return x; }
#% if interleaved
    let first = c % 2u == 0u;
    let other = load_x(select(i - 1u, i + 1u, first));
    let pair = c / 2u;
#% else
    let first = c < u.pairs;
    let other = load_x(select(i - u.pairs, i + u.pairs, first));
    let pair = c % u.pairs;
#% endif
    let a = angle(token_of(i / u.channels), pair);
    return x * a.x + other * select(a.y, -a.y, first);
}
#% endif

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
#% if whole
    let c = i % u.channels;
    let x = load4_x(i);
    if (c >= 2u * u.pairs) {
        store4_y(i, x, 4u);
        return;
    }
    let token = token_of(i / u.channels);
#% if interleaved
    let a = angle(token, c / 2u);
    let b = angle(token, c / 2u + 1u);
    store4_y(i, x * vec4<f32>(a.xx, b.xx) + x.yxwz * vec4<f32>(-a.y, a.y, -b.y, b.y), 4u);
#% else
    let pair = c % u.pairs;
#% if streams
    let a = mat4x2<f32>(angle(token, pair), angle(token, pair + 1u), angle(token, pair + 2u), angle(token, pair + 3u));
    let cosine = vec4<f32>(a[0].x, a[1].x, a[2].x, a[3].x);
    let sine = vec4<f32>(a[0].y, a[1].y, a[2].y, a[3].y);
#% else
    let at = table_row(token, pair) * u.table_width + pair;
    let cosine = load4_cos(at);
    let sine = load4_sin(at);
#% endif
    let first = c < u.pairs;
    let other = load4_x(select(i - u.pairs, i + u.pairs, first));
    store4_y(i, x * cosine + other * select(sine, -sine, first), 4u);
#% endif
#% else
    let n = min(4u, u.size - i);
    var quad: vec4<f32>;
    for (var k = 0u; k < n; k++) { quad[k] = turned(i + k); }
    store4_y(i, quad, n);
#% endif
{% endcall %}
