{# What a score is and what softmax makes of it; every attention kernel includes this. #}
{% from "attention/rows.wgsl" import reader %}
{% include "attention/span.wgsl" %}

{{ reader("q", q, none, false, ragged, "channels") }}
{{ reader("k", k, k_scale, k_nibbles, ragged, "channels") }}

// A key that a query must not see. Visible scores stay above it, however negative they are, so a row
// of nothing but huge negative masks still averages, and a row that sees nothing sums to zero.
const HIDDEN: f32 = F32_LOWEST;
const FLOOR: f32 = -3.3e38;

fn is_minus_infinity(x: f32) -> bool { return bitcast<u32>(x) == 0xff800000u; }

// The rows [x, y) that query i sees.
fn seen(s: Span, i: i32) -> vec2<i32> {
    return vec2<i32>(max(0, s.query + i - u.behind), min(s.end, s.query + i + u.ahead + 1));
}

fn soften(x: f32) -> f32 {
    if (u.softcap == 0.0) { return x; }
    return u.softcap * tanh_f32(x / u.softcap);
}

// A scaled and softcapped score with bias and mask; HIDDEN outside `see` or where they say -inf.
fn logit(score: f32, s: Span, see: vec2<i32>, b: u32, h: u32, i: u32, j: i32) -> f32 {
    if (j < see.x || j >= see.y) { return HIDDEN; }
    var x = score;
    let column = u32(j + s.column);
#% if bias
    x += load_bias(b * u.bias_batch + h * u.bias_head + i * u.bias_row + column * u.bias_column);
#% endif
#% if mask_kind == "values"
    let m = load_mask(u.mask_offset + b * u.mask_batch + h * u.mask_head + i * u.mask_row + column * u.mask_column);
    x = select(x, x + u.mask_filter, m == {{ "false" if mask.scalar == "bool" else mask.scalar ~ "(0)" }});
#% elif mask_kind == "ends"
    let starts = u.mask_starts != 0u;
    let early = starts && i32(column) < load_mask(select(0u, u.mask_starts + b, starts));
    x = select(x, x + u.mask_filter, early || i32(column) >= load_mask(b));
#% endif
    if (is_minus_infinity(x)) { return HIDDEN; }
    return select(x, FLOOR, x < FLOOR);
}

// A score's share before division by the row's sum, for the row's maximum `top`.
fn weight(x: f32, top: f32) -> f32 { return select(exp(x - top), 0.0, x <= HIDDEN); }

#% include "attention/sink.wgsl"
