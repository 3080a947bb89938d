{# Joins the parts of split-key attention: each row's parts carry values, maximum and sum. #}
{% include "attention/sink.wgsl" %}
#% if cumulative
{% include "attention/span.wgsl" %}
#% endif
{% call kernel() %}
    let row = thread / u.value_quads;
    let c = thread % u.value_quads;
    if (row >= u.all_rows) { return; }
    let h = row % u.heads;
    let token = row / u.heads;
    let y = u.y_offset + token / u.rows * u.y_batch + h * u.y_head + token % u.rows * u.y_row + c * 4u;
    let channels = min(4u, u.value_channels - c * 4u);
#% if cumulative
    // A token that belongs to no entry was left out.
    let s = span_of(entry_of(token));
    if (token < s.first || token - s.first >= s.count) {
        store4_y(y, vec4<f32>(0.0), channels);
        return;
    }
#% endif

    let start = empty_row(h);
    let at = row * u.splits * u.part_row;
    let tail = at + u.value_quads * 4u;
    var top = start.x;
    for (var p = 0u; p < u.splits; p++) { top = max(top, load_parts(tail + p * u.part_row)); }
    var sum = start.y * exp(start.x - top);
    var acc = vec4<f32>(0.0);
    for (var p = 0u; p < u.splits; p++) {
        let part = load_parts(tail + p * u.part_row + 1u);
        if (part == 0.0) { continue; }
        let share = exp(load_parts(tail + p * u.part_row) - top);
        sum += part * share;
        acc += load4_parts(at + p * u.part_row + c * 4u) * share;
    }
    store4_y(y, finished(acc, sum), channels);
#% if stats
    if (c == 0u) {
        store_stats(row * 2u, top);
        store_stats(row * 2u + 1u, sum);
    }
#% endif
{% endcall %}
