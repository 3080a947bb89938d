"""References of removing and restoring the padding of a batch of sequences."""

from __future__ import annotations

import numpy as np

from . import reference


@reference("RemovePadding")
def remove_padding(
    input: np.ndarray, sequence_token_count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The real tokens one after another, and where all tokens were: first the real, then the padding."""
    batch, sequence, hidden = input.shape
    real = np.arange(sequence) < sequence_token_count[:, None]
    place = np.arange(batch * sequence).reshape(batch, sequence)
    offset = np.concatenate([place[real], place[~real]])
    ends = np.concatenate([[0], np.cumsum(sequence_token_count)])
    most = sequence_token_count.max(initial=0)
    return (
        input.reshape(-1, hidden)[place[real]],
        offset.reshape(batch, sequence).astype(np.int32),
        ends.astype(np.int32),
        np.array([most], np.int32),
    )


@reference("RestorePadding")
def restore_padding(input: np.ndarray, token_offset: np.ndarray) -> tuple[np.ndarray]:
    """Each token back at its place; zeros where no token goes."""
    tokens, hidden = input.shape
    y = np.zeros((token_offset.size, hidden), input.dtype)
    y[token_offset.reshape(-1)[:tokens]] = input
    return (y.reshape(*token_offset.shape, hidden),)
