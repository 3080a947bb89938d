{#
  y = epilogue(a @ weights) in 64 x 64 tiles a workgroup of 256: each step brings 16 columns of a and
  16 rows of weights into workgroup memory, of which every invocation makes a 4 x 4 product.

  order     "column": a line of weights is a column of the matrix; "row": it is a row
  epilogue, operands   as in matmul/batch.wgsl; how weights are read: quantized/weights.wgsl
#}
{% set F = arith("f32") %}
alias number = f32;
alias quad = vec4<f32>;

{% include "matmul/batch.wgsl" %}

{% include "quantized/weights.wgsl" %}

// Element (i, k) of a tile, i along m or n, is at k * ROW + i. The padding keeps invocations that
// write along k apart.
const ROW = 68u;
var<workgroup> left: array<f32, 16 * ROW>;
var<workgroup> right: array<f32, 16 * ROW>;

// Rows first.. of a, columns start..; beyond the inner size they are zero.
fn fetch_a(base: u32, lane: u32, first: u32, start: u32) {
    let i = lane / 4u;
    let k = lane % 4u * 4u;
    let four = load4_a(base + min(first + i, u.m - 1u) * u_a_at(1u) + start + k);
#% for s in range(4)
    left[(k + {{ s }}u) * ROW + i] = select(0.0, four[{{ s }}], start + k + {{ s }}u < u.k);
#% endfor
}

// Rows start.. of the weights, columns first..; half of the invocations bring eight each.
fn fetch_w(base: u32, lane: u32, first: u32, start: u32) {
    if (lane >= 128u) { return; }
#% if order == "column"
    let i = lane / 2u;
    let k = lane % 2u * 8u;
    let e = weights(base + min(first + i, u.n - 1u), start + k);
#% for s in range(8)
    right[(k + {{ s }}u) * ROW + i] = select(0.0, e.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}], start + k + {{ s }}u < u.k);
#% endfor
#% else
    let k = lane / 8u;
    let i = lane % 8u * 8u;
    let e = weights(base + min(start + k, u.k - 1u), first + i);
#% for s in range(8)
    right[k * ROW + i + {{ s }}u] = select(0.0, e.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}], start + k < u.k);
#% endfor
#% endif
}

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
    for (var start = u.begin; start < u.k; start += 16u) {
        fetch_a(at.a, lane, row, start);
        fetch_w(at.w, lane, column, start);
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            let w = k * ROW + j;
            let across = quad(right[w], right[w + 1u], right[w + 2u], right[w + 3u]);
#% for r in range(4)
            sum{{ r }} = fma(quad(left[k * ROW + i + {{ r }}u]), across, sum{{ r }});
#% endfor
        }
        workgroupBarrier();
    }
#% for r in range(4)
    put(at, row + i + {{ r }}u, column + j, sum{{ r }});
#% endfor
{% endcall %}
