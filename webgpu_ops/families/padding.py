"""Removing the padding of a batch of sequences, and restoring it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..core import dtypes
from ..core.plan import Builder, Slot
from .registry import Operator, register
from .standard.indexing import gather


@register("RemovePadding")
@dataclass(frozen=True, kw_only=True)
class RemovePadding(Operator):
    """The real tokens of all sequences one after another, and where every token was."""

    def plan(self, b: Builder) -> None:
        x, counts = b.need("input"), b.need("sequence_token_count")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, hidden)")
        batch, sequence, hidden = x.shape
        b.check_shape("sequence_token_count", batch, why=f"input has batch size {batch}")
        known = _check_counts(b, sequence)
        places = batch * sequence
        tokens = places if known is None else int(known.sum())

        offset = b.output("token_offset", (batch, sequence), dtypes.int32)
        ends = b.output("cumulated_seq_len", (batch + 1,), dtypes.int32)
        total = b.scratch("total_tokens", (2,), dtypes.uint32)
        uniforms = {"batch": batch, "sequence": sequence, "hidden": hidden}
        b.dispatch(
            "padding/ends",
            reads={"counts": counts},
            writes={
                "ends": ends,
                "most": b.output_if_wanted("max_seq_len", (1,), dtypes.int32),
                "total": total,
            },
            uniforms=uniforms,
            threads=batch + 1,
        )
        b.dispatch(
            "padding/offsets",
            reads={"ends": ends},
            writes={"offset": offset},
            uniforms=uniforms,
            threads=places,
        )
        y = b.output_if_wanted("output", (tokens, hidden), x.dtype)
        if y is None:
            return
        if known is None:
            b.measure("output", total)
        # A prefix of the offsets is a tensor too: the places of the real tokens.
        real = replace(offset, shape=(tokens,))
        gather(b, x, real, y, length=places, inner=hidden)


def _check_counts(b: Builder, sequence: int) -> np.ndarray | None:
    """The token counts where the host knows them, refused outside a sequence; shaders clamp others."""
    known = b.host_if_known("sequence_token_count")
    if known is not None:
        bad = known[(known < 0) | (known > sequence)]
        if bad.size:
            expected = f"counts in [0, {sequence}] because a sequence has {sequence} tokens"
            raise b.refuse("sequence_token_count", f"holds {int(bad[0])}", expected)
    return known


@register("RestorePadding")
@dataclass(frozen=True, kw_only=True)
class RestorePadding(Operator):
    """Every token back at its place, zeros at the others."""

    def plan(self, b: Builder) -> None:
        x, offset = b.need("input"), b.need("token_offset")
        b.check(x.rank == 2, "input", f"has shape {x.shape}", "(tokens, hidden)")
        tokens, hidden = x.shape
        token_at = places_of(b, offset, tokens, "input")
        y = b.output("output", (*offset.shape, hidden), x.dtype)
        b.dispatch(
            "padding/restore",
            reads={"x": x.as_bits(), "token_at": token_at},
            writes={"y": y.as_bits()},
            uniforms={"size": y.size, "hidden": hidden},
            threads=-(-y.size // 4),
        )


def places_of(b: Builder, offset: Slot, tokens: int, source: str) -> Slot:
    """Append the inverse of ``token_offset``: for each place of the batch the number of its token + 1.

    A place without a token holds 0, and an offset outside the batch puts its token nowhere: what is
    known on the host is refused. ``tokens`` is the number of tokens that input ``source`` holds.
    """
    b.check(offset.rank == 2, offset.name, f"has shape {offset.shape}", "(batch, sequence)")
    places = offset.size
    b.check(
        tokens <= places,
        source,
        f"has {tokens} tokens",
        f"at most {places} because {offset.name} has shape {offset.shape}",
    )
    known = b.host_if_known(offset.name)
    if known is not None:
        real = known.reshape(-1)[:tokens]
        bad = real[(real < 0) | (real >= places)]
        if bad.size:
            raise b.refuse(offset.name, f"holds {int(bad[0])}", f"offsets in [0, {places - 1}]")
        if len(np.unique(real)) < tokens:
            raise b.refuse(offset.name, "names a place twice", "a place of its own for each token")
    token_at = b.scratch("token_at", (places,), dtypes.uint32)
    b.zero(token_at)
    b.dispatch(
        "padding/places",
        reads={"offset": offset},
        writes={"token_at": token_at},
        uniforms={"tokens": tokens, "places": places},
        threads=tokens,
    )
    return token_at
