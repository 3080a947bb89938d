{# Cache rows moved bit for bit, zeros where there is nothing to move.
   `what`: "past" keeps rows where they are, "held" takes those a windowed cache holds, "kept" takes
   the most recent ones it will hold after the call. #}
{% include "attention/span.wgsl" %}

{% call kernel() %}
    let quads = (u.width + 3u) / 4u;
    var n = thread;
    let c = (n % quads) * 4u; n /= quads;
    let row = n % u.y_rows; n /= u.y_rows;
    let h = n % u.heads;
    let b = n / u.heads;
    if (b >= u.batch) { return; }
#% if what == "past"
    let source = row;
    let there = row < u.x_rows;
#% else
    let s = span_of(b);
#% if what == "held"
    let source = row;
    let there = i32(row) < s.past;
#% else
    let kept = resident(s.total);
    let source = u32(s.end - kept) + row;
    let there = i32(row) < kept;
#% endif
#% endif
    var x: y_quad;
    if (there) { x = load4_x(((b * u.heads + h) * u.x_rows + source) * u.width + c); }
    store4_y(((b * u.heads + h) * u.y_rows + row) * u.width + c, x, min(4u, u.width - c));
{% endcall %}
