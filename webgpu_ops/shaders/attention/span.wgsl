// Where a batch entry's keys lie. Everything counts rows of the key memory, except `column`.
struct Span {
    total: i32,   // tokens so far, the new ones included
    past: i32,    // row of the first new key
    query: i32,   // row level with the first query: query i stands at row query + i
    end: i32,     // rows at and after it hold nothing
    column: i32,  // position of row 0: the column of bias, mask and scores that belongs to it
    first: u32,   // packed entries lie one behind the other: the memory row of query 0
    count: u32,   // queries
}

// No row of memory: what a page that is not there, or a dropped selection, stands for.
const NOWHERE: u32 = 0xffffffffu;

// Rows a window-sized cache keeps after `total` tokens. A capacity of 0 keeps everything.
fn resident(total: i32) -> i32 {
    let capacity = i32(u.span_capacity);
    if (capacity == 0 || total <= capacity) { return total; }
    let stride = capacity - i32(u.span_window) + 1;
    return total - stride * ((total - capacity + stride - 1) / stride);
}

#% if cumulative
// The packed entry that token t belongs to, if any does.
fn entry_of(t: u32) -> u32 {
    var b = 0u;
    var end = u.span_entries;
    while (end - b > 1u) {
        let middle = (b + end) / 2u;
        if (load_cumulative(middle) <= i32(t)) { b = middle; } else { end = middle; }
    }
    return b;
}
#% endif

fn span_of(b: u32) -> Span {
    var s: Span;
    s.first = 0u;
    s.count = u.span_rows;
#% if picks
    s.first = b;
    s.total = i32(load_picks(b * u.picks_row));
    s.past = 0;
#% elif cumulative
    let start = clamp(load_cumulative(b), 0, i32(u.span_tokens));
    s.first = u32(start);
    s.count = min(u.span_rows, u32(clamp(load_cumulative(b + 1u), start, i32(u.span_tokens)) - start));
    s.total = i32(s.count);
    s.past = 0;
#% if lengths
    // A length that cannot be leaves its entry without keys, old or new.
    let past = load_lengths(b);
    let fits = past >= 0 && past <= i32(u.span_total) - s.total;
    s.past = select(0, past, fits);
    s.total = select(0, s.past + s.total, fits);
#% endif
#% elif lengths
    s.total = clamp(load_lengths(b * u.span_stride) + u.span_add, 0, i32(u.span_total));
    s.past = select(max(s.total - i32(u.span_new), 0), i32(u.span_past), u.span_fixed == 1u);
#% else
    s.total = i32(u.span_total);
    s.past = i32(u.span_past);
#% endif
    s.column = s.past - resident(s.past);
    s.past -= s.column;
    s.end = min(s.total - s.column, i32(u.span_shown));
    s.query = s.past + i32(u.span_new) - i32(u.span_rows);
    return s;
}
