// What a chunk of `chunk` tokens does to any state, worked out for all chunks at once. With
// w[t,s] = exp(g[s+1] + .. + g[t]), one group leaves for its chunk and query head:
//   solve  [C, C]  (I + M)^-1 diag(rate), M[t,s] = rate[t] w[t,s] k[t].k[s] below the diagonal
//   attend [C, C]  scale w[t,s] q[t].k[s] up to the diagonal
//   factor [C, 4]  what token t multiplies: k S in its residual, q S in its output, k in the next
//                  state; and the decay over the whole chunk
// Decays enter as sums of the steps between two tokens, never as differences of running totals.
{% include "recurrent/lib.wgsl" %}
{% include "recurrent/chunks.wgsl" %}

const TILE = 32u;          // key channels at a time
const N = C / 8u;          // a lane's square of the products is N x N, eight apart
const STRIDE = C + 1u;     // keeps lanes of a column in different banks

var<workgroup> keys: array<f32, TILE * STRIDE>;
var<workgroup> queries: array<f32, TILE * STRIDE>;
var<workgroup> m: array<f32, C * C>;
var<workgroup> gates: array<f32, C>;
var<workgroup> k_norm: array<f32, C>;
var<workgroup> q_norm: array<f32, C>;

{% call kernel() %}
    let reader = group % (u.heads_v * u.queries);
    let slot = group / (u.heads_v * u.queries);
    let head = reader / u.queries;
    var request = 0u;
    var high = u.batch;
    while (high - request > 1u) {
        let middle = (request + high) / 2u;
        if (first_slot(middle) <= slot) { request = middle; } else { high = middle; }
    }
    let begin = request_begin(request) + (slot - min(slot, first_slot(request))) * C;
    let count = min(request_end(request) - min(begin, request_end(request)), C);
    let used = slot < u.slots && count > 0u;
    let work = block(slot, reader);

    let row = lane / 8u;
    let column = lane % 8u;
    var kk: array<array<f32, N>, N>;
    var qk: array<array<f32, N>, N>;
    var k_square = 0.0;
    var q_square = 0.0;
    for (var i0 = 0u; i0 < u.dk; i0 += TILE) {
        for (var e = lane; e < C * TILE; e += WG) {
            let t = e / TILE;
            let i = e % TILE;
            let at = i * STRIDE + t;
            keys[at] = 0.0;
            queries[at] = 0.0;
            if (t < count && i0 + i < u.dk) {
                keys[at] = load_key(key_row(begin + t, head) + i0 + i);
                queries[at] = load_query(query_row(begin + t, reader) + i0 + i);
            }
        }
        workgroupBarrier();
        let width = min(u.dk - i0, TILE);
        for (var i = 0u; i < width; i++) {
            for (var a = 0u; a < N; a++) {
                let k = keys[i * STRIDE + row + a * 8u];
                let q = queries[i * STRIDE + row + a * 8u];
                for (var b = 0u; b < N; b++) {
                    let other = keys[i * STRIDE + column + b * 8u];
                    kk[a][b] += k * other;
                    qk[a][b] += q * other;
                }
            }
        }
#% if l2_norm
        for (var i = 0u; i < width && lane < C; i++) {
            let k = keys[i * STRIDE + lane];
            let q = queries[i * STRIDE + lane];
            k_square += k * k;
            q_square += q * q;
        }
#% endif
        workgroupBarrier();
    }

    var own_rate = 0.0;
    if (lane < C) {
        gates[lane] = 0.0;
        if (lane < count) {
            gates[lane] = log_decay(begin + lane, head, 0u);
            own_rate = rate(begin + lane, head);
        }
        k_norm[lane] = {{ "inverseSqrt(k_square + 1e-12)" if l2_norm else "1.0" }};
        q_norm[lane] = {{ "inverseSqrt(q_square + 1e-12)" if l2_norm else "1.0" }};
    }
    workgroupBarrier();
    if (lane < C) {
        var since = 0.0;
        for (var t = 0u; t < C; t++) {
            if (t > lane) { since += gates[t]; }
            m[t * C + lane] = select(0.0, exp(since), t >= lane);
        }
        var before = 0.0;
        for (var t = 0u; t <= lane; t++) { before += gates[t]; }
        var whole = 0.0;
        for (var t = 0u; t < count; t++) { whole += gates[t]; }
        if (used) {
            store4_work(work + FACTOR + lane * 4u, vec4<f32>(
                k_norm[lane] * exp(before),
                u.scale * q_norm[lane] * exp(before),
                k_norm[lane] * exp(since),
                exp(whole),
            ), 4u);
        }
    }
    workgroupBarrier();
    for (var a = 0u; a < N; a++) {
        for (var b = 0u; b < N; b++) {
            let t = row + a * 8u;
            let s = column + b * 8u;
            let weight = m[t * C + s] * k_norm[s];
            if (used) { store_work(work + ATTEND + t * C + s, u.scale * q_norm[t] * weight * qk[a][b]); }
            m[t * C + s] = select(0.0, weight * k_norm[t] * kk[a][b], s < t);
        }
    }
#% if retrieves
    // Forward substitution: lane j owns column j of the inverse; `gates` now holds the rates, and
    // `keys`, no longer needed, the inverse.
    if (lane < C) { gates[lane] = own_rate; }
    workgroupBarrier();
    for (var t = 0u; t < count && lane < C; t++) {
        var x = 0.0;
        for (var s = lane; s < t; s++) {
            x += m[t * C + s] * keys[s * STRIDE + lane];
        }
        x = select(-gates[t] * x, 1.0, t == lane);
        keys[t * STRIDE + lane] = x;
        if (used) { store_work(work + SOLVE + t * C + lane, x * own_rate); }
    }
#% endif
{% endcall %}
