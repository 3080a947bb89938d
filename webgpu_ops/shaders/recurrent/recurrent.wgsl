// Token by token. `parts` lanes share four value columns of one head's state S [dk, dv]; each keeps
// every parts-th key channel of them in registers from the first token to the last, so the whole
// incoming state is read before any of it is written.
{% include "recurrent/lib.wgsl" %}

const PARTS = {{ parts }}u;
const CHANNELS = {{ channels }}u;  // of a lane, at most
#% if parts > 1
const TERMS = 11u;  // S^T q of four columns, q.q, S^T k, k.k, k.q
var<workgroup> shares: array<array<f32, TERMS>, WG>;
var<workgroup> sums: array<array<f32, TERMS>, WG / PARTS>;

// The first `count` terms of all lanes that share this one's columns, added up.
fn total(lane: u32, terms: array<f32, TERMS>, count: u32) -> array<f32, TERMS> {
    let part = lane % PARTS;
    shares[lane] = terms;
    workgroupBarrier();
    for (var term = part; term < count; term += PARTS) {
        var sum = 0.0;
        for (var p = 0u; p < PARTS; p++) {
            sum += shares[lane - part + p][term];
        }
        sums[lane / PARTS][term] = sum;
    }
    workgroupBarrier();
    return sums[lane / PARTS];
}
#% endif

{% call kernel() %}
    let part = lane % PARTS;
    let item = thread / PARTS;
    let v0 = (item % u.quads) * 4u;
    let head = (item / u.quads) % u.heads_v;
    let request = item / (u.quads * u.heads_v);
    var begin = 0u;
    var end = 0u;
    var columns = 0u;
    if (request < u.batch) {
        begin = request_begin(request);
        end = request_end(request);
        columns = min(u.dv - min(v0, u.dv), 4u);
    }
    let row = request * u.heads_v + head;
    let writes = part == 0u && columns > 0u;

    var s: array<vec4<f32>, CHANNELS>;
    var k: array<f32, CHANNELS>;
#% if initial_state
    for (var r = 0u; r < CHANNELS; r++) {
        let i = part + r * PARTS;
        if (i < u.dk) { s[r] = initial_columns(row, i, v0, columns); }
    }
#% endif
#% if windowed
    for (var j = 0u; j + (end - begin) < u.window; j++) {  // no token of this call reaches these
        for (var r = 0u; r < CHANNELS && part + r * PARTS < u.dk; r++) {
            keep_columns(j * u.state_size, row, part + r * PARTS, v0, vec4<f32>(), columns);
        }
    }
#% endif
#% if state_update
    var captured = 0u;
    if (request < u.batch) {
        captured = min(u32(clamp(load_capture_count(request), 0, i32(u.capacity))), whole_end(request) - whole_begin(request));
    }
    let keys_at = u.capacity * u.heads_v;
    let deltas_at = keys_at + u.capacity * (u.heads_v / u.key_sharing) * u.dk;
    let update = request * (deltas_at + u.capacity * u.heads_v * u.dv);
