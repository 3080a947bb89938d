{# The memory rows that each token's selected entries are; what it may not see, or sees anyway, becomes
   NOWHERE. A workgroup takes a token.
   `source` "main": entries are positions of the token's own sequence; with `union`, those that the window
   shows are dropped, and so is every entry after its first. "auxiliary": rows of another memory. #}
{% include "attention/span.wgsl" %}
#% if source == "main"
{% include "attention/seen.wgsl" %}
#% endif
#% if table
{% include "attention/page.wgsl" %}
#% endif
#% if union
const WORDS: u32 = 2048u;
var<workgroup> taken: array<atomic<u32>, WORDS>;  // a bit for each of the positions at hand
#% endif

{% call kernel() %}
    let t = group;
    if (t >= u.tokens) { return; }
#% if cumulative
    let b = entry_of(t);
    let s = span_of(b);
    let mine = t >= s.first && t - s.first < s.count && s.total > 0;
    let i = i32(t - s.first);
#% else
    let b = t / u.span_rows;
    let s = span_of(b);
    let mine = true;
    let i = i32(t % u.span_rows);
#% endif
    let count = u32(select(0, clamp(load_counts(t), 0, i32(u.most)), mine));
    let chosen = t * (u.most + 1u);
    if (lane == 0u) { store_chosen(chosen, count); }

#% if source == "auxiliary"
    let end = {{ "clamp(load_bounds(b), 0, i32(u.capacity))" if bounds else "i32(u.capacity)" }};
#% else
    let end = seen(s, i).{{ "x" if union else "y" }};
#% endif
#% if union
    for (var base = 0; base == 0 || base < end; base += i32(WORDS) * 32) {
        for (var w = lane; w < WORDS; w += WG) { atomicStore(&taken[w], 0u); }
        workgroupBarrier();
        for (var n = lane; n < count; n += WG) {
            let j = load_indices(t * u.most + n);
            let inside = j >= 0 && j < end;
            if (!inside && base == 0) { store_chosen(chosen + 1u + n, NOWHERE); }
            let at = u32(j - base);
            if (!inside || at >= WORDS * 32u) { continue; }
            let bit = 1u << (at % 32u);
            let again = (atomicOr(&taken[at / 32u], bit) & bit) != 0u;
            store_chosen(chosen + 1u + n, select({{ "page_row(b, u32(j))" if table else "b * u.share_rows + u32(j)" }}, NOWHERE, again));
        }
        workgroupBarrier();
    }
#% else
    for (var n = lane; n < count; n += WG) {
        let j = load_indices(t * u.most + n);
        let row = {{ "page_row(b, u32(max(j, 0)))" if table else "b * u.share_rows + u32(max(j, 0))" }};
        store_chosen(chosen + 1u + n, select(NOWHERE, row, j >= 0 && j < end));
    }
#% endif
{% endcall %}
