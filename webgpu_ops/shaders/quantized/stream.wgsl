{#
  Codes in one stream of bits, for quantized/weights.wgsl.

  words    of the stream that eight codes can touch
  shifted  whether they can begin inside a word
#}
{% set FP4 = ["0.0", "0x1.555556p-8", "0x1.555556p-1", "1.0", "0x1.555556p-2", "0.5", "0x1.555556p-3", "0.25"] %}
{% set E2M1 = ["0.0", "0.5", "1.0", "1.5", "2.0", "3.0", "4.0", "6.0"] %}
{% set NF4 = ["-1.0", "-0.6961928009986877", "-0.5250730514526367", "-0.39491748809814453",
    "-0.28444138169288635", "-0.18477343022823334", "-0.09105003625154495", "0.0",
    "0.07958029955625534", "0.16093020141124725", "0.24611230194568634", "0.33791524171829224",
    "0.44070982933044434", "0.5626170039176941", "0.7229568362236023", "1.0"] %}
{# The one of `list`, whose length is 2 * half, that the lowest bits of q (vec4<u32>) choose. #}
{% macro pick(list, half) -%}
{% if half < 1 %}vec4<f32>({{ list[0] }}f){% else -%}
select({{ pick(list[:half], half // 2) }}, {{ pick(list[half:], half // 2) }}, (q & vec4<u32>({{ half }}u)) != vec4<u32>())
{%- endif %}
{%- endmacro %}
{# Code j of eight codes of n bits that begin at the lowest bit of the words {{ v }}0, {{ v }}1. #}
{% macro field(v, j, n) -%}
{% set at = j * n %}
{% if at % 32 + n > 32 %}({{ v }}0 >> {{ at }}u) | ({{ v }}1 << {{ 32 - at }}u){% else %}{{ v }}{{ at // 32 }} >> {{ at % 32 }}u{% endif %}
{%- endmacro %}
#% if code != "integer"
fn values(q: vec4<u32>) -> vec4<f32> {
#% if code == "e4m3"
    return vec4<f32>({% for j in range(4) %}decode_float8e4m3fn(q[{{ j }}]){{ ", " if not loop.last }}{% endfor %});
#% elif code == "nf4"
    return {{ pick(NF4, 8) }};
#% else
    let magnitude = {{ pick(FP4 if code == "fp4" else E2M1, 4) }};
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | ((q & vec4<u32>(8u)) << vec4<u32>(28u)));
#% endif
}
#% endif

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
