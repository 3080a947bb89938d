// One invocation replays the kept transitions on one element of the state [heads_v, dv, dk].

{% call kernel() %}
    if (thread >= u.size) { return; }
    let i = thread % u.dk;
    let hv = thread / u.dk;  // head and value column
    let head = hv / u.dv;
    let key_head = head * u.heads_k / u.heads_v;
    var s = load_source(u.source_at + thread);
    for (var t = 0u; t < u.kept; t++) {
        s *= load_capsule(u.decay_at + t * u.heads_v + head);
        s += load_capsule(u.key_at + (t * u.heads_k + key_head) * u.dk + i)
            * load_capsule(u.delta_at + t * u.heads_v * u.dv + hv);
    }
    store_destination(u.destination_at + thread, s);
{% endcall %}
