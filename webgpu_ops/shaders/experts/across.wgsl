{#
  Codes of 4 bits whose bytes hold those of two lines, for quantized/weights.wgsl: an expert has u.k
  rows of u.n codes, the even one in the low half.
#}
fn codes(line: u32, i: u32) -> Eight {
    let row = line / u.n * u.k + i;
    let column = line % u.n;
    let shift = column % 2u * 4u;
    var low: vec4<u32>;
    var high: vec4<u32>;
    for (var j = 0u; j < 4u; j++) {
        low[j] = (load_w(((row + j) * u.n + column) / 2u) >> shift) & 15u;
        high[j] = (load_w(((row + j + 4u) * u.n + column) / 2u) >> shift) & 15u;
    }
    return Eight(values(low), values(high));
}
