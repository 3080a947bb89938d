{#
  Scales and zero points of experts, for quantized/weights.wgsl.

  scaled   how they are scaled: "line" u.blocks scales a line; "square" scales of u.block x u.block
           weights of an expert; "expert" by gain alone
  gain     a binding with a scale of each expert, or None
  zero     "middle"; "line": codes of u.blocks zero points, a line starting on a byte; "expert": codes of
           one zero point a line, an expert starting on a byte
#}
fn grid(line: u32, block: u32) -> Grid {
    let expert = (line + u.first) / u.n;
    let column = (line + u.first) % u.n;
#% if scaled == "line"
    var scale = load_scales(line * u.blocks + block);
#% elif scaled == "square"
    var scale = load_scales((expert * ((u.n + u.block - 1u) / u.block) + column / u.block) * u.blocks + block);
#% else
    var scale = 1.0;
#% endif
#% if gain
    scale *= load_gain(expert);
#% endif
#% if code != "integer"
    return Grid(scale, 0.0);
#% elif zero == "middle"
    return Grid(scale, {{ 8388608 + 2 ** (bits - 1) }}.0);
#% else
    let place = {{ "block" if zero == "line" else "column" }};
    let bit = place * {{ bits }}u;
    let byte = {{ "line" if zero == "line" else "expert" }} * u.zero_stride + bit / 8u;
    let pair = load_zeros(byte) | (load_zeros(byte + 1u) << 8u);
    return Grid(scale, 8388608.0 + f32((pair >> (bit % 8u)) & {{ 2 ** bits - 1 }}u));
#% endif
}
