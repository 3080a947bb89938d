{#
  New entries, pooled by indexer/pool.wgsl, in place; and rounded into the state. Entry e stands at
  e * u.ratio.
#}
{% include "indexer/slots.wgsl" %}

struct Place { there: bool, request: u32, position: u32, entry: Entry }

fn vectors() -> u32 { return new_entries(); }

fn place(i: u32) -> Place {
    let e = new_entry(i);
    let reach = u.table_rows / u.ratio + 1u;  // from there on a position would be clamped, or wrap
    return Place(true, e.request, min(e.r.entries + e.number, reach) * u.ratio, e);
}

fn quad(p: Place, c: u32) -> vec4<f32> { return entry_quad(p.entry, c); }

fn keep(p: Place, c: u32, y: vec4<f32>, n: u32) {
#% if fresh
    store_entry(p.entry, c, y, n);
#% endif
    let row = p.request * u.state_rows + p.entry.r.entries + p.entry.number;
    store4_state(row * u.size + c, y, n);
}
