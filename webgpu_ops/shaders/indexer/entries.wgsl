{#
  The entries that new tokens complete, pooled over their tokens' keys: appended to the state
  [batch, u.state_rows, size], and unrounded to `fresh` by slot.

  A token is the i-th of its request's pending tokens (`kv`, u.kv_rows a request) and then of its new
  ones (`x`, from column u.column of rows of u.stride). Entry e stands at e * u.ratio.

  policy  "qsa" takes the mean of a block; "csa" a softmax over two windows, of the one before the
          first half of the channels, of the current one the second, with gates of the same form
          (`gates`, or u.plane elements behind `kv`; `gate`)
#}
{% include "indexer/request.wgsl" %}

struct Place { there: bool, request: u32, position: u32, r: Request, first: u32, entry: u32, slot: u32 }

fn vectors() -> u32 {
    if (u.batch == 0u) { return 0u; }
    let last = request(u.batch - 1u);
    return last.slot + closed(last);
}

fn place(i: u32) -> Place {
#% if requests
    // The last request that starts at or before the slot; those without entries start with the next.
    var b = 0u;
    var high = u.batch;
    while (high - b > 1u) {
        let middle = (b + high) / 2u;
        if (request(middle).slot <= i) { b = middle; } else { high = middle; }
    }
#% else
    let b = i / u.closed;
#% endif
    let r = request(b);
    let entry = r.entries + i - r.slot;
    let reach = u.table_rows / u.ratio + 1u;  // beyond it the position would only be clamped, or wrap
    let first = first_open(r) + (i - r.slot) * u.ratio;
    return Place(true, b, min(entry, reach) * u.ratio, r, first, entry, i);
}

{% set width = "u.size" if policy == "qsa" else "2u * u.size" %}
{% macro of_token(name, kept, kept_at, fresh, column) %}
fn {{ name }}(p: Place, i: u32, c: u32) -> vec4<f32> {
    if (i < p.r.pending) { return load4_{{ kept }}((p.request * u.kv_rows + i) * {{ width }} + {{ kept_at }}c); }
    return load4_{{ fresh }}((p.r.begin + i - p.r.pending) * {{ column }}c);
}
{% endmacro %}
{{ of_token("key", "kv", "", "x", "u.stride + u.column + ") }}
#% if policy == "qsa"
fn quad(p: Place, c: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    for (var k = 0u; k < u.ratio; k++) { sum += key(p, p.first + k, c); }
    return sum / f32(u.ratio);
}
#% else
{{ of_token("gate", "gates" if gates else "kv", "" if gates else "u.plane + ", "gate", "2u * u.size + ") }}
// Slot k of both windows: its token, counted from the start of the window before, and its channel.
fn logit(p: Place, k: u32, c: u32) -> vec4<f32> {
    let column = select(c, c + u.size, k >= u.ratio);
    return gate(p, p.first + k - u.ratio, column) + load4_bias((k % u.ratio) * 2u * u.size + column);
}

fn quad(p: Place, c: u32) -> vec4<f32> {
    let start = select(0u, u.ratio, p.first < u.ratio);  // the first window has none before it
    var top = vec4<f32>(F32_LOWEST);
    var sound = vec4<f32>(1.0);
    for (var k = start; k < 2u * u.ratio; k++) {
        let l = logit(p, k, c);
        for (var n = 0u; n < 4u; n++) {
            if (is_nan(l[n]) || (is_inf(l[n]) && l[n] > 0.0)) { sound[n] = 0.0; } else { top[n] = max(top[n], l[n]); }
        }
    }
    var total = vec4<f32>();
    var sum = vec4<f32>();
    for (var k = start; k < 2u * u.ratio; k++) {
        let l = logit(p, k, c);
        var weight: vec4<f32>;
        for (var n = 0u; n < 4u; n++) { weight[n] = select(exp(l[n] - top[n]), 0.0, is_inf(l[n])); }
        total += weight;
        sum += weight * key(p, p.first + k - u.ratio, select(c, c + u.size, k >= u.ratio));
    }
    // A denominator that is no positive number, and so is not one of the text's, pools to zero.
    return select(vec4<f32>(), sum / total, sound * total > vec4<f32>());
}
#% endif

fn keep(p: Place, c: u32, y: vec4<f32>, n: u32) {
    store4_state((p.request * u.state_rows + p.entry) * u.size + c, y, n);
#% if fresh
    if (p.slot < u.fresh_rows) { store4_fresh(p.slot * u.size + c, y, n); }
#% endif
}