#% endif

    for (var t = begin; t < end; t++) {
        let k_row = key_row(t, head);
        let q_row = query_row(t, head * u.queries);
        var sk = vec4<f32>();
        var sq = vec4<f32>();
        var dots = vec3<f32>();
        for (var r = 0u; r < CHANNELS; r++) {
            let i = part + r * PARTS;
            if (i < u.dk) {
                k[r] = load_key(k_row + i);
                let q = load_query(q_row + i);
#% if per_key
                s[r] *= exp(log_decay(t, head, i));
#% endif
                sk += s[r] * k[r];
                sq += s[r] * q;
                dots += vec3<f32>(k[r] * q, k[r] * k[r], q * q);
            }
        }
#% if parts > 1
        let all = total(lane, array<f32, TERMS>(
            sq.x, sq.y, sq.z, sq.w, dots.z, sk.x, sk.y, sk.z, sk.w, dots.y, dots.x
        ), TERMS);
        sq = vec4<f32>(all[0], all[1], all[2], all[3]);
        sk = vec4<f32>(all[5], all[6], all[7], all[8]);
        dots = vec3<f32>(all[10], all[9], all[4]);
#% endif
        let kept = {{ "exp(log_decay(t, head, 0u))" if decay and not per_key else "1.0" }};
        let k_norm = {{ "inverseSqrt(dots.y + 1e-12)" if l2_norm else "1.0" }};
        let q_norm = {{ "inverseSqrt(dots.z + 1e-12)" if l2_norm else "1.0" }};
        var delta = vec4<f32>();
        for (var c = 0u; c < columns; c++) {
            delta[c] = load_value(value_row(t, head) + v0 + c);
        }
#% if retrieves
        delta = rate(t, head) * (delta - (k_norm * kept) * sk);
#% endif
        for (var r = 0u; r < CHANNELS; r++) {
            s[r] = kept * s[r] + (k_norm * k[r]) * delta;
        }
        if (writes) {
            let out = (u.scale * q_norm) * (kept * sq + (k_norm * dots.x) * delta);
            store4_output(output_row(t, head * u.queries) + v0, out, columns);
        }
#% if several
        for (var n = 1u; n < u.queries; n++) {
            let reader = head * u.queries + n;
            sq = vec4<f32>();
            var square = 0.0;
            for (var r = 0u; r < CHANNELS; r++) {
                let i = part + r * PARTS;
                if (i < u.dk) {
                    let q = load_query(query_row(t, reader) + i);
                    sq += s[r] * q;
                    square += q * q;
                }
            }
#% if parts > 1
            let all = total(lane, array<f32, TERMS>(
                sq.x, sq.y, sq.z, sq.w, square, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            ), 5u);
            sq = vec4<f32>(all[0], all[1], all[2], all[3]);
            square = all[4];
#% endif
            let norm = {{ "inverseSqrt(square + 1e-12)" if l2_norm else "1.0" }};
            if (writes) { store4_output(output_row(t, reader) + v0, (u.scale * norm) * sq, columns); }
        }
#% endif
#% if windowed
        let left = end - t - 1u;
        for (var r = 0u; r < CHANNELS && left > 0u && left < u.window; r++) {
            let i = part + r * PARTS;
            if (i < u.dk) { keep_columns((u.window - 1u - left) * u.state_size, row, i, v0, s[r], columns); }
        }
#% endif
#% if state_update
        let local = t - whole_begin(request);
        if (local < captured && columns > 0u) {
            for (var c = 0u; c < columns && writes; c++) {
                store_state_update(update + deltas_at + (local * u.heads_v + head) * u.dv + v0 + c, delta[c]);
            }
            if (v0 == 0u && part == 0u) {
                store_state_update(update + local * u.heads_v + head, kept);
            }
            if (v0 == 0u && head % u.key_sharing == 0u) {
                let keys = update + keys_at + (local * (u.heads_v / u.key_sharing) + head / u.key_sharing) * u.dk;
                for (var r = 0u; r < CHANNELS && part + r * PARTS < u.dk; r++) {
                    store_state_update(keys + part + r * PARTS, k_norm * k[r]);
                }
            }
        }
#% endif
    }

#% if final_state
    for (var r = 0u; r < CHANNELS; r++) {
        let i = part + r * PARTS;
        if (i < u.dk) { keep_columns((u.window - 1u) * u.state_size, row, i, v0, s[r], columns); }
    }
#% endif
#% if cu_seqlens
    // Tokens that a malformed cu_seqlens leaves to no request read as zero.
    if (!writes) { return; }
    let last = min(u.first + u.length, u.tokens);
    if (request == 0u) {
        for (var t = u.first; t < min(whole_begin(0u), last); t++) { clear(t, head, v0, columns); }
    }
    if (request + 1u == u.batch) {
        for (var t = max(whole_end(request), u.first); t < last; t++) { clear(t, head, v0, columns); }
    }
#% endif
{% endcall %}
