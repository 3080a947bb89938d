{# A block mask as bits [layouts, rows, words] from its compressed rows: `starts` [layouts, rows + 1] and
   `columns` [layouts, most]. An invocation takes a row; offsets and columns that cannot be are left out. #}
{% call kernel() %}
    if (thread >= u.layouts * u.rows) { return; }
    let which = thread / u.rows;
    let row = thread % u.rows;
    let words = thread * u.words;
    let from_ = clamp(load_starts(which * (u.rows + 1u) + row), 0, i32(u.most));
    let to = clamp(load_starts(which * (u.rows + 1u) + row + 1u), 0, i32(u.most));
    for (var w = 0u; w < u.words; w++) { store_bits(words + w, 0u); }
    for (var n = from_; n < to; n++) {
        let column = load_columns(which * u.most + u32(n));
        if (column < 0 || u32(column) >= u.rows) { continue; }
        let at = words + u32(column) / 32u;
        store_bits(at, load_bits(at) | (1u << (u32(column) % 32u)));
    }
{% endcall %}
