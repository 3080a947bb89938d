{#
  Pairs times the weights of their expert, for few pairs an expert: a workgroup makes `rows` x 4 results.
  Its invocations share the inner dimension, eight weights of a line at a time, so that they read memory
  side by side, and add up what they found in workgroup memory. Placing and results:
  experts/place.wgsl; weights: experts/weights.wgsl.

  rows   at most 4
#}
alias quad = vec4<f32>;

{% include "experts/place.wgsl" %}

{% include "experts/weights.wgsl" %}

var<workgroup> parts: array<quad, {{ rows }}u * WG>;

{% call kernel() %}
    let across = (u.n + 3u) / 4u;
    let tile = group / across;
    if (tile >= u.tiles) { return; }
    let place = place_of(tile);
    let column = group % across * 4u;
    if (!has_work(place, column, 4u)) { return; }
#% for r in range(rows)
    let a{{ r }} = a_of(pair_of(place, {{ r }}u));
    var sum{{ r }} = quad();
#% endfor
#% for c in range(4)
    let line{{ c }} = line_of(place, column + {{ c }}u);
#% endfor
    for (var k = lane * 8u; k < u.k; k += WG * 8u) {
#% for c in range(4)
        let e{{ c }} = inside(weights(line{{ c }}, k), k);
#% endfor
#% for r in range(rows)
        let x{{ r }} = inside(Eight(load4_a(a{{ r }} + k), load4_a(a{{ r }} + k + 4u)), k);
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
    if (lane < place.rows) { put(place, pair_of(place, lane), column, parts[lane * WG]); }
{% endcall %}
