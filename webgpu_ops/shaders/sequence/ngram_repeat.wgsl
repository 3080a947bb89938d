{#
  scores[row, t] = -inf for every token t that follows an n-gram prefix equal to the row's last
  tokens. One window an invocation; windows that ban the same token store the same word. A token
  outside of the vocabulary has no score to set.
#}
{% call kernel() %}
    if (thread >= u.size) { return; }
    let row = thread / u.windows;
    let ids = row * u.length;
    let first = ids + thread % u.windows;
    let suffix = ids + u.length - (u.ngram - 1u);
    for (var k = 0u; k < u.ngram - 1u; k++) {
        if (any(load_ids(first + k) != load_ids(suffix + k))) { return; }
    }
    let token = load_ids(first + u.ngram - 1u);
    if (token.y == 0u && token.x < u.vocabulary) {
        store_scores(row * u.vocabulary + token.x, 0xff800000u);
    }
{% endcall %}
