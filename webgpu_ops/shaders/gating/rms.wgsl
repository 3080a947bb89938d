{#
  y = x / sqrt(mean(x^2) + epsilon) [* scale] [* activation(gate)] for u.rows rows of u.width; the
  rows of scale repeat every u.scale_rows.

  activation  "none", "silu" or "sigmoid"
#}
{% include "gating/row.wgsl" %}

{% call kernel() %}
    let row = thread / {{ lanes }}u;
    let end = select(0u, u.width, row < u.rows);
    let first = (thread % {{ lanes }}u) * 4u;
    var squares = vec4<f32>();
    for (var j = first; j < end; j += {{ lanes * 4 }}u) {
        let x = first_of(load4_x(row * u.width + j), end - j);
        squares += x * x;
    }
    squares = row_sum(lane, squares);
    let mean = (squares.x + squares.y + squares.z + squares.w) / f32(u.width);
    let factor = 1.0f / sqrt(mean + u.epsilon);
    for (var j = first; j < end; j += {{ lanes * 4 }}u) {
        let at = row * u.width + j;
        var y = load4_x(at) * factor;
#% if scale
        y *= load4_scale((row % u.scale_rows) * u.width + j);
#% endif
#% if gate
        let z = load4_gate(at);
        for (var k = 0u; k < 4u; k++) { y[k] *= {{ "z[k] * " if activation == "silu" }}sigmoid_f32(z[k]); }
#% endif
        store4_y(at, y, min(4u, end - j));
    }
{% endcall %}
