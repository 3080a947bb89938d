{#
  y = the running sum of x along the middle of [outer, u.length, u.inner]; an invocation walks one
  line. `exclusive` leaves an element out of its own sum; `reverse` sums from the end.
  compute is the type whose arithmetic is used.
#}
{% set F = arith(compute) %}
{% call kernel() %}
    if (thread >= u.lines) { return; }
    let base = thread / u.inner * u.length * u.inner + thread % u.inner;
    var sum = {{ F("0") }};
    for (var j = 0u; j < u.length; j++) {
        let at = base + {{ "(u.length - 1u - j)" if reverse else "j" }} * u.inner;
        let value = {{ F.cast("load_x(at)", x) }};
#% if exclusive
        store_y(at, {{ arith(y).cast("sum", F) }});
        sum = {{ F("sum + value") }};
#% else
        sum = {{ F("sum + value") }};
        store_y(at, {{ arith(y).cast("sum", F) }});
#% endif
    }
{% endcall %}
