{#
  MurmurHash3_x86_32. Key i is u.bytes bytes of `words` from i * u.bytes on, or with `starts` and
  `lengths` a text that starts at word starts[i], padded with zeros to whole words. One key an
  invocation. A run takes the words from u.begin to u.end, and ends the hash of a key that has no more.
#}
fn rotated(v: u32, n: u32) -> u32 { return (v << n) | (v >> (32u - n)); }

fn scrambled(k: u32) -> u32 { return rotated(k * 0xcc9e2d51u, 15u) * 0x1b873593u; }

{% call kernel() %}
    let i = thread;
    if (i >= u.size) { return; }
#% if starts
    let start = load_starts(i);
    let length = load_lengths(i);
#% else
    let start = i * (u.bytes / 4u);
    let length = u.bytes;
#% endif
    var h = u.seed;
    if (u.begin > 0u) {
        if (length / 4u < u.begin) { return; }
        h = load_hashes(i);
    }
    for (var k = u.begin; k < min(u.end, length / 4u); k++) {
        h = rotated(h ^ scrambled(load_words(start + k)), 13u) * 5u + 0xe6546b64u;
    }
    if (length / 4u >= u.end) {
        store_hashes(i, h);
        return;
    }
    // The zeros behind the last bytes are what the hash takes for the bytes that a block lacks.
    if (length % 4u != 0u) { h ^= scrambled(load_words(start + length / 4u)); }
    h ^= length;
    h = (h ^ (h >> 16u)) * 0x85ebca6bu;
    h = (h ^ (h >> 13u)) * 0xc2b2ae35u;
    store_hashes(i, h ^ (h >> 16u));
{% endcall %}
