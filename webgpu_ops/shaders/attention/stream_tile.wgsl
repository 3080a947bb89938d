{# Streaming attention in shared memory: 64 invocations keep 8 * `per` query rows of a head group
   and walk the keys 32 at a time, eight invocations a row. Channels pass 32 at a time.
   A row m is query m / group of head m % group among the heads that share K and V. #}
{% from "attention/rows.wgsl" import reader %}
{% include "attention/score.wgsl" %}

{{ reader("v", v, v_scale, v_nibbles, false, "value_channels", 0, table or picks) }}
const BLOCK: i32 = 32;
const TILE: u32 = {{ 8 * per }}u;
const PITCH: u32 = 9u;  // quads a staged row: one of padding keeps rows in different banks

var<workgroup> queries: array<vec4<f32>, {{ 8 * per * 9 }}>;
var<workgroup> staged: array<vec4<f32>, 288>;     // 32 keys, then 32 values, of 32 channels
#% if table or picks
var<workgroup> places: array<vec2<u32>, BLOCK>;   // where the keys at hand lie
#% endif
var<workgroup> shares: array<f32, {{ 8 * per * 33 }}>;  // maxima of eight scores, then softmax shares
var<workgroup> careful: atomic<u32>;  // set once a value is wild

{% call kernel() %}
    if (group >= u.groups) { return; }
    var n = group;
    let slice = n % u.slices; n /= u.slices;
#% if partial
    let part = n % u.splits; n /= u.splits;
#% endif
#% if cumulative
    let found = packed_tile(n % u.tiles, TILE);
    let b = found.x;
    let tile = found.y;
#% else
    let tile = n % u.tiles;
#% endif
    n /= u.tiles;
    let kv = n % u.kv_heads;
#% if not cumulative
    let b = n / u.kv_heads;
#% endif
    let s = span_of(b);
    let across = lane % 8u;
    let down = lane / 8u;
    let m_first = tile * TILE;
    if (m_first >= s.count * u.group) { return; }
    let m_last = s.count * u.group - 1u;

    // Rows past the last one repeat it and are not stored.
#% for r in range(per)
    let m{{ r }} = min(m_first + down * {{ per }}u + {{ r }}u, m_last);
    let i{{ r }} = m{{ r }} / u.group;
    let h{{ r }} = kv * u.group + m{{ r }} % u.group;
    let see{{ r }} = seen(s, i32(i{{ r }}));
    var top{{ r }} = {{ "HIDDEN" if partial else "empty_row(h%d).x" % r }};
    var sum{{ r }} = 0.0;
#% for c in range(chunks)
    var acc{{ r }}_{{ c }} = vec4<f32>(0.0);
#% endfor
#% endfor

    var first = seen(s, i32(min(m_first, m_last) / u.group)).x;
    var end = seen(s, i32(min(m_first + TILE - 1u, m_last) / u.group)).y;
#% if partial
    let share = (max(end - first, 0) + i32(u.splits) - 1) / i32(u.splits);
    let step = (share + BLOCK - 1) / BLOCK * BLOCK;
    first += i32(part) * step;
    end = min(end, first + step);
#% endif

    for (var j = first; j < end; j += BLOCK) {
#% if blocks
        let last = min(m_first + TILE - 1u, m_last) / u.group;
        if (!sees_any(s, kv, m_first / u.group, last, j, min(j + BLOCK, end))) { continue; }
#% endif
#% if table or picks
        if (lane < 32u) { places[lane] = place(s, b, u32(min(j + i32(lane), end - 1))); }
        workgroupBarrier();
#% endif
#% for r in range(per)
        var x{{ r }} = vec4<f32>(0.0);
#% endfor
        for (var c0 = 0u; c0 < u.channels; c0 += 32u) {
            for (var n = lane; n < TILE * 8u; n += 64u) {
                let m = min(m_first + n / 8u, m_last);
                let c = c0 + (n % 8u) * 4u;
                var q = vec4<f32>(0.0);
                if (c < u.channels) { q = read_q(b, kv * u.group + m % u.group, s.first + m / u.group, c); }
                queries[(n / 8u) * PITCH + n % 8u] = q;
            }
            for (var n = lane; n < 256u; n += 64u) {
                let c = c0 + (n % 8u) * 4u;
                let row = j + i32(n / 8u);
                var k = vec4<f32>(0.0);
                if (c < u.channels && row < end) {
                    let p = {{ "places[n / 8u]" if table or picks else "place(s, b, u32(row))" }};
                    k = read_k(p.x, kv, p.y, c);
                }
                staged[(n / 8u) * PITCH + n % 8u] = k;
            }
            workgroupBarrier();
            let quads = min(8u, (u.channels - c0 + 3u) / 4u);
            for (var c = 0u; c < quads; c++) {
#% for t in range(4)
                let k{{ t }} = staged[(across + {{ 8 * t }}u) * PITCH + c];
#% endfor
#% for r in range(per)
                let q{{ r }} = queries[(down * {{ per }}u + {{ r }}u) * PITCH + c];
                x{{ r }} += vec4<f32>(dot(q{{ r }}, k0), dot(q{{ r }}, k1), dot(q{{ r }}, k2), dot(q{{ r }}, k3));
#% endfor
            }
            workgroupBarrier();
        }

#% for r in range(per)
#% for t in range(4)
        x{{ r }}[{{ t }}] = logit(masked(soften(x{{ r }}[{{ t }}] * u.scale), s,
            vec2<i32>(see{{ r }}.x, min(see{{ r }}.y, end)), b, h{{ r }}, i{{ r }}, j + i32(across) + {{ 8 * t }}));
#% if table or picks
        if (places[across + {{ 8 * t }}u].y == NOWHERE) { x{{ r }}[{{ t }}] = HIDDEN; }
#% endif
#% endfor
        shares[(down * {{ per }}u + {{ r }}u) * 33u + across] = max(max(x{{ r }}.x, x{{ r }}.y), max(x{{ r }}.z, x{{ r }}.w));
#% endfor
        workgroupBarrier();
#% for r in range(per)
        var high{{ r }} = top{{ r }};
        for (var n = 0u; n < 8u; n++) {
            high{{ r }} = max(high{{ r }}, shares[(down * {{ per }}u + {{ r }}u) * 33u + n]);
        }
        let keep{{ r }} = exp(top{{ r }} - high{{ r }});
        top{{ r }} = high{{ r }};
        x{{ r }} = vec4<f32>(weight(x{{ r }}.x, high{{ r }}), weight(x{{ r }}.y, high{{ r }}),
            weight(x{{ r }}.z, high{{ r }}), weight(x{{ r }}.w, high{{ r }}));
        sum{{ r }} = sum{{ r }} * keep{{ r }} + dot(x{{ r }}, vec4<f32>(1.0));
#% endfor
        workgroupBarrier();
#% for r in range(per)
#% for t in range(4)
        shares[(down * {{ per }}u + {{ r }}u) * 33u + across + {{ 8 * t }}u] = x{{ r }}[{{ t }}];
#% endfor
#% endfor

#% for c in range(chunks)
        {
            let c0 = (slice * {{ chunks }}u + {{ c }}u) * 32u;
            for (var n = lane; n < 256u; n += 64u) {
                let c = c0 + (n % 8u) * 4u;
                let row = j + i32(n / 8u);
                var v = vec4<f32>(0.0);
                if (c < u.value_channels && row < end) {
                    let p = {{ "places[n / 8u]" if table or picks else "place(s, b, u32(row))" }};
                    v = read_v(p.x, kv, p.y, c);
                    if (wild(v)) { atomicStore(&careful, 1u); }
                }
                staged[(n / 8u) * PITCH + n % 8u] = v;
            }
            workgroupBarrier();
#% for r in range(per)
            acc{{ r }}_{{ c }} *= keep{{ r }};
#% endfor
            if (atomicLoad(&careful) == 1u) {
                for (var n = 0u; n < 32u; n++) {
                    let v = staged[n * PITCH + across];
#% for r in range(per)
                    acc{{ r }}_{{ c }} += shared_out(shares[(down * {{ per }}u + {{ r }}u) * 33u + n], v);
#% endfor
                }
            } else {
                for (var n = 0u; n < 32u; n++) {
                    let v = staged[n * PITCH + across];
#% for r in range(per)
                    acc{{ r }}_{{ c }} += shares[(down * {{ per }}u + {{ r }}u) * 33u + n] * v;
#% endfor
                }
            }
            workgroupBarrier();
        }
#% endfor
    }

    // Each of a row's eight invocations summed the shares of its own keys.
#% for r in range(per)
    shares[(down * {{ per }}u + {{ r }}u) * 33u + across] = sum{{ r }};
#% endfor
    workgroupBarrier();
#% for r in range(per)
    if (m_first + down * {{ per }}u + {{ r }}u <= m_last) {
#% if partial
        var sum = 0.0;
#% else
        // The sink's own share, scaled to the maximum that was reached.
        let start = empty_row(h{{ r }});
        var sum = start.y * exp(start.x - top{{ r }});
#% endif
        for (var n = 0u; n < 8u; n++) { sum += shares[(down * {{ per }}u + {{ r }}u) * 33u + n]; }
        let row = row_of(s, b, h{{ r }}, i{{ r }});
#% if partial
        let at = (row * u.parts + u.part_first + part) * u.part_row;
#% else
        let at = u.y_offset + b * u.y_batch + h{{ r }} * u.y_head + (s.first + i{{ r }}) * u.y_row;
#% endif
#% for c in range(chunks)
        {
            let c = (slice * {{ chunks }}u + {{ c }}u) * 32u + across * 4u;
            if (c < u.value_channels) {
#% if partial
                store4_parts(at + c, acc{{ r }}_{{ c }}, 4u);
#% else
                store4_y(at + c, finished(acc{{ r }}_{{ c }}, sum), min(4u, u.value_channels - c));
#% endif
            }
        }
#% endfor
        if (slice == 0u && across == 0u) {
#% if partial
            store4_parts(at + u.value_quads * 4u, vec4<f32>(top{{ r }}, sum, 0.0, 0.0), 4u);
#% elif stats
            store_stats(row * 2u, top{{ r }});
            store_stats(row * 2u + 1u, sum);
#% endif
        }
    }
#% endfor
{% endcall %}
