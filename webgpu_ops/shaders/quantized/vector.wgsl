{#
  y = epilogue(a @ weights) for few rows: a workgroup makes `rows` x 4 results. Its invocations share
  the inner dimension, eight weights of a line at a time, so that they read memory side by side, and
  add up what they found in workgroup memory.

  rows      of a tile
  tail      whether the inner size is no multiple of 8
  epilogue, operands   as in matmul/batch.wgsl; how weights are read: quantized/weights.wgsl
#}
{% set F = arith("f32") %}
alias number = f32;
alias quad = vec4<f32>;

{% include "matmul/batch.wgsl" %}

{% include "quantized/weights.wgsl" %}

var<workgroup> parts: array<quad, {{ rows }}u * WG>;

{% call kernel() %}
    let across = (u.n + 3u) / 4u;
    let down = (u.m + {{ rows - 1 }}u) / {{ rows }}u;
    let batch = group / (across * down);
    if (batch >= u.batches) { return; }
    let row = (group / across % down) * {{ rows }}u;
    let column = group % across * 4u;
    let at = batch_at(batch);
#% for r in range(rows)
    let a{{ r }} = at.a + min(row + {{ r }}u, u.m - 1u) * u_a_at(1u);
    var sum{{ r }} = quad();
#% endfor
#% for c in range(4)
    let line{{ c }} = at.w + min(column + {{ c }}u, u.n - 1u);
#% endfor
    for (var k = u.begin + lane * 8u; k < u.k; k += WG * 8u) {
#% for r in range(rows)
{% set eight = "Eight(load4_a(a%d + k), load4_a(a%d + k + 4u))" % (r, r) %}
        let x{{ r }} = {{ "first(%s, u.k - k)" % eight if tail else eight }};
#% endfor
#% for c in range(4)
        let e{{ c }} = {{ "first(weights(line%d, k), u.k - k)" % c if tail else "weights(line%d, k)" % c }};
#% endfor
#% for r in range(rows)
        sum{{ r }} += quad(
#% for c in range(4)
            dot(x{{ r }}.low, e{{ c }}.low) + dot(x{{ r }}.high, e{{ c }}.high){{ "," if not loop.last }}
#% endfor
        );
#% endfor
    }
#% for r in range(rows)
    parts[{{ r }}u * WG + lane] = sum{{ r }};
#% endfor
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) {
#% for r in range(rows)
            parts[{{ r }}u * WG + lane] += parts[{{ r }}u * WG + lane + half];
#% endfor
        }
    }
    workgroupBarrier();
    if (lane < {{ rows }}u) { put(at, row + lane, column, parts[lane * WG]); }
{% endcall %}
