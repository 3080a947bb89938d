{#
  y = epilogue(a @ weights) in register tiles: an invocation makes `rows` x `columns` results.

  rows, columns   of a tile; columns is a multiple of 8
  order     "column": a line of weights is a column of the matrix, eight of it are multiplied at a
            time; "row": it is a row, eight of it go into as many columns
  tail      whether the inner size is no multiple of the step (8 for columns, 4 for rows)
  epilogue, operands   as in matmul/batch.wgsl; how weights are read: quantized/weights.wgsl

  No shared memory and no barriers: on software adapters those cost more than loads.
#}
{% set F = arith("f32") %}
{% set quads = columns // 4 %}
alias number = f32;
alias quad = vec4<f32>;

{% include "matmul/batch.wgsl" %}

{% include "quantized/weights.wgsl" %}

{# Adds the products of rows x{{ r }} and the quads w{{ q }}. #}
{% macro multiply(x, w) -%}
#% for q in range(quads)
#% for r in range(rows)
        sum{{ r }}_{{ q }} = fma(quad({{ x % r }}), {{ w % q }}, sum{{ r }}_{{ q }});
#% endfor
#% endfor
{%- endmacro %}

{% call kernel() %}
    // The invocations of a workgroup lie side by side, so that they read the same elements of a.
    let groups_across = (u.n + {{ columns }}u * WG - 1u) / ({{ columns }}u * WG);
    let tiles_down = (u.m + {{ rows - 1 }}u) / {{ rows }}u;
    let batch = group / (groups_across * tiles_down);
    if (batch >= u.batches) { return; }
    let row = (group / groups_across % tiles_down) * {{ rows }}u;
    let column = (group % groups_across * WG + lane) * {{ columns }}u;
    if (column >= u.n) { return; }
    let at = batch_at(batch);

    // A tile at the edge reads the last row or column again; what it makes of it is not stored.
#% for r in range(rows)
    let a{{ r }} = at.a + min(row + {{ r }}u, u.m - 1u) * u_a_at(1u);
#% for q in range(quads)
    var sum{{ r }}_{{ q }} = quad();
#% endfor
#% endfor
#% if order == "column"
#% for c in range(columns)
    let line{{ c }} = at.w + min(column + {{ c }}u, u.n - 1u);
#% endfor
    let whole = u.k / 8u * 8u;
#% if blocks == "regular"
    for (var start = 0u; start < whole; start += u.block) {
#% for c in range(columns)
    let grid{{ c }} = grid(line{{ c }}, start / u.block);
#% endfor
    for (var k = start; k < min(start + u.block, whole); k += 8u) {
#% for c in range(columns)
        let e{{ c }} = scaled(codes(line{{ c }}, k), grid{{ c }});
#% endfor
#% else
    for (var k = 0u; k < whole; k += 8u) {
#% for c in range(columns)
        let e{{ c }} = weights(line{{ c }}, k);
#% endfor
#% endif
#% for r in range(rows)
        let low{{ r }} = load4_a(a{{ r }} + k);
        let high{{ r }} = load4_a(a{{ r }} + k + 4u);
#% endfor
#% for half in ("low", "high")
#% for s in range(4)
#% for q in range(quads)
        let w{{ q }}_{{ half }}{{ s }} = quad({% for c in range(4) %}e{{ 4 * q + c }}.{{ half }}[{{ s }}]{{ ", " if not loop.last }}{% endfor %});
#% endfor
{{ multiply(half ~ "%d[" ~ s ~ "]", "w%d_" ~ half ~ s) }}
#% endfor
#% endfor
    }
#% if blocks == "regular"
    }
#% endif
#% if tail
    for (var k = whole; k < u.k; k++) {
#% for q in range(quads)
        let w{{ q }} = quad({% for c in range(4) %}weight(line{{ 4 * q + c }}, k){{ ", " if not loop.last }}{% endfor %});
#% endfor
#% for r in range(rows)
        let x{{ r }} = load_a(a{{ r }} + k);
#% endfor
{{ multiply("x%d", "w%d") }}
    }
#% endif
#% else
    let whole = u.k / 4u * 4u;
    for (var k = 0u; k < whole; k += 4u) {
#% for r in range(rows)
        let x{{ r }} = load4_a(a{{ r }} + k);
#% endfor
#% for s in range(4)
#% for e in range(quads // 2)
        let e{{ e }}_{{ s }} = weights(at.w + k + {{ s }}u, column + {{ 8 * e }}u);
        let w{{ 2 * e }}_{{ s }} = e{{ e }}_{{ s }}.low;
        let w{{ 2 * e + 1 }}_{{ s }} = e{{ e }}_{{ s }}.high;
#% endfor
{{ multiply("x%d[" ~ s ~ "]", "w%d_" ~ s) }}
#% endfor
    }
#% if tail
    for (var k = whole; k < u.k; k++) {
#% for e in range(quads // 2)
        let e{{ e }} = weights(at.w + k, column + {{ 8 * e }}u);
        let w{{ 2 * e }} = e{{ e }}.low;
        let w{{ 2 * e + 1 }} = e{{ e }}.high;
#% endfor
#% for r in range(rows)
        let x{{ r }} = load_a(a{{ r }} + k);
#% endfor
{{ multiply("x%d", "w%d") }}
    }
#% endif
#% endif
    // A loop, so that the code that stores is there once.
    var sums = array<quad, {{ rows * quads }}>(
#% for r in range(rows)
        {% for q in range(quads) %}sum{{ r }}_{{ q }}, {% endfor +%}
#% endfor
    );
    for (var i = 0u; i < {{ rows * quads }}u; i++) {
        put(at, row + i / {{ quads }}u, column + i % {{ quads }}u * 4u, sums[i]);
    }
{% endcall %}
