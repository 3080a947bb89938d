{#
  Scales and zero points, a line after the other, for quantized/weights.wgsl.
#}
fn grid(line: u32, block: u32) -> Grid {
    let scale = load_scales(line * u.blocks + block);
#% if code != "integer"
    return Grid(scale, 0.0);
#% elif zero == "middle"
    return Grid(scale, {{ 8388608 + 2 ** (bits - 1) }}.0);
#% elif zero == "float"
    return Grid(scale, load_zeros(line * u.blocks + block));
#% else
    let bit = block * {{ bits }}u;
    let byte = line * u.zero_stride + bit / 8u;
    let pair = load_zeros(byte) | (load_zeros(byte + 1u) << 8u);
    return Grid(scale, 8388608.0 + f32((pair >> (bit % 8u)) & {{ 2 ** bits - 1 }}u));
#% endif
}
