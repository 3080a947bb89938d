{# Scores as an output: raw products, softcapped, masked, or their shares of the softmax (from the
   rows' maxima and sums, which streaming left in `stats`). Four columns an invocation. #}
{% include "attention/score.wgsl" %}

{% call kernel() %}
    let quads = (u.columns + 3u) / 4u;
    var n = thread;
    let j0 = (n % quads) * 4u; n /= quads;
    let i = n % u.rows; n /= u.rows;
    let h = n % u.heads;
    let b = n / u.heads;
    if (b >= u.batch) { return; }
    let kv = h / u.group;
    let s = span_of(b);
    let see = seen(s, i32(i));
#% if stage == "weights"
    let row = row_of(s, b, h, i);
    let top = load_stats(row * 2u);
    let sum = load_stats(row * 2u + 1u);
#% endif

    var y = vec4<f32>(0.0);
    for (var t = 0u; t < 4u; t++) {
        let j = i32(j0 + t) - s.column;
        var x = 0.0;
        if (j >= 0{{ " && j < s.end" if stage in ("masked", "weights") }}) {
            let p = place(s, b, u32(j));
            for (var c = 0u; c < u.channels; c += 4u) { x += dot(read_q(b, h, i, c), read_k(p.x, kv, p.y, c)); }
        }
        x *= u.scale;
#% if stage == "softcapped"
        x = soften(x);
#% elif stage in ("masked", "weights")
        x = masked(soften(x), s, see, b, h, i, j);
#% if stage == "weights"
        x = logit(x);
        x = select(weight(x, top) / sum, 0.0, x <= HIDDEN);
#% endif
#% endif
        y[t] = x;
    }
    store4_scores(((b * u.heads + h) * u.rows + i) * u.columns + j0, y, min(4u, u.columns - j0));
{% endcall %}
