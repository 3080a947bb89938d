"""com.microsoft DecoderAttention: sequence-first self or cross attention with its own projections."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..layout import View
from ..matmul import matmul
from ..registry import Operator, register
from . import cache
from .core import Attention, Heads, Mask, Rows, Span, Stored
from .fresh import Keep, attend_fresh


@dataclass(frozen=True)
class Flags:
    """What the runtime inputs say."""

    cross: bool
    cached: bool
    masked: bool


@register("DecoderAttention")
@dataclass(frozen=True, kw_only=True)
class DecoderAttention(Operator):
    """Self attention over a growing cache, or cross attention over keys projected once.

    A key that the padding mask names is hidden whatever its score, so mask_filter_value has no use.
    """

    num_heads: int
    mask_filter_value: float = -10000.0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        query, key, n = b.need("query"), b.need("key"), self.num_heads
        b.check(query.rank == 3, "query", f"has shape {query.shape}", "(sequence, batch, hidden)")
        rows, batch, hidden = query.shape
        b.check(
            hidden > 0 and hidden % n == 0,
            "query",
            f"has shape {query.shape}",
            f"a positive multiple of num_heads={n} channels",
        )
        size, why = hidden // n, f"query has shape {query.shape}"
        b.check_shape("key", "total_sequence", batch, hidden, why=why)
        b.check_shape("q_weight", hidden, hidden, why=why)
        b.check_shape("kv_weight", hidden, 2 * hidden, why=why)
        b.check_shape("bias", 3 * hidden, why=why)
        flags = self._flags(b)
        caches = self._caches(b, batch, size) if flags.cached else None
        had = caches[0].shape[2] if caches else 0
        given = flags.cross and caches is not None
        new = 0 if given else key.shape[0] if flags.cross else rows
        total = had + new
        mask = None
        if flags.masked:
            b.check_shape("key_padding_mask", batch, total, why=f"{total} keys are attended to")
            slot = b.need("key_padding_mask")
            mask = Mask(slot, -math.inf, strides=(total, 0, 0, 1), inverted=True)
        y = b.output("output", query.shape, query.dtype)
        span = Span(total=total, new=rows, rows=rows, past=had)
        keep = None
        if caches or b.wants("new_key_cache") or b.wants("new_value_cache"):
            keep = self._keep(b, (batch, n, total, size), caches, span)

        bias = View.of(b.need("bias"))
        q = b.scratch("q", query.shape, dtypes.float32)
        matmul(b, query, b.need("q_weight"), q, bias=bias.slice(0, 0, hidden))
        if given:
            assert caches is not None
            k, v = (Rows.heads_first(c) for c in caches)
            keep = None
        else:
            source = key if flags.cross else query
            kv = b.scratch("kv", (new, batch, 2 * hidden), dtypes.float32)
            matmul(b, source, b.need("kv_weight"), kv, bias=bias.slice(0, hidden, 2 * hidden))
            k, v = sequence_first(kv, size), sequence_first(kv, size, hidden)
        attend_fresh(
            b,
            Attention(
                heads=Heads(batch, n, n, rows, size, size),
                span=span,
                q=sequence_first(q, size),
                k=Stored(k),
                v=Stored(v),
                y=sequence_first(y, size),
                scale=1 / math.sqrt(size),
                mask=mask,
            ),
            new,
            keep=keep,
        )

    def _flags(self, b: Builder) -> Flags:
        def flag(name: str) -> bool:
            slot = b.need(name)
            b.check(slot.size == 1, name, f"has shape {slot.shape}", "one element")
            return bool(b.host(name).reshape(()))

        # A cache is part of the layer's state, so there is none to use without it.
        cached = flag("use_past") and flag("has_layer_state")
        return Flags(flag("static_kv"), cached, flag("has_key_padding_mask"))

    def _caches(self, b: Builder, batch: int, size: int) -> tuple[Slot, Slot]:
        key, value = (b.get(f"{x}_cache") for x in ("key", "value"))
        missing = "key_cache" if key is None else "value_cache"
        b.check(key is not None and value is not None, missing, "is missing", "it because use_past is true")
        assert key is not None and value is not None
        why = f"query has batch {batch}, num_heads={self.num_heads} and head size {size}"
        b.check_shape("key_cache", batch, self.num_heads, "length", size, why=why)
        b.check_shape("value_cache", *key.shape, why=f"key_cache has shape {key.shape}")
        return key, value

    def _keep(self, b: Builder, shape: tuple[int, ...], caches: tuple[Slot, Slot] | None, span: Span) -> Keep:
        made = [b.output(f"new_{x}_cache", shape, b.need("query").dtype) for x in ("key", "value")]
        for source, target in zip(caches or (), made, strict=False):
            cache.move(b, source, target, span, "past")
        return Keep(Rows.heads_first(made[0]), Rows.heads_first(made[1]), shape[2], caches is not None)


def sequence_first(slot: Slot, head_size: int, channel: int = 0) -> Rows:
    """Memory ``[L, B, X]`` whose heads of ``head_size`` start at channel ``channel``."""
    _, batch, width = slot.shape
    return Rows(slot, width, head_size, batch * width, channel)
