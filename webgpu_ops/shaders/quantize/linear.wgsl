{#
  y[i] = expression of x[i] and its scale and zero point: to quantize or to dequantize, in float32.

  many      whether there is more than one scale; element (outer, position, inner) then has number
            outer * u.outer_step + position / u.block * u.axis_step + inner * u.inner_step
  expression   of x, scale and zero (bound or None)
#}
{% set F = arith(compute) %}
{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var four = load4_x(i);
    var result: y_quad;
    for (var k = 0u; k < n; k++) {
#% if many
        let inner = (i + k) % u.inner;
        let position = (i + k) / u.inner % u.width;
        let at = (i + k) / u.inner / u.width * u.outer_step + position / u.block * u.axis_step + inner * u.inner_step;
#% else
        let at = 0u;
#% endif
        let x = {{ F.cast("four[k]", x) }};
        let scale = {{ F.cast("load_scale(at)", scale) }};
#% if zero
        let zero = {{ F.cast("load_zero(at)", zero) }};
#% endif
        result[k] = {{ arith(y).cast(F(expression), F) }};
    }
    store4_y(i, result, n);
{% endcall %}
