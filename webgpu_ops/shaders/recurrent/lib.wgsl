// The call as every recurrence kernel sees it. Tokens of all requests lie on one axis; request b
// owns tokens request_begin(b) .. request_end(b). Whatever cu_seqlens holds, both stay inside it.

fn request_begin(b: u32) -> u32 {
#% if cu_seqlens
    return u32(clamp(load_cu_seqlens(b), 0, i32(u.tokens)));
#% else
    return b * u.length;
#% endif
}

fn request_end(b: u32) -> u32 {
    return max(request_begin(b), request_begin(b + 1u));
}

// First element of a head's row in query, key and value; packed QKV differs by offset and stride.
fn query_row(t: u32, head: u32) -> u32 {
    return u.query_offset + t * u.query_stride + (head / u.sharing) * u.dk;
}

fn key_row(t: u32, head: u32) -> u32 {
    return u.key_offset + t * u.key_stride + (head / u.sharing) * u.dk;
}

fn value_row(t: u32, head: u32) -> u32 {
    return u.value_offset + t * u.value_stride + head * u.dv;
}

#% if decay is defined
fn softplus(x: f32) -> f32 {
    return max(x, 0.0) + log(1.0 + exp(-abs(x)));
}

fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

// Natural logarithm of what token t leaves of the state's key channel i.
fn log_decay(t: u32, head: u32, i: u32) -> f32 {
#% if decay
#% if per_key
    var g = load_decay((t * u.heads_v + head) * u.dk + i);
#% else
    var g = load_decay(t * u.heads_v + head);
#% endif
#% if a_log
    g = -exp(load_a_log(head)) * softplus(g + load_dt_bias(head));
#% endif
    return g;
#% else
    return 0.0;
#% endif
}

// Update rate of the delta rules.
fn rate(t: u32, head: u32) -> f32 {
#% if beta
    let b = load_beta(t * u.heads_v + head);
    return {{ "sigmoid(b)" if sigmoid_beta else "b" }};
#% else
    return 1.0;
#% endif
}
#% endif
