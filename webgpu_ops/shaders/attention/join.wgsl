{# The rows of Longformer attention: local tokens' from `near`, global ones' from `far`, where they are
   packed, and zeros of masked ones. With `scale` the result is quantized. `places` as in tokens.wgsl. #}
{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var y: y_quad;
    for (var k = 0u; k < n; k++) {
        let place = load_places((i + k) / u.width);
        var x = 0.0;
        if (place == 0u) {
            x = load_near(i + k);
        } else if (place != 0xffffffffu) {
            x = load_far((place - 1u) * u.width + (i + k) % u.width);
        }
#% if scale
        y[k] = i32(clamp(round(x / load_scale(0u)), -128.0, 127.0));
#% else
        y[k] = x;
#% endif
    }
    store4_y(i, y, n);
{% endcall %}
