// The memory row of row j of entry b: its page may lie anywhere, or nowhere.
fn page_row(b: u32, j: u32) -> u32 {
    let page = load_table(b * u.table_row + min(j / u.page_rows, u.table_row - 1u));
    return select(NOWHERE, u32(page) * u.page_rows + j % u.page_rows, page >= 0 && page < i32(u.pages));
}
