{#
  y = the running sum of x along the middle of [outer, u.length, u.inner]; an invocation walks one of
  the u.parts of a line, u.part elements.

  exclusive   leave an element out of its own sum
  reverse   sum from the end
  before    what each part begins with, or nothing: zero
  totals    y = the sum of each part
  compute   the type whose arithmetic is used
#}
{% set F = arith(compute) %}
{% call kernel() %}
    let line = thread / u.parts;
    if (line >= u.lines) { return; }
    let base = line / u.inner * u.length * u.inner + line % u.inner;
    let first = thread % u.parts * u.part;
    var sum = {{ F.cast("load_before(thread)", before) if before else F("0") }};
    for (var j = first; j < min(first + u.part, u.length); j++) {
        let at = base + {{ "(u.length - 1u - j)" if reverse else "j" }} * u.inner;
        let value = {{ F.cast("load_x(at)", x) }};
#% if totals
        sum = {{ F("sum + value") }};
#% elif exclusive
        store_y(at, {{ arith(y).cast("sum", F) }});
        sum = {{ F("sum + value") }};
#% else
        sum = {{ F("sum + value") }};
        store_y(at, {{ arith(y).cast("sum", F) }});
#% endif
    }
#% if totals
    store_y(thread, {{ arith(y).cast("sum", F) }});
#% endif
{% endcall %}
