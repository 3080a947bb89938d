{#
  Sorts a workgroup's items by `precedes(a, b)`, a strict order that the template defines: runs of
  doubling length are merged, each item finding its place by a search in the other run.

  order  two halves of u.room items each, from `at` on; the items start in the first half
#}
// The half (0 or u.room) that holds the `count` items in order. All of the group take part.
fn sorted(lane: u32, at: u32, count: u32) -> u32 {
    var half = 0u;
    for (var width = 1u; width < u.room; width *= 2u) {
        let source = at + half;
        let goal = at + u.room - half;
        storageBarrier();
        for (var i = lane; i < count; i += WG) {
            let item = load_order(source + i);
            let run = i / width;
            let start = min((run ^ 1u) * width, count);
            var low = start;
            var high = min(start + width, count);
            while (low < high) {
                let middle = (low + high) / 2u;
                if (precedes(load_order(source + middle), item)) { low = middle + 1u; } else { high = middle; }
            }
            store_order(goal + (run / 2u) * 2u * width + i % width + low - start, item);
        }
        half = u.room - half;
    }
    storageBarrier();
    return half;
}
