{#
  Elements of data where indices say, bit for bit. Negative indices count from the end; what is
  still outside is clamped.

  each  false: y[o, j, i] = data[o, indices[j], i] for [outer, length, inner] data
        true: y and indices have one shape, u.shape, and an index replaces the coordinate along one axis
#}
{% set I = arith(indices) %}
fn index(j: u32) -> u32 {
    let raw = load_indices(j);
    let length = {{ I.cast("u.length", "u32") }};
    let at = {{ I("raw + length if raw < 0 else raw") }};
    return {{ arith("u32").cast(I("clamp(at, 0, length - 1)"), indices) }};
}

fn source(i: u32) -> u32 {
#% if each
    var rest = i;
    var at = index(i) * u.axis_stride;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        at += (rest % size) * u_strides(d - 1u);
        rest /= size;
    }
    return at;
#% else
    let row = i / u.inner;
    return (row / u.count * u.length + index(row % u.count)) * u.inner + i % u.inner;
#% endif
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var quad: y_quad;
#% if not each
    if (i % u.inner + 4u <= u.inner) {
        quad = load4_data(source(i));
    } else {
        for (var k = 0u; k < n; k++) { quad[k] = load_data(source(i + k)); }
    }
#% else
    for (var k = 0u; k < n; k++) { quad[k] = load_data(source(i + k)); }
#% endif
    store4_y(i, quad, n);
{% endcall %}
