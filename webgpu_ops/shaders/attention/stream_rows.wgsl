{# Streaming attention for software adapters, where loads and barriers are dear and registers cheap:
   eight invocations, one vector of the processor, keep up to sixteen query rows of a head group.
   They take the products with a key each, the softmax with a row each, the sums with channels each.
   A row m is query m / group of head m % group among the heads that share K and V.

   tile_rows     rows of a workgroup
   lane_quads    quads of output channels that an invocation takes at a time
   value_chunks  how often it does
   share         four invocations share their loads of what all need #}
{% from "attention/rows.wgsl" import reader %}
{% include "attention/score.wgsl" %}

{{ reader("v", v, v_scale, v_nibbles, false, "value_channels", 0, table or picks) }}
{% set keys = 4 %}
{% set turns = (tile_rows + 7) // 8 %}
const BLOCK: i32 = {{ 8 * keys }};
const PITCH: u32 = {{ 8 * keys + 1 }}u;
const ROWS: u32 = {{ tile_rows }}u;
const QUADS: u32 = {{ lane_quads }}u;
const TURNS: u32 = {{ turns }}u;  // rows whose softmax an invocation makes

var<workgroup> shares: array<f32, {{ tile_rows * (8 * keys + 1) }}>;  // products, then softmax shares
#% if table or picks
var<workgroup> places: array<vec2<u32>, BLOCK>;  // where the keys at hand lie
#% endif
var<workgroup> factors: array<f32, ROWS>;  // what a row's sums so far are multiplied by

#% if share
{% set shared = "f32" %}
{% include "lib/quads.wgsl" %}

fn share_q(b: u32, h: u32, row: u32, c: u32) -> vec4<f32> {
    let x = f32(load_q(u.q_offset + b * u.q_batch + h * u.q_head + row * u.q_row + c));
    return broadcast4({{ "select(0.0, x, c < u.channels)" if ragged else "x" }});
}
#% endif

{% call kernel(quads=share) %}
    if (group >= u.groups) { return; }
    var n = group;
#% if cumulative
    let found = packed_tile(n % u.tiles, ROWS);
    let b = found.x;
    let tile = found.y;
#% else
    let tile = n % u.tiles;
#% endif
    n /= u.tiles;
#% if partial
    let part = n % u.splits; n /= u.splits;
#% endif
    let kv = n % u.kv_heads;
#% if not cumulative
    let b = n / u.kv_heads;
#% endif
    let s = span_of(b);
    let rows = s.count * u.group;
    if (tile * ROWS >= rows) { return; }
    let live = min(ROWS, rows - tile * ROWS);

    // Rows past the last one repeat it and are not stored.
#% for r in range(tile_rows)
    let m{{ r }} = tile * ROWS + min({{ r }}u, live - 1u);
#% endfor
    var top: array<f32, TURNS>;
    var sum: array<f32, TURNS>;
    for (var t = 0u; t < TURNS; t++) {
#% if partial
        top[t] = HIDDEN;
#% else
        let start = empty_row(kv * u.group + (tile * ROWS + min(t * 8u + lane, live - 1u)) % u.group);
        top[t] = start.x;
        sum[t] = start.y;
#% endif
    }

    var first = seen(s, i32(m0 / u.group)).x;
    var end = seen(s, i32(m{{ tile_rows - 1 }} / u.group)).y;
#% if partial
    let share = (max(end - first, 0) + i32(u.splits) - 1) / i32(u.splits);
    first += i32(part) * share;
    end = min(end, first + share);
#% endif
    let chunks = (u.value_quads + 8u * QUADS - 1u) / (8u * QUADS);
    var acc: array<vec4<f32>, {{ value_chunks * lane_quads * tile_rows }}>;

    for (var j = first; j < end; j += BLOCK) {
#% if blocks
        if (!sees_any(s, kv, m0 / u.group, m{{ tile_rows - 1 }} / u.group, j, min(j + BLOCK, end))) { continue; }
#% endif
        let count = u32(min(BLOCK, end - j));
        var x: array<f32, {{ tile_rows * keys }}>;
#% for t in range(keys)
        let p{{ t }} = place(s, b, u32(min(j + i32(lane) + {{ 8 * t }}, end - 1)));
#% endfor
#% for r in range(tile_rows)
#% for t in range(keys)
        var x{{ r }}_{{ t }} = 0.0;
#% endfor
#% endfor
        for (var c = 0u; c < u.channels; c += 4u) {
#% for t in range(keys)
            let k{{ t }} = read_k(p{{ t }}.x, kv, p{{ t }}.y, c);
#% endfor
#% for r in range(tile_rows)
            let q{{ r }} = {{ "share_q" if share else "read_q" }}(b, kv * u.group + m{{ r }} % u.group, s.first + m{{ r }} / u.group, c{{ " + quad_lane" if share }});
#% for t in range(keys)
            x{{ r }}_{{ t }} += dot(q{{ r }}, k{{ t }});
#% endfor
#% endfor
        }
#% for r in range(tile_rows)
#% for t in range(keys)
        x[{{ r * keys + t }}] = x{{ r }}_{{ t }};
#% endfor
#% endfor
#% if table or picks
#% for t in range(keys)
        places[lane + {{ 8 * t }}u] = p{{ t }};
#% endfor
#% endif
        for (var r = 0u; r < live; r++) {
            for (var t = 0u; t * 8u < count; t++) {
                shares[r * PITCH + t * 8u + lane] = x[r * {{ keys }}u + t];
            }
        }
        workgroupBarrier();

        for (var t = 0u; t * 8u + lane < live; t++) {
            let r = t * 8u + lane;
            let row = r * PITCH;
            let m = tile * ROWS + r;
            let i = m / u.group;
            let h = kv * u.group + m % u.group;
            let see = seen(s, i32(i));
            var high = top[t];
            for (var n = 0u; n < count; n++) {
                var z = logit(masked(soften(shares[row + n] * u.scale), s, see, b, h, i, j + i32(n)));
#% if table or picks
                if (places[n].y == NOWHERE) { z = HIDDEN; }
#% endif
                shares[row + n] = z;
                high = max(high, z);
            }
            let factor = exp(top[t] - high);
            factors[r] = factor;
            top[t] = high;
            var total = sum[t] * factor;
            for (var n = 0u; n < count; n++) {
                let w = weight(shares[row + n], high);
                shares[row + n] = w;
                total += w;
            }
            sum[t] = total;
            for (var n = count; n % 4u != 0u; n++) { shares[row + n] = 0.0; }
        }
        workgroupBarrier();

        for (var chunk = 0u; chunk < chunks; chunk++) {
            let c = (chunk * 8u + lane) * 4u * QUADS;
            let cell = chunk * {{ lane_quads * tile_rows }}u;
#% for r in range(tile_rows)
            let f{{ r }} = factors[{{ r }}];
#% for q in range(lane_quads)
            var y{{ r }}_{{ q }} = acc[cell + {{ r * lane_quads + q }}u] * f{{ r }};
#% endfor
#% endfor
            // Four keys at a time; those past the last one have no share.
            var largest = 0u;
            for (var n = 0u; n < count; n += 4u) {
#% for k in range(4)
                let n{{ k }} = min(n + {{ k }}u, count - 1u);
                let p{{ k }} = {{ "places[n%d]" % k if table or picks else "place(s, b, u32(j) + n%d)" % k }};
#% for q in range(lane_quads)
                let v{{ k }}_{{ q }} = read_v(p{{ k }}.x, kv, p{{ k }}.y, c + {{ 4 * q }}u);
                largest = max(largest, magnitude(v{{ k }}_{{ q }}));
#% endfor
#% endfor
#% for r in range(tile_rows)
#% if share
                let w{{ r }} = broadcast4(shares[{{ r }}u * PITCH + n + quad_lane]);
#% else
                let w{{ r }} = vec4<f32>({% for k in range(4) %}shares[{{ r }}u * PITCH + n + {{ k }}u]{{ ", " if not loop.last }}{% endfor %});
#% endif
#% endfor
#% for r in range(tile_rows)
#% for q in range(lane_quads)
#% for k in range(4)
                y{{ r }}_{{ q }} += w{{ r }}[{{ k }}] * v{{ k }}_{{ q }};
#% endfor
#% endfor
#% endfor
            }
            // Where a value is wild the sums are made again, of what has a share: a loop, because both
            // sides of a branch take their time on these adapters.
            for (var again = 0u; again < u32(largest >= INFINITE); again++) {
#% for r in range(tile_rows)
#% for q in range(lane_quads)
                y{{ r }}_{{ q }} = acc[cell + {{ r * lane_quads + q }}u] * f{{ r }};
#% endfor
#% endfor
                for (var n = 0u; n < count; n++) {
                    let p = {{ "places[n]" if table or picks else "place(s, b, u32(j) + n)" }};
#% for q in range(lane_quads)
                    let v{{ q }} = read_v(p.x, kv, p.y, c + {{ 4 * q }}u);
#% endfor
#% for r in range(tile_rows)
#% for q in range(lane_quads)
                    y{{ r }}_{{ q }} += shared_out(shares[{{ r }}u * PITCH + n], v{{ q }});
#% endfor
#% endfor
                }
            }
#% for r in range(tile_rows)
#% for q in range(lane_quads)
            acc[cell + {{ r * lane_quads + q }}u] = y{{ r }}_{{ q }};
#% endfor
#% endfor
        }
        workgroupBarrier();
    }

#% if partial
    let width = u.part_row;
    for (var t = 0u; t * 8u + lane < live; t++) {
        let m = tile * ROWS + t * 8u + lane;
        let row = row_of(s, b, kv * u.group + m % u.group, m / u.group);
        let at = (row * u.parts + u.part_first + part) * width;
        store4_parts(at + u.value_quads * 4u, vec4<f32>(top[t], sum[t], 0.0, 0.0), 4u);
    }
#% else
    for (var t = 0u; t * 8u + lane < live; t++) { factors[t * 8u + lane] = sum[t]; }
    workgroupBarrier();
#% if stats
    for (var t = 0u; t * 8u + lane < live; t++) {
        let m = tile * ROWS + t * 8u + lane;
        let row = row_of(s, b, kv * u.group + m % u.group, m / u.group);
        store_stats(row * 2u, top[t]);
        store_stats(row * 2u + 1u, sum[t]);
    }
#% endif
#% endif
    for (var r = 0u; r < live; r++) {
        let m = tile * ROWS + r;
#% if partial
        let line = row_of(s, b, kv * u.group + m % u.group, m / u.group);
        let at = (line * u.parts + u.part_first + part) * width;
#% else
        let at = u.y_offset + b * u.y_batch + (kv * u.group + m % u.group) * u.y_head + (s.first + m / u.group) * u.y_row;
#% endif
        for (var chunk = 0u; chunk < chunks; chunk++) {
            for (var q = 0u; q < QUADS; q++) {
                let c = ((chunk * 8u + lane) * QUADS + q) * 4u;
                if (c >= u.value_channels) { break; }
                let y = acc[(chunk * ROWS + r) * QUADS + q];
#% if partial
                store4_parts(at + c, y, 4u);
#% else
                store4_y(at + c, finished(y, factors[r]), min(4u, u.value_channels - c));
#% endif
            }
        }
    }
{% endcall %}
