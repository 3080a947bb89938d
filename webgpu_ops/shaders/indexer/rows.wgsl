{#
  rows [tokens, 4]: each query's request, position, visible entries, and visible tokens behind them.

  ids      csa's positions, int64 as pairs of words
  visible  the tokens that a mask shows (see indexer/visible.wgsl); without it all of them

  A row that no request claims sees nothing; of several claims one counts.
#}
{% include "indexer/request.wgsl" %}

#% if requests
fn claims(r: Request, row: u32) -> bool { return row >= r.begin && row - r.begin < r.tokens; }

// A request that claims the row, if there is one.
fn request_of(row: u32) -> u32 {
    var low = 0u;
    var high = u.batch;
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (request(middle).begin <= row) { low = middle; } else { high = middle; }
    }
    if (claims(request(low), row)) { return low; }
    // Offsets that fall make the search miss.
    for (var b = 0u; b < u.batch; b++) {
        if (claims(request(b), row)) { return b; }
    }
    return low;
}

#% endif
#% if visible
// How many visible tokens of request b have positions up to `last`.
fn seen(b: u32, last: u32) -> u32 {
    let list = b * (u.total + 1u);
    var low = 0u;
    var high = load_visible(list + u.total);
    while (low < high) {
        let middle = (low + high) / 2u;
        if (load_visible(list + middle) <= last) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

#% endif
{% call kernel() %}
    let row = thread;
    if (row >= u.tokens) { return; }
#% if requests
    let b = request_of(row);
    let r = request(b);
    let claimed = claims(r, row);
#% else
    let b = row / u.sequence;
    let r = request(b);
    let claimed = true;
#% endif
#% if policy == "csa"
    let high = load_ids(2u * row + 1u);
    var position = select(0xfffffffeu, min(bitcast<u32>(load_ids(2u * row)), 0xfffffffeu), high == 0);
    let shown = select(position + 1u, 0u, high < 0);
    position = select(position, 0u, high < 0);
    let entries = min(shown / u.ratio, r.entries + closed(r));
    let tail = 0u;
#% else
    let position = {{ "r.entries * u.ratio + r.pending" if requests else "u.past" }} + row - r.begin;
    let shown = {{ "seen(b, position)" if visible else "position + 1u" }};
    let entries = shown / u.ratio;
    let tail = shown % u.ratio;
#% endif
    store_rows(row * 4u, b);
    store_rows(row * 4u + 1u, position);
    store_rows(row * 4u + 2u, select(0u, entries, claimed));
    store_rows(row * 4u + 3u, select(0u, tail, claimed));
{% endcall %}
