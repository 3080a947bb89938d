"""References of the causal depthwise convolutions with a carried state."""

from __future__ import annotations

import itertools

import numpy as np

from . import reference

Array = np.ndarray


def _activated(x: Array, activation: str) -> Array:
    return x if activation == "none" else x * np.exp(-np.logaddexp(0.0, -x))


def _convolve(history: Array, weight: Array, bias: Array | None, dilation: int) -> Array:
    """``history`` [channels, axes.., before + length] -> [channels, axes.., length], in float64.

    Causal along the last axis; the others keep their size, with zeros around them.
    """
    x, w = history.astype(np.float64), weight[:, 0].astype(np.float64)
    *others, taps = w.shape[1:]
    length = x.shape[-1] - (taps - 1) * dilation
    margins = [(0, 0), *((k // 2, k // 2) for k in others), (0, 0)]
    padded = np.pad(x, margins)
    column = (-1, *(1,) * (x.ndim - 1))  # one number a channel
    out = np.zeros((*x.shape[:-1], length))
    if bias is not None:
        out = out + bias.astype(np.float64).reshape(column)
    sizes = (*x.shape[1:-1], length)
    kernel = np.moveaxis(w, 0, -1)
    for tap in np.ndindex(kernel.shape[:-1]):
        starts = (*tap[:-1], tap[-1] * dilation)
        window = (slice(s, s + size) for s, size in zip(starts, sizes, strict=True))
        out = out + kernel[tap].reshape(column) * padded[(slice(None), *window)]
    return out


@reference("CausalConvWithState")
def causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Array, Array]:
    """The states are slices of the past state and the input, one after the other."""
    axis = 1 if channels_last else input.ndim - 1  # the causal one
    length, before = input.shape[axis], (weight.shape[-1] - 1) * dilation
    if past_state is None:
        past = np.zeros((*input.shape[:axis], before, *input.shape[axis + 1 :]), input.dtype)
    else:
        past = past_state[-1] if state_window else past_state
    history = np.concatenate([past, input], axis=axis)

    sequences = history
    if channels_last:
        sequences = np.moveaxis(history.reshape(*history.shape[:2], weight.shape[0]), 1, 2)
    out = np.zeros((*sequences.shape[:-1], length))
    for b in range(len(sequences)):
        out[b] = _activated(_convolve(sequences[b], weight, bias, dilation), activation)
    if channels_last:
        out = np.moveaxis(out, 2, 1)

    def state(tokens: int) -> Array:
        """The state once that many of this call's positions have passed."""
        return np.take(history, range(tokens, tokens + before), axis=axis)

    present = state(length)
    if state_window:
        window = np.zeros((state_window, *present.shape), input.dtype)
        window[-1] = present
        for back in range(1, min(state_window, length)):
            window[-1 - back] = state(length - back)
        present = window
    return out.reshape(input.shape).astype(input.dtype), present


@reference("VarlenCausalConvWithState")
def varlen_causal_conv_with_state(
    input: Array,
    weight: Array,
    cumulative_sequence_length: Array,
    bias: Array | None = None,
    initial_state: Array | None = None,
    capture_count: Array | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    state_update_capacity: int = 0,
) -> tuple[Array, Array, Array]:
    """Requests one by one; what malformed offsets leave open stays zero."""
    assert initial_state is not None
    tokens, channels = input.shape
    cuts = [int(c) for c in cumulative_sequence_length]
    batch, before = len(cuts) - 1, initial_state.shape[2]
    out = np.zeros(input.shape)
    final = np.zeros_like(initial_state)
    update = np.zeros((batch, state_update_capacity, channels), input.dtype)
    for b, (start, end) in enumerate(itertools.pairwise(cuts)):
        if cuts[0] != 0 or cuts[-1] != tokens or not 0 <= start < end <= tokens:
            continue
        history = np.concatenate([initial_state[b], input[start:end].T], axis=1)
        out[start:end] = _activated(_convolve(history, weight, bias, dilation), activation).T
        final[b] = history[:, history.shape[1] - before :]
        if capture_count is not None:
            kept = max(0, min(int(capture_count[b]), state_update_capacity, end - start))
            update[b, :kept] = input[start : start + kept]
    return out.astype(input.dtype), final, update
