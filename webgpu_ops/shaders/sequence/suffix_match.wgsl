{#
  lengths[e]: how many tokens of `source` up to and with token e equal those at the end of `tokens`, of
  u.token_size; u.most of them count. One place an invocation.
#}
{% call kernel() %}
    if (thread >= u.size) { return; }
    let limit = min(thread + 1u, u.most);
    var n = 0u;
    while (n < limit) {
        if (any(load_source(thread - n) != load_tokens(u.token_size - 1u - n))) { break; }
        n++;
    }
    store_lengths(thread, n);
{% endcall %}
