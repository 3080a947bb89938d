{#
  Weights [direction][gate * hidden + unit][k] as step.wgsl reads them: [direction][k][gate * padded +
  unit], so that neighbours read neighbours. An invocation turns a block of 4 units by 4 k's.
#}
{% call kernel() %}
    let units = u.padded / 4u;
    let unit = thread % units * 4u;
    let gate = thread / units % 4u;
    let k = thread / units / 4u % u.blocks * 4u;
    let dir = thread / units / 4u / u.blocks;
    if (dir >= u.directions) { return; }
    var column: array<x_quad, 4>;
    for (var c = 0u; c < 4u && unit + c < u.hidden; c++) {
        column[c] = load4_x(u.offset + (dir * 4u * u.hidden + gate * u.hidden + unit + c) * u.row + k);
    }
    for (var s = 0u; s < 4u && k + s < u.count; s++) {
        let at = (dir * u.inner + u.first + k + s) * 4u * u.padded + gate * u.padded + unit;
        store4_y(at, y_quad(column[0][s], column[1][s], column[2][s], column[3][s]), 4u);
    }
{% endcall %}
