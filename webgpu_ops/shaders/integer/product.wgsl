{#
  y = epilogue(start + (a - a_zero) @ (w - w_zero)) of integers of 8 or 16 bits: an invocation makes
  `rows` x 4 results. Sums are exact modulo 2^32.

  rows      of a tile
  a_order   "row": a row's elements are consecutive; "column": a column's are; "any"; or the name of an
            order of ordered/index.wgsl
  w_order   likewise; an order is that of w transposed
  y_order   "row" or the name of an order
  packed    bytes are multiplied four at a time
  sums      int32 or uint32; float32 where a has a scale for each column
  compute   the type whose arithmetic the epilogue uses
  sides     which of a_zero, w_zero (of a row, of a column) and start there are, like `operands`
  operands, epilogue   as in matmul/batch.wgsl
  a_column_zero, a_column_scale   bindings or none: one value for each column of a
#}
{% set F = arith(compute) %}
{% set given = sides | map(attribute=0) | list %}
{% set total = "vec4<%s>" % arith(sums).scalar %}
{% set one = arith(sums).scalar %}
{% set plain = ("row", "column", "any") %}
alias number = {{ F.scalar }};
alias quad = vec4<{{ F.scalar }}>;
alias total = {{ total }};

{% include "ordered/index.wgsl" %}

{% set y_place = "row * u_y_at(1u) + column" if y_order == "row" else "order_%s(row, column, u.m, u.n)" % y_order %}
{% include "matmul/batch.wgsl" %}

fn place_a(row: u32, k: u32) -> u32 {
    return {{ "row * u_a_at(1u) + k * u_a_at(2u)" if a_order in plain else "order_%s(row, k, u.m, u.k)" % a_order }};
}

fn place_w(k: u32, column: u32) -> u32 {
    return {{ "k * u_w_at(1u) + column * u_w_at(2u)" if w_order in plain else "order_%s(column, k, u.n, u.k)" % w_order }};
}
#% if packed

// Four bytes from element i on as signed numbers: unsigned ones are moved down by 128.
#% for x in (a, w)
fn bytes_{{ x.name }}(i: u32) -> u32 {
    let shift = (i % 4u) * 8u;
    var word = word_{{ x.name }}(i / 4u);
    if (shift != 0u) { word = (word >> shift) | (word_{{ x.name }}(i / 4u + 1u) << (32u - shift)); }
    return word{{ " ^ 0x80808080u" if x.dtype.kind == "uint" }};
}
#% endfor

// Byte j of word i becomes byte i of word j.
fn turned(x: vec4<u32>) -> vec4<u32> {
    let even = vec2<u32>((x.x & 0xff00ffu) | ((x.y & 0xff00ffu) << 8u), (x.z & 0xff00ffu) | ((x.w & 0xff00ffu) << 8u));
    let odd = vec2<u32>(((x.x >> 8u) & 0xff00ffu) | (x.y & 0xff00ff00u), ((x.z >> 8u) & 0xff00ffu) | (x.w & 0xff00ff00u));
    return vec4<u32>((even.x & 0xffffu) | (even.y << 16u), (odd.x & 0xffffu) | (odd.y << 16u), (even.x >> 16u) | (even.y & 0xffff0000u), (odd.x >> 16u) | (odd.y & 0xffff0000u));
}
#% endif
{# What is subtracted of a (of w): its zero point, in the numbers that are multiplied. #}
#% macro zero(side, x, row, column)
{{ "%s(get_%s(at, %s, %s))" % (one, side, row, column) if side in given else "%s(0)" % one }}{{ " - 128" if packed and x.dtype.kind == "uint" }}
#%- endmacro
{% set a_moved = "a_zero" in given or (packed and a.dtype.kind == "uint") %}
{% set w_moved = "w_zero" in given or (packed and w.dtype.kind == "uint") %}

{% call kernel() %}
    // The invocations of a workgroup lie side by side, so that they read the same elements of a.
    let groups_across = (u.n + 4u * WG - 1u) / (4u * WG);
    let tiles_down = (u.m + {{ rows - 1 }}u) / {{ rows }}u;
    let batch = group / (groups_across * tiles_down);
    if (batch >= u.batches) { return; }
    let row = (group / groups_across % tiles_down) * {{ rows }}u;
    let column = (group % groups_across * WG + lane) * 4u;
    if (column >= u.n) { return; }
    let at = batch_at(batch);

    // A tile at the edge reads the last row or column again; what it makes of it is not stored.
#% for r in range(rows)
    let row{{ r }} = min(row + {{ r }}u, u.m - 1u);
    var sum{{ r }} = total();
#% if a_moved
    let a_zero{{ r }} = {{ zero("a_zero", a, "row%d" % r, "0u") }};
#% endif
#% endfor
#% for c in range(4)
    let column{{ c }} = min(column + {{ c }}u, u.n - 1u);
#% endfor
#% if w_moved
    let w_zero = total({% for c in range(4) %}{{ zero("w_zero", w, "0u", "column%d" % c) }}{{ ", " if not loop.last }}{% endfor %});
#% endif
    var k = 0u;
#% if packed
    // (a - a_zero) (w - w_zero), multiplied out: the sums of a and of w are made on the way.
#% if w_moved
#% for r in range(rows)
    var a_sum{{ r }} = 0;
#% endfor
#% endif
#% if a_moved
    var w_sum = total();
#% endif
    for (; k + 4u <= u.k; k += 4u) {
#% if a_order == "column"
#% for g in range((rows + 3) // 4)
        let left{{ g }} = turned(vec4<u32>({% for s in range(4) %}bytes_a(at.a + place_a(row + {{ 4 * g }}u, k + {{ s }}u)){{ ", " if not loop.last }}{% endfor %}));
#% endfor
#% endif
#% if w_order == "row"
        let right = turned(vec4<u32>({% for s in range(4) %}bytes_w(at.w + place_w(k + {{ s }}u, column)){{ ", " if not loop.last }}{% endfor %}));
#% else
        let right = vec4<u32>({% for c in range(4) %}bytes_w(at.w + place_w(k, column{{ c }})){{ ", " if not loop.last }}{% endfor %});
#% endif
#% if a_moved
        w_sum += total({% for c in range(4) %}dot4I8Packed(right[{{ c }}], 0x01010101u){{ ", " if not loop.last }}{% endfor %});
#% endif
#% for r in range(rows)
        let four{{ r }} = {{ "left%d[%d]" % (r // 4, r % 4) if a_order == "column" else "bytes_a(at.a + place_a(row%d, k))" % r }};
        sum{{ r }} += total({% for c in range(4) %}dot4I8Packed(four{{ r }}, right[{{ c }}]){{ ", " if not loop.last }}{% endfor %});
#% if w_moved
        a_sum{{ r }} += dot4I8Packed(four{{ r }}, 0x01010101u);
#% endif
#% endfor
    }
    for (; k < u.k; k++) {
        let right = total({% for c in range(4) %}i32(load_w(at.w + place_w(k, column{{ c }}))){{ " - 128" if w.dtype.kind == "uint" }}{{ ", " if not loop.last }}{% endfor %});
#% if a_moved
        w_sum += right;
#% endif
#% for r in range(rows)
        let left{{ r }} = i32(load_a(at.a + place_a(row{{ r }}, k))){{ " - 128" if a.dtype.kind == "uint" }};
        sum{{ r }} += left{{ r }} * right;
#% if w_moved
        a_sum{{ r }} += left{{ r }};
#% endif
#% endfor
    }
#% for r in range(rows)
#% if a_moved
    sum{{ r }} -= a_zero{{ r }} * w_sum;
#% endif
#% if w_moved
    sum{{ r }} -= w_zero * a_sum{{ r }};
#% endif
#% if a_moved and w_moved
    sum{{ r }} += w_zero * (a_zero{{ r }} * i32(u.k));
#% endif
#% endfor
#% else
#% if "any" not in (a_order, w_order)
    for (; k + 4u <= u.k; k += 4u) {
#% if a_column_zero
        let zeros = total(load4_a_column_zero(k));
#% endif
#% if a_order == "column"
#% for g in range((rows + 3) // 4)
#% for s in range(4)
        let column{{ g }}_{{ s }} = total(load4_a(at.a + place_a(row + {{ 4 * g }}u, k + {{ s }}u)));
#% endfor
#% endfor
#% endif
#% for r in range(rows)
        var left{{ r }} = {% if a_order == "column" %}total({% for s in range(4) %}column{{ r // 4 }}_{{ s }}[{{ r % 4 }}]{{ ", " if not loop.last }}{% endfor %}){% else %}total(load4_a(at.a + place_a(row{{ r }}, k))){% endif %}{{ " - a_zero%d" % r if a_moved }}{{ " - zeros" if a_column_zero }};
#% if a_column_scale
        left{{ r }} *= load4_a_column_scale(k);
#% endif
#% endfor
#% if w_order != "row"
#% for c in range(4)
        let down{{ c }} = load4_w(at.w + place_w(k, column{{ c }}));
#% endfor
#% endif
#% for s in range(4)
        let right{{ s }} = {% if w_order == "row" %}total(load4_w(at.w + place_w(k + {{ s }}u, column))){% else %}total(vec4({% for c in range(4) %}down{{ c }}[{{ s }}]{{ ", " if not loop.last }}{% endfor %})){% endif %}{{ " - w_zero" if w_moved }};
#% for r in range(rows)
        sum{{ r }} += left{{ r }}[{{ s }}] * right{{ s }};
#% endfor
#% endfor
    }
#% endif
    for (; k < u.k; k++) {
        let right = total({% for c in range(4) %}{{ one }}(load_w(at.w + place_w(k, column{{ c }}))){{ ", " if not loop.last }}{% endfor %}){{ " - w_zero" if w_moved }};
#% for r in range(rows)
        let left{{ r }} = ({{ one }}(load_a(at.a + place_a(row{{ r }}, k))){{ " - a_zero%d" % r if a_moved }}{{ " - %s(load_a_column_zero(k))" % one if a_column_zero }}){{ " * load_a_column_scale(k)" if a_column_scale }};
        sum{{ r }} += left{{ r }} * right;
#% endfor
    }
#% endif
#% if "start" in given
#% for r in range(rows)
    sum{{ r }} += total({% for c in range(4) %}get_start(at, row{{ r }}, column{{ c }}){{ ", " if not loop.last }}{% endfor %});
#% endfor
#% endif
    // A loop, so that the code that stores is there once.
    var sums = array<total, {{ rows }}>({% for r in range(rows) %}sum{{ r }}{{ ", " if not loop.last }}{% endfor %});
    for (var r = 0u; r < {{ rows }}u; r++) { put(at, row + r, column, quad(sums[r])); }
{% endcall %}
