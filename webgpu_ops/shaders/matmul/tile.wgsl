{#
  y = epilogue(a @ w) in register tiles: an invocation makes `rows` x `columns` results.

  rows, columns   of a tile; columns is a multiple of 4
  share     loads of a among four invocations, which all read the same rows
  a_order, w_order   "row": a row's elements are consecutive; "column": a column's are; "any"
  epilogue, operands   as in matmul/batch.wgsl
  compute   the type whose arithmetic is used

  No shared memory and no barriers: on software adapters those cost more than loads.
#}
{% set F = arith(compute) %}
{% set quads = columns // 4 %}
{% set vector = F.scalar in ("f32", "i32", "u32") %}
{% set fast = vector and a.scalar == w.scalar == F.scalar and "any" not in (a_order, w_order) %}
alias number = {{ F.scalar }};
alias quad = {{ "vec4<%s>" % F.scalar if vector else "array<%s, 4>" % F.scalar }};

{% include "matmul/batch.wgsl" %}

fn zero() -> quad {
    return quad({{ ([F("0")] * 4) | join(", ") }});
}

// sum + a * w, four columns at once
fn add(sum: quad, a: number, w: quad) -> quad {
#% if vector
    return {{ "fma(quad(a), w, sum)" if F.kind == "f32" else "sum + a * w" }};
#% else
    return quad({% for k in range(4) %}{{ F("sum[%d] + a * w[%d]" % (k, k)) }}{{ ", " if not loop.last }}{% endfor %});
#% endif
}

{# Four consecutive elements of a from `place` on. #}
{% macro shared_a(place) -%}
{{ "broadcast4(load_a(%s + quad_lane))" % place if share else "load4_a(%s)" % place }}
{%- endmacro %}
#% if share

{% set shared = F.scalar %}
{% include "lib/quads.wgsl" %}
#% endif

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
#% endfor
#% for c in range(columns)
    let w{{ c }} = at.w + min(column + {{ c }}u, u.n - 1u) * u_w_at(2u);
#% endfor
#% for r in range(rows)
#% for q in range(quads)
    var sum{{ r }}_{{ q }} = zero();
#% endfor
#% endfor
    var k = 0u;
#% if fast
    for (; k + 4u <= u.k; k += 4u) {
        // Four steps of k: from each side quads along k ("a row", "w column") or across it.
#% if a_order == "row"
#% for r in range(rows)
        let left{{ r }} = {{ shared_a("a%d + k" % r) }};
#% endfor
#% else
#% for s in range(4)
#% for g in range((rows + 3) // 4)
        let left{{ g }}_{{ s }} = {{ shared_a("at.a + row + %du + (k + %du) * u_a_at(2u)" % (4 * g, s)) }};
#% endfor
#% endfor
#% endif
#% if w_order == "column"
#% for c in range(columns)
        let right{{ c }} = load4_w(w{{ c }} + k);
#% endfor
#% endif
#% for q in range(quads)
#% for s in range(4)
#% if w_order == "column"
        let w{{ q }}_{{ s }} = quad({% for c in range(4) %}right{{ 4 * q + c }}[{{ s }}]{{ ", " if not loop.last }}{% endfor %});
#% else
        let w{{ q }}_{{ s }} = load4_w(at.w + column + {{ 4 * q }}u + (k + {{ s }}u) * u_w_at(1u));
#% endif
#% endfor
#% endfor
        // A sum takes all its steps in a row, so that it stays in a register.
#% for q in range(quads)
#% for r in range(rows)
#% for s in range(4)
        sum{{ r }}_{{ q }} = add(sum{{ r }}_{{ q }}, {{ "left%d[%d]" % (r, s) if a_order == "row" else "left%d_%d[%d]" % (r // 4, s, r % 4) }}, w{{ q }}_{{ s }});
#% endfor
#% endfor
#% endfor
    }
#% endif
    for (; k < u.k; k++) {
#% for q in range(quads)
        let w_{{ q }} = quad({% for c in range(4) %}{{ F.cast("load_w(w%d + k * u_w_at(1u))" % (4 * q + c), w) }}{{ ", " if not loop.last }}{% endfor %});
#% endfor
#% for r in range(rows)
        let left{{ r }} = {{ F.cast("load_a(a%d + k * u_a_at(2u))" % r, a) }};
#% for q in range(quads)
        sum{{ r }}_{{ q }} = add(sum{{ r }}_{{ q }}, left{{ r }}, w_{{ q }});
#% endfor
#% endfor
    }
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
