{# Every element of y becomes the value whose words are u_words(0..3). #}
{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
#% if y.scalar == "u32"
    let value = u_words(0u);
#% elif y.scalar == "vec2<u32>"
    let value = vec2<u32>(u_words(0u), u_words(1u));
#% else
    let value = vec4<u32>(u_words(0u), u_words(1u), u_words(2u), u_words(3u));
#% endif
    store4_y(i, y_quad(value, value, value, value), min(4u, u.size - i));
{% endcall %}
