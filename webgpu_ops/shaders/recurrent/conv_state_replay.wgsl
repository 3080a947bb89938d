// Four consecutive elements of the destination an invocation, on the backing's own grid: whole words
// inside the view are stored plainly, an element that shares its word with a neighbour is not.

// Bits of element e of the new history [batch, channels, width].
fn moved(e: u32) -> u32 {
    let p = e % u.width + u.kept;
    let row = e / u.width;  // batch and channel
    if (p < u.width) { return load_source(u.source_at + row * u.width + p); }
    let batch = row / u.channels;
    let channel = row % u.channels;
    return load_capture(u.capture_at + (batch * u.capacity + p - u.width) * u.channels + channel);
}

{% call kernel() %}
    let at = u.first + thread * 4u;
    let end = u.destination_at + u.size;
    if (at >= end) { return; }
    if (at >= u.destination_at && at + 4u <= end) {
        let e = at - u.destination_at;
        store4_destination(at, vec4<u32>(moved(e), moved(e + 1u), moved(e + 2u), moved(e + 3u)), 4u);
        return;
    }
    for (var k = max(at, u.destination_at); k < min(at + 4u, end); k++) {
        store_destination(k, moved(k - u.destination_at));
    }
{% endcall %}
