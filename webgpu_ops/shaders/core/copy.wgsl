// Bit-exact copy of u.count elements where the encoder's own copy cannot go: ranges that are not
// whole words. An invocation owns four aligned target elements and touches only those in range.
{% call kernel() %}
    let first = (u.target_offset / 4u + thread) * 4u;
    let end = u.target_offset + u.count;
    if (first >= end) { return; }
    if (first >= u.target_offset && first + 4u <= end) {
        store4_target(first, load4_source(first - u.target_offset + u.source_offset), 4u);
        return;
    }
    for (var i = max(first, u.target_offset); i < min(first + 4u, end); i++) {
        store_target(i, load_source(i - u.target_offset + u.source_offset));
    }
{% endcall %}
