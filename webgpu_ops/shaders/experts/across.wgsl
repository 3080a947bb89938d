{#
  Codes of 4 bits whose bytes hold those of two lines, for quantized/weights.wgsl: an expert has u.k
  rows of u.n codes, the even one in the low half.
#}
fn codes(line: u32, i: u32) -> Eight {
    let row = line / u.n * u.k + i;
    let column = line % u.n;
    let shift = column % 2u * 4u;
#% for half, first in (("low", 0), ("high", 4))
    let {{ half }} = vec4<u32>({% for j in range(4) %}load_w(((row + {{ first + j }}u) * u.n + column) / 2u){{ ", " if not loop.last }}{% endfor %});
#% endfor
    return Eight(values((low >> vec4<u32>(shift)) & vec4<u32>(15u)), values((high >> vec4<u32>(shift)) & vec4<u32>(15u)));
}
