{#
  Codes in one stream of bits, for quantized/weights.wgsl.

  words    of the stream that eight codes can touch
  shifted  whether they can begin inside a word
#}
{# Code j of eight codes of n bits that begin at the lowest bit of the words {{ v }}0, {{ v }}1. #}
{% macro field(v, j, n) -%}
{% set at = j * n %}
{% if at % 32 + n > 32 %}({{ v }}0 >> {{ at }}u) | ({{ v }}1 << {{ 32 - at }}u){% else %}{{ v }}{{ at // 32 }} >> {{ at % 32 }}u{% endif %}
{%- endmacro %}
fn word(i: u32) -> u32 {
    let w = word_w(i);
    return {{ "((w & 0x0f0f0f0fu) << 4u) | ((w >> 4u) & 0x0f0f0f0fu)" if layout == "high" else "w" }};
}

fn codes(line: u32, i: u32) -> Eight {
    let e = line * u.stride + i;
    let bit = e % 32u * {{ bits }}u;
    let first = e / 32u * {{ bits }}u + bit / 32u;
#% for n in range(words)
    let w{{ n }} = word(first + {{ n }}u);
#% endfor
#% if shifted
    let shift = bit % 32u;
#% for n in range((bits + 3) // 4)
    let v{{ n }} = (w{{ n }} >> shift){{ " | ((w%d << 1u) << (31u - shift))" % (n + 1) if n + 1 < words }};
#% endfor
#% endif
    let mask = vec4<u32>({{ 2 ** bits - 1 }}u);
#% for half in ("low", "high")
    let {{ half }} = vec4<u32>({% for j in range(4) %}{{ field("v" if shifted else "w", j + (4 if half == "high" else 0), bits) }}{{ ", " if not loop.last }}{% endfor %}) & mask;
#% endfor
    return Eight(values(low), values(high));
}
