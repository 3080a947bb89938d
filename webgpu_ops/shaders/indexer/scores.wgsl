{#
  scores [rows, u.columns]: u.scale * sum over heads of [head weight *] ReLU(query . key), for the
  entries that a row sees. An invocation scores four entries, a few heads at a time.

  keys    [batch, u.key_rows, size]
  fresh   the first u.slots new entries by slot, before they were rounded to the keys' type
  tile    heads at a time
  whole   u.size is a multiple of four
#}
#% if fresh
{% include "indexer/request.wgsl" %}

#% endif
{# Channels behind the last one belong to another vector, and 0 * NaN is not 0. #}
{% macro masked(load) %}
{{ load if whole else "select(vec4<f32>(), %s, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(left))" % load }}
{%- endmacro %}
{% call kernel() %}
    let quads = (u.columns + 3u) / 4u;
    let row = thread / quads;
    if (row >= u.rows) { return; }
    let token = u.first + row;
    let e = (thread % quads) * 4u;
    let entries = load_rows(token * 4u + 2u);
    if (e >= entries) { return; }
    let b = load_rows(token * 4u);
    var at: vec4<u32>;
    for (var k = 0u; k < 4u; k++) { at[k] = (b * u.key_rows + min(e + k, entries - 1u)) * u.size; }
#% if fresh
    let r = request(b);
    var unrounded: vec4<bool>;
    for (var k = 0u; k < 4u; k++) {
        let slot = r.slot + min(e + k, entries - 1u) - r.entries;
        unrounded[k] = min(e + k, entries - 1u) >= r.entries && slot < u.slots;
        if (unrounded[k]) { at[k] = slot * u.size; }
    }
#% endif
    var total = vec4<f32>();
    for (var head = 0u; head < u.heads; head += {{ tile }}u) {
#% for h in range(tile)
        let query{{ h }} = (row * u.heads + min(head + {{ h }}u, u.heads - 1u)) * u.size;
        var dots{{ h }} = vec4<f32>();
#% endfor
        for (var c = 0u; c < u.size; c += 4u) {
#% if not whole
            let left = u.size - c;
#% endif
#% for k in range(4)
#% if fresh
            var key{{ k }} = vec4<f32>();
            if (unrounded[{{ k }}]) {
                key{{ k }} = {{ masked("load4_fresh(at[%d] + c)" % k) }};
            } else {
                key{{ k }} = {{ masked("load4_keys(at[%d] + c)" % k) }};
            }
#% else
            let key{{ k }} = {{ masked("load4_keys(at[%d] + c)" % k) }};
#% endif
#% endfor
#% for h in range(tile)
            let q{{ h }} = {{ masked("load4_queries(query%d + c)" % h) }};
            dots{{ h }} += vec4<f32>(dot(q{{ h }}, key0), dot(q{{ h }}, key1), dot(q{{ h }}, key2), dot(q{{ h }}, key3));
#% endfor
        }
#% for h in range(tile)
        if (head + {{ h }}u < u.heads) {
            let kept = select(dots{{ h }}, vec4<f32>(), dots{{ h }} < vec4<f32>());
            total += {{ "load_head_weights(token * u.heads + head + %du) * " % h if head_weights }}kept;
        }
#% endfor
    }
    store4_scores(row * u.columns + e, total * u.scale, min(4u, entries - e));
{% endcall %}
