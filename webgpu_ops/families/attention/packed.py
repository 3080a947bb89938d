"""com.microsoft PackedAttention and PackedMultiHeadAttention: sequences without their padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..matmul import matmul
from ..registry import Operator, register
from .core import Attention, Heads, Rows, Span, Stored, attend
from .fresh import Change, changed, check_bias
from .multi_head import heads_of
from .self_attention import checked_sizes, merged_sizes


def attend_packed(
    b: Builder, tokens: int, heads: Heads, q: Rows, k: Rows, v: Rows, dtype: DType, scale: float
) -> None:
    """Append attention of each sequence to itself, and the output ``[tokens, v_hidden]``."""
    h = heads
    bias = check_bias(b, h.batch, h.heads, h.rows, h.rows)
    y = b.output("output", (tokens, h.heads * h.value_size), dtype)
    span = Span(
        total=h.rows,
        new=h.rows,
        rows=h.rows,
        cumulative=b.need("cumulative_sequence_length"),
        tokens=tokens,
    )
    attend(
        b,
        Attention(
            heads=h,
            span=span,
            q=q,
            k=Stored(k),
            v=Stored(v),
            y=packed_rows(y, h.value_size),
            scale=scale or 1 / math.sqrt(h.size),
            bias=bias,
        ),
    )


def check_sequences(b: Builder) -> tuple[int, int]:
    """The sequences of a batch, and the length of the longest."""
    offsets = b.need("token_offset")
    b.check(offsets.rank == 2, "token_offset", f"has shape {offsets.shape}", "(batch, sequence)")
    batch, rows = offsets.shape
    b.check_shape("cumulative_sequence_length", batch + 1, why=f"token_offset has shape {offsets.shape}")
    return batch, rows


def packed_rows(slot: Slot, head_size: int, channel: int = 0) -> Rows:
    """Memory ``[tokens, X]`` whose heads of ``head_size`` start at channel ``channel``."""
    return Rows(slot, 0, head_size, slot.shape[-1], channel)


@register("PackedAttention")
@dataclass(frozen=True, kw_only=True)
class PackedAttention(Operator):
    """Projects packed tokens to Q, K and V; each attends to its own sequence."""

    num_heads: int
    qkv_hidden_sizes: tuple[int, ...] | None = None
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")
        if self.qkv_hidden_sizes is not None:
            object.__setattr__(self, "qkv_hidden_sizes", checked_sizes(self.op, self.qkv_hidden_sizes))

    def plan(self, b: Builder) -> None:
        x, w, n = b.need("input"), b.need("weights"), self.num_heads
        b.check(x.rank == 2, "input", f"has shape {x.shape}", "(tokens, input_hidden)")
        tokens, channels = x.shape
        b.check_shape("weights", channels, "qkv_hidden", why=f"input has {channels} channels")
        hidden, value_hidden = merged_sizes(b, n, self.qkv_hidden_sizes)
        b.check_shape("bias", w.shape[1], why=f"weights has {w.shape[1]} columns")
        batch, rows = check_sequences(b)
        heads = Heads(batch, n, n, rows, hidden // n, value_hidden // n)
        qkv = b.scratch("qkv", (tokens, w.shape[1]), dtypes.float32)
        matmul(b, x, w, qkv, bias=b.need("bias"))
        q, k = packed_rows(qkv, heads.size), packed_rows(qkv, heads.size, hidden)
        v = packed_rows(qkv, heads.value_size, 2 * hidden)
        attend_packed(b, tokens, heads, q, k, v, x.dtype, self.scale)


@register("PackedMultiHeadAttention")
@dataclass(frozen=True, kw_only=True)
class PackedMultiHeadAttention(Operator):
    """Packed tokens attend each to its own sequence.

    There is no padding left that a mask could hide, so mask_filter_value has no use.
    """

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        query = b.need("query")
        batch, rows = check_sequences(b)
        if query.rank == 4:
            size, value_size, q, k, v = self._together(b, query)
        else:
            size, value_size, q, k, v = self._separate(b, query)
        tokens, n = query.shape[0], self.num_heads
        bias, hidden = b.get("bias"), n * size
        if bias is not None:
            b.check_shape(
                "bias",
                2 * hidden + n * value_size,
                why=f"heads have {size} channels in query and key and {value_size} in value",
            )
            # To each token its bias, whatever sequence it belongs to: one batch entry of all tokens.
            line = Span(total=tokens, new=tokens, rows=tokens)
            flat = Heads(1, n, n, tokens, size, value_size)
            q = changed(b, "q", q, Change((bias, 0)), line, flat, tokens, size)
            k = changed(b, "k", k, Change((bias, hidden)), line, flat, tokens, size)
            v = changed(b, "v", v, Change((bias, 2 * hidden)), line, flat, tokens, value_size)
            q, k, v = (replace(x, batch=0) for x in (q, k, v))
        attend_packed(b, tokens, Heads(batch, n, n, rows, size, value_size), q, k, v, query.dtype, self.scale)

    def _together(self, b: Builder, query: Slot) -> tuple[int, int, Rows, Rows, Rows]:
        n = self.num_heads
        for name in ("key", "value"):
            b.check(b.get(name) is None, name, "is given", "none because query holds packed QKV")
        b.check_shape("query", "tokens", n, 3, "head_size", why=f"num_heads={n} and it holds packed QKV")
        size = query.shape[3]
        b.check(size > 0, "query", f"has shape {query.shape}", "at least one channel a head")
        row = 3 * n * size
        q, k, v = (Rows(query, 0, 3 * size, row, at * size) for at in range(3))
        return size, size, q, k, v

    def _separate(self, b: Builder, query: Slot) -> tuple[int, int, Rows, Rows, Rows]:
        key, value, n = b.get("key"), b.get("value"), self.num_heads
        b.check(query.rank == 2, "query", f"has shape {query.shape}", "two or four dimensions")
        missing = "key" if key is None else "value"
        b.check(
            key is not None and value is not None,
            missing,
            "is missing",
            f"it because query has shape {query.shape}, which is not packed QKV",
        )
        assert key is not None and value is not None
        tokens, hidden = query.shape
        size = heads_of(b, "query", hidden, n)
        b.check_shape("key", tokens, hidden, why=f"query has shape {query.shape}")
        b.check_shape("value", tokens, "v_hidden", why=f"query has shape {query.shape}")
        value_size = heads_of(b, "value", value.shape[1], n)
        return (
            size,
            value_size,
            packed_rows(query, size),
            packed_rows(key, size),
            packed_rows(value, value_size),
        )
