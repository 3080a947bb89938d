{#
  Pairs times the weights of their expert, `rows` x 64 results a workgroup of 256: each step brings 16
  columns of a and 16 weights of 64 lines into workgroup memory, of which every invocation makes a
  product of rows / 16 x 4. Placing and results: experts/place.wgsl; weights: experts/weights.wgsl.

  rows   16, 32 or 64
#}
{% set each = rows // 16 %}
alias quad = vec4<f32>;

{% include "experts/place.wgsl" %}

{% include "experts/weights.wgsl" %}

// Element (i, k) of a tile, i along rows or columns, is at k * ROW + i. The padding keeps invocations
// that write along k apart.
const ROW = 68u;
var<workgroup> left: array<f32, 16 * ROW>;
var<workgroup> right: array<f32, 16 * ROW>;

{% call kernel() %}
    let across = (u.n + 63u) / 64u;
    let tile = group / across;
    if (tile >= u.tiles) { return; }
    let place = place_of(tile);
    let column = group % across * 64u;
    if (!has_work(place, column, 64u)) { return; }
    // What this invocation brings: four of a row of a, and half of the invocations eight of a line.
    let a = a_of(pair_of(place, lane / 4u));
    let a_k = lane % 4u * 4u;
    let line = line_of(place, column + lane / 2u);
    let w_k = lane % 2u * 8u;
    // What it multiplies.
    let i = lane / 16u * {{ each }}u;
    let j = lane % 16u * 4u;
#% for r in range(each)
    var sum{{ r }} = quad();
#% endfor
    for (var start = 0u; start < u.k; start += 16u) {
        if (lane < {{ 4 * rows }}u) {
            let k = start + a_k;
            let four = inside(Eight(load4_a(a + k), vec4<f32>()), k).low;
#% for s in range(4)
            left[(a_k + {{ s }}u) * ROW + lane / 4u] = four[{{ s }}];
#% endfor
        }
        if (lane < 128u) {
            let e = inside(weights(line, start + w_k), start + w_k);
#% for s in range(8)
            right[(w_k + {{ s }}u) * ROW + lane / 2u] = e.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}];
#% endfor
        }
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let w = k * ROW + j;
            let four = quad(right[w], right[w + 1u], right[w + 2u], right[w + 3u]);
#% for r in range(each)
            sum{{ r }} = fma(quad(left[k * ROW + i + {{ r }}u]), four, sum{{ r }});
#% endfor
        }
        workgroupBarrier();
    }
#% for r in range(each)
    if (i + {{ r }}u < place.rows) { put(place, pair_of(place, i + {{ r }}u), column + j, sum{{ r }}); }
#% endfor
{% endcall %}
