{#
  The positions of each batch entry's mask that are not zero, in order, and behind u.total of them
  their number: one workgroup a batch entry.

  mask  int64 as pairs of words
#}
{% include "indexer/tally.wgsl" %}

fn shown(i: u32) -> bool { return (load_mask(2u * i) | load_mask(2u * i + 1u)) != 0; }

{% call kernel() %}
    if (group >= u.batch) { return; }
    let mask = group * u.total;
    let list = group * (u.total + 1u);
    let share = share_of(lane, u.total);
    var count = 0u;
    for (var t = share.x; t < share.y; t++) { count += u32(shown(mask + t)); }
    let counts = tally(lane, vec2<u32>(count, 0u));
    var next = list + counts.before.x;
    for (var t = share.x; t < share.y; t++) {
        if (shown(mask + t)) {
            store_visible(next, t);
            next++;
        }
    }
    if (lane == 0u) { store_visible(list + u.total, counts.all.x); }
{% endcall %}
