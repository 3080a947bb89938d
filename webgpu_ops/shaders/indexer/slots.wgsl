{#
  New entries by slot, and where they lie: unrounded in `fresh`, or where that has no such slot (or is
  missing), in the state [batch, u.state_rows, size].
#}
{% include "indexer/request.wgsl" %}

struct Entry { request: u32, r: Request, number: u32, slot: u32 }

fn new_entries() -> u32 {
    if (u.batch == 0u) { return 0u; }
    let last = request(u.batch - 1u);
    return last.slot + closed(last);
}

fn new_entry(slot: u32) -> Entry {
#% if requests
    // The last request that starts at or before the slot; those without entries start with the next.
    var b = 0u;
    var high = u.batch;
    while (high - b > 1u) {
        let middle = (b + high) / 2u;
        if (request(middle).slot <= slot) { b = middle; } else { high = middle; }
    }
#% else
    let b = slot / u.closed;
#% endif
    let r = request(b);
    return Entry(b, r, slot - r.slot, slot);
}

fn entry_quad(e: Entry, c: u32) -> vec4<f32> {
#% if fresh
    if (e.slot < u.slots) { return load4_fresh(e.slot * u.size + c); }
#% endif
    return load4_state((e.request * u.state_rows + e.r.entries + e.number) * u.size + c);
}

fn store_entry(e: Entry, c: u32, x: vec4<f32>, n: u32) {
#% if fresh
    if (e.slot < u.slots) {
        store4_fresh(e.slot * u.size + c, x, n);
        return;
    }
#% endif
    store4_state((e.request * u.state_rows + e.r.entries + e.number) * u.size + c, x, n);
}
