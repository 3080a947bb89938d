{#
  Normalizes rows of u.width elements, one workgroup a row:
  y = (v - mean) * inv_std [* gamma] [+ beta], total = v; mean and inv_std are one a row.

  source    what a row is: "tensor": x [+ skip] [+ bias]; "embedding": a sum of looked-up rows
  centered  subtract the mean (layer norm) or not (RMS norm)
  compute   the type whose arithmetic is used

  The variance is summed around the mean, not as E[v^2] - E[v]^2, which a large mean would cancel.
#}
{% set F = arith(compute) %}
alias number = {{ F.scalar }};
alias quad = array<number, 4>;

var<workgroup> lane_parts: array<number, WG>;

// The sum of every lane's value, the same in every lane.
fn row_sum(lane: u32, value: number) -> number {
    workgroupBarrier();
    lane_parts[lane] = value;
    workgroupBarrier();
    var sum = lane_parts[0];
    for (var k = 1u; k < WG; k++) { sum = {{ F("sum + lane_parts[k]") }}; }
    return sum;
}

// row_quad(row, j): elements j..j+3 of a row.
{% include "norm/" ~ source ~ ".wgsl" %}

{% call kernel() %}
    let row = group;
    if (row >= u.rows) { return; }
    let width = {{ F.cast("u.width", "u32") }};
    let step = WG * 4u;

    var sum = {{ F("0.0") }};
    var mean = {{ F("0.0") }};
#% if centered
    for (var j = lane * 4u; j < u.width; j += step) {
        var v = row_quad(row, j);
        for (var k = 0u; k < min(4u, u.width - j); k++) { sum = {{ F("sum + v[k]") }}; }
    }
    sum = row_sum(lane, sum);
    mean = {{ F("sum / width") }};
    sum = {{ F("0.0") }};
#% endif
    for (var j = lane * 4u; j < u.width; j += step) {
        var v = row_quad(row, j);
        for (var k = 0u; k < min(4u, u.width - j); k++) {
            let off = {{ F("v[k] - mean") }};
            sum = {{ F("sum + off * off") }};
        }
    }
    sum = row_sum(lane, sum);
    let scale = {{ F("1.0 / sqrt(sum / width + u.epsilon)") }};

    for (var j = lane * 4u; j < u.width; j += step) {
        var v = row_quad(row, j);
        let n = min(4u, u.width - j);
#% if total
        store4_total(row * u.width + j, total_quad({% for k in range(4) %}{{ arith(total).cast("v[%d]" % k, F) }}{{ ", " if not loop.last }}{% endfor %}), n);
#% endif
        var result: y_quad;
        for (var k = 0u; k < n; k++) {
            var value = {{ F("(v[k] - mean) * scale") }};
#% if gamma
            let gamma = load_gamma(j + k);
            value = {{ F("value * gamma") }};
#% endif
#% if beta
            let beta = load_beta(j + k);
            value = {{ F("value + beta") }};
#% endif
            result[k] = {{ arith(y).cast("value", F) }};
        }
        store4_y(row * u.width + j, result, n);
    }
#% if mean or inv_std
    if (lane == 0u) {
#% if mean
        store_mean(row, {{ arith(mean).cast("mean", F) }});
#% endif
#% if inv_std
        store_inv_std(row, {{ arith(inv_std).cast("scale", F) }});
#% endif
    }
#% endif
{% endcall %}
