"""Random calls of operators that search or align sequences."""

from __future__ import annotations

import numpy as np

from . import Sample, sample


@sample("NGramRepeatBlock")
def ngram_repeat_block(rng: np.random.Generator) -> Sample:
    batch, length, vocabulary = (int(rng.integers(1, n)) for n in (5, 20, 9))
    inputs = {
        "input_ids": rng.integers(0, vocabulary, (batch, length)),
        "scores": rng.standard_normal((batch, vocabulary)).astype(np.float32),
    }
    aliases = {"scores_out": "scores"} if rng.random() < 0.3 else {}
    return Sample(inputs, {"ngram_size": int(rng.integers(1, 5))}, exact=True, aliases=aliases)


@sample("BifurcationDetector")
def bifurcation_detector(rng: np.random.Generator) -> Sample:
    source, current = int(rng.integers(1, 20)), int(rng.integers(1, 7))
    tokens = int(rng.integers(2, 9))
    start = int(rng.integers(0, source + 1))
    src = rng.integers(0, tokens, source)
    predicted = rng.integers(0, tokens, source + 1 - start)
    agreed = int(rng.integers(0, predicted.size))
    predicted[:agreed] = src[start : start + agreed]
    least = int(rng.integers(1, 4))
    inputs = {
        "src_tokens": src,
        "cur_tokens": rng.integers(0, tokens, current),
        "prev_suffix_match_idx": np.array([start]),
        "pred_tokens": predicted if rng.random() < 0.8 else None,
    }
    return Sample(inputs, {"min_ngram_size": least, "max_ngram_size": least + int(rng.integers(0, 4))})


@sample("DynamicTimeWarping")
def dynamic_time_warping(rng: np.random.Generator) -> Sample:
    rows, columns = (int(n) for n in rng.integers(1, 40, 2))
    shape = (rows, columns) if rng.random() < 0.7 else (1, rows, columns)
    cost = rng.standard_normal(shape) if rng.random() < 0.6 else rng.integers(0, 3, shape)
    return Sample({"input": cost.astype(np.float32)})
