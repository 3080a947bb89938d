{#
  Reading a matrix of quantized weights, eight at a time along the lines in which they are stored:

    codes(line, i)        what stands for weights i..i+7 of a line; i is a multiple of 8
    grid(line, block)     scale and zero point of a block
    scaled(codes, grid)   the weights: (code - zero) * scale
    weights(line, i)      weights i..i+7, whatever their blocks
    first(e, n)           the first n of eight, then zeros

  layout    "low": a stream of codes of `bits` bits, the lowest bits of a byte first, u.stride codes
            from line to line; "high": the same with the high half of a byte first (4 bits);
            "blob": quantized/blob.wgsl
  code      what a code is: "integer", "e2m1", "e4m3", "fp4" or "nf4"
  zero      for integers: "middle" 2^(bits - 1), "packed" a stream like the codes, "float" floats
  blocks    how weight i finds its block: "regular" i / u.block, never more than one for eight weights;
            "line" the same, any; "flat" blocks go on from line to line; "listed" groups[i] names it
  rounding  None, or the type to which weights are rounded
  factor    a binding with one scale of all weights, or None
  codes_in, grid_in   other templates that define codes and grid (or nothing)

  An integer q is read as the float with the bits 0x4b000000 | q, which is 2^23 + q, and so is its
  zero point: no conversion, and their difference is exact. Only float zero points are not.
#}
struct Eight { low: vec4<f32>, high: vec4<f32> }
struct Grid { scale: f32, zero: f32 }

{% include "quantized/values.wgsl" %}

#% if layout == "blob"
{% include "quantized/blob.wgsl" %}
#% else
{% include codes_in | default("quantized/stream.wgsl") %}

{% include grid_in | default("quantized/grid.wgsl") %}
#% endif

fn scaled_half(code: vec4<f32>, g: Grid) -> vec4<f32> {
#% if code == "integer"
    return (code - g.zero) * g.scale;
#% else
    var x = code * g.scale;
#% if factor
    x *= load_factor(0u);
#% endif
#% if rounding
    x = vec4<f32>({% for j in range(4) %}decode_{{ rounding }}(encode_{{ rounding }}(x[{{ j }}])){{ ", " if not loop.last }}{% endfor %});
#% endif
    return x;
#% endif
}

fn scaled(e: Eight, g: Grid) -> Eight {
    return Eight(scaled_half(e.low, g), scaled_half(e.high, g));
}
#% if blocks != "regular"

fn block_of(line: u32, i: u32) -> u32 {
#% if blocks == "flat"
    return (line * u.stride + i) / u.block;
#% elif blocks == "listed"
    return min(u32(max(load_groups(i), 0)), u.blocks - 1u);
#% else
    return i / u.block;
#% endif
}
#% endif

fn weights(line: u32, i: u32) -> Eight {
    let e = codes(line, i);
#% if blocks == "regular"
    return scaled(e, grid(line, i / u.block));
#% else
    return Eight(
#% for half, start in (("low", 0), ("high", 4))
        vec4<f32>(
#% for j in range(4)
            scaled_half(vec4<f32>(e.{{ half }}[{{ j }}]), grid(line, block_of(line, i + {{ start + j }}u))).x,
#% endfor
        ),
#% endfor
    );
#% endif
}

// The first n, then zeros.
fn first_half(x: vec4<f32>, n: u32) -> vec4<f32> {
    return select(vec4<f32>(), x, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n));
}

fn first(e: Eight, n: u32) -> Eight {
    return Eight(first_half(e.low, n), first_half(e.high, max(n, 4u) - 4u));
}
