{#
  Judges the metadata of packed requests and lays out their new entries, in one workgroup.

  cu [batch + 1], past [batch] and lengths [batch, 2] come as they are. A request that is refused
  becomes one without tokens whose lengths are in range, which changes no state and claims no row.
  `requests` is what indexer/request.wgsl reads; `present` takes the lengths after the call, `status`
  0, 1 (contradictory) or 2 (no room).
#}
{% include "indexer/tally.wgsl" %}
{% include "indexer/request.wgsl" %}

struct Judged { request: Request, status: i32 }

fn judged(b: u32) -> Judged {
    let begin = load_cu(b);
    let end = load_cu(b + 1u);
    let before = load_past(b);
    let entries = load_lengths(2u * b);
    let pending = load_lengths(2u * b + 1u);
    let most = i32({{ "u.ratio - 1u" if policy == "qsa" else "2u * u.ratio - 1u" }});
    let capacity = i32(u.capacity);
    var r = Request(
        u32(begin), u32(end - begin), u32(clamp(entries, 0, capacity)), u32(clamp(pending, 0, most)), 0u);
    var sound = load_cu(0u) == 0 && load_cu(u.batch) == i32(u.tokens);
    sound = sound && begin >= 0 && begin <= end && end <= i32(u.tokens) && before >= 0;
    sound = sound && i32(r.entries) == entries && i32(r.pending) == pending;
#% if policy == "qsa"
    sound = sound && u32(before) / u.ratio == r.entries && u32(before) % u.ratio == r.pending;
#% endif
    var status = select(1, 0, sound);
    if (sound && closed(r) > u.capacity - r.entries) { status = 2; }
    if (status != 0) {
        r.begin = u32(clamp(begin, 0, i32(u.tokens)));
        r.tokens = 0u;
    }
    return Judged(r, status);
}

{% call kernel() %}
    let share = share_of(lane, u.batch);
    var slots = 0u;
    for (var b = share.x; b < share.y; b++) { slots += closed(judged(b).request); }
    var slot = tally(lane, vec2<u32>(slots, 0u)).before.x;
    for (var b = share.x; b < share.y; b++) {
        let found = judged(b);
        let r = found.request;
        let more = closed(r);
        let at = b * 5u;
        store_requests(at, r.begin);
        store_requests(at + 1u, r.tokens);
        store_requests(at + 2u, r.entries);
        store_requests(at + 3u, r.pending);
        store_requests(at + 4u, slot);
        slot += more;
        store_present(2u * b, i32(r.entries + more));
        store_present(2u * b + 1u, i32(r.pending + r.tokens - first_kept(r)));
#% if status
        store_status(b, found.status);
#% endif
    }
{% endcall %}
