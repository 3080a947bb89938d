// The gates of linear attention, four elements of [tokens, heads] an invocation.

{% call kernel() %}
    let i = thread * 4u;
    if (i >= u.size) { return; }
    let n = min(u.size - i, 4u);
    let a = load4_a(i);
    var decay: vec4<f32>;
    for (var c = 0u; c < n; c++) {
        let head = (i + c) % u.heads;
        decay[c] = load_decay_scale(head) * softplus_f32(a[c] + load_dt_bias(head));
    }
    store4_decay(i, decay, n);
#% if beta
    var beta = load4_b(i);
    for (var c = 0u; c < n; c++) { beta[c] = sigmoid_f32(beta[c]); }
    store4_beta(i, beta, n);
#% endif
{% endcall %}
