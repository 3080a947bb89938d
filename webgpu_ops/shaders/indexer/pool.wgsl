{#
  The entries that new tokens complete, pooled over their tokens' keys. An invocation makes four
  channels of one entry.

  A token is the i-th of its request's pending tokens (`kv`, u.kv_rows a request) and then of its new
  ones (`x`, from column u.column of rows of u.stride).

  policy  "qsa" takes the mean of a block; "csa" a softmax over two windows, of the one before the
          first half of the channels, of the current one the second, with gates of the same form
          (`gates`, or u.plane elements behind `kv`; `gate`)
#}
{% include "indexer/slots.wgsl" %}

{% set width = "u.size" if policy == "qsa" else "2u * u.size" %}
{% macro of_token(name, kept, kept_at, fresh, column) %}
fn {{ name }}(e: Entry, i: u32, c: u32) -> vec4<f32> {
    if (i < e.r.pending) { return load4_{{ kept }}((e.request * u.kv_rows + i) * {{ width }} + {{ kept_at }}c); }
    return load4_{{ fresh }}((e.r.begin + i - e.r.pending) * {{ column }}c);
}
{% endmacro %}
{{ of_token("key", "kv", "", "x", "u.stride + u.column + ") }}
#% if policy == "qsa"
fn pooled(e: Entry, c: u32) -> vec4<f32> {
    let first = first_open(e.r) + e.number * u.ratio;
    var sum = vec4<f32>();
    for (var k = 0u; k < u.ratio; k++) { sum += key(e, first + k, c); }
    return sum / f32(u.ratio);
}
#% else
{{ of_token("gate", "gates" if gates else "kv", "" if gates else "u.plane + ", "gate", "2u * u.size + ") }}
// Slot k of both windows: its token, counted from the start of the window before, and its channel.
fn logit(e: Entry, first: u32, k: u32, c: u32) -> vec4<f32> {
    let column = select(c, c + u.size, k >= u.ratio);
    return gate(e, first + k - u.ratio, column) + load4_bias((k % u.ratio) * 2u * u.size + column);
}

fn pooled(e: Entry, c: u32) -> vec4<f32> {
    let first = first_open(e.r) + e.number * u.ratio;
    let start = select(0u, u.ratio, first < u.ratio);  // the first window has none before it
    var top = vec4<f32>(F32_LOWEST);
    var sound = vec4<f32>(1.0);
    for (var k = start; k < 2u * u.ratio; k++) {
        let l = logit(e, first, k, c);
        for (var n = 0u; n < 4u; n++) {
            if (is_nan(l[n]) || (is_inf(l[n]) && l[n] > 0.0)) { sound[n] = 0.0; } else { top[n] = max(top[n], l[n]); }
        }
    }
    var total = vec4<f32>();
    var sum = vec4<f32>();
    for (var k = start; k < 2u * u.ratio; k++) {
        let l = logit(e, first, k, c);
        var weight: vec4<f32>;
        for (var n = 0u; n < 4u; n++) { weight[n] = select(exp(l[n] - top[n]), 0.0, is_inf(l[n])); }
        total += weight;
        sum += weight * key(e, first + k - u.ratio, select(c, c + u.size, k >= u.ratio));
    }
    // Where no positive number divides, the pooled value is zero.
    return select(vec4<f32>(), sum / total, sound * total > vec4<f32>());
}
#% endif

{% call kernel() %}
    let quads = (u.size + 3u) / 4u;
    let c = (thread % quads) * 4u;
    let first_slot = thread / quads;
    if (first_slot >= u.slots) { return; }
    // Requests that overlap may complete more entries than there are slots.
    for (var slot = first_slot; slot < new_entries(); slot += u.slots) {
        let e = new_entry(slot);
        store_entry(e, c, pooled(e, c), min(4u, u.size - c));
    }
{% endcall %}
