{# What a score is and what softmax makes of it; every attention kernel includes this. #}
{% from "attention/rows.wgsl" import reader %}
{% include "attention/span.wgsl" %}
{% include "attention/seen.wgsl" %}
#% if table
{% include "attention/page.wgsl" %}
#% endif
#% if blocks
{% include "attention/blocks.wgsl" %}
#% endif
#% if "float4e2m1" in (k_nibbles, v_nibbles | default(""))
{% include "lib/float4.wgsl" %}
#% endif

{{ reader("q", q, none, "", ragged, "channels") }}
{{ reader("k", k, k_scale, k_nibbles, ragged, "channels", k_pack, table or picks) }}

// Batch entry and row in the memory of keys and values that hold row j of entry b.
fn place(s: Span, b: u32, j: u32) -> vec2<u32> {
#% if picks
    return vec2<u32>(b / u.picks_share, load_picks(b * u.picks_row + 1u + j));
#% elif table
    return vec2<u32>(0u, page_row(b, j));
#% else
#% if beams
    // A past token of a beam was written by the beam that it continues.
    if (i32(j) < s.past) {
        let beam = min(u32(load_beams(b * u.beams_row + j)), u.beams_width - 1u);
        return vec2<u32>(b / u.beams_width * u.beams_width + beam, j);
    }
#% endif
    return vec2<u32>(b, s.first + j);
#% endif
}

#% if cumulative
// The entry, and the tile among its rows, that tile n is. The packed entries share one numbering: entry b
// starts at tile cumulative[b] * group / rows + b, which leaves room for a last, ragged tile.
fn packed_tile(n: u32, rows: u32) -> vec2<u32> {
    var b = 0u;
    var end = u.span_entries;
    while (end - b > 1u) {
        let middle = (b + end) / 2u;
        if (first_tile(middle, rows) <= n) { b = middle; } else { end = middle; }
    }
    return vec2<u32>(b, n - min(n, first_tile(b, rows)));
}

fn first_tile(b: u32, rows: u32) -> u32 {
    return u32(clamp(load_cumulative(b), 0, i32(u.span_tokens))) * u.group / rows + b;
}
#% endif

// The number of query i of head h among the rows of the whole call: tokens first.
fn row_of(s: Span, b: u32, h: u32, i: u32) -> u32 {
    let token = {{ "s.first" if cumulative or picks else "b * u.span_rows" }} + i;
    return token * u.kv_heads * u.group + h;
}

// A key that a query must not see. Visible scores stay above it, however negative they are, so a row
// of nothing but huge negative masks still averages, and a row that sees nothing sums to zero.
const HIDDEN: f32 = F32_LOWEST;
const FLOOR: f32 = -3.3e38;

fn is_minus_infinity(x: f32) -> bool { return bitcast<u32>(x) == 0xff800000u; }

fn soften(x: f32) -> f32 {
    if (u.softcap == 0.0) { return x; }
    return u.softcap * tanh_f32(x / u.softcap);
}

// A scaled and softcapped score with bias and mask; -inf outside `see` or where they say -inf, whatever the
// score. Keys that are NOWHERE are left to the caller.
fn masked(score: f32, s: Span, see: vec2<i32>, b: u32, h: u32, i: u32, j: i32) -> f32 {
    if (j < see.x || j >= see.y) { return -inf_f32(); }
#% if blocks
    if (!sees_block(h % u.block_layouts, u32(s.query + i32(i)) / u.block_size, u32(j) / u.block_size)) { return -inf_f32(); }
#% endif
    var x = score;
    let column = u32(j + s.column);
#% if bias
    let added = load_bias(b * u.bias_batch + h * u.bias_head + i * u.bias_row + column * u.bias_column);
    if (is_minus_infinity(added)) { return added; }
    x += added;
#% endif
#% if mask_kind == "values"
    let at = max(i32(column) - i32(u.mask_first), 0);
    let m = load_mask(u.mask_offset + b * u.mask_batch + h * u.mask_head + i * u.mask_row + u32(at) * u.mask_column);
    let hides = m {{ "!=" if mask_inverted else "==" }} {{ "false" if mask.scalar == "bool" else mask.scalar ~ "(0)" }};
    let no = hides && column >= u.mask_first;
#% elif mask_kind == "ends"
    let starts = u.mask_starts != 0u;
    let early = starts && i32(column) < load_mask(select(0u, u.mask_starts + b, starts));
    let no = early || i32(column) >= load_mask(b);
#% endif
#% if mask_kind
    if (no && is_minus_infinity(u.mask_filter)) { return u.mask_filter; }
    x = select(x, x + u.mask_filter, no);
#% endif
    return x;
}

// What softmax takes of a masked score: HIDDEN for -inf, else FLOOR or more.
fn logit(x: f32) -> f32 { return select(select(x, FLOOR, x < FLOOR), HIDDEN, is_minus_infinity(x)); }

// A score's share before division by the row's sum, for the row's maximum `top`.
fn weight(x: f32, top: f32) -> f32 { return select(exp(x - top), 0.0, x <= HIDDEN); }

// A key that has no share adds nothing, so a value that is an infinity or no number must not meet a
// share of 0. Such a value is as large as INFINITE.
const INFINITE: u32 = 0x7f800000u;

fn magnitude(v: vec4<f32>) -> u32 {
    let size = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(size.x, size.y), max(size.z, size.w));
}

fn wild(v: vec4<f32>) -> bool { return magnitude(v) >= INFINITE; }

fn shared_out(w: f32, v: vec4<f32>) -> vec4<f32> { return select(w * v, vec4<f32>(0.0), vec4<bool>(w == 0.0)); }

#% include "attention/sink.wgsl"
