{#
  hashes[token, order, head]: the n-gram of n = order + 2 ids that ends at the token,
  xor of id * multiplier, modulo vocab[order, head], plus head_offsets. One hash an invocation.

  reset  history up to an eos before the token counts as missing
#}
{% include "hashing/history.wgsl" %}
{% set F = arith(ids) %}

{% call kernel() %}
    let i = thread;
    if (i >= u.size) { return; }
    let heads = u.before * u.heads;
    let token = i / heads;
    let head = i % heads;
    let r = request_of(token);
    if (token < r.start || token >= r.end) {
        store_hashes(i, {{ F("0") }});
        return;
    }
    let zero = {{ F("0") }};
    let none = missing();
    let position = i32(token - r.start);
    let id = load_ids(token);
    let multiplier = load_multipliers(0u);
    var mix = {{ F("id * multiplier") }};
    var cut = false;
    for (var k = 1u; k <= head / u.heads + 1u; k++) {
        let at = position - i32(k);
        let found = id_at(r, at);
#% if segments
        cut = cut || segment_at(r, at + 1) != segment_at(r, at);
#% endif
#% if reset
        cut = cut || {{ F("found == none") }};
#% endif
        let shifted = select(found, none, cut);
        let multiplier = load_multipliers(k);
        mix = {{ F("mix ^ (shifted * multiplier)") }};
    }
    let size = load_vocab(head);
    var hash = zero;
    if ({{ F("size > zero") }}) {
        hash = {{ F("mix % size") }};
        if ({{ F("hash < zero") }}) { hash = {{ F("hash + size") }}; }
    }
#% if head_offsets
    let offset = load_head_offsets(head);
    hash = {{ F("hash + offset") }};
#% endif
    store_hashes(i, hash);
{% endcall %}
