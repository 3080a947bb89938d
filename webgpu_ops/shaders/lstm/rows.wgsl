{# How long a row's sequence is; a malformed length is clamped. #}
fn row_length(row: u32) -> u32 {
#% if lengths
    return u32(clamp(load_lengths(row), 0, i32(u.steps)));
#% else
    return u.steps;
#% endif
}
