{#
  What the next call needs: the last u.before ids (and their segments) of each request, and the
  same after each of its first `capture` tokens. One request an invocation; `present` may be the
  memory of `past`, so ids are moved from the front, after everything else was read.
#}
{% include "hashing/history.wgsl" %}

{% call kernel() %}
    if (thread >= u.batch) { return; }
    let r = request(thread);
    let count = i32(r.end - r.start);
    let before = i32(u.before);
#% if update
    let captured = min(min(max(load_capture(thread), 0), count), i32(u.capacity));
    for (var c = 0; c < i32(u.capacity); c++) {
        for (var j = 0; j < before; j++) {
            var id = u.pad;
            if (c < captured) { id = id_at(r, c + 1 + j - before); }
            store_update((thread * u.capacity + u32(c)) * u.before + u32(j), id);
        }
    }
#% endif
#% if present_segments
    for (var j = 0; j < before; j++) {
        store_present_segments(thread * u.before + u32(j), segment_at(r, count + j - before));
    }
#% endif
#% if present
    for (var j = 0; j < before; j++) {
        store_present(thread * u.before + u32(j), id_at(r, count + j - before));
    }
#% endif
{% endcall %}
