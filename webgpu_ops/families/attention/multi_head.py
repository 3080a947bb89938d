"""com.microsoft MultiHeadAttention, and what operators share whose caller projects."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..registry import Operator, register
from . import cache
from .core import UNBOUNDED, Attention, Beams, Heads, Mask, Rows, Scores, Span, Stored
from .fresh import Change, Keep, attend_fresh, check_bias, check_length


@dataclass(frozen=True)
class Inputs:
    """Where the queries, keys and values of a call lie, and its sizes.

    ``cross``: keys and values are ``[B, N, T, D]``, ready to be attended to.
    """

    heads: Heads
    new: int
    q: Rows
    k: Rows
    v: Rows
    cross: bool = False


def heads_of(b: Builder, name: str, channels: int, heads: int) -> int:
    """The channels of each of ``heads`` heads of input ``name``."""
    b.check(
        channels > 0 and channels % heads == 0,
        name,
        f"has shape {b.need(name).shape}",
        f"a positive multiple of num_heads={heads} channels",
    )
    return channels // heads


def separate(b: Builder, heads: int) -> Inputs:
    """Query ``[B, S, N * D]`` with key and value alike, or with both ``[B, N, T, D]``."""
    query, key = b.need("query"), b.need("key")
    value = b.get("value")
    b.check(query.rank == 3, "query", f"has shape {query.shape}", "(batch, sequence, hidden)")
    b.check(value is not None, "value", "is missing", "it beside key")
    assert value is not None
    batch, rows, hidden = query.shape
    size = heads_of(b, "query", hidden, heads)
    q = Rows.tokens_first(query, size)
    b.check(key.rank in (3, 4), "key", f"has shape {key.shape}", "three or four dimensions")
    why = f"query has shape {query.shape} and num_heads={heads}"
    if key.rank == 4:
        b.check_shape("key", batch, heads, "kv_sequence", size, why=why)
        b.check_shape("value", batch, heads, key.shape[2], "v_head_size", why=f"key has shape {key.shape}")
        sizes = Heads(batch, heads, heads, rows, size, value.shape[3])
        return Inputs(sizes, key.shape[2], q, Rows.heads_first(key), Rows.heads_first(value), cross=True)
    b.check_shape("key", batch, "kv_sequence", hidden, why=why)
    b.check_shape("value", batch, key.shape[1], "v_hidden", why=f"key has shape {key.shape}")
    value_size = heads_of(b, "value", value.shape[2], heads)
    sizes = Heads(batch, heads, heads, rows, size, value_size)
    return Inputs(sizes, key.shape[1], q, Rows.tokens_first(key, size), Rows.tokens_first(value, value_size))


def changes(b: Builder, x: Inputs) -> tuple[Change, Change, Change]:
    """The parts of ``bias [hidden + hidden + v_hidden]``; cross attention takes that of the query only."""
    bias, h = b.get("bias"), x.heads
    if bias is None:
        return Change(), Change(), Change()
    hidden = h.heads * h.size
    b.check_shape(
        "bias",
        2 * hidden + h.heads * h.value_size,
        why=f"heads have {h.size} channels in query and key and {h.value_size} in value",
    )
    if x.cross:
        return Change((bias, 0)), Change(), Change()
    return Change((bias, 0)), Change((bias, hidden)), Change((bias, 2 * hidden))


@dataclass(frozen=True)
class Past:
    """The caches before a call: ``had`` of their rows are valid, the present has ``room`` rows."""

    key: Slot
    value: Slot
    had: int
    room: int
    share: bool


def check_past(b: Builder, x: Inputs, share: bool) -> Past | None:
    """Inputs past_key and past_value; with ``share`` they have room for the new rows."""
    key, value, h = b.get("past_key"), b.get("past_value"), x.heads
    if key is None and value is None:
        b.check(not share, "past_key", "is missing", "the shared buffer beside past_sequence_length")
        return None
    missing = "past_key" if key is None else "past_value"
    b.check(key is not None and value is not None, missing, "is missing", "both caches or neither")
    assert key is not None and value is not None
    why = f"query has batch {h.batch}, num_heads={h.heads} and head size {h.size}"
    b.check_shape("past_key", h.batch, h.heads, "past_length", h.size, why=why)
    room = key.shape[2]
    why = f"past_key has shape {key.shape} and value has head size {h.value_size}"
    b.check_shape("past_value", h.batch, h.heads, room, h.value_size, why=why)
    if not share:
        return Past(key, value, room, room + x.new, False)
    b.check(
        room >= x.new,
        "past_key",
        f"has shape {key.shape}",
        f"room for the {x.new} new rows because the present shares its buffer",
    )
    why = f"past_key has room for {room} rows and {x.new} are new"
    return Past(key, value, check_length(b, "past_sequence_length", 0, room - x.new, why), room, True)


def keep_caches(
    b: Builder, x: Inputs, past: Past | None, span: Span, *, reorder: bool = False
) -> Keep | None:
    """Outputs present_key and present_value with the rows of the past in them."""
    if past is None and not b.wants("present_key") and not b.wants("present_value"):
        return None
    h, room = x.heads, past.room if past else x.new
    t = b.need("query").dtype
    made = []
    for name, size in (("key", h.size), ("value", h.value_size)):
        present = b.output(f"present_{name}", (h.batch, h.heads, room, size), t)
        source = None if past is None else past.key if name == "key" else past.value
        if past and source and not (past.share and b.shares(f"present_{name}", f"past_{name}")):
            cache.move(b, source, present, span, "past")
        made.append(present)
    keys = Rows.reordered(made[0]) if reorder else Rows.heads_first(made[0])
    return Keep(keys, Rows.heads_first(made[1]), room, past is not None)


def check_beams(b: Builder, batch: int, had: int, width: int | None = None) -> Beams | None:
    """Input cache_indirection ``[batch / beams, beams, length]`` of at least ``had`` tokens.

    ``width`` is the number of beams; None takes it from the shape.
    """
    beams = b.get("cache_indirection")
    if beams is None:
        b.check(width in (None, 1), "cache_indirection", "is missing", f"it because beam_width is {width}")
        return None
    b.check(
        beams.rank == 3
        and beams.shape[1] > 0
        and (width is None or beams.shape[1] == width)
        and beams.shape[0] * beams.shape[1] == batch
        and beams.shape[2] >= had,
        "cache_indirection",
        f"has shape {beams.shape}",
        f"(batch, {width or 'beams'}, {had} or more), of which the first two multiply to {batch}",
    )
    return Beams(beams)


@register("MultiHeadAttention")
@dataclass(frozen=True, kw_only=True)
class MultiHeadAttention(Operator):
    """Self or cross attention of queries, keys and values in any of their layouts, with a cache."""

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
    unidirectional: int = 0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        x = self._inputs(b)
        h = x.heads
        q, k, v = changes(b, x)
        past = check_past(b, x, share=b.get("past_sequence_length") is not None)
        had = past.had if past else 0
        total = had + x.new
        b.check(
            past is not None or b.get("cache_indirection") is None,
            "cache_indirection",
            "is given",
            "none because there is no past",
        )
        beams = check_beams(b, h.batch, had)
        mask = self._mask(b, x, total)
        bias = check_bias(b, h.batch, h.heads, h.rows, total)
        t = b.need("query").dtype
        y = b.output("output", (h.batch, h.rows, h.heads * h.value_size), t)
        span = Span(total=total, new=h.rows, rows=h.rows, past=had)
        keep = keep_caches(b, x, past, span)
        scores = None
        if b.wants("qk"):
            shape = (h.batch, h.heads, h.rows, total)
            scores = Scores(b.output("qk", shape, b.declared.get("qk", t)), "masked")
        attend_fresh(
            b,
            Attention(
                heads=h,
                span=span,
                q=x.q,
                k=Stored(x.k),
                v=Stored(x.v),
                y=Rows.tokens_first(y, h.value_size),
                scale=self.scale or 1 / math.sqrt(h.size),
                ahead=0 if self.unidirectional else UNBOUNDED,
                bias=bias,
                mask=mask,
                beams=beams,
                scores=scores,
            ),
            x.new,
            q=q,
            k=k,
            v=v,
            keep=keep,
        )

    def _inputs(self, b: Builder) -> Inputs:
        query, key, n = b.need("query"), b.get("key"), self.num_heads
        if query.rank == 5:
            for name in ("key", "value"):
                b.check(b.get(name) is None, name, "is given", "none because query holds packed QKV")
            why = f"num_heads={n} and query holds packed QKV"
            b.check_shape("query", "batch", "sequence", n, 3, "head_size", why=why)
            batch, rows, _, _, size = query.shape
            row = 3 * n * size
            q, k, v = (Rows(query, rows * row, 3 * size, row, at * size) for at in range(3))
            return Inputs(Heads(batch, n, n, rows, size, size), rows, q, k, v)
        if key is None:
            raise b.refuse("key", "is missing", f"it because query has shape {query.shape}")
        if key.rank == 5:
            b.check(b.get("value") is None, "value", "is given", "none because key holds packed KV")
            b.check(query.rank == 3, "query", f"has shape {query.shape}", "(batch, sequence, hidden)")
            batch, rows, hidden = query.shape
            size = heads_of(b, "query", hidden, n)
            why = f"query has shape {query.shape}, num_heads={n} and key holds packed KV"
            b.check_shape("key", batch, "kv_sequence", n, 2, size, why=why)
            new, row = key.shape[1], 2 * n * size
            k, v = (Rows(key, new * row, 2 * size, row, at * size) for at in range(2))
            return Inputs(Heads(batch, n, n, rows, size, size), new, Rows.tokens_first(query, size), k, v)
        return separate(b, n)

    def _mask(self, b: Builder, x: Inputs, total: int) -> Mask | None:
        mask = b.get("key_padding_mask")
        if mask is None:
            return None
        batch, rows, value = x.heads.batch, x.heads.rows, self.mask_filter_value
        if mask.shape in ((batch,), (3 * batch + 2,)):
            return Mask(mask, value, "ends")
        if mask.shape == (batch, total):
            return Mask(mask, value, strides=(total, 0, 0, 1))
        if mask.shape == (batch, x.new):
            return Mask(mask, value, strides=(x.new, 0, 0, 1), first=total - x.new)
        if mask.shape == (batch, rows, total):
            return Mask(mask, value, strides=(rows * total, 0, total, 1))
        raise b.refuse(
            "key_padding_mask",
            f"has shape {mask.shape}",
            f"({batch},), ({3 * batch + 2},), ({batch}, {x.new}), ({batch}, {total}) "
            f"or ({batch}, {rows}, {total})",
        )
