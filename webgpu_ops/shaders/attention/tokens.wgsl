{# Sorts the tokens of Longformer attention, [batch, rows], into global, local and masked ones. One
   workgroup; in each batch entry an invocation takes neighbouring tokens.
   places      of each token: 0 local, 1 + n the n-th global one of all entries, MASKED
   table       of each entry: its global tokens, then its local ones
   counts      of each entry: how many global tokens there are
   others      of each entry: how many local ones
   cumulative  how many global tokens there are before each entry, and in all of them
   queries     of each global token: 3 times its number, the row of its Q among the thirds of a projection #}
const MASKED: u32 = 0xffffffffu;
var<workgroup> found: array<vec2<u32>, WG>;

{% call kernel() %}
    var before = 0u;
    let share = (u.rows + WG - 1u) / WG;
    let first = min(u.rows, lane * share);
    let end = min(u.rows, first + share);
    for (var b = 0u; b < u.batch; b++) {
        var mine = vec2<u32>();  // global tokens, local tokens
        for (var i = first; i < end; i++) {
            let t = b * u.rows + i;
            if (load_mask(t) >= 0.0) { mine += select(vec2<u32>(0u, 1u), vec2<u32>(1u, 0u), load_flags(t) != 0); }
        }
        found[lane] = mine;
        workgroupBarrier();
        var rank = vec2<u32>();
        var all = vec2<u32>();
        for (var k = 0u; k < WG; k++) {
            if (k == lane) { rank = all; }
            all += found[k];
        }
        for (var i = first; i < end; i++) {
            let t = b * u.rows + i;
            if (load_mask(t) < 0.0) {
                store_places(t, MASKED);
            } else if (load_flags(t) != 0) {
                store_places(t, 1u + before + rank.x);
                store_table(b * u.rows + rank.x, i32(t));
                store_queries(before + rank.x, i32(3u * t));
                rank.x++;
            } else {
                store_places(t, 0u);
                store_table(b * u.rows + all.x + rank.y, i32(t));
                rank.y++;
            }
        }
        if (lane == 0u) {
            store_cumulative(b, i32(before));
            store_counts(b, i32(all.x));
            store_others(b, i32(all.y));
        }
        before += all.x;
        workgroupBarrier();
    }
    if (lane == 0u) { store_cumulative(u.batch, i32(before)); }
{% endcall %}
