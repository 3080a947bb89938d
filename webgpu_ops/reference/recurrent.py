"""References of the recurrent operators: linear attention, gated delta networks, their states' replay."""

from __future__ import annotations

import math

import numpy as np

from . import reference

Array = np.ndarray


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0.0, -x))


def _l2_norm(x: Array) -> Array:
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-12)


@reference("GatedDeltaNet")
def gated_delta_net(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    cu_seqlens: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    initial_state: Array | None = None,
    a_log: Array | None = None,
    dt_bias: Array | None = None,
    capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    beta_activation: str = "none",
    chunk_size: int = 64,
    gate_activation: str = "none",
    qk_l2_norm: int = 0,
    scale: float = 0.0,
    state_update_capacity: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array, Array]:
    """Token by token; entries of ``state_update`` past the captured prefix are left zero."""
    dtype = query.dtype
    lead: tuple[int, ...]
    if key is None or value is None:
        assert initial_state is not None
        _, hv, dv, dk = initial_state.shape
        lead = query.shape[:-1]
        packed = query.astype(np.float64).reshape(math.prod(query.shape[:-1]), query.shape[-1])
        hk = (packed.shape[1] - hv * dv) // (2 * dk)
        q, k, v = np.split(packed, [hk * dk, 2 * hk * dk], axis=1)
    else:
        lead = query.shape[:-2]
        hk, dk = key.shape[-2:]
        hv, dv = value.shape[-2:]
        q, k, v = (x.astype(np.float64) for x in (query, key, value))
    q, k, v = q.reshape(-1, hk, dk), k.reshape(-1, hk, dk), v.reshape(-1, hv, dv)
    tokens = len(q)

    if cu_seqlens is not None:
        cuts = [int(c) for c in cu_seqlens]
    else:
        batch = initial_state.shape[0] if initial_state is not None else lead[0]
        cuts = [b * (tokens // max(batch, 1)) for b in range(batch + 1)]
    batch = len(cuts) - 1

    if qk_l2_norm:
        q, k = _l2_norm(q), _l2_norm(k)
    q, k = (np.repeat(x, hv // hk, axis=1) for x in (q, k))

    log_decay = np.zeros((tokens, hv, 1))
    if decay is not None and update_rule in ("gated", "gated_delta"):
        per_key = decay.ndim == len(lead) + 2
        log_decay = decay.astype(np.float64).reshape(tokens, hv, dk if per_key else 1)
        if gate_activation == "qwen":
            assert a_log is not None and dt_bias is not None
            bias, speed = (x.astype(np.float64)[:, None] for x in (dt_bias, a_log))
            log_decay = -np.exp(speed) * _softplus(log_decay + bias)
    retrieves = update_rule in ("delta", "gated_delta")
    rate = np.ones((tokens, hv, 1))
    if beta is not None and retrieves:
        rate = beta.astype(np.float64).reshape(tokens, hv, 1)
        if beta_activation == "sigmoid":
            rate = _sigmoid(rate)

    state = np.zeros((batch, hv, dv, dk)) if initial_state is None else initial_state.astype(np.float64)
    output = np.zeros((tokens, hv, dv))
    capacity = state_update_capacity
    decays, keys = np.zeros((batch, capacity, hv)), np.zeros((batch, capacity, hk, dk))
    deltas = np.zeros((batch, capacity, hv, dv))
    active = capture_count is not None and (state_update_active is None or int(state_update_active[0]) != 0)
    scaling = scale or 1.0 / np.sqrt(dk)

    state = state.copy()
    for b in range(batch):
        s = state[b]
        captured = min(int(capture_count[b]), capacity) if active and capture_count is not None else 0
        for step, t in enumerate(range(cuts[b], cuts[b + 1])):
            s *= np.exp(log_decay[t])[:, None, :]
            delta = v[t].copy()
            if retrieves:
                delta = rate[t] * (v[t] - np.einsum("hvk,hk->hv", s, k[t]))
            s += delta[:, :, None] * k[t][:, None, :]
            output[t] = scaling * np.einsum("hvk,hk->hv", s, q[t])
            if step < captured:
                decays[b, step] = np.exp(log_decay[t, :, 0])
                keys[b, step] = k[t, :: hv // hk]
                deltas[b, step] = delta
    sections = [x.reshape(batch, -1) for x in (decays, keys, deltas)]
    update = np.concatenate(sections, axis=1)
    return (
        output.reshape(*lead, hv, dv).astype(dtype),
        state.astype(np.float32),
        update.astype(np.float32),
    )


@reference("LinearAttention")
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    chunk_size: int = 64,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """Token by token; without a past state, the present one has the type of the query."""
    batch, length = query.shape[:2]
    heads = max(q_num_heads, kv_num_heads)
    dk, dv = query.shape[2] // q_num_heads, value.shape[2] // kv_num_heads

    def split(x: Array, count: int) -> Array:
        return x.astype(np.float64).reshape(batch, length, count, x.shape[-1] // count)

    q = np.repeat(split(query, q_num_heads), heads // q_num_heads, axis=2)
    k, v = split(key, kv_num_heads), split(value, kv_num_heads)
    fade = np.ones((batch, length, kv_num_heads, 1))
    if update_rule in ("gated", "gated_delta"):
        assert decay is not None
        fade = np.exp(split(decay, kv_num_heads))
    shape = (batch, kv_num_heads, dk, dv)
    state, state_type = np.zeros(shape), query.dtype
    if past_state is not None:
        state = (past_state[-1] if state_window else past_state).astype(np.float64)
        state_type = past_state.dtype
    states = [state]
    output = np.zeros((batch, length, heads, dv))
    scaling = scale or 1.0 / np.sqrt(dk)
    for t in range(length):
        state = fade[:, t, :, :, None] * state
        delta = v[:, t]
        if update_rule in ("delta", "gated_delta"):
            assert beta is not None
            rate = beta.astype(np.float64)[:, t, :, None]  # one for each head, or one for all
            delta = rate * (v[:, t] - np.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * delta[:, :, None, :]
        states.append(state)
        shared = np.repeat(state, heads // kv_num_heads, axis=1)
        output[:, t] = scaling * np.einsum("bhkv,bhk->bhv", shared, q[:, t])
    present = state
    if state_window:
        kept = states[1:][-state_window:] or states
        present = np.stack([*[np.zeros(shape)] * (state_window - len(kept)), *kept])
    return output.reshape(batch, length, heads * dv).astype(query.dtype), present.astype(state_type)


@reference("LinearAttentionGate")
def linear_attention_gate(
    a: Array, dt_bias: Array, decay_scale: Array, b: Array | None = None
) -> tuple[Array, Array | None]:
    """Each output is rounded once."""
    decay = decay_scale.astype(np.float64) * _softplus(a.astype(np.float64) + dt_bias.astype(np.float64))
    beta = None if b is None else _sigmoid(b.astype(np.float64)).astype(a.dtype)
    return decay.astype(a.dtype), beta


@reference("GatedDeltaNetStateReplay")
def gated_delta_net_state_replay(
    source_backing: Array, capsule_backing: Array, destination_backing: Array, metadata: Array
) -> tuple[Array]:
    """The destination backing after the kept transitions were applied to the source row."""
    source_at, destination_at, decay_at, key_at, delta_at, hv, dv, dk, hk, capacity, kept = map(int, metadata)
    size = hv * dv * dk

    def section(offset: int, *shape: int) -> Array:
        return capsule_backing[offset : offset + int(np.prod(shape))].reshape(shape).astype(np.float64)

    decay = section(decay_at, capacity, hv)
    key = section(key_at, capacity, hk, dk)[:, [h * hk // hv for h in range(hv)]]
    delta = section(delta_at, capacity, hv, dv)
    state = source_backing[source_at : source_at + size].reshape(hv, dv, dk).astype(np.float64)
    for t in range(kept):
        state = state * decay[t][:, None, None] + key[t][:, None, :] * delta[t][:, :, None]
    out = destination_backing.copy()
    out[destination_at : destination_at + size] = state.reshape(-1).astype(np.float32)
    return (out,)


@reference("ConvStateReplay")
def conv_state_replay(
    source_backing: Array, capture_backing: Array, destination_backing: Array, metadata: Array
) -> tuple[Array]:
    """The destination backing with its view replaced; elements are moved as bits."""
    source_at, destination_at, capture_at, batch, channels, width, capacity, kept = map(int, metadata)
    bits = {2: np.uint16, 4: np.uint32}[source_backing.dtype.itemsize]
    size = batch * channels * width

    def view(backing: Array, byte_offset: int, *shape: int) -> Array:
        start = byte_offset // backing.dtype.itemsize
        return backing.view(bits)[start : start + int(np.prod(shape))].reshape(shape)

    out = destination_backing.copy()
    if size:
        source = view(source_backing, source_at, batch, channels, width)
        capture = view(capture_backing, capture_at, batch, capacity, channels)
        history = np.concatenate([source, capture[:, :kept].transpose(0, 2, 1)], axis=2)
        view(out, destination_at, size)[:] = history[:, :, kept:].reshape(-1)
    return (out,)
