{# The places of all tokens of a [batch, sequence]: first of the real ones, then of the padding. #}
{% call kernel() %}
    if (thread >= u.batch * u.sequence) { return; }
    let b = thread / u.sequence;
    let s = thread % u.sequence;
    let start = u32(load_ends(b));
    let count = u32(load_ends(b + 1u)) - start;
    // Before a padding token come all real ones and the padding before it.
    let padding = u32(load_ends(u.batch)) + b * u.sequence - start + s - count;
    store_offset(select(padding, start + s, s < count), i32(thread));
{% endcall %}
