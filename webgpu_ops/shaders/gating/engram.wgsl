{#
  gated = gate * value, where gate = sigmoid(sign(dot) * sqrt(max(|dot|, 1e-6))) and dot is the
  normalized key times the normalized query; normed = RMSNorm(gated) * conv_scale. A row is one
  hyper-connection of one token; the u.streams rows of a token share its value.

  Key, query, value and their product are summed in one pass: the sums' order is
  key^2, query^2, key * query (both scaled), value^2.
#}
{% include "gating/row.wgsl" %}

fn gate_of(dot: f32) -> f32 {
    let root = sqrt(max(abs(dot), 1e-6f));
    if (is_nan(dot)) { return dot; }
    return sigmoid_f32(select(select(0.0f, root, dot > 0.0f), -root, dot < 0.0f));
}

{% call kernel() %}
    let row = thread / {{ lanes }}u;
    let end = select(0u, u.width, row < u.rows);
    let first = (thread % {{ lanes }}u) * 4u;
    let values = row / u.streams * u.width;
    let scales = row % u.streams * u.width;
    var sums = vec4<f32>();
    for (var j = first; j < end; j += {{ lanes * 4 }}u) {
        let key = first_of(load4_key(row * u.width + j), end - j);
        let query = first_of(load4_query(row * u.width + j), end - j);
        let value = first_of(load4_value(values + j), end - j);
        let key_scale = first_of(load4_key_scale(scales + j), end - j);
        let query_scale = first_of(load4_query_scale(scales + j), end - j);
        let agreement = dot(key * key_scale, query * query_scale);
        sums += vec4<f32>(dot(key, key), dot(query, query), agreement, dot(value, value));
    }
    sums = row_sum(lane, sums);
    let width = f32(u.width);
    let norm = sqrt(sums.x / width + u.epsilon) * sqrt(sums.y / width + u.epsilon);
    let gate = gate_of(sums.z / norm / sqrt(width));
#% if normed
    let factor = gate / sqrt(gate * gate * (sums.w / width) + u.epsilon);
#% endif
    for (var j = first; j < end; j += {{ lanes * 4 }}u) {
        let value = load4_value(values + j);
        store4_gated(row * u.width + j, gate * value, min(4u, end - j));
#% if normed
        let scale = load4_conv_scale(scales + j);
        store4_normed(row * u.width + j, factor * value * scale, min(4u, end - j));
#% endif
    }
{% endcall %}
