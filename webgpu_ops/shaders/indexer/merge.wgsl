{#
  The union of a cached selection and a range, or a second selection, in order of first occurrence;
  one workgroup a query. Items are the cached row's `base` indices and then those of `more`; sorted
  by value they tell which of them came before, and what of a range is there already.

  cached        the row of each query, and behind u.queries of them the valid indices of each row
  starts, ends  the range of each query, or
  more          [queries, u.more_columns] indices, of which `more_counts` are valid
  order         [rows, 2, u.room] scratch
#}
{% include "indexer/tally.wgsl" %}

var<private> base_at: u32;
var<private> known: u32;
var<private> more_at: u32;

fn item(i: u32) -> i32 {
#% if more
    if (i >= known) { return load_more(more_at + i - known); }
#% endif
    return load_base(base_at + i);
}

fn precedes(a: u32, b: u32) -> bool {
    let first = item(a);
    let second = item(b);
    return first < second || (first == second && a < b);
}

{% include "indexer/sort.wgsl" %}

// Whether one of `count` items, sorted from `at` on, has this value.
fn contains(at: u32, count: u32, value: i32) -> bool {
    var low = 0u;
    var high = count;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (item(load_order(at + middle)) < value) { low = middle + 1u; } else { high = middle; }
    }
    return low < count && item(load_order(at + min(low, count - 1u))) == value;
}

{% call kernel() %}
    if (group >= u.rows) { return; }
    let row = u.first + group;
    let source = load_cached(row);
    var sound = source >= 0 && u32(source) < u.base_rows;
    var count = 0;
    if (sound) { count = load_cached(u.queries + u32(source)); }
    sound = sound && count >= 0 && u32(count) <= u.columns;
    known = select(0u, u32(count), sound);
    base_at = u32(source) * u.columns;
    var start = 0;
    var end = 0;
#% if more
    more_at = row * u.more_columns;
    let added = load_more_counts(row);
    sound = sound && added >= 0 && u32(added) <= u.more_columns;
    let items = select(0u, known + u32(added), sound);
#% else
    start = load_starts(row);
    end = load_ends(row);
    sound = sound && start >= 0 && end >= start;
    let items = select(0u, known, sound);
#% endif

    let order_at = group * 2u * u.room;
    var negative = 0u;
    for (var i = lane; i < items; i += WG) {
        store_order(order_at + i, i);
        negative += u32(item(i) < 0);
    }
    sound = tally(lane, vec2<u32>(negative, 0u)).all.x == 0u && sound;
    let half = sorted(lane, order_at, items);
    let sorted_at = order_at + half;
    let first_at = order_at + u.room - half;  // whether an item is the first of its value
    for (var i = lane; i < items; i += WG) {
        let here = load_order(sorted_at + i);
        let again = i > 0u && item(load_order(sorted_at + max(i, 1u) - 1u)) == item(here);
        store_order(first_at + here, u32(!again));
    }
    storageBarrier();

    let share = share_of(lane, items);
    var own = vec2<u32>();  // first occurrences, and those of them inside the range
    for (var i = share.x; i < share.y; i++) {
        let first = load_order(first_at + i);
        own += vec2<u32>(first, first * u32(item(i) >= start && item(i) < end));
    }
    let found = tally(lane, own);
    var total = found.all.x + u32(end - start) - found.all.y;
    let fits = total <= u.width;
    let good = sound && fits;
    total = select(0u, total, good);

    let out = row * u.width;
    var next = out + found.before.x;
    for (var i = share.x; i < share.y && good; i++) {
        if (load_order(first_at + i) != 0u) {
            store_selected(next, item(i));
            next++;
        }
    }
#% if not more
    let values = share_of(lane, select(0u, u32(end - start), good));
    var fresh = 0u;
    for (var v = values.x; v < values.y; v++) { fresh += u32(!contains(sorted_at, items, start + i32(v))); }
    next = out + found.all.x + tally(lane, vec2<u32>(fresh, 0u)).before.x;
    for (var v = values.x; v < values.y; v++) {
        if (!contains(sorted_at, items, start + i32(v))) {
            store_selected(next, start + i32(v));
            next++;
        }
    }
#% endif
    for (var i = total + lane; i < u.width; i += WG) { store_selected(out + i, -1); }
    if (lane == 0u) {
        store_counts(row, i32(total));
        store_status(row, select(1, select(2, 0, fits), sound));
    }
{% endcall %}
