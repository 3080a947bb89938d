{#
  What four codes stand for, for quantized/weights.wgsl.

  code   "integer", "e2m1", "e4m3", "fp4" or "nf4"
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
fn values(q: vec4<u32>) -> vec4<f32> {
#% if code == "integer"
    return bitcast<vec4<f32>>(q | vec4<u32>(0x4b000000u)){{ " - 8388608.0f" if zero == "float" }};
#% elif code == "e4m3"
    return vec4<f32>({% for j in range(4) %}decode_float8e4m3fn(q[{{ j }}]){{ ", " if not loop.last }}{% endfor %});
#% elif code == "nf4"
    return {{ pick(NF4, 8) }};
#% else
    let magnitude = {{ pick(FP4 if code == "fp4" else E2M1, 4) }};
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(magnitude) | ((q & vec4<u32>(8u)) << vec4<u32>(28u)));
#% endif
}
