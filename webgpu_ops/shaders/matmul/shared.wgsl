{#
  y = epilogue(a @ w) in 64 x 64 tiles a workgroup of 256: each step brings 16 columns of a and 16
  rows of w into workgroup memory, of which every invocation makes a 4 x 4 product.

  a_order, w_order   "row": a row's elements are consecutive; "column": a column's are; "any"
  epilogue, operands   as in matmul/batch.wgsl
  compute   a 32-bit type, whose arithmetic is used
#}
{% set F = arith(compute) %}
alias number = {{ F.scalar }};
alias quad = vec4<{{ F.scalar }}>;

{% include "matmul/batch.wgsl" %}

// Element (i, k) of a tile, i along m or n, is at k * ROW + i. The padding keeps invocations that
// write along k apart.
const ROW = 68u;
var<workgroup> left: array<number, 16 * ROW>;
var<workgroup> right: array<number, 16 * ROW>;

{# Brings elements (first.., start..) of a matrix into `tile`; beyond the inner size they are zero. #}
#% macro fetch(x, tile, limit, step_i, step_k, order)
fn fetch_{{ x.name }}(base: u32, lane: u32, first: u32, start: u32) {
#% if order == "i"
    let k = lane / 16u;
    let i = (lane % 16u) * 4u;
    let four = load4_{{ x.name }}(base + first + i + (start + k) * {{ step_k }});
#% for s in range(4)
    {{ tile }}[k * ROW + i + {{ s }}u] = select({{ F("0") }}, {{ F.cast("four[%d]" % s, x) }}, start + k < u.k);
#% endfor
#% else
    let i = lane / 4u;
    let k = (lane % 4u) * 4u;
    let at = base + min(first + i, {{ limit }} - 1u) * {{ step_i }} + (start + k) * {{ step_k }};
#% if order == "k"
    let four = load4_{{ x.name }}(at);
#% else
    let four = {{ x.name }}_quad({% for s in range(4) %}load_{{ x.name }}(at + {{ s }}u * {{ step_k }}){{ ", " if not loop.last }}{% endfor %});
#% endif
#% for s in range(4)
    {{ tile }}[(k + {{ s }}u) * ROW + i] = select({{ F("0") }}, {{ F.cast("four[%d]" % s, x) }}, start + k + {{ s }}u < u.k);
#% endfor
#% endif
}
#% endmacro
{{ fetch(a, "left", "u.m", "u_a_at(1u)", "u_a_at(2u)", {"row": "k", "column": "i", "any": "any"}[a_order]) }}
{{ fetch(w, "right", "u.n", "u_w_at(2u)", "u_w_at(1u)", {"row": "i", "column": "k", "any": "any"}[w_order]) }}

{% call kernel() %}
    let tiles_across = (u.n + 63u) / 64u;
    let tiles_down = (u.m + 63u) / 64u;
    let batch = group / (tiles_across * tiles_down);
    if (batch >= u.batches) { return; }
    let row = (group / tiles_across % tiles_down) * 64u;
    let column = (group % tiles_across) * 64u;
    let at = batch_at(batch);
    let i = lane / 16u * 4u;
    let j = lane % 16u * 4u;
#% for r in range(4)
    var sum{{ r }} = quad();
#% endfor
    for (var start = 0u; start < u.k; start += 16u) {
        fetch_a(at.a, lane, row, start);
        fetch_w(at.w, lane, column, start);
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let w = k * ROW + j;
            let across = quad(right[w], right[w + 1u], right[w + 2u], right[w + 3u]);
#% for r in range(4)
            sum{{ r }} += quad(left[k * ROW + i + {{ r }}u]) * across;
#% endfor
        }
        workgroupBarrier();
    }
#% for r in range(4)
    put(at, row + i + {{ r }}u, column + j, sum{{ r }});
#% endfor
{% endcall %}
