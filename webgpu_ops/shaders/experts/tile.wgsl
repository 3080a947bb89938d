{#
  Pairs times the weights of their expert in register tiles: an invocation makes `rows` x `columns`
  results, where columns is a multiple of 4. Placing and results: experts/place.wgsl; weights:
  experts/weights.wgsl.

  hoisted   whether a block's scale and zero point are read once for all of it
  tail      whether the inner size is no multiple of 8

  No shared memory and no barriers: on software adapters those cost more than loads.
#}
{% set quads = columns // 4 %}
alias quad = vec4<f32>;

{% include "experts/place.wgsl" %}

{% include "experts/weights.wgsl" %}

{% call kernel() %}
    // The invocations of a workgroup lie side by side, so that they read the same elements of a.
    let across = (u.n + {{ columns }}u * WG - 1u) / ({{ columns }}u * WG);
    let tile = group / across;
    if (tile >= u.tiles) { return; }
    let place = place_of(tile);
    let column = (group % across * WG + lane) * {{ columns }}u;
    if (!has_work(place, column, {{ columns }}u)) { return; }
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
    let whole = u.k / 8u * 8u;
#% if hoisted
    for (var start = 0u; start < whole; start += u.block) {
#% for c in range(columns)
    let grid{{ c }} = grid(line{{ c }}, start / u.block);
#% endfor
    for (var k = start; k < min(start + u.block, whole); k += 8u) {
#% else
    for (var k = 0u; k < whole; k += 8u) {
#% endif
#% for c in range(columns)
        let e{{ c }} = {{ "scaled(codes(line%d, k), grid%d)" % (c, c) if hoisted else "weights(line%d, k)" % c }};
#% endfor
#% for half in ("low", "high")
#% for r in range(rows)
        let {{ half }}{{ r }} = load4_a(a{{ r }} + k{{ " + 4u" if half == "high" }});
#% endfor
#% for s in range(4)
#% for q in range(quads)
        let w{{ q }}_{{ half }}{{ s }} = quad({% for c in range(4) %}e{{ 4 * q + c }}.{{ half }}[{{ s }}]{{ ", " if not loop.last }}{% endfor %});
#% for r in range(rows)
        sum{{ r }}_{{ q }} = fma(quad({{ half }}{{ r }}[{{ s }}]), w{{ q }}_{{ half }}{{ s }}, sum{{ r }}_{{ q }});
#% endfor
#% endfor
#% endfor
#% endfor
    }
#% if hoisted
    }
#% endif
#% if tail
    for (var k = whole; k < u.k; k++) {
#% for q in range(quads)
        let w{{ q }} = quad({% for c in range(4) %}weight(line{{ 4 * q + c }}, k){{ ", " if not loop.last }}{% endfor %});
#% for r in range(rows)
        sum{{ r }}_{{ q }} = fma(quad(load_a(a{{ r }} + k)), w{{ q }}, sum{{ r }}_{{ q }});
#% endfor
#% endfor
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
