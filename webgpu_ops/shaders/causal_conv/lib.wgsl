{#
  The rows that a causal convolution runs along, and what lies before them.

  x is [batch, rows, length] or, `token_major`, [batch, length, rows]; with `cu_seqlens` the requests
  are packed [tokens, rows]. A row is a channel, or in 2-D and 3-D a channel at one place of the other
  axes. A state is [batch, rows, history], or with `state_major` [batch, history, rows]; `past` starts
  at element u.past_at.
#}
struct Request { index: u32, start: u32, length: u32, valid: bool }

fn request(b: u32) -> Request {
#% if cu_seqlens
    let start = load_cu_seqlens(b);
    let end = load_cu_seqlens(b + 1u);
    let valid = load_cu_seqlens(0u) == 0 && load_cu_seqlens(u.batch) == i32(u.tokens)
        && 0 <= start && start < end && end <= i32(u.tokens);
    return Request(b, u32(start), u32(end) - u32(start), valid);
#% else
    return Request(b, b * u.length, u.length, true);
#% endif
}

fn x_at(r: Request, row: u32, l: u32) -> u32 {
    return {{ "(r.start + l) * u.rows + row" if token_major else "(r.index * u.rows + row) * u.length + l" }};
}

fn state_at(b: u32, row: u32, p: u32) -> u32 {
    return {{ "(b * u.history + p) * u.rows + row" if state_major else "(b * u.rows + row) * u.history + p" }};
}

// Position l of a row, counted from the call's first token; at least -u.history.
fn sample(r: Request, row: u32, l: i32) -> x_t {
    if (l >= 0) { return load_x(x_at(r, row, u32(l))); }
#% if past
    return load_past(u.past_at + state_at(r.index, row, u32(i32(u.history) + l)));
#% else
    return x_t();
#% endif
}
