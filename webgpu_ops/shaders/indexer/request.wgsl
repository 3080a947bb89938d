{#
  The requests of a call, and the entries that their new tokens complete.

  requests  [batch, 5]: first token, tokens, entries before the call, pending tokens, first slot;
            without it all requests are alike
  policy    "qsa": the pending tokens are an incomplete block; "csa": from u.ratio tokens on they
            begin with the window before the current one

  New entries of all requests share an axis of slots.
#}
struct Request { begin: u32, tokens: u32, entries: u32, pending: u32, slot: u32 }

fn request(b: u32) -> Request {
#% if requests
    let at = b * 5u;
    return Request(
        load_requests(at), load_requests(at + 1u), load_requests(at + 2u), load_requests(at + 3u),
        load_requests(at + 4u));
#% else
    return Request(b * u.sequence, u.sequence, u.past, u.pending, b * u.closed);
#% endif
}

// The first of the pending and new tokens that belongs to a new entry.
fn first_open(r: Request) -> u32 {
    return {{ "0u" if policy == "qsa" else "select(0u, u.ratio, r.pending >= u.ratio)" }};
}

fn closed(r: Request) -> u32 {
    return (r.pending + r.tokens - first_open(r)) / u.ratio;
}

// The first of the pending and new tokens that stays pending; csa keeps the last complete window.
fn first_kept(r: Request) -> u32 {
    let whole = (r.pending + r.tokens) / u.ratio;
    return {{ "whole" if policy == "qsa" else "(max(whole, 1u) - 1u)" }} * u.ratio;
}
