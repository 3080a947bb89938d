"""com.microsoft LongformerAttention: a window for most tokens, everything for a few."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import LimitError, SchemaError
from ..matmul import matmul
from ..registry import Operator, register
from ..standard.indexing import gather
from .core import Attention, Heads, Mask, Pages, Rows, Span, Stored, attend
from .packed import packed_rows


@dataclass(frozen=True, kw_only=True)
class Longformer(Operator):
    """Attention of tokens to their neighbours up to ``window`` away and to global tokens, which see all."""

    num_heads: int
    window: int

    def __post_init__(self) -> None:
        for name in ("num_heads", "window"):
            if getattr(self, name) <= 0:
                raise SchemaError(f"{self.op}: {name}={getattr(self, name)}; expected a positive number")

    def check(self, b: Builder) -> tuple[int, int, int]:
        """Refuse inputs that do not fit; the batch, the rows and the channels of the input."""
        x = b.need("input")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, hidden)")
        batch, rows, hidden = x.shape
        b.check(
            hidden > 0 and hidden % self.num_heads == 0,
            "input",
            f"has {hidden} channels",
            f"a positive multiple of num_heads={self.num_heads}",
        )
        b.check(
            rows % (2 * self.window) == 0,
            "input",
            f"has sequence length {rows}",
            f"a multiple of {2 * self.window} because window={self.window}",
        )
        for name in ("weight", "global_weight"):
            b.check_shape(name, hidden, 3 * hidden, why=f"input has {hidden} channels")
        for name in ("bias", "global_bias"):
            b.check_shape(name, 3 * hidden, why=f"input has {hidden} channels")
        for name in ("mask", "global"):
            b.check_shape(name, batch, rows, why=f"input has shape {x.shape}")
        return batch, rows, hidden

    def attend(self, b: Builder, local: Slot, everywhere: Slot, y: Slot, scale: Slot | None = None) -> None:
        """Append attention of two merged projections ``[B, S, 3 * H]``, float32, into ``y [B, S, H]``.

        Local tokens' queries, and the keys and values they see, come from ``local``; those of global
        tokens from ``everywhere``. With ``scale`` (one element) the result is quantized to int8.

        The softmax of a local token joins two sources: the local tokens of its window, and the global
        tokens wherever they are. How many these are only the device knows: they are pages of one row.
        """
        batch, rows, hidden = y.shape
        n, tokens = self.num_heads, batch * rows
        size = hidden // n
        table = b.scratch("table", (batch, rows), dtypes.int32)
        counts, others = (b.scratch(name, (batch,), dtypes.int32) for name in ("counts", "others"))
        cumulative = b.scratch("cumulative", (batch + 1,), dtypes.int32)
        places = b.scratch("places", (batch, rows), dtypes.uint32)
        queries = b.scratch("queries", (tokens,), dtypes.int32)
        lanes = b.lanes(8 if b.caps.device_class == "cpu" else 256, 2 * tokens + 80 * batch)
        if lanes is None:
            raise LimitError(f"{self.op}: {tokens} tokens are more than one workgroup sorts")
        b.dispatch(
            "attention/tokens",
            reads={"mask": b.need("mask"), "flags": b.need("global")},
            writes={
                "places": places,
                "table": table,
                "counts": counts,
                "others": others,
                "cumulative": cumulative,
                "queries": queries,
            },
            uniforms={"batch": batch, "rows": rows},
            groups=1,
            workgroup=lanes,
        )
        near = b.scratch("near", (batch, rows, hidden), dtypes.float32)
        window = Attention(
            heads=Heads(batch, n, n, rows, size, size),
            span=Span(total=rows, new=rows, rows=rows),
            q=Rows.tokens_first(local, size),
            k=Stored(Rows.tokens_first(local, size, hidden)),
            v=Stored(Rows.tokens_first(local, size, 2 * hidden)),
            y=Rows.tokens_first(near, size),
            scale=1 / math.sqrt(size),
            ahead=self.window,
            behind=self.window,
            mask=Mask(places, -math.inf, strides=(rows, 0, 0, 1), inverted=True),
        )
        paged = Attention(
            heads=window.heads,
            span=Span(total=rows, new=rows, rows=rows, lengths=counts),
            q=window.q,
            k=Stored(packed_rows(local, size, hidden)),
            v=Stored(packed_rows(local, size, 2 * hidden)),
            y=window.y,
            scale=window.scale,
            pages=Pages(table, 1, tokens),
        )
        attend(b, window, paged)

        q = b.scratch("global_queries", (tokens, hidden), dtypes.float32)
        gather(b, everywhere, queries, q, length=3 * tokens, inner=hidden)
        far = b.scratch("far", (tokens, hidden), dtypes.float32)
        span = Span(total=rows, new=rows, rows=rows, lengths=others, cumulative=cumulative, tokens=tokens)
        attend(
            b,
            replace(
                paged,
                span=span,
                q=packed_rows(q, size),
                k=Stored(packed_rows(everywhere, size, hidden)),
                v=Stored(packed_rows(everywhere, size, 2 * hidden)),
                y=packed_rows(far, size),
            ),
        )
        b.dispatch(
            "attention/join",
            reads={"near": near, "far": far, "places": places, "scale": scale},
            writes={"y": y},
            uniforms={"size": y.size, "width": hidden},
            threads=-(-y.size // 4),
        )


@register("LongformerAttention")
@dataclass(frozen=True, kw_only=True)
class LongformerAttention(Longformer):
    """Projects its input for local and for global tokens, and attends."""

    def plan(self, b: Builder) -> None:
        batch, rows, hidden = self.check(b)
        x = b.need("input")
        y = b.output("output", x.shape, x.dtype)
        if not y.size:
            return
        shape = (batch, rows, 3 * hidden)
        local, everywhere = (b.scratch(name, shape, dtypes.float32) for name in ("local", "everywhere"))
        matmul(b, x, b.need("weight"), local, bias=b.get("bias"))
        matmul(b, x, b.need("global_weight"), everywhere, bias=b.get("global_bias"))
        self.attend(b, local, everywhere, y)
