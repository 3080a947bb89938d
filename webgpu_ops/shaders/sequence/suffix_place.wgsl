{#
  Where in the source the n-gram at the end of the tokens ends, if there is one such place, else -1, for
  the least n from u.least on that has a single place.

  lengths  how long the match is that ends at each of the u.size places

  That n exists where the longest match is at one place only: an n-gram longer than the second longest
  match, and not longer than the longest, is found just there.
#}
var<workgroup> longest: array<vec2<u32>, WG>;

// Merges a match of `length` tokens that ends at `end`; 0 is no single end.
fn merged(best: vec2<u32>, length: u32, end: u32) -> vec2<u32> {
    if (length > best.x) { return vec2<u32>(length, end); }
    return select(best, vec2<u32>(length, 0u), length == best.x);
}

{% call kernel() %}
    var best = vec2<u32>();
    for (var place = lane; place < u.size; place += WG) { best = merged(best, load_lengths(place), place + 1u); }
    longest[lane] = best;
    workgroupBarrier();
    if (group > 0u || lane > 0u) { return; }
    for (var k = 1u; k < WG; k++) { best = merged(best, longest[k].x, longest[k].y); }
    let found = best.x >= u.least && best.y > 0u;
    store_match(0u, select(vec2<u32>(0xffffffffu), vec2<u32>(best.y, 0u), found));
{% endcall %}
