{# The row of x that belongs to each place, bit for bit, or zeros. #}
{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    let c = i % u.hidden;
    var quad: y_quad;
    if (c + 4u <= u.hidden) {
        let token = load_token_at(i / u.hidden);
        if (token > 0u) { quad = load4_x((token - 1u) * u.hidden + c); }
    } else {
        for (var k = 0u; k < n; k++) {
            let token = load_token_at((i + k) / u.hidden);
            if (token > 0u) { quad[k] = load_x((token - 1u) * u.hidden + (i + k) % u.hidden); }
        }
    }
    store4_y(i, quad, n);
{% endcall %}
