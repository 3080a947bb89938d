{#
  update [batch, u.capacity, size]: what each of a request's first tokens changed, bit for bit: the
  key that it completed (from `state`, after the call), or its own. The rest is zero.
#}
{% include "indexer/request.wgsl" %}

{% call kernel() %}
    let quads = (u.size + 3u) / 4u;
    let c = (thread % quads) * 4u;
    let row = thread / quads;
    let b = row / u.capacity;
    if (b >= u.batch) { return; }
    let i = row % u.capacity;
    let r = request(b);
    var quad: update_quad;
    let wanted = {{ "load_active(0u) != 0" if active else "true" }};
    if (wanted && i32(i) < load_counts(b) && i < r.tokens) {
        let done = r.pending + i + 1u;
        if (done % u.ratio == 0u) {
            quad = load4_state((b * u.state_rows + r.entries + done / u.ratio - 1u) * u.size + c);
        } else {
            quad = load4_x((r.begin + i) * u.stride + u.column + c);
        }
    }
    store4_update(row * u.size + c, quad, min(4u, u.size - c));
{% endcall %}
