{#
  y[i] = index of the largest (or smallest) of x's elements on a line; lines are `inner` apart.

  last    of equal elements the last one counts, else the first
  lanes   1: an invocation searches a line; WG: a workgroup searches it together
  places  nothing: the u.count elements of a line are searched; else those at these u.count indices

  With u.parts above 1, that many results, side by side, share the elements of each line.
#}
{% set F = arith(x) %}
{% set floats = F.kind in ("f32", "f64") %}
struct Found { value: x_t, index: u32 }

// Whether b takes the place of a. A NaN takes it from a number.
fn wins(b: Found, a: Found) -> bool {
    let new_value = b.value;
    let old_value = a.value;
#% if floats
    let new_nan = {{ F("is_nan(new_value)") }};
    let old_nan = {{ F("is_nan(old_value)") }};
    if (new_nan != old_nan) { return new_nan; }
    let equal = new_nan || {{ F("new_value == old_value") }};
#% else
    let equal = {{ F("new_value == old_value") }};
#% endif
    if (equal) { return {{ "b.index > a.index" if last else "b.index < a.index" }}; }
    return {{ F("new_value > old_value" if largest else "new_value < old_value") }};
}

// Number i of what is searched of a line.
fn found(line: u32, i: u32) -> Found {
    let place = {{ "load_places(line * u.count + i)" if places else "i" }};
    return Found(load_x((line / u.inner * u.length + place) * u.inner + line % u.inner), place);
}

// What result i makes of the elements that fall to one of its lanes.
fn search(i: u32, own: u32, lanes: u32) -> Found {
    let line = i / u.parts;
    let first = i % u.parts * lanes + own;
    var best = found(line, min(first, u.count - 1u));
    for (var k = first + u.parts * lanes; k < u.count; k += u.parts * lanes) {
        let next = found(line, k);
        if (wins(next, best)) { best = next; }
    }
    return best;
}
#% if lanes > 1

var<workgroup> best_of: array<Found, WG>;
#% endif

{% call kernel() %}
#% if lanes > 1
    if (group >= u.size) { return; }
    best_of[lane] = search(group, lane, WG);
    workgroupBarrier();
    if (lane != 0u) { return; }
    var best = best_of[0];
    for (var other = 1u; other < WG; other++) {
        if (wins(best_of[other], best)) { best = best_of[other]; }
    }
    store_y(group, {{ arith(y).cast("best.index", "u32") }});
#% else
    if (thread >= u.size) { return; }
    let best = search(thread, 0u, 1u);
    store_y(thread, {{ arith(y).cast("best.index", "u32") }});
#% endif
{% endcall %}
