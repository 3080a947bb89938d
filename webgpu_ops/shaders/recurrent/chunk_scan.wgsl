// Chunk by chunk: a group keeps VQ quads of value columns of one head's state S [dk, dv] in
// workgroup memory and applies what chunk_prepare found:
//   residual = V - factor.x K S;  delta = solve residual;  O = factor.y Q S + attend delta
//   S = factor.w S + (factor.z K)^T delta
{% include "recurrent/lib.wgsl" %}
{% include "recurrent/chunks.wgsl" %}

const VQ = {{ quads }}u;
const ROWS = {{ rows }}u;            // key channels of S, a multiple of TILE
const TILE = 16u;
const STRIDE = C + 1u;
const SPAN = WG / VQ;                // tokens that the lanes of a group cover at once
const N = (C + SPAN - 1u) / SPAN;    // tokens a lane

var<workgroup> state: array<vec4<f32>, ROWS * VQ>;
var<workgroup> keys: array<f32, TILE * STRIDE>;
var<workgroup> queries: array<f32, TILE * STRIDE>;
var<workgroup> deltas: array<vec4<f32>, C * VQ>;

{% call kernel() %}
    let quad = lane % VQ;
    let row = lane / VQ;
    let head = (group / u.tiles) % u.heads_v;
    let request = group / (u.tiles * u.heads_v);
    let v_tile = (group % u.tiles) * VQ * 4u;
    let v0 = v_tile + quad * 4u;
    var begin = 0u;
    var end = 0u;
    var columns = 0u;
    if (request < u.batch) {
        begin = request_begin(request);
        end = request_end(request);
        columns = min(u.dv - min(v0, u.dv), 4u);
    }
    let state_row = request * u.heads_v + head;

    for (var e = lane; e < ROWS * VQ; e += WG) {
        let i = e % ROWS;
        let q = e / ROWS;
        var s = vec4<f32>();
#% if initial_state
        let v = v_tile + q * 4u;
        if (request < u.batch && i < u.dk) { s = initial_columns(state_row, i, v, min(u.dv - min(v, u.dv), 4u)); }
#% endif
        state[i * VQ + q] = s;
    }

    for (var t0 = begin; t0 < end; t0 += C) {
        let count = min(end - t0, C);
        let slot = first_slot(request) + (t0 - begin) / C;
        let work = block(slot, head * u.queries);
        var ks = array<vec4<f32>, N>();
        var qs = array<vec4<f32>, N>();
        for (var i0 = 0u; i0 < u.dk; i0 += TILE) {
            workgroupBarrier();
            for (var e = lane; e < C * TILE; e += WG) {
                let t = e / TILE;
                let i = e % TILE;
                let at = i * STRIDE + t;
                keys[at] = 0.0;
                queries[at] = 0.0;
                if (t < count && i0 + i < u.dk) {
                    keys[at] = load_key(key_row(t0 + t, head) + i0 + i);
                    queries[at] = load_query(query_row(t0 + t, head * u.queries) + i0 + i);
                }
            }
            workgroupBarrier();
            for (var i = 0u; i < min(u.dk - i0, TILE); i++) {
                let s = state[(i0 + i) * VQ + quad];
                for (var n = 0u; n < N; n++) {
                    let t = min(row + n * SPAN, C - 1u);
                    ks[n] += keys[i * STRIDE + t] * s;
                    qs[n] += queries[i * STRIDE + t] * s;
                }
            }
        }

        for (var n = 0u; n < N; n++) {
            let t = row + n * SPAN;
            var residual = vec4<f32>();
            if (t < count) {
                for (var c = 0u; c < columns; c++) {
                    residual[c] = load_value(value_row(t0 + t, head) + v0 + c);
                }
#% if retrieves
                residual -= load_work(work + FACTOR + t * 4u) * ks[n];
#% endif
            }
            if (t < C) { deltas[t * VQ + quad] = residual; }
        }
        workgroupBarrier();
#% if retrieves
        for (var n = 0u; n < N; n++) {
            let t = row + n * SPAN;
            ks[n] = vec4<f32>();
            for (var s = 0u; s <= t && t < count; s++) {
                ks[n] += load_work(work + SOLVE + t * C + s) * deltas[s * VQ + quad];
            }
        }
        workgroupBarrier();
        for (var n = 0u; n < N; n++) {
            let t = row + n * SPAN;
            if (t < C) { deltas[t * VQ + quad] = ks[n]; }
        }
        workgroupBarrier();
#% endif
        for (var query = 0u; query < {{ "u.queries" if several else "1u" }}; query++) {
            let reader = head * u.queries + query;
#% if several
            for (var i0 = 0u; i0 < u.dk && query > 0u; i0 += TILE) {
                if (i0 == 0u) { qs = array<vec4<f32>, N>(); }
                workgroupBarrier();
                for (var e = lane; e < C * TILE; e += WG) {
                    let t = e / TILE;
                    let i = e % TILE;
                    queries[i * STRIDE + t] = 0.0;
                    if (t < count && i0 + i < u.dk) {
                        queries[i * STRIDE + t] = load_query(query_row(t0 + t, reader) + i0 + i);
                    }
                }
                workgroupBarrier();
                for (var i = 0u; i < min(u.dk - i0, TILE); i++) {
                    let s = state[(i0 + i) * VQ + quad];
                    for (var n = 0u; n < N; n++) {
                        qs[n] += queries[i * STRIDE + min(row + n * SPAN, C - 1u)] * s;
                    }
                }
            }
#% endif
            let own = block(slot, reader);
            for (var n = 0u; n < N; n++) {
                let t = row + n * SPAN;
                if (t < count) { qs[n] *= load_work(own + FACTOR + t * 4u + 1u); }
                for (var s = 0u; s <= t && t < count; s++) {
                    qs[n] += load_work(own + ATTEND + t * C + s) * deltas[s * VQ + quad];
                }
                if (t < count && columns > 0u) {
                    store4_output(output_row(t0 + t, reader) + v0, qs[n], columns);
                }
            }
        }

        let kept = load_work(work + FACTOR + 3u);
        for (var i0 = 0u; i0 < u.dk; i0 += TILE) {
            workgroupBarrier();
            for (var e = lane; e < C * TILE; e += WG) {
                let t = e / TILE;
                let i = e % TILE;
                keys[i * STRIDE + t] = 0.0;
                if (t < count && i0 + i < u.dk) {
                    keys[i * STRIDE + t] = load_work(work + FACTOR + t * 4u + 2u)
                        * load_key(key_row(t0 + t, head) + i0 + i);
                }
            }
            workgroupBarrier();
            for (var e = lane; e < TILE * VQ; e += WG) {
                let i = e / VQ;
                let q = e % VQ;
                var s = kept * state[(i0 + i) * VQ + q];
                for (var t = 0u; t < count; t++) {
                    s += keys[i * STRIDE + t] * deltas[t * VQ + q];
                }
                state[(i0 + i) * VQ + q] = s;
            }
        }
    }
    workgroupBarrier();

#% if final_state
    for (var e = lane; e < ROWS * VQ; e += WG) {
        let i = e % ROWS;
        let v = v_tile + (e / ROWS) * 4u;
        if (request < u.batch && i < u.dk) {
            keep_columns(0u, state_row, i, v, state[i * VQ + e / ROWS], min(u.dv - min(v, u.dv), 4u));
        }
    }
#% endif
#% if cu_seqlens
    // Tokens that a malformed cu_seqlens leaves to no request read as zero.
    for (var t = row; t < begin && request == 0u && columns > 0u; t += SPAN) { clear(t, head, v0, columns); }
    for (var t = end + row; t < u.tokens && request + 1u == u.batch && columns > 0u; t += SPAN) {
        clear(t, head, v0, columns);
    }
#% endif
{% endcall %}
