{#
  Where element (row, column) of a matrix lies in cublasLt's memory orders. In all of them four
  columns from a multiple of four on are consecutive, but for COL, where four rows are.
#}
fn order_COL(row: u32, column: u32, rows: u32, columns: u32) -> u32 { return column * rows + row; }

fn order_ROW(row: u32, column: u32, rows: u32, columns: u32) -> u32 { return row * columns + column; }

// Bands of 32 columns, each in row-major order.
fn order_COL32(row: u32, column: u32, rows: u32, columns: u32) -> u32 {
    return (column / 32u * rows + row) * 32u + column % 32u;
}

// Bands of 32 columns of tiles of 8 rows. In a tile: the even rows, then the odd ones; of those each 8
// columns, in halves of 4, of which the four rows interleave.
fn order_COL4_4R2_8C(row: u32, column: u32, rows: u32, columns: u32) -> u32 {
    let tile = column / 32u * rows + row / 8u * 8u;
    let line = row % 2u * 4u + column % 32u / 8u;
    let quad = column % 8u / 4u * 4u + row % 8u / 2u;
    return (tile + line) * 32u + quad * 4u + column % 4u;
}

// Bands of 32 columns of tiles of 32 rows, the rows of a tile permuted.
fn order_COL32_2R_4R4(row: u32, column: u32, rows: u32, columns: u32) -> u32 {
    let tile = column / 32u * rows + row / 32u * 32u;
    let line = (row % 8u / 2u * 4u + row % 32u / 8u) * 2u + row % 2u;
    return (tile + line) * 32u + column % 32u;
}
