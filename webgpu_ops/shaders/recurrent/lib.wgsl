// The call as every recurrence kernel sees it. Tokens of all requests lie on one axis; request b
// owns tokens whole_begin(b) .. whole_end(b), of which u.length from the u.first on are this run's:
// request_begin(b) .. request_end(b). Whatever cu_seqlens holds, all stay inside the axis.
// `head` counts states: one for each value head. `reader` counts query heads and outputs, u.queries
// for each state.

#% if cu_seqlens
fn whole_begin(b: u32) -> u32 { return u32(clamp(load_cu_seqlens(b), 0, i32(u.tokens))); }
fn whole_end(b: u32) -> u32 { return max(whole_begin(b), whole_begin(b + 1u)); }
fn request_begin(b: u32) -> u32 { return min(whole_begin(b) + u.first, whole_end(b)); }
fn request_end(b: u32) -> u32 { return min(request_begin(b) + u.length, whole_end(b)); }
#% else
fn whole_begin(b: u32) -> u32 { return b * u.pitch; }
fn whole_end(b: u32) -> u32 { return (b + 1u) * u.pitch; }
fn request_begin(b: u32) -> u32 { return b * u.pitch + u.first; }
fn request_end(b: u32) -> u32 { return request_begin(b) + u.length; }
#% endif

// First element of a head's row in query, key and value; packed QKV differs by offset and stride.
fn query_row(t: u32, reader: u32) -> u32 {
    return u.query_offset + t * u.query_stride + (reader / u.query_sharing) * u.dk;
}

fn key_row(t: u32, head: u32) -> u32 {
    return u.key_offset + t * u.key_stride + (head / u.key_sharing) * u.dk;
}

fn value_row(t: u32, head: u32) -> u32 {
    return u.value_offset + t * u.value_stride + head * u.dv;
}

fn output_row(t: u32, reader: u32) -> u32 {
    return (t * u.heads_v * u.queries + reader) * u.dv;
}

#% if k_major is defined
// Element of value column v of key channel i in state `row` = request * heads_v + head. With the
// key channel major, four columns lie side by side.
fn state_at(row: u32, i: u32, v: u32) -> u32 {
    return {{ "(row * u.dk + i) * u.dv + v" if k_major else "(row * u.dv + v) * u.dk + i" }};
}

#% if initial_state
// n (up to 4) value columns from v on.
fn initial_columns(row: u32, i: u32, v: u32, n: u32) -> vec4<f32> {
#% if k_major
    if (n == 4u) { return load4_initial_state(u.initial_at + state_at(row, i, v)); }
#% endif
    var s = vec4<f32>();
    for (var c = 0u; c < n; c++) {
        s[c] = load_initial_state(u.initial_at + state_at(row, i, v + c));
    }
    return s;
}
#% endif

#% if cu_seqlens
fn clear(t: u32, head: u32, v: u32, n: u32) {
    for (var q = 0u; q < u.queries; q++) {
        store4_output(output_row(t, head * u.queries + q) + v, vec4<f32>(), n);
    }
}
#% endif

#% if final_state
// The same in the state that starts at element `at` of the final ones.
fn keep_columns(at: u32, row: u32, i: u32, v: u32, s: vec4<f32>, n: u32) {
#% if k_major
    if (n > 0u) { store4_final_state(at + state_at(row, i, v), s, n); }
#% else
    for (var c = 0u; c < n; c++) {
        store_final_state(at + state_at(row, i, v + c), s[c]);
    }
#% endif
}
#% endif
#% endif

#% if decay is defined
// Natural logarithm of what token t leaves of the state's key channel i.
fn log_decay(t: u32, head: u32, i: u32) -> f32 {
#% if decay
#% if per_key
    var g = load_decay((t * u.heads_v + head) * u.dk + i);
#% else
    var g = load_decay(t * u.heads_v + head);
#% endif
#% if a_log
    g = -exp(load_a_log(head)) * softplus_f32(g + load_dt_bias(head));
#% endif
    return g;
#% else
    return 0.0;
#% endif
}

// Update rate of the delta rules.
fn rate(t: u32, head: u32) -> f32 {
#% if beta
    let b = load_beta(t * u.rates + min(head, u.rates - 1u));
    return {{ "sigmoid_f32(b)" if sigmoid_beta else "b" }};
#% else
    return 1.0;
#% endif
}
#% endif
