{#
  y[kept] = finish(combine over reduced of each(x)): every reduction over any axes.

  each      expression of x, one element
  combine   expression of a and b, two partial results; it must not depend on their order
  finish    expression of a, the whole result, and u.count, how many elements went in
  lanes     1: an invocation makes four results; WG: a workgroup makes four results together
  flat      the reduced elements are evenly spaced
  compute   the type whose arithmetic is used

  With u.parts above 1, that many results, side by side, share the elements of each kept index.
#}
{% set F = arith(compute) %}
alias number = {{ F.scalar }};

fn each(x_in: x_t) -> number {
    let x = {{ F.cast("x_in", x) }};
    return {{ F(each) }};
}

fn combine(a: number, b: number) -> number {
    return {{ F(combine) }};
}

fn finish(a: number) -> y_t {
    return {{ arith(y).cast("(" ~ F(finish) ~ ")", F) }};
}

fn kept_at(i: u32) -> u32 {
    var rest = i;
    var at = u.offset;
    for (var d = u.kept_rank; d > 0u; d--) {
        let size = u_kept_shape(d - 1u);
        at += (rest % size) * u_kept_strides(d - 1u);
        rest /= size;
    }
    return at;
}

fn reduced_at(i: u32) -> u32 {
#% if flat
    return i * u_reduced_strides(0u);
#% else
    var rest = i;
    var at = 0u;
    for (var d = u.reduced_rank; d > 0u; d--) {
        let size = u_reduced_shape(d - 1u);
        at += (rest % size) * u_reduced_strides(d - 1u);
        rest /= size;
    }
    return at;
#% endif
}

// What result i makes of the elements that fall to one of its lanes.
fn fold(i: u32, own: u32, lanes: u32) -> number {
    let base = kept_at(i / u.parts);
    let first = i % u.parts * lanes + own;
    let step = u.parts * lanes;
    var a = each(load_x(base + reduced_at(first)));
    for (var j = first + step; j < u.length; j += step) {
        a = combine(a, each(load_x(base + reduced_at(j))));
    }
    return a;
}

#% if lanes > 1
var<workgroup> lane_parts: array<number, {{ 4 * lanes }}>;

#% endif
{% call kernel() %}
#% if lanes == 1
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var result: y_quad;
    for (var k = 0u; k < n; k++) { result[k] = finish(fold(i + k, 0u, 1u)); }
    store4_y(i, result, n);
#% else
    let i = group * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    let busy = min(WG, u.length);
    if (lane < busy) {
        for (var k = 0u; k < n; k++) { lane_parts[k * WG + lane] = fold(i + k, lane, WG); }
    }
    workgroupBarrier();
    if (lane != 0u) { return; }
    var result: y_quad;
    for (var k = 0u; k < n; k++) {
        var a = lane_parts[k * WG];
        for (var other = 1u; other < busy; other++) { a = combine(a, lane_parts[k * WG + other]); }
        result[k] = finish(a);
    }
    store4_y(i, result, n);
#% endif
{% endcall %}
