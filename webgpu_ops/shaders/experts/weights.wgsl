{#
  Reading the weights of experts along their lines: weights(line, i) are eight, from a multiple of 8 on.
  A line is counted from the first one that is bound; u.first is its number.

  inside(eight, i)   eight as they are, but zeros where i and the next reach the inner size

  code   "float": elements as they are; else how quantized/weights.wgsl reads them, with scales and zero
         points by experts/grid.wgsl
  tail     whether the inner size is no multiple of what a kernel reads at once
  across   whether codes lie column by column: each is half of a byte in a row of u.n of them
#}
#% if code == "float"
struct Eight { low: vec4<f32>, high: vec4<f32> }

fn weights(line: u32, i: u32) -> Eight {
    let at = line * u.k + i;
    return Eight(load4_w(at), load4_w(at + 4u));
}
#% else
{% set codes_in = "experts/across.wgsl" if across else "quantized/stream.wgsl" %}
{% set grid_in = "experts/grid.wgsl" %}
{% include "quantized/weights.wgsl" %}
#% endif

fn inside(e: Eight, i: u32) -> Eight {
#% if tail
    let place = vec4<u32>(0u, 1u, 2u, 3u) + i;
    let size = vec4<u32>(u.k);
    return Eight(select(vec4<f32>(), e.low, place < size), select(vec4<f32>(), e.high, place + 4u < size));
#% else
    return e;
#% endif
}
