// Which blocks of keys the queries of a block see: bits [layouts, block of queries, block of keys].
fn sees_block(which: u32, row: u32, column: u32) -> bool {
    if (row >= u.block_rows || column >= u.block_rows) { return false; }
    let word = load_blocks((which * u.block_rows + row) * u.block_words + column / 32u);
    return ((word >> (column % 32u)) & 1u) == 1u;
}

// Whether any head of group kv sees one of the key rows [j, end) from the rows of queries i to last.
fn sees_any(s: Span, kv: u32, i: u32, last: u32, j: i32, end: i32) -> bool {
    let rows = vec2<u32>(u32(s.query) + i, u32(s.query) + last) / u.block_size;
    let columns = vec2<u32>(u32(j), u32(end - 1)) / u.block_size;
    for (var g = 0u; g < min(u.group, u.block_layouts); g++) {
        let which = (kv * u.group + g) % u.block_layouts;
        for (var row = rows.x; row <= rows.y; row++) {
            for (var column = columns.x; column <= columns.y; column++) {
                if (sees_block(which, row, column)) { return true; }
            }
        }
    }
    return false;
}
