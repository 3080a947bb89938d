{#
  y = x with elements before and after it along each dimension, bit for bit.

  mode  what they are: "constant" the value (or zero), "edge" the nearest of x, "reflect" x mirrored on
        its first and last element, "wrap" x again and again
#}
#% if mode == "constant"
const OUTSIDE: u32 = 0xffffffffu;

#% endif
// The element of x that element i of y is.
fn source(i: u32) -> u32 {
    var rest = i;
    var at = u.x_offset;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        let n = u_x_shape(d - 1u);
        var c = i32(rest % size) - i32(u_before(d - 1u));
#% if mode == "constant"
        if (c < 0 || u32(c) >= n) { return OUTSIDE; }
#% elif mode == "edge"
        c = clamp(c, 0, i32(n) - 1);
#% elif mode == "wrap"
        c %= i32(n);
        if (c < 0) { c += i32(n); }
#% else
        let last = i32(n) - 1;
        c = abs(c) % max(2 * last, 1);
        c = min(c, 2 * last - c);
#% endif
        at += u32(c) * u_x_strides(d - 1u);
        rest /= size;
    }
    return at;
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    let row = u_shape(u.rank - 1u);
    let c = i % row;
    let before = u_before(u.rank - 1u);
    let inside = c >= before && c + 4u <= before + u_x_shape(u.rank - 1u);
#% if mode == "constant"
    let value = {{ "load_value(0u)" if value else "y_t()" }};
    var quad = y_quad(value, value, value, value);
#% else
    var quad: y_quad;
#% endif
    if (inside && u_x_strides(u.rank - 1u) == 1u) {
        let at = source(i);
#% if mode == "constant"
        if (at != OUTSIDE) { quad = load4_x(at); }
#% else
        quad = load4_x(at);
#% endif
    } else {
        for (var k = 0u; k < n; k++) {
            let at = source(i + k);
#% if mode == "constant"
            if (at != OUTSIDE) { quad[k] = load_x(at); }
#% else
            quad[k] = load_x(at);
#% endif
        }
    }
    store4_y(i, quad, n);
{% endcall %}
