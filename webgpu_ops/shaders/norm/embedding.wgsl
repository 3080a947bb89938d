{#
  A row is the sum of word, position and (optionally) segment rows; `row` counts positions of the
  flattened [batch, sequence] ids. Ids outside a table are clamped into it.
#}
fn table_row(id: i32, rows: u32) -> u32 {
    return u32(clamp(id, 0, i32(rows) - 1));
}

fn row_quad(row: u32, j: u32) -> quad {
    let word = load4_word(table_row(load_ids(row), u.word_rows) * u.width + j);
#% if position_ids
    let place = load_position_ids(row % u.position_id_count);
#% else
    let place = i32(row % u.sequence);
#% endif
    let position = load4_position(table_row(place, u.position_rows) * u.width + j);
#% if segment
    let segment = load4_segment(table_row(load_segment_ids(row), u.segment_rows) * u.width + j);
#% endif
    return quad(
#% for k in range(4)
        word[{{ k }}] + position[{{ k }}]{{ " + segment[%d]" % k if segment }},
#% endfor
    );
}
