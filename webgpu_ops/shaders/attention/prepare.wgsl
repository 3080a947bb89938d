{# New queries, keys or values on their way to memory: RMS norm, rotation, quantization.
   `lanes` invocations share a head's row; each stores whole quads of the target. #}
{% include "attention/span.wgsl" %}
#% if table
{% include "attention/page.wgsl" %}
#% endif
#% if nibbles == "float4e2m1"
{% include "lib/float4.wgsl" %}
#% endif

{% from "attention/rows.wgsl" import channel_of %}
{% set step = 8 if nibbles else 4 %}
#% if norm
#% if lanes > 1
var<workgroup> squares: array<f32, WG>;
#% endif
#% endif

// Channel c of head h, whose row starts at `at`.
fn fresh(at: u32, h: u32, c: u32) -> f32 {
    return load_x(at + c){% if bias %} + load_bias(u.bias_offset + h * u.channels + c){% endif %};
}

fn normed(at: u32, h: u32, c: u32, inverse: f32) -> f32 {
    return fresh(at, h, c){% if norm %} * inverse * load_norm(c){% endif %};
}

#% if ids
{% include "rotary/position.wgsl" %}

#% endif
#% if rotary
// cos and sin of a position's angle for a pair of channels.
fn turn(position: u32, pair: u32) -> vec2<f32> {
#% if cos
    let at = position * u.pairs + pair;
    return vec2<f32>(load_cos(at), load_sin(at));
#% else
    // Both the position and the turns it makes in short parts, whose products are exact, and a small rest.
    let high = u_turns_high(pair);
    let turns = fract(f32(position >> 12u) * (4096.0 * high)) + fract(f32(position & 4095u) * high)
        + f32(position) * u_turns_low(pair);
    let angle = (turns - round(turns)) * 6.2831855;
    return vec2<f32>(cos_f32(angle), sin_f32(angle));
#% endif
}
#% endif

fn channel(at: u32, h: u32, c: u32, inverse: f32, position: u32) -> f32 {
    if (c >= u.channels) { return 0.0; }
    let x = normed(at, h, c, inverse);
#% if rotary
    if (c < u.turned || c >= u.turned + 2u * u.pairs) { return x; }
    let n = c - u.turned;
#% if interleaved
    let pair = n / 2u;
    let first = n % 2u == 0u;
    let other = u.turned + (n ^ 1u);
#% else
    let pair = n % u.pairs;
    let first = n < u.pairs;
    let other = select(c - u.pairs, c + u.pairs, first);
#% endif
    let t = turn(position, pair);
    return x * t.x + normed(at, h, other, inverse) * select(t.y, -t.y, first);
#% else
    return x;
#% endif
}

{% call kernel() %}
    let worker = lane % {{ lanes }}u;
    let line = thread / {{ lanes }}u;
    let lines = u.batch * u.heads * u.rows;
    let h = line % u.heads;
    let i = (line / u.heads) % u.rows;
    let b = min(line, lines - 1u) / u.heads / u.rows;
    let at = u.x_offset + b * u.x_batch + h * u.x_head + i * u.x_row;

    var inverse = 1.0;
#% if norm
    var square = 0.0;
    if (line < lines) {
        for (var c = worker; c < u.channels; c += {{ lanes }}u) {
            let x = fresh(at, h, c);
            square += x * x;
        }
    }
#% if lanes > 1
    squares[lane] = square;
    workgroupBarrier();
    square = 0.0;
    for (var n = 0u; n < {{ lanes }}u; n++) { square += squares[lane - worker + n]; }
#% endif
    inverse = 1.0 / sqrt(square / f32(u.channels) + u.epsilon);
#% endif
    if (line >= lines) { return; }

#% if cumulative
    let entry = entry_of(i);
    let s = span_of(entry);
    if (i < s.first || i - s.first >= s.count || s.total == 0) { return; }
    let token = i - s.first;
#% else
    let s = span_of(b);
    let token = i;
#% endif
#% if slots
    let row = u32(load_slots(i));
#% elif table
    let row = page_row(entry, u32(s.past) + token);
#% else
    let row = u32(select(0, s.past, u.append == 1u)) + i;
#% endif
    if (row >= u.y_rows) { return; }
    var position = 0u;
#% if rotary
#% if ids
    let id = 2u * (b * u.ids_batch + i * u.ids_row);
    position = table_row(load_ids(id), load_ids(id + 1u), i * u.ids_step, u.table_rows);
#% else
    position = u32(max(0, s.column + s.past + u.shift + i32(token)));
#% if cos
    position = min(position, u.table_rows - 1u);
#% endif
#% endif
#% endif
    let target_row = u.y_offset + b * u.y_batch + h * u.y_head + row * u.y_row;
    for (var c = worker * {{ step }}u; c < u.channels; c += {{ lanes * step }}u) {
#% if scale
        let sc = b * u.scale_batch + h * u.scale_head + row * u.scale_row;
#% endif
#% for t in range(step)
        let x{{ t }} = channel(at, h, c + {{ t }}u, inverse, position);
#% endfor
#% if scale
#% for t in range(step)
        // A second step of division, so that ties round as in exact arithmetic; -0 and infinities stay.
        let s{{ t }} = load_scale(sc + min(c + {{ t }}u, u.channels - 1u) * u.scale_channel);
        let r{{ t }} = x{{ t }} / s{{ t }};
        let e{{ t }} = fma(-r{{ t }}, s{{ t }}, x{{ t }});
        let z{{ t }} = select(r{{ t }}, r{{ t }} + e{{ t }} / s{{ t }}, abs(e{{ t }}) > 0.0);
#% endfor
#% endif
#% if nibbles
#% for t in range(8)
        let n{{ t }} = {{ "u32(clamp(round(z%d), -8.0, 7.0) + 8.0)" % t if nibbles == "int4" else "encode_float4e2m1(z%d)" % t }};
#% endfor
        let y = vec4<u32>(n0 | (n1 << 4u), n2 | (n3 << 4u), n4 | (n5 << 4u), n6 | (n7 << 4u));
        store4_y(target_row + c / 2u, y, min(4u, (u.channels - c + 1u) / 2u));
#% elif y.scalar == "i32"
        let y = vec4<i32>(clamp(round(vec4<f32>(z0, z1, z2, z3)), vec4<f32>(-128.0), vec4<f32>(127.0)));
        store4_y(target_row + c, y, min(4u, u.channels - c));
#% elif scale
        store4_y(target_row + c, vec4<f32>(z0, z1, z2, z3), min(4u, u.channels - c));
#% else
        store4_y(target_row + {{ channel_of("y", "c", y_pack) }}, vec4<f32>(x0, x1, x2, x3), min(4u, u.channels - c));
#% endif
    }
{% endcall %}
