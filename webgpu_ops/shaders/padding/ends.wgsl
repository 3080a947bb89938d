{# Where each sequence ends among the real tokens, their number, and the longest sequence. #}
{% call kernel() %}
    if (thread > u.batch) { return; }
    var end = 0u;
    var most = 0u;
    for (var b = 0u; b < thread; b++) {
        let count = u32(clamp(load_counts(b), 0, i32(u.sequence)));
        end += count;
        most = max(most, count);
    }
    store_ends(thread, i32(end));
    if (thread == u.batch) {
        store_total(0u, end);
        store_total(1u, u.hidden);
#% if most
        store_most(0u, i32(most));
#% endif
    }
{% endcall %}
