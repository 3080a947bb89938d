{#
  The last u.history positions of every row, as bits: after all tokens in the last of u.window slots,
  after fewer in those before it, zeros where the call has no such token.

  in_place  `present` may be the memory of `past`: an invocation owns a row and moves it from the
            front, the last slot last. Otherwise an invocation writes four neighbouring elements.
#}
{% include "causal_conv/lib.wgsl" %}

// Position p of a slot.
fn carried(r: Request, slot: u32, row: u32, p: u32) -> u32 {
    let left = u.window - 1u - slot;  // tokens that this slot has yet to see
    if (left > 0u && left >= r.length) { return 0u; }
    return sample(r, row, i32(r.length - left + p) - i32(u.history));
}

{% call kernel() %}
#% if in_place
    if (thread >= u.batch * u.rows) { return; }
    let row = thread % u.rows;
    let r = request(thread / u.rows);
    for (var slot = 0u; slot < u.window && r.valid; slot++) {
        for (var p = 0u; p < u.history; p++) {
            let value = carried(r, slot, row, p);
            store_present(slot * u.slot_size + state_at(r.index, row, p), value);
        }
    }
#% else
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(u.size - i, 4u);
    var out = vec4<u32>();
    var written = vec4<bool>();
    for (var k = 0u; k < n; k++) {
        let slot = (i + k) / u.slot_size;
        let e = (i + k) % u.slot_size;
#% if state_major
        let row = e % u.rows;
        let p = (e / u.rows) % u.history;
#% else
        let row = (e / u.history) % u.rows;
        let p = e % u.history;
#% endif
        let r = request(e / (u.rows * u.history));
        written[k] = r.valid;
        if (r.valid) { out[k] = carried(r, slot, row, p); }
    }
#% if cu_seqlens
    if (!all(written)) {
        for (var k = 0u; k < n; k++) {
            if (written[k]) { store_present(i + k, out[k]); }
        }
        return;
    }
#% endif
    store4_present(i, out, n);
#% endif
{% endcall %}
