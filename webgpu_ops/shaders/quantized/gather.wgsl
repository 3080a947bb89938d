{#
  y[o, j, i] = the weight data[o, indices[j], i] of a quantized [outer, length, inner] table; zero where
  an index is out of range.

  bits     0: an element of data is a code; else the width of codes packed into bytes, lowest bits first
  zero     "none", "middle" 2^(bits - 1), "plain" a zero point beside each scale, "packed" like the codes
  together   four neighbouring codes are in one row and block
  parted   data holds codes u.first to u.end only; what lies elsewhere stays as it is

  The walk of u.shape finds the scale: along dimension u.axis one of u.block codes, u_steps apart.
#}
{% set I = arith(indices) %}
{% set F = arith("f32") %}
struct Place { at: u32, inside: bool }

fn place(i: u32) -> Place {
    let row = i / u.inner;
    let raw = load_indices(row % u.count);
    let length = {{ I.cast("u.length", "u32") }};
    let inside = {{ I("raw < length and raw + length >= 0") }};
    let index = {{ arith("u32").cast(I("raw + length if raw < 0 else raw"), indices) }};
    return Place((row / u.count * u.length + index) * u.inner + i % u.inner, inside);
}

#% if bits
// Code i of a stream.
#% macro packed(name)
fn packed_{{ name }}(i: u32) -> u32 {
    return (load_{{ name }}(i / {{ 8 // bits }}u) >> (i % {{ 8 // bits }}u * {{ bits }}u)) & {{ 2 ** bits - 1 }}u;
}
#% endmacro
{{ packed("data") }}
#% if zero == "packed"
{{ packed("zeros") }}
#% endif
#% endif

// Where the scale of weight `at` is.
fn scale_of(at: u32) -> u32 {
    var rest = at;
    var s = 0u;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        let c = rest % size;
        s += select(c, c / u.block, d - 1u == u.axis) * u_steps(d - 1u);
        rest /= size;
    }
    return s;
}

fn zero_of(s: u32) -> f32 {
#% if zero == "none"
    return 0.0;
#% elif zero == "middle"
    return {{ 2 ** (bits or 8) // 2 }}.0;
#% elif zero == "plain"
    return {{ F.cast("load_zeros(s - u.first_scale)", zeros) }};
#% else
    // A row of zero points starts on a byte.
    let row = s / u.scale_row - u.first_scale / u.scale_row;
    return f32(packed_zeros(row * u.zero_row + s % u.scale_row));
#% endif
}
#% if together

// Weights at to at + 3.
fn weights(at: u32) -> vec4<f32> {
    let s = scale_of(at);
    let i = at - u.first;
#% if bits == 4
    let codes = vec4<u32>(load_data(i / 2u), load_data(i / 2u), load_data(i / 2u + 1u), load_data(i / 2u + 1u));
    let code = vec4<f32>((codes >> vec4<u32>(0u, 4u, 0u, 4u)) & vec4<u32>(15u));
#% elif bits == 2
    let code = vec4<f32>((vec4<u32>(load_data(i / 4u)) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u));
#% else
    let codes = load4_data(i);
    let code = vec4<f32>({% for k in range(4) %}{{ F.cast("codes[%d]" % k, data) }}{{ ", " if not loop.last }}{% endfor %});
#% endif
    return (code - zero_of(s)) * load_scales(s - u.first_scale);
}
#% else

fn weight(at: u32) -> f32 {
    let s = scale_of(at);
    let code = {{ "f32(packed_data(at - u.first))" if bits else F.cast("load_data(at - u.first)", data) }};
    return (code - zero_of(s)) * load_scales(s - u.first_scale);
}
#% endif

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var quad: y_quad;
#% if together
    let p = place(i);
#% if parted
    if (p.inside && (p.at < u.first || p.at >= u.end)) { return; }
#% endif
    if (p.inside) {
        let w = weights(p.at);
        for (var k = 0u; k < 4u; k++) { quad[k] = w[k]; }
    }
#% else
    var mine = 0u;
    for (var k = 0u; k < n; k++) {
        let p = place(i + k);
        quad[k] = 0.0;
#% if parted
        if (p.inside && (p.at < u.first || p.at >= u.end)) { continue; }
        mine |= 1u << k;
#% endif
        if (p.inside) { quad[k] = weight(p.at); }
    }
#% if parted
    if (mine + 1u != 1u << n) {
        for (var k = 0u; k < n; k++) {
            if (((mine >> k) & 1u) != 0u) { store_y(i + k, quad[k]); }
        }
        return;
    }
#% endif
#% endif
    store4_y(i, quad, n);
{% endcall %}
