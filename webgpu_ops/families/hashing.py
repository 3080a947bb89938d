"""Hashes: n-gram ids of Engram embeddings, and MurmurHash3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core import dtypes
from ..core.plan import MAX_ROUNDS, Builder, Slot, uniform_of
from ..errors import SchemaError
from .registry import Operator, register

ID_RANGES = {"int32": 1 << 31, "int64": 1 << 63}


@dataclass(frozen=True, kw_only=True)
class _NGramHash(Operator):
    """The hash of the n-grams that end at each token, for n = 2 .. ``max_ngram_size``."""

    max_ngram_size: int
    n_head_per_ngram: int
    pad_id: int
    reset_on_eos: int = 0

    def __post_init__(self) -> None:
        if self.max_ngram_size < 2:
            raise SchemaError(f"{self.op}: max_ngram_size is {self.max_ngram_size}; expected at least 2")
        if self.n_head_per_ngram < 1:
            raise SchemaError(f"{self.op}: n_head_per_ngram is {self.n_head_per_ngram}; expected at least 1")

    @property
    def before(self) -> int:
        """How many ids before the current one an n-gram reaches."""
        return self.max_ngram_size - 1

    @property
    def width(self) -> int:
        """Hashes a token."""
        return self.before * self.n_head_per_ngram

    def check_tables(self, b: Builder, batch: int) -> None:
        """The inputs that both operators have, apart from the ids themselves."""
        orders = f"max_ngram_size is {self.max_ngram_size}"
        multipliers = b.need("multipliers")
        b.check(
            multipliers.rank == 1 and multipliers.size >= self.max_ngram_size,
            "multipliers",
            f"has shape {multipliers.shape}",
            f"at least {self.max_ngram_size} elements because {orders}",
        )
        for name in ("vocab_sizes", "head_offsets"):
            b.check_shape(name, self.width, why=f"{orders} and n_head_per_ngram is {self.n_head_per_ngram}")
        b.check_shape("past_ids", batch, self.before, why=f"{orders} and there are {batch} sequences")
        eos = b.get("eos_token_id")
        b.check(eos is None or eos.size == 1, "eos_token_id", f"has shape {eos and eos.shape}", "one id")
        limit = ID_RANGES[multipliers.dtype.name]
        b.check(
            -limit <= self.pad_id < limit,
            "pad_id",
            f"is {self.pad_id}",
            f"a value of {multipliers.dtype} because input_ids has that type",
        )

    def hash_tokens(
        self,
        b: Builder,
        *,
        batch: int,
        sequence: int,
        hashes: Slot,
        present: Slot | None,
        offsets: Slot | None = None,
        past_segments: Slot | None = None,
        present_segments: Slot | None = None,
        capture: Slot | None = None,
        update: Slot | None = None,
    ) -> None:
        """Append the hashes, then the states.

        Requests lie at ``offsets`` of the packed tokens, or are ``batch`` sequences of one length.
        """
        ids, past, eos = b.need("input_ids"), b.get("past_ids"), b.get("eos_token_id")
        history = {
            "ids": ids,
            "requests": offsets,
            "past": past,
            "eos": eos,
            "segments": b.get("segment_ids"),
            "past_segments": past_segments,
        }
        uniforms = {
            "tokens": ids.size,
            "batch": batch,
            "sequence": sequence,
            "before": self.before,
            "pad": uniform_of(self.pad_id, ids.dtype),
        }
        b.dispatch(
            "hashing/ngram",
            reads=history
            | {
                "multipliers": b.need("multipliers"),
                "vocab": b.need("vocab_sizes"),
                "head_offsets": b.get("head_offsets"),
            },
            writes={"hashes": hashes},
            uniforms=uniforms | {"size": hashes.size, "heads": self.n_head_per_ngram},
            constants={"reset": bool(self.reset_on_eos) and eos is not None},
            threads=hashes.size,
        )
        # The states, each of as many ids; the hashes take an invocation fewer rounds.
        moved = self.before * (3 if update is None else 3 + update.shape[1])
        b.check_rounds("multipliers", f"go with max_ngram_size {self.max_ngram_size}", moved)
        if present is None and present_segments is None and update is None:
            return
        # Working in place is safe: a request moves its own ids forward, first to last, after its captures.
        b.shares("present_ids", "past_ids")
        b.dispatch(
            "hashing/ngram_state",
            reads=history | {"capture": capture},
            writes={"present": present, "present_segments": present_segments, "update": update},
            uniforms=uniforms | {"capacity": update.shape[1] if update else 0},
            threads=batch,
        )


@register("NGramHashMapping")
@dataclass(frozen=True, kw_only=True)
class NGramHashMapping(_NGramHash):
    """Sequences of one length, as a batch."""

    def plan(self, b: Builder) -> None:
        ids = b.need("input_ids")
        b.check_shape("input_ids", "batch", "sequence")
        batch, sequence = ids.shape
        self.check_tables(b, batch)
        b.check_shape("segment_ids", *ids.shape, why=f"input_ids has shape {ids.shape}")
        self.hash_tokens(
            b,
            batch=batch,
            sequence=sequence,
            hashes=b.output("hash_ids", (*ids.shape, self.width), ids.dtype),
            present=b.output_if_wanted("present_ids", (batch, self.before), ids.dtype),
        )


@register("VarlenNGramHashMapping")
@dataclass(frozen=True, kw_only=True)
class VarlenNGramHashMapping(_NGramHash):
    """Sequences of several lengths, packed; the lengths stay on the device."""

    state_update_capacity: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.state_update_capacity <= 8:
            raise SchemaError(
                f"{self.op}: state_update_capacity is {self.state_update_capacity}; expected 0 to 8"
            )

    def plan(self, b: Builder) -> None:
        ids, offsets = b.need("input_ids"), b.need("cumulative_sequence_length")
        b.check_shape("input_ids", "total_tokens")
        b.check_shape("cumulative_sequence_length", "batch + 1")
        batch = offsets.size - 1
        b.check(
            batch > 0 or (batch == 0 and ids.size == 0),
            "cumulative_sequence_length",
            f"has {offsets.size} elements",
            f"at least {2 if ids.size else 1} because input_ids has {ids.size} tokens",
        )
        self.check_tables(b, batch)
        b.check_shape("segment_ids", ids.size, why=f"input_ids has {ids.size} tokens")
        why = f"max_ngram_size is {self.max_ngram_size} and there are {batch} requests"
        b.check_shape("past_segment_ids", batch, self.before, why=why)
        b.check_shape("capture_count", batch, why=f"there are {batch} requests")
        self._check_company(b)
        shape = (batch, self.before)
        self.hash_tokens(
            b,
            batch=batch,
            sequence=0,
            hashes=b.output("hash_ids", (ids.size, self.width), ids.dtype),
            present=b.output_if_wanted("present_ids", shape, ids.dtype),
            offsets=offsets,
            past_segments=b.get("past_segment_ids"),
            present_segments=b.output_if_wanted("present_segment_ids", shape, dtypes.int32),
            capture=b.get("capture_count"),
            update=b.output_if_wanted(
                "state_update", (batch, self.state_update_capacity, self.before), ids.dtype
            ),
        )
        b.shares("present_segment_ids", "past_segment_ids")

    def _check_company(self, b: Builder) -> None:
        """Inputs and outputs that make sense together only."""
        captures = b.get("capture_count") is not None
        b.check(
            captures == (self.state_update_capacity > 0),
            "capture_count",
            "is given" if captures else "is missing",
            f"it exactly where state_update_capacity is positive, and it is {self.state_update_capacity}",
        )
        if b.get("segment_ids") is None:
            lone = b.get("past_segment_ids") is not None or b.wants("present_segment_ids")
            b.check(not lone, "segment_ids", "is missing", "it where segment ids are threaded through calls")


@register("MurmurHash3")
@dataclass(frozen=True, kw_only=True)
class MurmurHash3(Operator):
    """MurmurHash3_x86_32 of each element's bytes; strings are hashed as UTF-8."""

    positive: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 1 << 32:
            raise SchemaError(f"{self.op}: seed is {self.seed}; expected an unsigned 32-bit integer")

    def plan(self, b: Builder) -> None:
        x = b.need("X")
        y = b.output("Y", x.shape, dtypes.uint32 if self.positive == 1 else dtypes.int32)
        if x.dtype == dtypes.string:
            words, starts, lengths, longest = self._text(b)
        else:
            words, starts, lengths = x.reshape(x.size).as_type(dtypes.uint32), None, None
            longest = x.dtype.itemsize
        hashes = y.as_type(dtypes.uint32) if y.rank else y.reshape(1).as_type(dtypes.uint32)
        # Between the parts of long texts the state of a hash lives in its place.
        for begin in range(0, longest // 4 + 1, MAX_ROUNDS):
            b.dispatch(
                "hashing/murmur",
                reads={"words": words, "starts": starts, "lengths": lengths},
                writes={"hashes": hashes},
                uniforms={
                    "size": x.size,
                    "seed": self.seed,
                    "bytes": x.dtype.itemsize,
                    "begin": begin,
                    "end": begin + MAX_ROUNDS,
                },
                threads=x.size,
            )

    @staticmethod
    def _text(b: Builder) -> tuple[Slot, Slot, Slot, int]:
        """The strings as UTF-8, each padded with zeros to whole words; where each starts; its bytes, and
        those of the longest."""
        keys: list[bytes] = []
        for i, value in enumerate(b.host("X").reshape(-1)):
            try:
                keys.append(value if isinstance(value, bytes) else str(value).encode("utf-8"))
            except UnicodeEncodeError as error:
                raise b.refuse(
                    "X", f"holds {value!r} at element {i}", "text that UTF-8 can encode"
                ) from error
        lengths = np.array([len(key) for key in keys], np.uint32)
        words = -(-lengths.astype(np.int64) // 4)
        starts = np.cumsum(words) - words
        b.check(words.sum() < 1 << 32, "X", f"holds {words.sum()} words of text", "fewer than 2**32")
        text = b"".join(key + bytes(-len(key) % 4) for key in keys)
        return (
            b.constant("text", np.frombuffer(text, np.uint32)),
            b.constant("starts", starts.astype(np.uint32)),
            b.constant("lengths", lengths),
            int(lengths.max(initial=0)),
        )
