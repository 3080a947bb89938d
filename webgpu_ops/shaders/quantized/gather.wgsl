{#
  y[o, j, i] = the weight data[o, indices[j], i] of a quantized [outer, length, inner] table; zero where
  an index is out of range.

  bits     0: an element of data is a code; else the width of codes packed into bytes, lowest bits first
  zero     "none", "middle" 2^(bits - 1), "plain" a zero point beside each scale, "packed" like the codes
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

fn weight(at: u32) -> f32 {
    var rest = at;
    var s = 0u;
    for (var d = u.rank; d > 0u; d--) {
        let size = u_shape(d - 1u);
        let c = rest % size;
        s += select(c, c / u.block, d - 1u == u.axis) * u_steps(d - 1u);
        rest /= size;
    }
    let scale = load_scales(s - u.first_scale);
    let code = {{ "f32(packed_data(at - u.first))" if bits else F.cast("load_data(at - u.first)", data) }};
#% if zero == "none"
    return code * scale;
#% elif zero == "middle"
    return (code - {{ 2 ** (bits or 8) // 2 }}.0) * scale;
#% elif zero == "plain"
    return (code - {{ F.cast("load_zeros(s - u.first_scale)", zeros) }}) * scale;
#% else
    // A row of zero points starts on a byte.
    let row = s / u.scale_row - u.first_scale / u.scale_row;
    return (code - f32(packed_zeros(row * u.zero_row + s % u.scale_row))) * scale;
#% endif
}

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(4u, u.size - i);
    var quad: y_quad;
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
    store4_y(i, quad, n);
{% endcall %}
