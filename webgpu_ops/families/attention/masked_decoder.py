"""com.microsoft DecoderMaskedMultiHeadAttention and DecoderMaskedSelfAttention: a token at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder
from ...errors import SchemaError, ShapeError
from ..matmul import matmul
from ..registry import Operator, register
from .cache import Rotary
from .core import Attention, Heads, Mask, Rows, Scores, Span, Stored
from .fresh import attend_fresh, check_bias, check_length
from .multi_head import Inputs, changes, check_beams, check_past, heads_of, keep_caches, separate
from .self_attention import Projected, attend_projected


@register("DecoderMaskedMultiHeadAttention")
@dataclass(frozen=True, kw_only=True)
class DecoderMaskedMultiHeadAttention(Operator):
    """One query a batch row, over a cache that it extends or over keys and values that are given.

    In a shared buffer the keys lie reordered, 16 bytes of a head's channels side by side for all tokens.
    """

    num_heads: int
    mask_filter_value: float = -10000.0
    output_qk: int = 0
    past_present_share_buffer: int = 0
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        x = self._inputs(b)
        h = x.heads
        b.check(h.rows == 1, "query", f"has shape {b.need('query').shape}", "a sequence length of 1")
        q, k, v = changes(b, x)
        share = self.past_present_share_buffer == 1 and not x.cross
        if x.cross:
            past = None
        else:
            past = check_past(b, x, share)
            if share:
                check_reorder(b, "past_key", h.size)
        had = past.had if past else 0
        total = had + x.new
        beams = check_beams(b, h.batch, had, beam_width(b))
        mask = decoder_mask(b, h.batch, total, self.mask_filter_value)
        bias = check_bias(b, h.batch, h.heads, 1, total)
        t = b.need("query").dtype
        y = b.output("output", (h.batch, 1, h.heads * h.value_size), t)
        span = Span(total=total, new=1, rows=1, past=had)
        keep = keep_caches(b, x, past, span, reorder=share)
        scores = None
        if b.wants("qk"):
            scores = Scores(b.output("qk", (h.batch, h.heads, 1, total), b.declared.get("qk", t)), "masked")
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
                bias=bias,
                mask=mask,
                beams=None if x.cross else beams,
                scores=scores,
            ),
            x.new,
            q=q,
            k=k,
            v=v,
            keep=keep,
        )

    def _inputs(self, b: Builder) -> Inputs:
        query, n = b.need("query"), self.num_heads
        if b.get("key") is not None:
            x = separate(b, n)
            b.check(x.cross or x.new == 1, "key", f"has shape {b.need('key').shape}", "one new token")
            return x
        b.check(b.get("value") is None, "value", "is given without key", "both or neither")
        b.check(query.rank == 3, "query", f"has shape {query.shape}", "(batch, 1, packed QKV)")
        batch, rows, width = query.shape
        past = b.get("past_key")
        hidden = width // 3 if past is None else n * past.shape[-1]
        b.check(
            0 < 2 * hidden < width and (past is not None or width % 3 == 0),
            "query",
            f"has shape {query.shape}",
            "packed QKV because key is not given"
            + ("" if past is None else f", with {hidden} channels in Q and in K because of past_key"),
        )
        size, value_size = heads_of(b, "query", hidden, n), heads_of(b, "query", width - 2 * hidden, n)
        return Inputs(
            Heads(batch, n, n, rows, size, value_size),
            rows,
            Rows.tokens_first(query, size),
            Rows.tokens_first(query, size, hidden),
            Rows.tokens_first(query, value_size, 2 * hidden),
        )


@register("DecoderMaskedSelfAttention")
@dataclass(frozen=True, kw_only=True)
class DecoderMaskedSelfAttention(Operator):
    """Projects one token a batch row and attends to a cache, which it extends.

    In a shared buffer the keys lie reordered, 16 bytes of a head's channels side by side for all tokens.
    """

    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        x, w, past, n = b.need("input"), b.need("weights"), b.need("past"), self.num_heads
        b.check_shape("input", "batch", 1, "input_hidden", why="it holds one token a batch row")
        batch, _, channels = x.shape
        b.check_shape("weights", channels, "qkv_hidden", why=f"input has {channels} channels")
        width = w.shape[1]
        b.check(
            width > 0 and width % (3 * n) == 0,
            "weights",
            f"has shape {w.shape}",
            f"columns of Q, K and V in num_heads={n} heads of equal size",
        )
        size = width // 3 // n
        b.check_shape("bias", width, why=f"weights has {width} columns")
        why = f"input has batch {batch}, num_heads={n}, head size {size}"
        b.check_shape("past", 2, batch, n, "past_length", size, why=why)
        had, room, share = past.shape[3], past.shape[3] + 1, self.past_present_share_buffer == 1
        if share:
            room = past.shape[3]
            check_reorder(b, "past", size)
            had = check_length(b, "past_sequence_length", 0, room - 1, f"past has room for {room} rows")
        beams = check_beams(b, batch, had, beam_width(b))
        mask = decoder_mask(b, batch, had + 1, self.mask_filter_value)
        bias = check_bias(b, batch, n, 1, had + 1)
        if self.do_rotary and size % 2:
            raise ShapeError(f"{self.op}: rotary embedding of head size {size}; expected an even number")
        y = b.output("output", (batch, 1, n * size), x.dtype)
        present = b.output("present", (2, batch, n, room, size), x.dtype)
        qkv = b.scratch("qkv", (batch, 1, width), dtypes.float32)
        matmul(b, x, w, qkv, bias=b.need("bias"))
        attend_projected(
            b,
            Projected(qkv, n, size, size),
            y,
            past,
            had,
            present,
            share=share,
            reorder=share,
            rotary=Rotary(size // 2) if self.do_rotary else None,
            scale=self.scale,
            bias=bias,
            mask=mask,
            beams=beams,
        )


# What the masked decoders share


def beam_width(b: Builder) -> int:
    """Input beam_width, 1 where it is not given."""
    if b.get("beam_width") is None:
        return 1
    return check_length(b, "beam_width", 1, 1 << 30, "it counts beams")


def decoder_mask(b: Builder, batch: int, total: int, value: float) -> Mask | None:
    """Input mask_index, one number a key."""
    mask = b.get("mask_index")
    if mask is None:
        return None
    b.check_shape("mask_index", batch, total, why=f"{total} keys are attended to")
    return Mask(mask, value, strides=(total, 0, 0, 1))


def check_reorder(b: Builder, name: str, size: int) -> None:
    """Refuse heads that do not consist of whole groups of 16 bytes."""
    pack = 16 // b.need(name).dtype.itemsize
    b.check(
        size % pack == 0,
        name,
        f"has head size {size}",
        f"a multiple of {pack} because a shared buffer holds {pack} channels of a key side by side",
    )
