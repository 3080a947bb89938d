{#
  The weighted sum of what a token's experts made of it, in the order of its choices.
#}
fn element(i: u32) -> f32 {
    let pair = i / u.width * u.k;
    let column = i % u.width;
    var sum = 0.0;
    for (var j = pair; j < pair + u.k; j++) { sum += load_weights(j) * load_parts(j * u.width + column); }
    return sum;
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var result: y_quad;
    for (var j = 0u; j < n; j++) { result[j] = element(i + j); }
    store4_y(i, result, n);
{% endcall %}
