{#
  y = x with the first 2 * u.pairs channels of every head turned, the others as they are.

  interleaved  pairs are (2p, 2p + 1), else (p, p + u.pairs)
  heads_first  a row is (batch, head, token), else (batch, token, head)
  whole        four pairs (two interleaved ones) lie at a multiple of four channels, and so does
               what does not turn: an invocation takes four pairs, or four channels of the rest
#}
{% include "rotary/angle.wgsl" %}

fn token_of(row: u32) -> u32 {
#% if heads_first
    return row / u.sequence / u.heads * u.sequence + row % u.sequence;
#% else
    return row / u.heads;
#% endif
}
#% if not whole

fn turned(i: u32) -> f32 {
    let row = i / u.channels;
    let c = i - row * u.channels;
    let x = load_x(i);
    if (c >= 2u * u.pairs) { return x; }
#% if interleaved
    let first = c % 2u == 0u;
    let other = load_x(select(i - 1u, i + 1u, first));
    let a = angle(token_of(row), c / 2u);
#% else
    let first = c < u.pairs;
    let other = load_x(select(i - u.pairs, i + u.pairs, first));
    let a = angle(token_of(row), select(c - u.pairs, c, first));
#% endif
    return x * a.x + other * select(a.y, -a.y, first);
}
#% endif

{% call kernel() %}
#% if whole
    let row = thread / u.units;
    if (row >= u.rows) { return; }
    let c = (thread - row * u.units) * 4u;
    let i = row * u.channels + c;
    let token = token_of(row);
#% if interleaved
    let x = load4_x(i);
    if (c >= 2u * u.pairs) {
        store4_y(i, x, 4u);
        return;
    }
    let a = angle(token, c / 2u);
    let b = angle(token, c / 2u + 1u);
    store4_y(i, x * vec4<f32>(a.xx, b.xx) + x.yxwz * vec4<f32>(-a.y, a.y, -b.y, b.y), 4u);
#% else
    if (c >= u.pairs) {
        store4_y(i + u.pairs, load4_x(i + u.pairs), 4u);
        return;
    }
#% if streams
    let a = angle(token, c);
    let b = angle(token, c + 1u);
    let d = angle(token, c + 2u);
    let e = angle(token, c + 3u);
    let cosine = vec4<f32>(a.x, b.x, d.x, e.x);
    let sine = vec4<f32>(a.y, b.y, d.y, e.y);
#% else
    let at = table_at(token, c) + c;
    let cosine = load4_cos(at);
    let sine = load4_sin(at);
#% endif
    let first = load4_x(i);
    let second = load4_x(i + u.pairs);
    store4_y(i, first * cosine - second * sine, 4u);
    store4_y(i + u.pairs, second * cosine + first * sine, 4u);
#% endif
#% else
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var quad: vec4<f32>;
    for (var k = 0u; k < n; k++) { quad[k] = turned(i + k); }
    store4_y(i, quad, n);
#% endif
{% endcall %}
