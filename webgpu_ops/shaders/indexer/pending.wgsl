{#
  The tokens that stay pending, moved to the front of their request's rows, bit for bit. An
  invocation moves four channels of one request, first row first, so `kept` may be the memory of `kv`.

  x, u.column, u.stride, kv, u.kv_rows  as in indexer/entries.wgsl
  offset                                u.kv_at and u.kept_at: elements before the first request
#}
{% include "indexer/request.wgsl" %}

{% call kernel() %}
    let quads = (u.width + 3u) / 4u;
    let b = thread / quads;
    if (b >= u.batch) { return; }
    let c = (thread % quads) * 4u;
    let n = min(4u, u.width - c);
    let r = request(b);
    let first = first_kept(r);
    for (var i = first; i < r.pending + r.tokens; i++) {
        var quad: kept_quad;
        if (i < r.pending) {
            quad = load4_kv(u.kv_at + (b * u.kv_rows + i) * u.width + c);
        } else {
            quad = load4_x((r.begin + i - r.pending) * u.stride + u.column + c);
        }
        store4_kept(u.kept_at + (b * u.kept_rows + i - first) * u.width + c, quad, n);
    }
{% endcall %}
