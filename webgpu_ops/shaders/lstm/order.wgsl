{#
  X [step, row, input] in the order in which rows run through their steps; backward, a row's last step
  comes first, and steps that it does not have stay where they are.
#}
{% include "lstm/rows.wgsl" %}

fn place(i: u32) -> u32 {
    let row = i / u.width % u.batch;
    let s = i / u.width / u.batch;
#% if backward
    let length = row_length(row);
    let t = select(s, length - 1u - s, s < length);
#% else
    let t = s;
#% endif
    return t * u.x_step + row * u.x_row + i % u.width;
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var quad: y_quad;
    for (var k = 0u; k < n; k++) { quad[k] = load_x(place(i + k)); }
    store4_y(i, quad, n);
{% endcall %}
