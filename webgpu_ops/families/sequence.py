"""Searching and aligning sequences: repeated n-grams, suffix matches, warping paths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import dtypes
from ..core.plan import MAX_ROUNDS, Builder, Slot
from ..errors import LimitError, SchemaError
from .registry import Operator, register


@register("NGramRepeatBlock")
@dataclass(frozen=True, kw_only=True)
class NGramRepeatBlock(Operator):
    """Scores of tokens that would complete an n-gram for the second time become -inf."""

    ngram_size: int

    def __post_init__(self) -> None:
        if self.ngram_size < 1:
            raise SchemaError(f"{self.op}: ngram_size is {self.ngram_size}; expected at least 1")

    def plan(self, b: Builder) -> None:
        ids, scores = b.need("input_ids"), b.need("scores")
        b.check_shape("input_ids", "batch", "sequence")
        batch, length = ids.shape
        b.check_shape("scores", batch, "vocabulary", why=f"input_ids has {batch} rows")
        vocabulary = scores.shape[1]
        known = b.host_if_known("input_ids")
        if known is not None:
            strange = known[(known < 0) | (known >= vocabulary)]
            b.check(
                not strange.size,
                "input_ids",
                f"holds {strange[:1].tolist()}",
                f"ids in [0, {vocabulary - 1}] because scores has {vocabulary} columns",
            )
        b.shares("scores_out", "scores")
        out = b.output("scores_out", scores.shape, scores.dtype)
        b.copy(scores, out)
        windows = max(0, length - self.ngram_size + 1)
        if windows:
            b.check_rounds("ngram_size", f"is {self.ngram_size}", self.ngram_size)
        b.dispatch(
            "sequence/ngram_repeat",
            reads={"ids": ids.as_bits()},
            writes={"scores": out.as_bits()},
            uniforms={
                "size": batch * windows,
                "windows": windows,
                "length": length,
                "ngram": self.ngram_size,
                "vocabulary": vocabulary,
            },
            threads=batch * windows,
        )


@register("BifurcationDetector")
@dataclass(frozen=True, kw_only=True)
class BifurcationDetector(Operator):
    """Accepts predicted tokens up to the first surprise, then looks where the source goes on.

    How many tokens come out depends on the values, so the two token lists that are compared are
    read on the host; the output is assembled and its suffix is searched for on the device.
    """

    max_ngram_size: int = 3
    min_ngram_size: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram_size <= self.max_ngram_size:
            raise SchemaError(
                f"{self.op}: min_ngram_size is {self.min_ngram_size} and max_ngram_size is "
                f"{self.max_ngram_size}; expected 1 <= min_ngram_size <= max_ngram_size"
            )

    def plan(self, b: Builder) -> None:
        source, current = b.need("src_tokens"), b.need("cur_tokens")
        b.check_shape("src_tokens", "source")
        b.check_shape("cur_tokens", "current")
        start = b.need("prev_suffix_match_idx")
        b.check(start.size == 1, "prev_suffix_match_idx", f"has shape {start.shape}", "one index")
        predicted = b.get("pred_tokens")
        accepted = 0 if predicted is None else self._accepted(b, source, predicted)
        tokens = b.output("tokens", (current.size + accepted,), current.dtype)
        b.copy(current, tokens)
        if predicted is not None:
            b.copy(predicted, tokens, target_offset=current.size, count=accepted)
        self._match(b, source, tokens)

    def _match(self, b: Builder, source: Slot, tokens: Slot) -> None:
        """Append the search for the place of the tokens' suffix."""
        most = min(self.max_ngram_size, source.size, tokens.size)
        b.check_rounds("max_ngram_size", f"is {self.max_ngram_size}", most)
        lengths = b.scratch("lengths", (source.size,), dtypes.uint32)
        b.dispatch(
            "sequence/suffix_match",
            reads={"source": source.as_bits(), "tokens": tokens.as_bits()},
            writes={"lengths": lengths},
            uniforms={"size": source.size, "token_size": tokens.size, "most": most},
            threads=source.size,
        )
        match = b.output("suffix_match_idx", (1,), tokens.dtype)
        lanes = 64 if b.caps.device_class == "gpu" else b.lanes(8, source.size)
        if lanes is None:
            raise LimitError(f"{b.op}: src_tokens has {source.size} tokens; expected fewer for this device")
        b.dispatch(
            "sequence/suffix_place",
            reads={"lengths": lengths},
            writes={"match": match.as_bits()},
            uniforms={"size": source.size, "least": self.min_ngram_size},
            groups=1,
            workgroup=lanes,
        )

    def _accepted(self, b: Builder, source: Slot, predicted: Slot) -> int:
        """How many predicted tokens join the output: those the source has too, and one more."""
        start = int(b.host("prev_suffix_match_idx").reshape(()))
        b.check(
            0 <= start <= source.size,
            "prev_suffix_match_idx",
            f"is {start}",
            f"an index in [0, {source.size}] because src_tokens has {source.size} tokens",
        )
        expected = source.size + 1 - start
        why = f"src_tokens has {source.size} tokens and prev_suffix_match_idx is {start}"
        b.check_shape("pred_tokens", expected, why=why)
        differs = b.host("pred_tokens")[:-1] != b.host("src_tokens")[start:]
        return int(np.argmax(np.append(differs, True))) + 1


@register("DynamicTimeWarping")
@dataclass(frozen=True, kw_only=True)
class DynamicTimeWarping(Operator):
    """The cheapest path through a matrix of costs; the steps find out how long it is."""

    def plan(self, b: Builder) -> None:
        cost = b.need("input")
        matrix = cost.rank == 2 or (cost.rank == 3 and cost.shape[0] == 1)
        b.check(
            matrix and cost.size > 0, "input", f"has shape {cost.shape}", "(M, N) or (1, M, N), not empty"
        )
        rows, columns = cost.shape[-2:]
        path = b.output("output", (2, rows + columns - 1), dtypes.int32)
        shape = b.scratch("path_shape", (2,), dtypes.uint32)
        b.measure("output", shape)
        # One workgroup walks the anti-diagonals; a software adapter pays for its barriers by the lane.
        workgroup = 8 if b.caps.device_class == "cpu" else 256
        total = b.scratch("total", (rows, columns), dtypes.float32)
        # As many dispatches as the diagonals' rounds need; the last one also reads off the path.
        diagonals = rows + columns - 1
        rounds = 1 + -(-min(rows, columns) // workgroup)
        if b.caps.device_class == "cpu" and 2 * diagonals + rounds > MAX_ROUNDS:
            raise LimitError(f"{b.op}: input has shape {cost.shape}; expected fewer rows and columns")
        at_once = max(1, MAX_ROUNDS // rounds)
        for start in range(0, diagonals, at_once):
            b.dispatch(
                "sequence/warp",
                reads={"cost": cost},
                writes={"total": total, "path": path, "shape": shape},
                uniforms={
                    "rows": rows,
                    "columns": columns,
                    "begin": start,
                    "end": min(start + at_once, diagonals),
                },
                groups=1,
                workgroup=workgroup,
            )
