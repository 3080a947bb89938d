// The first tokens of each request, as bits: update [batch, capacity, rows], zero past the captured
// ones. Four neighbouring elements an invocation.
{% include "causal_conv/lib.wgsl" %}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(u.size - i, 4u);
    var out = vec4<u32>();
    var written = vec4<bool>();
    for (var k = 0u; k < n; k++) {
        let row = (i + k) % u.rows;
        let slot = ((i + k) / u.rows) % u.capacity;
        let r = request((i + k) / (u.rows * u.capacity));
        written[k] = r.valid;
        if (r.valid && slot < r.length && i32(slot) < load_count(r.index)) { out[k] = sample(r, row, i32(slot)); }
    }
    if (all(written)) {
        store4_update(i, out, n);
        return;
    }
    for (var k = 0u; k < n; k++) {
        if (written[k]) { store_update(i + k, out[k]); }
    }
{% endcall %}
