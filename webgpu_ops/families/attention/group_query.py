"""com.microsoft GroupQueryAttention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import Builder, Slot
from ...errors import SchemaError, ShapeError
from ..registry import Operator, register
from . import cache
from .cache import Norm, Positions, Rotary
from .core import (
    UNBOUNDED,
    Attention,
    Bias,
    Heads,
    Rows,
    Scores,
    Span,
    Stage,
    Stored,
    attend,
    broadcast_strides,
)
from .fresh import check_lengths

QUANT_TYPES = ("NONE", "PER_TENSOR", "PER_CHANNEL")
STAGES: dict[int, Stage] = {1: "masked", 2: "weights"}


@dataclass(frozen=True)
class Call:
    """The sizes of one call."""

    batch: int
    rows: int
    new: int
    head_size: int
    total: int
    packed: bool

    @property
    def prompt(self) -> bool:
        """Whether the call holds all tokens there are, so that nothing came before."""
        return self.new == self.total


@register("GroupQueryAttention")
@dataclass(frozen=True, kw_only=True)
class GroupQueryAttention(Operator):
    """Queries in groups that share keys and values, over a cache that the call extends."""

    num_heads: int
    kv_num_heads: int
    causal: int = 1
    do_rotary: int = 0
    k_norm_epsilon: float | None = None
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = -1
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    def __post_init__(self) -> None:
        def need(ok: bool, text: str) -> None:
            if not ok:
                raise SchemaError(f"GroupQueryAttention: {text}")

        heads, kv = self.num_heads, self.kv_num_heads
        need(heads > 0 and kv > 0, f"num_heads={heads}, kv_num_heads={kv}; expected positive numbers")
        need(heads % kv == 0, f"num_heads={heads}; expected a multiple of kv_num_heads={kv}")
        for name in ("causal", "do_rotary", "rotary_interleaved", "sliding_window_cache"):
            value = getattr(self, name)
            need(value in (0, 1), f"{name}={value}; expected 0 or 1")
        need(self.smooth_softmax in (-1, 0, 1), f"smooth_softmax={self.smooth_softmax}; expected 0 or 1")
        need(math.isfinite(self.scale), f"scale={self.scale}; expected a finite number")
        need(self.softcap >= 0, f"softcap={self.softcap}; expected 0 or a positive number")
        window = self.local_window_size
        need(window == -1 or window > 0, f"local_window_size={window}; expected -1 or a positive number")
        need(self.causal == 1 or window == -1, f"local_window_size={window}; expected -1 because causal=0")
        need(self.qk_output in (0, 1, 2), f"qk_output={self.qk_output}; expected 0, 1 or 2")
        need(
            self.sliding_window_cache != 1 or window > 0,
            f"sliding_window_cache=1 with local_window_size={window}; expected a positive window",
        )
        for name in ("k_quant_type", "v_quant_type"):
            value = getattr(self, name)
            need(value in QUANT_TYPES, f"{name}={value!r}; expected one of {', '.join(QUANT_TYPES)}")
        need(
            (self.k_quant_type == "NONE") == (self.v_quant_type == "NONE"),
            f"k_quant_type={self.k_quant_type} with v_quant_type={self.v_quant_type}; "
            "expected both or neither to be NONE, because the caches have one type",
        )
        bits = self.kv_cache_bit_width
        need(bits in (0, 4, 8), f"kv_cache_bit_width={bits}; expected 4 or 8")
        for name in ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
            epsilon = getattr(self, name)
            good = epsilon is None or (math.isfinite(epsilon) and epsilon > 0)
            need(good, f"{name}={epsilon}; expected a finite positive number")

    @property
    def quantized(self) -> bool:
        return self.k_quant_type != "NONE"

    def plan(self, b: Builder) -> None:
        call = self._sizes(b)
        storage = self._storage(b)
        nibbles = storage == dtypes.uint8
        width = -(-call.head_size // 2) if nibbles else call.head_size
        had = self._check_past(b, call, width)
        self._check_small_inputs(b, call)
        present = had if self.sliding_window_cache == 1 else max(had, call.total)
        t = b.need("query").dtype
        y = b.output("output", (call.batch, call.rows, self.num_heads * call.head_size), t)
        caches = [
            b.output(f"present_{x}", (call.batch, self.kv_num_heads, present, width), storage)
            for x in ("key", "value")
        ]
        scores = self._scores(b, call, t)
        if call.batch == 0:
            return

        span = Span(
            total=call.total,
            new=call.new,
            rows=call.rows,
            lengths=b.need("seqlens_k"),
            add=1,
            fixed=call.prompt,
            capacity=had if self.sliding_window_cache == 1 else 0,
            window=min(max(self.local_window_size, 0), UNBOUNDED),
        )
        lines = self._before(b, call, span, caches, present)
        k, v = (
            self._stored(b, f"{x}_scale", self._quant_type(x), line, call.head_size, nibbles)
            for x, line in zip("kv", lines, strict=True)
        )
        q_rows, k_rows, v_rows = self._inputs(b, call)
        q_norm, k_norm = self._norms(b)
        q_turn, k_turn = self._rotaries(b, call)
        if q_norm is not None or q_turn is not None:
            made = b.scratch("q", (call.batch, self.num_heads, call.rows, call.head_size), dtypes.float32)
            cache.prepare(
                b,
                q_rows,
                Stored(Rows.heads_first(made)),
                span,
                batch=call.batch,
                heads=self.num_heads,
                rows=call.rows,
                channels=call.head_size,
                capacity=call.rows,
                append=False,
                norm=q_norm,
                rotary=q_turn,
            )
            q_rows = Rows.heads_first(made)
        for rows, stored, norm, turn in ((k_rows, k, k_norm, k_turn), (v_rows, v, None, None)):
            cache.prepare(
                b,
                rows,
                stored,
                span,
                batch=call.batch,
                heads=self.kv_num_heads,
                rows=call.new,
                channels=call.head_size,
                capacity=stored.rows.slot.shape[2],
                append=True,
                norm=norm,
                rotary=turn,
            )
        bias = b.get("attention_bias")
        attend(
            b,
            Attention(
                heads=Heads(
                    call.batch, self.num_heads, self.kv_num_heads, call.rows, call.head_size, call.head_size
                ),
                span=span,
                q=q_rows,
                k=k,
                v=v,
                y=Rows.tokens_first(y, call.head_size),
                scale=self.scale or 1 / math.sqrt(call.head_size),
                softcap=self.softcap,
                ahead=0 if self.causal else UNBOUNDED,
                behind=self.local_window_size - 1 if self.local_window_size > 0 else UNBOUNDED,
                bias=Bias(bias, broadcast_strides(bias.shape)) if bias else None,
                sink=b.get("head_sink"),
                smooth=self.smooth_softmax == 1,
                scores=scores,
            ),
        )
        if self.sliding_window_cache == 1:
            for line, target in zip(lines, caches, strict=True):
                cache.move(b, line, target, span, "kept")

    # Checks

    def _sizes(self, b: Builder) -> Call:
        query, key, value = b.need("query"), b.get("key"), b.get("value")
        b.check(query.rank == 3, "query", f"has shape {query.shape}", "(batch, sequence, hidden)")
        b.check(
            (key is None) == (value is None),
            "key" if key is None else "value",
            "is missing" if key is None else "is missing while key is given",
            "key and value together, or neither with packed QKV in query",
        )
        batch, rows, hidden = query.shape
        heads = self.num_heads if key else self.num_heads + 2 * self.kv_num_heads
        what = f"num_heads={self.num_heads}" if key else f"{heads} heads of Q, K and V in packed QKV"
        b.check(
            hidden > 0 and hidden % heads == 0,
            "query",
            f"has shape {query.shape}",
            f"a positive multiple of {heads} channels because of {what}",
        )
        size, new = hidden // heads, rows
        if key and value:
            b.check(key.rank == 3, "key", f"has shape {key.shape}", "(batch, sequence, kv_hidden)")
            new = key.shape[1]
            for name in ("key", "value"):
                why = f"query has shape {query.shape} and {self.num_heads} heads to {self.kv_num_heads}"
                b.check_shape(name, batch, new, self.kv_num_heads * size, why=why)
        total = b.need("total_sequence_length")
        b.check(
            total.size == 1 and total.rank <= 1,
            "total_sequence_length",
            f"has shape {total.shape}",
            "a scalar or one element",
        )
        tokens = int(b.host("total_sequence_length").reshape(()))
        b.check(
            tokens >= new,
            "total_sequence_length",
            f"is {tokens}",
            f"at least the {new} new tokens of this call",
        )
        return Call(batch, rows, new, size, tokens, key is None)

    def _storage(self, b: Builder) -> DType:
        """The caches' element type."""
        t, past = b.need("query").dtype, b.get("past_key")
        wanted: tuple[DType, ...]
        if not self.quantized:
            storage, wanted = past.dtype if past else t, (t,)
        else:
            nibble = self.kv_cache_bit_width == 4
            wanted = (dtypes.uint8,) if nibble else (dtypes.int8, dtypes.float8e4m3fn)
            if self.kv_cache_bit_width == 0:
                wanted = (dtypes.int8, dtypes.float8e4m3fn, dtypes.uint8)
            storage = past.dtype if past else b.declared.get("present_key", wanted[0])
        reason = (
            f"k_quant_type={self.k_quant_type} and kv_cache_bit_width={self.kv_cache_bit_width or 'unset'}"
        )
        b.check(
            storage in wanted,
            "past_key",
            f"has type {storage}",
            f"{' or '.join(str(w) for w in wanted)} because {reason}",
        )
        return storage

    def _check_past(self, b: Builder, call: Call, width: int) -> int:
        """The rows of the past caches, 0 without them."""
        past, value = b.get("past_key"), b.get("past_value")
        if (past is None) != (value is None):
            missing, there = ("past_key", "past_value") if past is None else ("past_value", "past_key")
            raise ShapeError(f"{self.op}: {missing} is missing; expected it because {there} is given")
        if past is None:
            b.check(
                self.sliding_window_cache != 1,
                "past_key",
                "is missing",
                "a window-sized cache because sliding_window_cache=1",
            )
            b.check(
                call.prompt,
                "total_sequence_length",
                f"is {call.total}",
                f"{call.new}, the tokens of this call, because no past_key is given",
            )
            return 0
        why = (
            f"query gives batch {call.batch} and head size {call.head_size}, kv_num_heads={self.kv_num_heads}"
        )
        for name in ("past_key", "past_value"):
            b.check_shape(name, call.batch, self.kv_num_heads, "cache_length", width, why=why)
        b.check_shape("past_value", *past.shape, why=f"past_key has shape {past.shape}")
        had = past.shape[2]
        if self.sliding_window_cache == 1:
            b.check(
                had >= self.local_window_size,
                "past_key",
                f"has shape {past.shape}, a capacity of {had} rows",
                f"at least {self.local_window_size} rows because of local_window_size",
            )
        earlier = call.total - call.new
        b.check(
            self.sliding_window_cache == 1 or had >= earlier,
            "past_key",
            f"has shape {past.shape}",
            f"at least {earlier} rows because of {call.total} tokens in total {call.new} are new",
        )
        for name in ("key", "value"):
            shared = b.shares(f"present_{name}", f"past_{name}")
            b.check(
                not shared or self.sliding_window_cache == 1 or had >= call.total,
                f"past_{name}",
                f"has shape {past.shape} and is shared with present_{name}",
                f"at least {call.total} rows because of total_sequence_length",
            )
        b.check(
            call.prompt or call.rows <= 1 or call.batch <= 1,
            "query",
            f"has shape {b.need('query').shape}",
            f"batch 1 or one token because total_sequence_length={call.total} means a past context",
        )
        return had

    def _check_small_inputs(self, b: Builder, call: Call) -> None:
        check_lengths(b, call.batch)
        known = b.host_if_known("seqlens_k")
        if known is not None and known.size:
            low, high = int(known.min()), int(known.max())
            b.check(
                low >= 0 and high < call.total,
                "seqlens_k",
                f"holds {low} to {high}",
                f"0 to {call.total - 1} because total_sequence_length is {call.total}",
            )
        b.check_shape("head_sink", self.num_heads, why=f"num_heads={self.num_heads}")
        bias = b.get("attention_bias")
        if bias is not None:
            wanted = (call.batch, self.num_heads, call.rows, call.total)
            good = bias.rank == 4 and all(
                s in ({w, 1} if axis < 2 else {w})
                for axis, (s, w) in enumerate(zip(bias.shape, wanted, strict=False))
            )
            b.check(
                good,
                "attention_bias",
                f"has shape {bias.shape}",
                f"({call.batch} or 1, {self.num_heads} or 1, {call.rows}, {call.total})",
            )

    # Parts

    def _quant_type(self, x: str) -> str:
        return self.k_quant_type if x == "k" else self.v_quant_type

    def _scores(self, b: Builder, call: Call, t: DType) -> Scores | None:
        if not b.wants("output_qk"):
            return None
        b.check(self.qk_output != 0, "output_qk", "is wanted with qk_output=0", "qk_output 1 or 2")
        slot = b.output("output_qk", (call.batch, self.num_heads, call.rows, call.total), t)
        return Scores(slot, STAGES[self.qk_output])

    def _inputs(self, b: Builder, call: Call) -> tuple[Rows, Rows, Rows]:
        """Where the new Q, K and V lie."""
        query, d = b.need("query"), call.head_size
        if call.packed:
            first_key, first_value = self.num_heads * d, (self.num_heads + self.kv_num_heads) * d
            return (
                Rows.tokens_first(query, d),
                Rows.tokens_first(query, d, first_key),
                Rows.tokens_first(query, d, first_value),
            )
        return (
            Rows.tokens_first(query, d),
            Rows.tokens_first(b.need("key"), d),
            Rows.tokens_first(b.need("value"), d),
        )

    def _before(self, b: Builder, call: Call, span: Span, caches: list[Slot], present: int) -> list[Slot]:
        """Bring past rows to where the new ones are appended, and say where that is.

        A window-sized cache may have to give up rows that this call still reads, so there the rows
        it holds and all new ones meet in scratch memory.
        """
        lines = []
        for name, target in zip(("key", "value"), caches, strict=True):
            past = b.get(f"past_{name}")
            if past is not None and self.sliding_window_cache == 1:
                batch, heads, held, width = past.shape
                line = b.scratch(f"line_{name}", (batch, heads, held + call.new, width), past.dtype)
                cache.move(b, past, line, span, "held")
                lines.append(line)
                continue
            if past is not None and not b.shares(f"present_{name}", f"past_{name}"):
                cache.move(b, past, target, span, "past")
            lines.append(target)
        return lines

    def _stored(
        self, b: Builder, name: str, quant_type: str, line: Slot, head_size: int, nibbles: bool
    ) -> Stored:
        rows = Rows.heads_first(line)
        if quant_type == "NONE":
            return Stored(rows)
        scale = b.need(name)
        full = (*line.shape[:3], head_size)
        if quant_type == "PER_TENSOR":
            b.check(scale.size == 1, name, f"has shape {scale.shape}", "one element because of PER_TENSOR")
        else:
            # Rows of a cache come and go, so a scale of its own for each has no lasting meaning.
            aligned = (1,) * (4 - scale.rank) + scale.shape
            good = len(aligned) == 4 and all(
                s in (1, f) for s, f in zip(aligned, (full[0], full[1], 1, full[3]), strict=True)
            )
            b.check(
                good,
                name,
                f"has shape {scale.shape}",
                f"a shape that broadcasts to ({full[0]}, {full[1]}, 1, {full[3]})",
            )
        batch, head, _, channel = broadcast_strides(scale.shape)
        return Stored(rows, scale, (batch, head, 0, channel), "int4" if nibbles else "")

    def _norms(self, b: Builder) -> tuple[Norm | None, Norm | None]:
        q, k = b.get("q_norm_weight"), b.get("k_norm_weight")
        if (q is None) != (k is None):
            missing, there = ("q", "k") if q is None else ("k", "q")
            raise ShapeError(
                f"{self.op}: {missing}_norm_weight is missing; expected it beside {there}_norm_weight"
            )
        if q is None or k is None:
            return None, None
        size = self._sizes(b).head_size
        for name in ("q_norm_weight", "k_norm_weight"):
            b.check_shape(name, size, why=f"the head size is {size}")
        q_epsilon = self.qk_norm_epsilon if self.q_norm_epsilon is None else self.q_norm_epsilon
        k_epsilon = self.qk_norm_epsilon if self.k_norm_epsilon is None else self.k_norm_epsilon
        return Norm(q, q_epsilon), Norm(k, k_epsilon)

    def _check_positions(self, b: Builder, cos: Slot, *, first_only: bool) -> None:
        """Refuse positions outside of the tables where the host knows them; shaders clamp the others.

        What counts on from a first position may leave the tables, because padding comes last.
        """
        known = b.host_if_known("position_ids")
        if known is None or not known.size:
            return
        used = known.reshape(-1)[:1] if first_only else known
        low, high = int(used.min()), int(used.max())
        b.check(
            low >= 0 and high < cos.shape[0],
            "position_ids",
            f"holds {low} to {high}",
            f"0 to {cos.shape[0] - 1} because cos_cache has shape {cos.shape}",
        )

    def _rotaries(self, b: Builder, call: Call) -> tuple[Rotary | None, Rotary | None]:
        if not self.do_rotary:
            return None, None
        cos, sin = b.need("cos_cache"), b.need("sin_cache")
        limit = call.head_size // 2
        b.check(
            cos.rank == 2 and 0 < cos.shape[1] <= limit and cos.shape[0] > 0,
            "cos_cache",
            f"has shape {cos.shape}",
            f"(positions, up to {limit}) because the head size is {call.head_size}",
        )
        b.check_shape("sin_cache", *cos.shape, why=f"cos_cache has shape {cos.shape}")
        ids = b.get("position_ids")
        if ids is None:
            b.check(
                cos.shape[0] >= call.total,
                "cos_cache",
                f"has shape {cos.shape}",
                f"at least {call.total} positions because of total_sequence_length",
            )
            rotary = Rotary(cos.shape[1], self.rotary_interleaved == 1, (cos, sin))
            return rotary, rotary
        one = ids.size == 1
        b.check(
            one or ids.shape == (call.batch, call.rows),
            "position_ids",
            f"has shape {ids.shape}",
            f"({call.batch}, {call.rows}) or one element",
        )
        b.check(
            call.new in (0, call.rows),
            "key",
            f"has {call.new} tokens",
            f"the {call.rows} of query because position_ids serve both",
        )
        # A first prompt counts on from the first element, whatever the others say.
        offset = one or call.prompt
        self._check_positions(b, cos, first_only=offset)
        strides = (0, 0, 1) if offset else (call.rows, 1, 0)
        positions = Positions(ids.as_type(dtypes.int32), *strides)
        rotary = Rotary(cos.shape[1], self.rotary_interleaved == 1, (cos, sin), positions=positions)
        return rotary, rotary
