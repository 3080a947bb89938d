{#
  Where in `source` the n-gram at the end of `tokens` ends, if there is one such place, else -1, for
  the least n of u.least..u.most that has a single place.

  That n exists where the longest match (of at most u.most tokens) is at one place only: an n-gram
  longer than the second longest match, and not longer than the longest, is found just there.
#}
var<workgroup> lengths: array<u32, WG>;
var<workgroup> ends: array<u32, WG>;

// Merges a match of `length` tokens that ends at `end`; 0 is no single end.
fn longest(best: vec2<u32>, length: u32, end: u32) -> vec2<u32> {
    if (length > best.x) { return vec2<u32>(length, end); }
    return select(best, vec2<u32>(length, 0u), length == best.x);
}

{% call kernel() %}
    var best = vec2<u32>();
    for (var end = lane + 1u; end <= u.source_size; end += WG) {
        let limit = min(min(end, u.token_size), u.most);
        var n = 0u;
        while (n < limit) {
            if (any(load_source(end - 1u - n) != load_tokens(u.token_size - 1u - n))) { break; }
            n++;
        }
        best = longest(best, n, end);
    }
    lengths[lane] = best.x;
    ends[lane] = best.y;
    workgroupBarrier();
    if (group > 0u || lane > 0u) { return; }
    for (var k = 1u; k < WG; k++) { best = longest(best, lengths[k], ends[k]); }
    let found = best.x >= u.least && best.y > 0u;
    store_match(0u, select(vec2<u32>(0xffffffffu), vec2<u32>(best.y, 0u), found));
{% endcall %}
