"""Reference of WordConvEmbedding."""

from __future__ import annotations

import math

import numpy as np

from . import reference


@reference("WordConvEmbedding")
def word_conv_embedding(
    Sequence: np.ndarray,
    W: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> tuple[np.ndarray]:
    """The largest tanh(convolution + bias) over a word's windows; an empty word gives 0.

    A word ends at its first 0, and a word shorter than the window is padded with character 0.
    """
    filters, _, window, _ = W.shape
    kernel, table = W[:, 0].astype(np.float64), C.astype(np.float64)
    words = Sequence.reshape(math.prod(Sequence.shape[:-1]), Sequence.shape[-1])
    out = np.zeros((len(words), filters))
    for word, row in zip(words, out, strict=True):
        ends = np.flatnonzero(word == 0)
        length = int(ends[0]) if len(ends) else len(word)
        if length:
            characters = table[np.pad(word[:length], (0, max(0, window - length)))]
            sums = [
                np.einsum("fwe,we->f", kernel, characters[at : at + window])
                for at in range(len(characters) - window + 1)
            ]
            row[:] = np.max(np.tanh(np.array(sums) + B.astype(np.float64)), axis=0)
    return (out.reshape(*Sequence.shape[:-1], filters).astype(W.dtype),)
