{#
  y = epilogue(a @ weights) in register tiles: an invocation makes `rows` x `columns` results.

  rows, columns   of a tile; columns is a multiple of 4, for order "row" of 8
  order     "column": a line of weights is a column of the matrix, eight of it are multiplied at a
            time; "row": it is a row, eight of it go into as many columns, four lines at a time
  tail      whether the inner size is no multiple of the step (8 for columns, 4 for rows)
  share     loads of a among four invocations: they read the same rows
  epilogue, operands   as in matmul/batch.wgsl; how weights are read: quantized/weights.wgsl

  No shared memory and no barriers: on software adapters those cost more than loads.
#}
{% set F = arith("f32") %}
{% set across = columns // 4 %}
alias number = f32;
alias quad = vec4<f32>;

{% include "matmul/batch.wgsl" %}

{% include "quantized/weights.wgsl" %}
#% if share

{% set shared = "f32" %}
{% include "lib/quads.wgsl" %}
#% endif

{# Defines {{ name }}, elements k..k+3 of row r of a; with `tail`, beyond the inner size they are zero. #}
{% macro load_row(name, r, k) -%}
#% if share
{% set one = "load_a(a%d + %s + quad_lane)" % (r, k) %}
        let {{ name }}_mine = {{ "select(0.0, %s, %s + quad_lane < u.k)" % (one, k) if tail else one }};
        let {{ name }} = broadcast4({{ name }}_mine);
#% else
{% set four = "load4_a(a%d + %s)" % (r, k) %}
        let {{ name }} = {{ "first_half(%s, u.k - min(%s, u.k))" % (four, k) if tail else four }};
#% endif
{%- endmacro %}

{# Adds several steps of the inner dimension: xs[s] with the row for %d is an element of a, w<q>_<s>
   the quad of weights. A sum takes all its steps in a row, so that it stays in a register. #}
{% macro multiply(xs) -%}
#% for q in range(across)
#% for r in range(rows)
#% for x in xs
        sum{{ r }}_{{ q }} = fma(quad({{ x % r }}), w{{ q }}_{{ loop.index0 }}, sum{{ r }}_{{ q }});
#% endfor
#% endfor
#% endfor
{%- endmacro %}

{% call kernel(quads=share) %}
    // The invocations of a workgroup lie side by side, so that they read the same elements of a.
    let groups_across = (u.n + {{ columns }}u * WG - 1u) / ({{ columns }}u * WG);
    let tiles_down = (u.m + {{ rows - 1 }}u) / {{ rows }}u;
    let batch = group / (groups_across * tiles_down);
    if (batch >= u.batches) { return; }
    let row = (group / groups_across % tiles_down) * {{ rows }}u;
    let column = (group % groups_across * WG + lane) * {{ columns }}u;
#% if not share
    if (column >= u.n) { return; }
#% endif
    let at = batch_at(batch);

    // A tile at the edge reads the last row or column again; what it makes of it is not stored.
#% for r in range(rows)
    let a{{ r }} = at.a + min(row + {{ r }}u, u.m - 1u) * u_a_at(1u);
#% for q in range(across)
    var sum{{ r }}_{{ q }} = quad();
#% endfor
#% endfor
#% if order == "column"
#% for c in range(columns)
    let line{{ c }} = at.w + min(column + {{ c }}u, u.n - 1u);
#% endfor
#% if blocks == "regular"
    for (var start = u.begin; start < u.k; start += u.block) {
#% for c in range(columns)
    let grid{{ c }} = grid(line{{ c }}, start / u.block);
#% endfor
    for (var k = start; k < min(start + u.block, u.k); k += 8u) {
#% else
    for (var k = u.begin; k < u.k; k += 8u) {
#% endif
#% for c in range(columns)
{% set eight = "scaled(codes(line%d, k), grid%d)" % (c, c) if blocks == "regular" else "weights(line%d, k)" % c %}
        let e{{ c }} = {{ "first(%s, u.k - k)" % eight if tail else eight }};
#% endfor
#% for r in range(rows)
{{ load_row("low%d" % r, r, "k") }}
{{ load_row("high%d" % r, r, "k + 4u") }}
#% endfor
#% for q in range(across)
#% for s in range(8)
        let w{{ q }}_{{ s }} = quad({% for c in range(4) %}e{{ 4 * q + c }}.{{ "low" if s < 4 else "high" }}[{{ s % 4 }}]{{ ", " if not loop.last }}{% endfor %});
#% endfor
#% endfor
{{ multiply(["low%d[0]", "low%d[1]", "low%d[2]", "low%d[3]", "high%d[0]", "high%d[1]", "high%d[2]", "high%d[3]"]) }}
    }
#% if blocks == "regular"
    }
#% endif
#% else
    for (var k = 0u; k < u.k; k += 4u) {
#% for r in range(rows)
{{ load_row("x%d" % r, r, "k") }}
#% endfor
#% for s in range(4)
#% for e in range(across // 2)
{% set eight = "weights(at.w + k + %du, column + %du)" % (s, 8 * e) %}
        let e{{ e }}_{{ s }} = {{ "first(%s, select(0u, 8u, k + %du < u.k))" % (eight, s) if tail else eight }};
        let w{{ 2 * e }}_{{ s }} = e{{ e }}_{{ s }}.low;
        let w{{ 2 * e + 1 }}_{{ s }} = e{{ e }}_{{ s }}.high;
#% endfor
#% endfor
{{ multiply(["x%d[0]", "x%d[1]", "x%d[2]", "x%d[3]"]) }}
    }
#% endif
    // A loop, so that the code that stores is there once.
    var sums = array<quad, {{ rows * across }}>(
#% for r in range(rows)
        {% for q in range(across) %}sum{{ r }}_{{ q }}, {% endfor +%}
#% endfor
    );
    for (var i = 0u; i < {{ rows * across }}u; i++) {
        put(at, row + i / {{ across }}u, column + i % {{ across }}u * 4u, sums[i]);
    }
{% endcall %}
