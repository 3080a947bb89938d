// The row of a table of `rows` at the position `further` after an int64 in two words; clamped to the table.
fn table_row(low: i32, high: i32, further: u32, rows: u32) -> u32 {
    let last = rows - 1u;
    let count = bitcast<u32>(low);
    if (high == 0) { return select(last, min(count + further, last), count <= last && further <= last); }
    // From below, what follows may come to lie in the table.
    let short = 0u - count;
    if (high == -1 && short != 0u) { return select(0u, min(further - short, last), further > short); }
    return select(last, 0u, high < 0);
}
