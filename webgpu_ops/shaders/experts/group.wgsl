{#
  The choices of all tokens by their expert: one workgroup. A pair is a token and one of its choices;
  pair p is choice p % k of token p / k.

  order   all pairs by expert, in one of two halves of u.room; then, from 2 * u.room on, three words a
          tile: where its pairs start in order, how many they are (0: none), and their expert
#}
{% include "indexer/tally.wgsl" %}

fn precedes(x: u32, y: u32) -> bool {
    let first = load_picks(x);
    let second = load_picks(y);
    return first < second || (first == second && x < y);
}

{% include "indexer/sort.wgsl" %}

// How many of the ordered pairs come before those of an expert.
fn start_of(at: u32, expert: u32) -> u32 {
    var low = 0u;
    var high = u.room;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (load_picks(load_order(at + middle)) < expert) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

// How many rows the tile has that starts at pair i of the order; 0 where none starts.
fn tile_at(at: u32, i: u32) -> u32 {
    let expert = load_picks(load_order(at + i));
    if ((i - start_of(at, expert)) % u.rows != 0u) { return 0u; }
    return min(u.rows, start_of(at, expert + 1u) - i);
}

{% call kernel() %}
    for (var i = lane; i < u.room; i += WG) { store_order(i, i); }
    let at = sorted(lane, 0u, u.room);
    let own = share_of(lane, u.room);
    var count = 0u;
    for (var i = own.x; i < own.y; i++) { count += u32(tile_at(at, i) > 0u); }
    let tiles = tally(lane, vec2<u32>(count, 0u));
    var next = 2u * u.room + 3u * tiles.before.x;
    for (var i = own.x; i < own.y; i++) {
        let rows = tile_at(at, i);
        if (rows == 0u) { continue; }
        store_order(next, at + i);
        store_order(next + 1u, rows);
        store_order(next + 2u, load_picks(load_order(at + i)));
        next += 3u;
    }
    for (var tile = tiles.all.x + lane; tile < u.tiles; tile += WG) {
        store_order(2u * u.room + 3u * tile + 1u, 0u);
    }
{% endcall %}
