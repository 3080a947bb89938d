{# Readers of [batch, head, row, channel] memory, whatever its type. #}

{# Channel c of a row, from the row's start: `pack` channels lie together, then those of the next row. #}
{% macro channel_of(name, c, pack) %}{{ c if not pack else "%s / %du * u.%s_plane + %s %% %du" % (c, pack, name, c, pack) }}{% endmacro %}

{% macro reader(name, x, scale, nibbles, ragged, channels, pack=0, paged=false) %}
// Four channels of a row: {{ x.dtype }}{{ ", two %s a byte" % nibbles if nibbles }}{{ ", scaled" if scale }}.
fn read_{{ name }}(b: u32, h: u32, row: u32, c: u32) -> vec4<f32> {
#% if paged
    if (row == NOWHERE) { return vec4<f32>(0.0); }
#% endif
    let at = u.{{ name }}_offset + b * u.{{ name }}_batch + h * u.{{ name }}_head + row * u.{{ name }}_row;
#% if nibbles
    let low = load_{{ name }}(at + c / 2u);
    let high = load_{{ name }}(at + c / 2u + 1u);
    let codes = vec4<u32>(low & 15u, (low >> 4u) & 15u, high & 15u, (high >> 4u) & 15u);
#% if nibbles == "int4"
    var x = vec4<f32>(codes) - 8.0;
#% else
    var x = vec4<f32>(decode_float4e2m1(codes.x), decode_float4e2m1(codes.y),
        decode_float4e2m1(codes.z), decode_float4e2m1(codes.w));
#% endif
#% else
    var x = vec4<f32>(load4_{{ name }}(at + {{ channel_of(name, "c", pack) }}));
#% endif
#% if scale
    let s = b * u.{{ name }}_scale_batch + h * u.{{ name }}_scale_head + row * u.{{ name }}_scale_row;
    let sc = u.{{ name }}_scale_channel;
    x *= vec4<f32>(
        load_{{ name }}_scale(s + c * sc), load_{{ name }}_scale(s + (c + 1u) * sc),
        load_{{ name }}_scale(s + (c + 2u) * sc), load_{{ name }}_scale(s + (c + 3u) * sc));
#% endif
#% if ragged
    // The last quad reaches into the next row, which may hold anything.
    return select(vec4<f32>(0.0), x, vec4<u32>(c, c + 1u, c + 2u, c + 3u) < vec4<u32>(u.{{ channels }}));
#% else
    return x;
#% endif
}
{% endmacro %}
