{# token_at[offset[t]] = t + 1, over zeros. #}
{% call kernel() %}
    if (thread >= u.tokens) { return; }
    let place = load_offset(thread);
    if (place >= 0 && place < i32(u.places)) { store_token_at(u32(place), thread + 1u); }
{% endcall %}
