"""References of operators that search or align sequences."""

from __future__ import annotations

import numpy as np

from . import reference

Array = np.ndarray


@reference("NGramRepeatBlock")
def ngram_repeat_block(input_ids: Array, scores: Array, *, ngram_size: int) -> tuple[Array]:
    """A token is blocked where it would complete an n-gram that the row already has."""
    out = scores.copy()
    batch, length = input_ids.shape
    for b in range(batch):
        ids = input_ids[b].tolist()
        prefix = ids[length - ngram_size + 1 :]
        for i in range(length - ngram_size + 1):
            token = ids[i + ngram_size - 1]
            if ids[i : i + ngram_size - 1] == prefix and 0 <= token < scores.shape[1]:
                out[b, token] = -np.inf
    return (out,)


@reference("BifurcationDetector")
def bifurcation_detector(
    src_tokens: Array,
    cur_tokens: Array,
    prev_suffix_match_idx: Array,
    pred_tokens: Array | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
) -> tuple[Array, Array]:
    """The suffix index is the position just after the one n-gram of the source that matches."""
    tokens = cur_tokens
    if pred_tokens is not None:
        expected = src_tokens[int(prev_suffix_match_idx.reshape(())) :]
        differs = np.flatnonzero(pred_tokens[: len(expected)] != expected)
        accepted = int(differs[0]) if differs.size else len(expected)
        tokens = np.concatenate([cur_tokens, pred_tokens[: accepted + 1]])
    source, out = src_tokens.tolist(), tokens.tolist()
    for n in range(min_ngram_size, min(max_ngram_size, len(out)) + 1):
        ends = [e for e in range(n, len(source) + 1) if source[e - n : e] == out[len(out) - n :]]
        if len(ends) == 1:
            return tokens, np.array(ends, np.int64)
    return tokens, np.array([-1], np.int64)


@reference("DynamicTimeWarping")
def dynamic_time_warping(input: Array) -> tuple[Array]:
    """The cheapest path; of equal predecessors, the one to the left, then the diagonal one, is taken."""
    rows, columns = input.shape[-2:]
    cost = input.reshape(rows, columns)
    total = np.zeros((rows, columns), np.float32)
    came: dict[tuple[int, int], tuple[int, int]] = {}
    for r in range(rows):
        for c in range(columns):
            total[r, c] = cost[r, c]
            if r == 0 and c == 0:
                continue
            left, above, diagonal = (r, c - 1), (r - 1, c), (r - 1, c - 1)
            before = left if r == 0 else above
            if r > 0 and c > 0 and total[left] <= min(total[above], total[diagonal]):
                before = left
            elif r > 0 and c > 0 and total[diagonal] <= total[above]:
                before = diagonal
            came[r, c] = before
            total[r, c] += total[before]
    path = [(rows - 1, columns - 1)]
    while path[-1] in came:
        path.append(came[path[-1]])
    return (np.array(path[::-1], np.int32).T,)
