{#
  y[word] = max over windows of tanh(sum of products + bias); products [place in window][character]
  [filter]. An invocation makes four filters of a word. tanh grows with its argument, so the largest
  sum is found first.
#}
fn character(word: u32, i: u32, end: u32) -> u32 {
    if (i >= end) { return 0u; }
    return u32(clamp(load_words(word * u.length + i), 0, i32(u.characters) - 1));
}

{% call kernel() %}
    let quads = (u.filters + 3u) / 4u;
    let word = thread / quads;
    let filter_at = thread % quads * 4u;
    if (word >= u.count) { return; }
    var end = 0u;
    while (end < u.length && load_words(word * u.length + end) != 0) { end++; }
    var result = vec4<f32>();
    if (end > 0u) {
        for (var start = 0u; start == 0u || start + u.window <= end; start++) {
            var sum = vec4<f32>();
            for (var i = 0u; i < u.window; i++) {
                let row = i * u.characters + character(word, start + i, end);
                sum += load4_products(row * u.filters + filter_at);
            }
            result = select(max(result, sum), sum, start == 0u);
        }
        let sums = result + load4_bias(filter_at);
        for (var k = 0u; k < 4u; k++) { result[k] = tanh_f32(sums[k]); }
    }
    store4_y(word * u.filters + filter_at, result, min(4u, u.filters - filter_at));
{% endcall %}
