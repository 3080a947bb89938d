{# Where a row's state lies and how long its sequence is; a malformed length is clamped. #}
fn state_at(dir: u32, row: u32) -> u32 {
    return dir * u.state_dir + row * u.state_row;
}

fn row_length(row: u32) -> u32 {
#% if lengths
    return u32(clamp(load_lengths(row), 0, i32(u.steps)));
#% else
    return u.steps;
#% endif
}
