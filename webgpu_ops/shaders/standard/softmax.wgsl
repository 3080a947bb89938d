{#
  y = softmax(x) (or its logarithm) along one axis of [outer, u.width, u.inner].

  inner  false: u.inner is 1 and a workgroup shares a row; true: an invocation walks four columns
  log    log softmax
  compute   the type whose arithmetic is used

  Sums are kept relative to the largest element so far, from the lowest finite number on, so that
  a row of -inf gives NaN (0 / 0) as it should. An infinity, whose distance to itself is NaN, makes
  the whole row NaN, as a NaN does.
#}
{% set F = arith(compute) %}
alias number = {{ F.scalar }};

struct Sum { top: number, sum: number }

fn include(total: Sum, value: number) -> Sum {
    let top = total.top;
    let sum = total.sum;
    let less = {{ F("exp(-abs(value - top))") }};
    if ({{ F("value > top") }}) { return Sum(value, {{ F("sum * less + 1.0") }}); }
    return Sum(top, {{ F("sum + less") }});
}

fn join(one: Sum, two: Sum) -> Sum {
    let top = one.top;
    let other = two.top;
    let a = one.sum;
    let b = two.sum;
    let less = {{ F("exp(-abs(other - top))") }};
    if ({{ F("other > top") }}) { return Sum(other, {{ F("a * less + b") }}); }
    return Sum(top, {{ F("a + b * less") }});
}

fn value_of(x_in: x_t, total: Sum) -> y_t {
    let x = {{ F.cast("x_in", x) }};
    let top = total.top;
    let sum = total.sum;
    return {{ arith(y).cast(F("nan if is_inf(top) else " ~ ("x - top - log(sum)" if log else "exp(x - top) / sum")), F) }};
}
#% if not inner

var<workgroup> lane_parts: array<Sum, WG>;
#% endif

{% call kernel() %}
    let start = Sum({{ F.lowest }}, {{ F("0.0") }});
#% if inner
    let columns = (u.inner + 3u) / 4u;
    let outer = thread / columns;
    if (outer >= u.outer) { return; }
    let column = (thread % columns) * 4u;
    let n = min(4u, u.inner - column);
    let base = outer * u.width * u.inner + column;
    var totals = array<Sum, 4>(start, start, start, start);
    for (var j = 0u; j < u.width; j++) {
        var quad = load4_x(base + j * u.inner);
        for (var k = 0u; k < 4u; k++) { totals[k] = include(totals[k], {{ F.cast("quad[k]", x) }}); }
    }
    for (var j = 0u; j < u.width; j++) {
        var quad = load4_x(base + j * u.inner);
        var result: y_quad;
        for (var k = 0u; k < 4u; k++) { result[k] = value_of(quad[k], totals[k]); }
        store4_y(base + j * u.inner, result, n);
    }
#% else
    let row = group;
    if (row >= u.outer) { return; }
    let base = row * u.width;
    var own = start;
    for (var j = lane * 4u; j < u.width; j += WG * 4u) {
        var quad = load4_x(base + j);
        for (var k = 0u; k < min(4u, u.width - j); k++) { own = include(own, {{ F.cast("quad[k]", x) }}); }
    }
    lane_parts[lane] = own;
    workgroupBarrier();
    var total = lane_parts[0];
    for (var k = 1u; k < WG; k++) { total = join(total, lane_parts[k]); }
    for (var j = lane * 4u; j < u.width; j += WG * 4u) {
        var quad = load4_x(base + j);
        var result: y_quad;
        for (var k = 0u; k < 4u; k++) { result[k] = value_of(quad[k], total); }
        store4_y(base + j, result, min(4u, u.width - j));
    }
#% endif
{% endcall %}
