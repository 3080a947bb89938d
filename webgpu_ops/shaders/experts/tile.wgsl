{#
  Pairs times the weights of their expert in register tiles: an invocation makes `rows` x `columns`
  results, where columns is a multiple of 4. Placing and results: experts/place.wgsl; weights:
  experts/weights.wgsl.

  hoisted   whether a block's scale and zero point are read once for all of it
  share     whether four invocations, which read the same rows of a, share their loads

  No shared memory and no barriers: on software adapters those cost more than loads.
#}
{% set quads = columns // 4 %}
alias quad = vec4<f32>;

{% include "experts/place.wgsl" %}

{% include "experts/weights.wgsl" %}
#% if share

{% set shared = "f32" %}
{% include "lib/quads.wgsl" %}
#% endif

{% call kernel(quads=share) %}
    // The invocations of a workgroup lie side by side, so that they read the same elements of a.
    let across = (u.n + {{ columns }}u * WG - 1u) / ({{ columns }}u * WG);
    let tile = group / across;
    if (tile >= u.tiles) { return; }
    let place = place_of(tile);
    if (!has_work(place, group % across * WG * {{ columns }}u, WG * {{ columns }}u)) { return; }
    let column = (group % across * WG + lane) * {{ columns }}u;
#% for r in range(rows)
    let pair{{ r }} = pair_of(place, {{ r }}u);
    let a{{ r }} = a_of(pair{{ r }});
#% for q in range(quads)
    var sum{{ r }}_{{ q }} = quad();
#% endfor
#% endfor
#% for c in range(columns)
    let line{{ c }} = line_of(place, column + {{ c }}u);
#% endfor
#% if hoisted
    for (var start = 0u; start < u.k; start += u.block) {
#% for c in range(columns)
    let grid{{ c }} = grid(line{{ c }}, start / u.block);
#% endfor
    for (var k = start; k < min(start + u.block, u.k); k += 8u) {
#% else
    for (var k = 0u; k < u.k; k += 8u) {
#% endif
#% for c in range(columns)
        let e{{ c }} = inside({{ "scaled(codes(line%d, k), grid%d)" % (c, c) if hoisted else "weights(line%d, k)" % c }}, k);
#% endfor
#% for q in range(quads)
#% for s in range(8)
        let w{{ q }}_{{ s }} = quad({% for c in range(4) %}e{{ 4 * q + c }}.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}]{{ ", " if not loop.last }}{% endfor %});
#% endfor
#% endfor
#% for r in range(rows)
#% if share
        let x{{ r }}_low = load_a(a{{ r }} + k + quad_lane);
        let x{{ r }}_high = load_a(a{{ r }} + k + 4u + quad_lane);
        let x{{ r }} = inside(Eight(broadcast4(x{{ r }}_low), broadcast4(x{{ r }}_high)), k);
#% else
        let x{{ r }} = inside(Eight(load4_a(a{{ r }} + k), load4_a(a{{ r }} + k + 4u)), k);
#% endif
#% endfor
        // A sum takes all its steps in a row, so that it stays in a register.
#% for q in range(quads)
#% for r in range(rows)
#% for s in range(8)
        sum{{ r }}_{{ q }} = fma(quad(x{{ r }}.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}]), w{{ q }}_{{ s }}, sum{{ r }}_{{ q }});
#% endfor
#% endfor
#% endfor
    }
#% if hoisted
    }
#% endif
    // A loop, so that the code that stores is there once.
    var pairs = array<u32, {{ rows }}>({% for r in range(rows) %}pair{{ r }}{{ ", " if not loop.last }}{% endfor %});
    var sums = array<quad, {{ rows * quads }}>(
#% for r in range(rows)
        {% for q in range(quads) %}sum{{ r }}_{{ q }}, {% endfor +%}
#% endfor
    );
    for (var i = 0u; i < place.rows * {{ quads }}u; i++) {
        put(place, pairs[i / {{ quads }}u], column + i % {{ quads }}u * 4u, sums[i]);
    }
{% endcall %}
