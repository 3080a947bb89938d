{#
  What a projection with 8-bit activations sees: y[pair] = float8e4m3fn(a[pair / u.share] / s) * s, where
  s is scale (of all or of the pair's expert) times the scale of a block of 32 elements.

  scale, blocks   bindings or None; blocks is [u.block_experts, u.block_tokens, u.width / 32], where a
                  first or second dimension of 1 stands for all
#}
#% if not blocks
{% include "lib/float8.wgsl" %}
#% endif
fn scale_of(pair: u32, column: u32) -> f32 {
    var s = 1.0;
#% if scale
    s = load_scale(select(0u, load_picks(pair), u.scales > 1u));
#% endif
#% if blocks
    let expert = select(0u, load_picks(pair), u.block_experts > 1u);
    let token = select(0u, u.start + pair / u.k, u.block_tokens > 1u);
    s *= load_blocks((expert * u.block_tokens + token) * (u.width / 32u) + column / 32u);
#% endif
    return s;
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    // Rows are whole blocks, so the four are in one.
    let pair = i / u.width;
    let column = i % u.width;
    let s = scale_of(pair, column);
    let four = load4_a(pair / u.share * u.width + column);
    var result: y_quad;
    for (var j = 0u; j < 4u; j++) { result[j] = through_float8e4m3fn(four[j], s); }
    store4_y(i, result, 4u);
{% endcall %}
