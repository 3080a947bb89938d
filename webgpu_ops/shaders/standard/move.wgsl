{#
  y[view] = x[view], bit for bit: transpose, slice, expand, tile, split, concat.

  Both sides walk u.shape with strides of their own.

  dense  y's elements are consecutive
#}
fn at_x(i: u32) -> u32 {
    var rest = i;
    var at = u.x_offset;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        at += (rest % size) * u_x_strides(d - 1u);
        rest /= size;
    }
    return at;
}
#% if not dense

fn at_y(i: u32) -> u32 {
    var rest = i;
    var at = u.y_offset;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        at += (rest % size) * u_y_strides(d - 1u);
        rest /= size;
    }
    return at;
}
#% endif

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let row = u_shape(u.rank - 1u);
    let whole = i % row + 4u <= row;
    var quad: x_quad;
    if (whole && u_x_strides(u.rank - 1u) == 1u) {
        quad = load4_x(at_x(i));
    } else {
        quad = x_quad(load_x(at_x(i)), load_x(at_x(i + 1u)), load_x(at_x(i + 2u)), load_x(at_x(i + 3u)));
    }
    let n = min(4u, u.size - i);
#% if dense
    store4_y(u.y_offset + i, quad, n);
#% else
    if (whole && u_y_strides(u.rank - 1u) == 1u) {
        store4_y(at_y(i), quad, n);
    } else {
        for (var k = 0u; k < n; k++) { store_y(at_y(i + k), quad[k]); }
    }
#% endif
{% endcall %}
