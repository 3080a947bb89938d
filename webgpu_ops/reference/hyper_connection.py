"""References of hyper-connections: several residual streams mixed around a block."""

from __future__ import annotations

import numpy as np

from . import reference
from .gating import inverse_rms, rounded, scaled_silu, sigmoid, wide

Array = np.ndarray


def _grouped(streams: Array, num_branches: int) -> Array:
    """(..., C, H) in float64."""
    if not num_branches:
        return wide(streams)
    width = streams.shape[-1] // num_branches
    return wide(streams).reshape(*streams.shape[:-1], num_branches, width)


def _mixing(mix: Array, grouped: Array) -> Array:
    """Gates as (..., C, 1) or (..., C, H)."""
    *lead, branches, width = grouped.shape
    one = mix.shape in ((*lead, branches), (*lead, branches, 1))
    return wide(mix).reshape(*lead, branches, 1 if one else width)


@reference("HyperConnectionPreMix")
def hyper_connection_pre_mix(
    streams: Array, pre_mix: Array, *, num_branches: int = 0, reduction_scale: float = 1.0
) -> tuple[Array]:
    x = _grouped(streams, num_branches)
    total = np.sum(x * _mixing(pre_mix, x), axis=-2)
    return ((np.float64(np.float32(reduction_scale)) * total).astype(streams.dtype),)


@reference("HyperConnectionPostMix")
def hyper_connection_post_mix(
    streams: Array,
    block_output: Array,
    post_mix: Array,
    stream_mix: Array | None = None,
    *,
    num_branches: int = 0,
) -> tuple[Array]:
    x = _grouped(streams, num_branches)
    mixed = x if stream_mix is None else np.swapaxes(wide(stream_mix), -1, -2) @ x
    y = mixed + _mixing(post_mix, x) * wide(block_output)[..., None, :]
    return (y.reshape(streams.shape).astype(streams.dtype),)


@reference("HyperConnectionLowRankMix")
def hyper_connection_low_rank_mix(
    streams: Array,
    norm_scale: Array,
    down_weight: Array,
    up_weight: Array,
    inject_weight: Array,
    prev_block_output: Array | None = None,
    prev_post_gate: Array | None = None,
    *,
    num_branches: int,
    epsilon: float = 1e-5,
    gate_div: float = 1.0,
    gate_mul: float = 1.0,
    reduction_scale: float = 1.0,
    silu_alpha: float = 1.0,
) -> tuple[Array, Array, Array]:
    """Each step is rounded to the streams' type, as the text's numerics contract lists them."""
    divisor, factor, reduction = (np.float64(np.float32(v)) for v in (gate_div, gate_mul, reduction_scale))
    s = streams
    if prev_block_output is not None and prev_post_gate is not None:
        (s,) = hyper_connection_post_mix(
            streams, prev_block_output, prev_post_gate, num_branches=num_branches
        )
    x = _grouped(s, num_branches)
    hn = rounded(x * inverse_rms(x, epsilon) * wide(norm_scale).reshape(x.shape[-2:]), s)
    flat = hn.reshape(s.shape)
    (hidden,) = scaled_silu((flat @ wide(down_weight)).astype(s.dtype), alpha=silu_alpha)
    gate = rounded(sigmoid(rounded(wide(hidden) @ wide(up_weight), s)), s).reshape(x.shape)
    pre_output = reduction * np.sum(hn * gate, axis=-2)
    inject = rounded(flat @ wide(inject_weight), s)
    post_gate = rounded(sigmoid(rounded(inject / divisor, s)), s) * factor
    return pre_output.astype(s.dtype), post_gate.astype(s.dtype), s
