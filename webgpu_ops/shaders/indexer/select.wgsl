{#
  The u.top best entries of each row in order, one workgroup a row, and what they stand for.

  A key orders scores as unsigned numbers. Eight steps of four bits find the key of the last entry
  that is kept, and how many of those that share it; these entries are gathered and then sorted.

  selected  [rows, u.width]: entries, or with policy "qsa" their u.ratio tokens and the tokens behind
            the last block; the rest is -1
  visible   the tokens that a mask shows (see indexer/visible.wgsl)
#}
{% include "indexer/tally.wgsl" %}

var<workgroup> bins: array<atomic<u32>, 16>;
var<private> scores_at: u32;

// Better scores have larger keys; both zeros have one, NaN has the smallest.
fn rank(entry: u32) -> u32 {
    let score = load_scores(scores_at + entry);
    if (is_nan(score)) { return 0u; }
    let bits = bitcast<u32>(score);
    if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) != 0u);
}

fn precedes(a: u32, b: u32) -> bool {
    let first = rank(a);
    let second = rank(b);
    return first > second || (first == second && a < b);
}

{% include "indexer/sort.wgsl" %}

fn token(b: u32, i: u32) -> i32 {
    return {{ "i32(load_visible(b * (u.total + 1u) + i))" if visible else "i32(i)" }};
}

{% call kernel() %}
    if (group >= u.rows) { return; }
    let row = u.first + group;
    let b = load_rows(row * 4u);
    let entries = load_rows(row * 4u + 2u);
    let tail = load_rows(row * 4u + 3u);
    let count = min(entries, u.top);
    scores_at = group * u.columns;

    var last = 0u;
    var sharing = count;  // entries still to be kept among those whose key starts like `last`
    for (var shift = 32u; shift > 0u;) {
        shift -= 4u;
        for (var k = lane; k < 16u; k += WG) { atomicStore(&bins[k], 0u); }
        workgroupBarrier();
        for (var i = lane; i < entries; i += WG) {
            let key = rank(i);
            if ((((key ^ last) >> shift) >> 4u) == 0u) { atomicAdd(&bins[(key >> shift) & 15u], 1u); }
        }
        workgroupBarrier();
        var digit = 15u;
        while (digit > 0u && atomicLoad(&bins[digit]) < sharing) {
            sharing -= atomicLoad(&bins[digit]);
            digit--;
        }
        last |= digit << shift;
        workgroupBarrier();
    }

    let order_at = group * 2u * u.room;
    let share = share_of(lane, entries);
    var own = vec2<u32>();
    for (var i = share.x; i < share.y; i++) {
        let key = rank(i);
        own += vec2<u32>(u32(key > last), u32(key == last));
    }
    var before = tally(lane, own).before;
    for (var i = share.x; i < share.y; i++) {
        let key = rank(i);
        if (key > last || (key == last && before.y < sharing)) {
            store_order(order_at + before.x + min(before.y, sharing), i);
        }
        before += vec2<u32>(u32(key > last), u32(key == last));
    }
    let best = order_at + sorted(lane, order_at, count);

    let each = {{ "u.ratio" if policy == "qsa" else "1u" }};
    for (var i = lane; i < u.width; i += WG) {
        let place = i / each;
        var value = -1;
        if (place < count) {
#% if policy == "qsa"
            value = token(b, load_order(best + place) * u.ratio + i % u.ratio);
        } else if (i - count * u.ratio < tail) {
            value = token(b, entries * u.ratio + i - count * u.ratio);
#% else
            value = i32(load_order(best + place));
#% endif
        }
        store_selected(row * u.width + i, value);
    }
#% if counts
    if (lane == 0u) { store_counts(row, i32(count * each + tail)); }
#% endif
{% endcall %}
