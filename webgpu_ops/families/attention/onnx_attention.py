"""ONNX Attention, opsets 23 and later."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..layout import View
from ..registry import Operator, register
from ..standard.copying import move
from .core import (
    UNBOUNDED,
    Attention,
    Bias,
    Heads,
    Mask,
    Rows,
    Scores,
    Span,
    Stage,
    Stored,
    attend,
    broadcast_strides,
)
from .materialized import attend_materialized

STAGES: tuple[Stage, ...] = ("raw", "softcapped", "masked", "weights")
# A short mask hides the keys past its end since this opset; before, it has to fit.
SHORT_MASKS = 24


@dataclass(frozen=True)
class Call:
    """The sizes of one call, and where its queries, keys and values lie."""

    heads: Heads
    new: int
    q: Rows
    k: Rows
    v: Rows


@register("Attention", domain="")
@dataclass(frozen=True, kw_only=True)
class OnnxAttention(Operator):
    """Queries in groups that share keys and values, with a cache inside or outside of the operator.

    Scores and softmax are made in float32, or step by step in float64 where the type of Q or
    ``softmax_precision`` is that.
    """

    is_causal: int = 0
    kv_num_heads: int | None = None
    left_window_size: int = -1
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: int | None = None

    def __post_init__(self) -> None:
        def need(ok: bool, text: str) -> None:
            if not ok:
                raise SchemaError(f"Attention: {text}")

        for name in ("q_num_heads", "kv_num_heads"):
            value = getattr(self, name)
            need(value is None or value > 0, f"{name}={value}; expected a positive number")
        need(self.is_causal in (0, 1), f"is_causal={self.is_causal}; expected 0 or 1")
        mode = self.qk_matmul_output_mode
        need(mode in range(4), f"qk_matmul_output_mode={mode}; expected 0, 1, 2 or 3")
        need(self.softcap >= 0, f"softcap={self.softcap}; expected 0 or a positive number")
        for name in ("left_window_size", "right_window_size"):
            value = getattr(self, name)
            need(value >= -1, f"{name}={value}; expected -1 or more")
        precision = self.softmax_precision
        if precision is not None:
            floats = (dtypes.float32, dtypes.float16, dtypes.float64, dtypes.bfloat16)
            known = {t.onnx for t in floats}
            listing = ", ".join(f"{t.onnx} ({t})" for t in floats)
            need(precision in known, f"softmax_precision={precision}; expected one of {listing}")

    def plan(self, b: Builder) -> None:
        t = self._type(b)
        call = self._sizes(b)
        heads = call.heads
        past, had = self._past(b, call)
        total = had + call.new
        bias, mask, shown = self._mask(b, heads, total)
        nonpad = self._nonpad(b, heads)
        y = self._output(b, heads)
        scores = None
        if b.wants("qk_matmul_output"):
            shape = (heads.batch, heads.heads, heads.rows, total)
            scores = Scores(b.output("qk_matmul_output", shape, t), STAGES[self.qk_matmul_output_mode])

        # Queries end level with the keys of an outside cache, else begin level with the new ones.
        span = Span(total=total, new=heads.rows, rows=heads.rows, past=had, shown=shown)
        if nonpad is not None:
            lengths = nonpad.as_type(dtypes.int32)
            span = Span(total=total, new=0, rows=heads.rows, lengths=lengths, stride=2, shown=shown)
        ahead = 0 if self.is_causal else UNBOUNDED
        if self.right_window_size >= 0:
            ahead = min(ahead, self.right_window_size)
        k, v = self._lines(b, call, past, total)
        a = Attention(
            heads=heads,
            span=span,
            q=call.q,
            k=Stored(k),
            v=Stored(v),
            y=y,
            scale=1 / math.sqrt(heads.size) if self.scale is None else self.scale,
            softcap=self.softcap,
            ahead=ahead,
            behind=self.left_window_size if self.left_window_size >= 0 else UNBOUNDED,
            bias=bias,
            mask=mask,
            scores=scores,
        )
        if dtypes.float64.onnx in (t.onnx, self.softmax_precision):
            attend_materialized(b, a, total)
        else:
            attend(b, a)

    def _type(self, b: Builder) -> dtypes.DType:
        t = b.need("Q").dtype
        for name in ("K", "V", "past_key", "past_value"):
            slot = b.get(name)
            came = slot.dtype if slot else t
            b.check(came == t, name, f"has type {came}", f"{t}, the type of Q")
        return t

    def _sizes(self, b: Builder) -> Call:
        q, k, v = b.need("Q"), b.need("K"), b.need("V")
        b.check(q.rank in (3, 4), "Q", f"has shape {q.shape}", "three or four dimensions")
        for x in (k, v):
            b.check(
                x.rank == q.rank,
                x.name,
                f"has shape {x.shape}",
                f"{q.rank} dimensions because Q has shape {q.shape}",
            )
        if q.rank == 4:
            batch, n, rows, size = q.shape
            _, m, new, _ = k.shape
            value_size = v.shape[3]
            for name, given, have in (
                ("q_num_heads", self.q_num_heads, n),
                ("kv_num_heads", self.kv_num_heads, m),
            ):
                b.check(given in (None, have), "Q", f"has shape {q.shape}", f"{name}={given} heads")
            b.check_shape("K", batch, m, new, size, why=f"Q has shape {q.shape}")
            b.check_shape("V", batch, m, new, value_size, why=f"K has shape {k.shape}")
            at = (Rows.heads_first(q), Rows.heads_first(k), Rows.heads_first(v))
        else:
            if self.q_num_heads is None or self.kv_num_heads is None:
                missing = "q_num_heads" if self.q_num_heads is None else "kv_num_heads"
                raise SchemaError(
                    f"Attention: {missing} is not given; expected it because Q has three dimensions"
                )
            n, m = self.q_num_heads, self.kv_num_heads
            for x, count in ((q, n), (k, m), (v, m)):
                b.check(
                    x.shape[2] % count == 0,
                    x.name,
                    f"has shape {x.shape}",
                    f"channels of {count} heads of equal size",
                )
            batch, rows, size = q.shape[0], q.shape[1], q.shape[2] // n
            new, value_size = k.shape[1], v.shape[2] // m
            why = f"Q has shape {q.shape}, q_num_heads={n} and kv_num_heads={m}"
            b.check_shape("K", batch, new, m * size, why=why)
            b.check_shape("V", batch, new, m * value_size, why=f"K has shape {k.shape}")
            at = (
                Rows.tokens_first(q, size),
                Rows.tokens_first(k, size),
                Rows.tokens_first(v, value_size),
            )
        b.check(m > 0, "K", f"has shape {k.shape}", "at least one head")
        b.check(n % m == 0, "Q", f"has {n} heads", f"a multiple of the {m} heads of K")
        b.check(size > 0, "Q", f"has shape {q.shape}", "at least one channel a head")
        b.check(value_size > 0, "V", f"has shape {v.shape}", "at least one channel a head")
        return Call(Heads(batch, n, m, rows, size, value_size), new, *at)

    def _past(self, b: Builder, call: Call) -> tuple[tuple[Slot, Slot] | None, int]:
        """The caches before the call, and their length."""
        key, value = b.get("past_key"), b.get("past_value")
        if key is None and value is None:
            return None, 0
        missing = "past_key" if key is None else "past_value"
        b.check(key is not None and value is not None, missing, "is missing", "both caches or neither")
        assert key is not None and value is not None
        h = call.heads
        why = f"K has batch {h.batch}, {h.kv_heads} heads and head size {h.size}"
        b.check_shape("past_key", h.batch, h.kv_heads, "past_length", h.size, why=why)
        why = f"past_key has shape {key.shape} and V has head size {h.value_size}"
        b.check_shape("past_value", h.batch, h.kv_heads, key.shape[2], h.value_size, why=why)
        return (key, value), key.shape[2]

    def _lines(self, b: Builder, call: Call, past: tuple[Slot, Slot] | None, total: int) -> tuple[Rows, Rows]:
        """Where all keys and all values lie: in the presents, made here, or as they came."""
        h, lines = call.heads, []
        for n, (name, fresh, size) in enumerate((("key", call.k, h.size), ("value", call.v, h.value_size))):
            if past is None and not b.wants(f"present_{name}"):
                lines.append(fresh)
                continue
            shape = (h.batch, h.kv_heads, total, size)
            present = b.output(f"present_{name}", shape, fresh.slot.dtype)
            rows, had = View.of(present), total - call.new
            if past is not None:
                move(b, past[n], rows.slice(2, 0, had))
            steps = (fresh.batch, fresh.head, fresh.row, 1)
            new = View(fresh.slot, (*shape[:2], call.new, size), steps, fresh.offset)
            move(b, new, rows.slice(2, had, call.new))
            lines.append(Rows.heads_first(present))
        return lines[0], lines[1]

    def _output(self, b: Builder, h: Heads) -> Rows:
        t = b.need("Q").dtype
        if b.need("Q").rank == 4:
            return Rows.heads_first(b.output("Y", (h.batch, h.heads, h.rows, h.value_size), t))
        return Rows.tokens_first(b.output("Y", (h.batch, h.rows, h.heads * h.value_size), t), h.value_size)

    def _mask(self, b: Builder, h: Heads, total: int) -> tuple[Bias | None, Mask | None, int]:
        """The mask, added or hiding keys, and the keys up to its end."""
        mask = b.get("attn_mask")
        if mask is None:
            return None, None, total
        t = b.need("Q").dtype
        b.check(
            mask.dtype in (dtypes.bool_, dtypes.float32, t),
            "attn_mask",
            f"has type {mask.dtype}",
            f"bool, float32 or {t}, the type of Q",
        )
        full = (h.batch, h.heads, h.rows, total)
        shown = total
        if self.opset >= SHORT_MASKS and mask.rank and mask.shape[-1] < total:
            shown = mask.shape[-1]
        target = (*full[:3], shown)
        good = mask.rank <= 4 and all(
            have in (1, want) for have, want in zip(reversed(mask.shape), reversed(target), strict=False)
        )
        short = ", or fewer columns" if self.opset >= SHORT_MASKS else ""
        b.check(good, "attn_mask", f"has shape {mask.shape}", f"a shape that broadcasts to {full}{short}")
        strides = broadcast_strides(mask.shape)
        if mask.dtype == dtypes.bool_:
            return None, Mask(mask, -math.inf, strides=strides), shown
        return Bias(mask, strides), None, shown

    def _nonpad(self, b: Builder, h: Heads) -> Slot | None:
        nonpad = b.inputs.get("nonpad_kv_seqlen")
        if nonpad is None:
            return None
        b.check_shape("nonpad_kv_seqlen", h.batch, why=f"Q has batch {h.batch}")
        for name, there in (
            ("past_key", b.get("past_key") is not None),
            ("present_key", b.wants("present_key")),
            ("present_value", b.wants("present_value")),
        ):
            b.check(not there, name, "is used", "none because nonpad_kv_seqlen says that K holds the cache")
        return nonpad
