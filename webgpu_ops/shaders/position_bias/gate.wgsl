{#
  gate[b, h, s] = sigmoid(U) * (sigmoid(R) * eco_a[h] - 1) + 2, where (U, R) = (query + query_bias) @ sums
  for head h of token (b, s), and the last row of sums.

  token_at  where queries are packed: the number of a place's token + 1, or 0 for padding
#}
{% call kernel() %}
    if (thread >= u.rows) { return; }
    let h = thread / u.sequence % u.heads;
    let place = thread / u.sequence / u.heads * u.sequence + thread % u.sequence;
#% if token_at
    let number = load_token_at(place);
    if (number == 0u) {
        store_gate(thread, 0.0);
        return;
    }
    let token = number - 1u;
#% else
    let token = place;
#% endif
    var sum = vec2<f32>(load_sums(2u * u.channels), load_sums(2u * u.channels + 1u));
    for (var c = 0u; c < u.channels; c++) {
        let channel = h * u.channels + c;
        let q = load_query(token * u.heads * u.channels + channel) + load_query_bias(channel);
        sum += q * vec2<f32>(load_sums(2u * c), load_sums(2u * c + 1u));
    }
    store_gate(thread, sigmoid_f32(sum.x) * (sigmoid_f32(sum.y) * load_eco_a(h) - 1.0) + 2.0);
{% endcall %}
