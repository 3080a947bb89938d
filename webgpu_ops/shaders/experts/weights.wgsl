{#
  Reading the weights of experts along their lines: weights(line, i) are eight, from a multiple of 8 on,
  weight(line, i) is one. A line is counted from the first one that is bound; u.first is its number.

  code   "float": elements as they are; else how quantized/weights.wgsl reads them, with scales and zero
         points by experts/grid.wgsl
  across   whether codes lie column by column: each is half of a byte in a row of u.n of them
#}
#% if code == "float"
struct Eight { low: vec4<f32>, high: vec4<f32> }

fn weights(line: u32, i: u32) -> Eight {
    let at = line * u.k + i;
    return Eight(load4_w(at), load4_w(at + 4u));
}

fn weight(line: u32, i: u32) -> f32 { return load_w(line * u.k + i); }
#% else
{% set codes_in = "experts/across.wgsl" if across else "quantized/stream.wgsl" %}
{% set grid_in = "experts/grid.wgsl" %}
{% include "quantized/weights.wgsl" %}
#% endif
