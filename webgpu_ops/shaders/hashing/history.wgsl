{#
  The ids before a token: those of its own request, then those of earlier calls.

  ids [tokens], requests [batch + 1] (where each request starts; without it every request has
  u.sequence ids), past [batch, before] with the last id at its end, eos [1], segments [tokens],
  past_segments [batch, before]. Malformed `requests` are clamped into the tokens.
#}
{% set F = arith(ids) %}
alias number = {{ F.scalar }};

struct Request { index: u32, start: u32, end: u32 }

#% if requests
fn start_of(r: u32) -> u32 { return u32(clamp(load_requests(r), 0, i32(u.tokens))); }
#% endif

fn request(r: u32) -> Request {
#% if requests
    let start = start_of(r);
    return Request(r, start, max(start, start_of(r + 1u)));
#% else
    return Request(r, r * u.sequence, (r + 1u) * u.sequence);
#% endif
}

// The request that token t lies in. Where malformed offsets leave it to none, the range says so.
fn request_of(t: u32) -> Request {
#% if requests
    var low = 0u;
    var high = u.batch;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (start_of(middle) <= t) { low = middle; } else { high = middle; }
    }
    return request(low);
#% else
    return request(t / u.sequence);
#% endif
}

// What stands for history that does not exist.
fn missing() -> number { return {{ "load_eos(0u)" if eos else "u.pad" }}; }

// The id at `position`, which is counted from the request's first token and at least -before.
fn id_at(r: Request, position: i32) -> number {
    if (position >= 0) { return load_ids(r.start + u32(position)); }
#% if past
    return load_past(r.index * u.before + u32(i32(u.before) + position));
#% else
    return missing();
#% endif
}
#% if segments

// Unknown history belongs to the segment of the request's first token.
fn segment_at(r: Request, position: i32) -> i32 {
    if (position >= 0) { return load_segments(r.start + u32(position)); }
#% if past_segments
    return load_past_segments(r.index * u.before + u32(i32(u.before) + position));
#% else
    if (r.start == r.end) { return 0; }
    return load_segments(r.start);
#% endif
}
#% endif
