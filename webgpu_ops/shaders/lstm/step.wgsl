{#
  Steps of an LSTM: gates = projected + state @ r + bias, then the cell. A workgroup owns UNITS hidden
  units of some rows of one direction. If those are all units (`loops`), it walks through steps
  u.begin..u.end by itself; else a run is one step, and h_in and h are two buffers.

  rows, parts, units   of a workgroup; `parts` lanes share the inner sum of four columns
  functions   expressions of x, alpha and beta, and which roles each has: 3 * direction + 0 (f), 1 (g), 2 (h)
  clips, input_forget   what the attributes say
  quantized   r holds words of four int8 along the inner dimension; the state is quantized too
  attention   the state is h and behind it the attention of the step before
#}
{% set F = arith(compute) %}
{% set vector = F.kind == "f32" %}
alias number = {{ F.scalar }};
alias quad = {{ "vec4<f32>" if vector else "array<%s, 4>" % F.scalar }};
alias total = {{ "i32" if quantized else F.scalar }};

const ROWS = {{ rows }}u;
const PARTS = {{ parts }}u;
const UNITS = {{ units }}u;
const QUADS = UNITS / 4u;

// What each part adds to the gates: [row][part][gate][unit].
var<workgroup> partial: array<total, ROWS * PARTS * 4u * UNITS>;

{% include "lstm/rows.wgsl" %}

fn state_at(dir: u32, row: u32) -> u32 {
    return dir * u.state_dir + row * u.state_row;
}

#% if quantized
{% if loops %}{% include "lstm/codes.wgsl" %}{% endif %}

// The direction's scale and zero point (of codes - 128) at this step.
var<private> h_scale: f32;
var<private> h_zero: i32;

fn weight_zero(dir: u32, column: u32) -> i32 {
    let zero = load_r_zero(dir * u.channels + select(0u, column, u.channels > 1u));
    return {{ "i32(zero) - 128" if r_zero.scalar == "u32" else "zero" }};
}

fn weight_scale(dir: u32, column: u32) -> f32 {
    return load_r_scale(dir * u.channels + select(0u, column, u.channels > 1u));
}
#% endif
#% if attention and loops

{% include "lstm/attend.wgsl" %}
#% endif

// state @ r for the rows from `row` on and the units from `first` on, into `partial`.
fn multiply(dir: u32, row: u32, first: u32, lane: u32) {
    for (var item = lane; item < PARTS * UNITS; item += WG) {
        let part = item / UNITS;
        let gate = item % UNITS / QUADS;
        let unit = item % QUADS * 4u;
        if (first + unit >= u.hidden) { continue; }
        let column = gate * u.padded + first + unit;
        let step = 4u * u.padded;
        let weights = dir * u.inner * step + column;
#% for r in range(rows)
        let row{{ r }} = min(row + {{ r }}u, u.batch - 1u);
#% endfor
#% if quantized
#% for r in range(rows)
        let at{{ r }} = dir * u.codes_dir + 4u + row{{ r }} * u.inner;
        var sum{{ r }} = vec4<i32>();
        var codes{{ r }} = 0;
#% endfor
        for (var k = part; k < u.inner; k += PARTS) {
            let w = load4_r(weights + k * step);
#% for r in range(rows)
            let q{{ r }} = load_codes(at{{ r }} + k);
            sum{{ r }} += vec4<i32>({% for c in range(4) %}dot4I8Packed(q{{ r }}, w[{{ c }}]){{ ", " if not loop.last }}{% endfor %});
            codes{{ r }} += dot4I8Packed(q{{ r }}, 0x01010101u);
#% endfor
        }
        var zero: vec4<i32>;
        for (var c = 0u; c < 4u; c++) {
            zero[c] = weight_zero(dir, gate * u.hidden + min(first + unit + c, u.hidden - 1u));
        }
#% for r in range(rows)
        var result{{ r }} = sum{{ r }} - zero * codes{{ r }};
#% endfor
#% else
#% for r in range(rows)
        let at{{ r }} = state_at(dir, row{{ r }});
        var sum{{ r }} = quad({{ ([F("0")] * 4) | join(", ") }});
#% endfor
        for (var block = part * 4u; block < u.inner; block += PARTS * 4u) {
            var k = block;
#% if vector
            if (k + 4u <= u.inner) {
#% for r in range(rows)
                let h{{ r }} = load4_h_in(at{{ r }} + k);
#% endfor
#% for s in range(4)
                let w{{ s }} = load4_r(weights + (k + {{ s }}u) * step);
#% for r in range(rows)
                sum{{ r }} = fma(quad(h{{ r }}[{{ s }}]), w{{ s }}, sum{{ r }});
#% endfor
#% endfor
                k += 4u;
            }
#% endif
            for (; k < min(block + 4u, u.inner); k++) {
                let w = load4_r(weights + k * step);
#% for r in range(rows)
                let h{{ r }} = load_h_in(at{{ r }} + k);
                for (var c = 0u; c < 4u; c++) { sum{{ r }}[c] = {{ F("sum%d[c] + h%d * w[c]" % (r, r)) }}; }
#% endfor
            }
        }
#% for r in range(rows)
        var result{{ r }} = sum{{ r }};
#% endfor
#% endif
        for (var c = 0u; c < 4u; c++) {
#% for r in range(rows)
            partial[(({{ r }}u * PARTS + part) * 4u + gate) * UNITS + unit + c] = result{{ r }}[c];
#% endfor
        }
    }
}

#% for expression, roles in functions
fn function{{ loop.index0 }}(x: number, alpha: number, beta: number) -> number {
    return {{ F(expression) }};
}

#% endfor
// f (role 0), g (1) or h (2) of x.
fn activate(dir: u32, role: u32, x: number) -> number {
    let own_role = dir * 3u + role;
    let alpha = u_alpha(own_role);
    let beta = u_beta(own_role);
    switch (own_role) {
#% for expression, roles in functions[1:]
        case {{ roles | join("u, ") }}u: { return function{{ loop.index }}(x, alpha, beta); }
#% endfor
        default: { return function0(x, alpha, beta); }
    }
}

fn bounded(x: number) -> number {
    return {{ F("max(min(x, u.clip), -u.clip)") if clips else "x" }};
}

// The pre-activation of a gate; `r` and `unit` count from the workgroup's first.
fn gate_input(dir: u32, r: u32, gate: u32, first: u32, unit: u32, own: number, c: number) -> number {
    let at = (r * PARTS * 4u + gate) * UNITS + unit;
    var sum = partial[at];
    for (var part = 1u; part < PARTS; part++) {
        let more = partial[at + part * 4u * UNITS];
        sum = {{ "sum + more" if quantized else F("sum + more") }};
    }
    let column = gate * u.hidden + first + unit;
#% if quantized
    let codes = sum - h_zero * load_r_sums(dir * 4u * u.padded + gate * u.padded + first + unit);
    let product = f32(codes) * (h_scale * weight_scale(dir, column));
#% else
    let product = sum;
#% endif
    var x = {{ F("own + product") }};
#% if bias
    let b_input = load_bias(dir * 8u * u.hidden + column);
    let b_state = load_bias((dir * 8u + 4u) * u.hidden + column);
    x = {{ F("x + (b_input + b_state)") }};
#% endif
#% if peephole
    if (gate < 3u) {
        let p = load_peephole(dir * 3u * u.hidden + column);
        x = {{ F("x + p * c") }};
    }
#% endif
    return x;
}

// C and H of the rows from `row` on, once `partial` is complete.
fn advance(dir: u32, s: u32, row: u32, end_row: u32, first: u32, lane: u32) {
    for (var item = lane; item < ROWS * QUADS; item += WG) {
        let r = item / QUADS;
        let offset = item % QUADS * 4u;
        let unit = first + offset;
        if (row + r >= end_row || unit >= u.hidden) { continue; }
        let n = min(4u, u.hidden - unit);
        let length = row_length(row + r);
        let state = state_at(dir, row + r) + unit;
        let cell = dir * u.cell_dir + (row + r) * u.cell_row + unit;
#% if y
        let y_row = dir * u.y_dir + (row + r) * u.y_row + unit;
#% endif
        if (s >= length) {
#% if y
            store4_y(y_row + s * u.y_step, y_quad({{ ([F("0")] * 4) | join(", ") }}), n);
#% endif
            // A sequence without steps has no last value.
            for (var k = 0u; k < n && length == 0u; k++) { store_c(cell + k, {{ F("0") }}); }
            for (var k = 0u; k < n; k++) {
                if (length == 0u) { store_h(state + k, {{ F("0") }}); }{% if not loops %} else { store_h(state + k, load_h_in(state + k)); }{% endif +%}
            }
            continue;
        }
        let t = select(s, length - 1u - s, dir >= u.reverse);
        let place = select(t, s, u.in_order != 0u) - u.x_begin;
        let x = place * u.x_step + (row + r) * u.x_row + (dir - u.first_direction) * u.x_dir + unit;
        var result: quad;
        for (var k = 0u; k < n; k++) {
            let before = load_c(cell + k);
            var after = before;
            var i = {{ F("0") }};
            var f = {{ F("0") }};
            var o = {{ F("0") }};
            // The gates i, f, c and o, and last h: a loop, so that the code of a gate is there once.
            for (var stage = 0u; stage < 5u; stage++) {
#% if input_forget
                if (stage == 1u) {
                    f = {{ F("1 - i") }};
                    continue;
                }
#% endif
                var value = after;
                if (stage < 4u) {
                    let gate = array<u32, 4>(0u, 2u, 3u, 1u)[stage];
                    let own = load_projected(x + gate * u.hidden + k);
                    value = bounded(gate_input(dir, r, gate, first, offset + k, own, after));
                }
                value = activate(dir, array<u32, 5>(0u, 0u, 1u, 0u, 2u)[stage], value);
                switch (stage) {
                    case 0u: { i = value; }
                    case 1u: { f = value; }
                    case 2u: { after = {{ F("f * before + i * value") }}; }
                    case 3u: { o = value; }
                    default: { result[k] = {{ F("o * value") }}; }
                }
            }
            store_c(cell + k, after);
            store_h(state + k, result[k]);
        }
#% if y
        store4_y(y_row + t * u.y_step, result, n);
#% endif
    }
}

{% call kernel() %}
    let unit_block = group % u.unit_blocks;
    let row_block = group / u.unit_blocks % u.row_blocks;
    if (group >= u.directions * u.row_blocks * u.unit_blocks) { return; }
    let dir = u.first_direction + group / (u.unit_blocks * u.row_blocks);
    let first_row = row_block * u.span;
    let end_row = min(first_row + u.span, u.batch);
    for (var s = u.begin; s < u.end; s++) {
#% if quantized
#% if loops
        quantize(dir, s, lane);
#% endif
        h_scale = bitcast<f32>(load_codes(dir * u.codes_dir));
        h_zero = i32(load_codes(dir * u.codes_dir + 1u)) - 128;
#% endif
        for (var row = first_row; row < end_row; row += ROWS) {
            multiply(dir, row, unit_block * UNITS, lane);
            workgroupBarrier();
            advance(dir, s, row, end_row, unit_block * UNITS, lane);
            storageBarrier();
            workgroupBarrier();
        }
#% if attention and loops
        attend(dir, first_row, end_row, lane);
#% endif
    }
{% endcall %}
