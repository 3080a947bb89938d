{#
  Codes in blocks that begin with their own scale, for quantized/weights.wgsl: a float32, for zero
  "packed" a byte with the zero point, then 16 bytes for every 32 codes of 4 bits, of which the low
  halves are the first 16.
#}
{% set head = 5 if zero == "packed" else 4 %}
// Four bytes from any byte on.
fn bytes(at: u32) -> u32 {
    let shift = at % 4u * 8u;
    return (word_w(at / 4u) >> shift) | ((word_w(at / 4u + 1u) << 1u) << (31u - shift));
}

fn block_start(line: u32, block: u32) -> u32 {
    return (line * u.blocks + block) * ({{ head }}u + u.block / 2u);
}

fn quarter(w: u32) -> vec4<f32> {
    return values((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u));
}

fn codes(line: u32, i: u32) -> Eight {
    let inside = i % u.block;
    let at = block_start(line, i / u.block) + {{ head }}u + inside / 32u * 16u + i % 16u;
    let shift = i / 16u % 2u * 4u;
    return Eight(quarter(bytes(at) >> shift), quarter(bytes(at + 4u) >> shift));
}

fn grid(line: u32, block: u32) -> Grid {
    let at = block_start(line, block);
    let scale = bitcast<f32>(bytes(at));
#% if zero == "packed"
    return Grid(scale, 8388608.0 + f32(load_w(at + 4u)));
#% else
    return Grid(scale, 8388616.0);
#% endif
}
