// Zero bits for u.count elements from u.offset on, where the encoder's own clear cannot go.
{% call kernel() %}
    let i = u.offset + thread;
    if (thread < u.count) {
        var zero: target_t;
        store_target(i, zero);
    }
{% endcall %}
