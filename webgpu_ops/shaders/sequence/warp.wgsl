{#
  Dynamic time warping: total[r, c] = cost[r, c] + the least total among the cells to the left, above
  and diagonally before it. One workgroup walks anti-diagonals u.begin..u.end, whose cells do not depend
  on each other, and behind the last one reads off the path backwards.
#}

// From which cell the path enters (r, c), which is not the first; ties go left, then diagonally.
fn came_from(r: u32, c: u32) -> vec2<u32> {
    if (r == 0u) { return vec2<u32>(r, c - 1u); }
    if (c == 0u) { return vec2<u32>(r - 1u, c); }
    let at = r * u.columns + c;
    let diagonal = load_total(at - u.columns - 1u);
    let above = load_total(at - u.columns);
    let left = load_total(at - 1u);
    if (left <= above && left <= diagonal) { return vec2<u32>(r, c - 1u); }
    if (diagonal <= above) { return vec2<u32>(r - 1u, c - 1u); }
    return vec2<u32>(r - 1u, c);
}

{% call kernel() %}
    for (var d = u.begin; d < u.end; d++) {
        let first = max(d, u.columns - 1u) - (u.columns - 1u);
        for (var r = first + lane; r < min(d + 1u, u.rows); r += WG) {
            let c = d - r;
            var total = load_cost(r * u.columns + c);
            if (d > 0u) {
                let before = came_from(r, c);
                total += load_total(before.x * u.columns + before.y);
            }
            store_total(r * u.columns + c, total);
        }
        storageBarrier();
    }
    if (group > 0u || lane > 0u || u.end < u.rows + u.columns - 1u) { return; }

    var length = 1u;
    var cell = vec2<u32>(u.rows - 1u, u.columns - 1u);
    while (any(cell != vec2<u32>())) {
        cell = came_from(cell.x, cell.y);
        length++;
    }
    store_shape(0u, 2u);
    store_shape(1u, length);
    cell = vec2<u32>(u.rows - 1u, u.columns - 1u);
    for (var i = length - 1u; ; i--) {
        store_path(i, i32(cell.x));
        store_path(length + i, i32(cell.y));
        if (i == 0u) { break; }
        cell = came_from(cell.x, cell.y);
    }
{% endcall %}
