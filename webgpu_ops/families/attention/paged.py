"""com.microsoft PagedAttention, and what attentions over a paged cache share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder
from ...errors import SchemaError
from ..registry import Operator, register
from . import cache
from .cache import Norm, Rotary
from .core import (
    UNBOUNDED,
    Attention,
    Heads,
    Nibbles,
    Pages,
    Rows,
    Span,
    Stored,
    attend,
    broadcast_strides,
)
from .packed import packed_rows

QUANT_TYPES = ("NONE", "PER_TENSOR", "PER_CHANNEL")
CACHE_TYPES = ("", "float16", "bfloat16", "int8", "float8e4m3fn", "int4", "float4e2m1")


def check_norms(b: Builder, size: int, epsilon: float) -> tuple[Norm | None, Norm | None]:
    """Inputs q_norm_weight and k_norm_weight, which come together or not at all."""
    q, k = b.get("q_norm_weight"), b.get("k_norm_weight")
    missing, there = ("q", "k") if q is None else ("k", "q")
    b.check(
        (q is None) == (k is None),
        f"{missing}_norm_weight",
        "is missing",
        f"it beside {there}_norm_weight",
    )
    if q is None or k is None:
        return None, None
    for name in ("q_norm_weight", "k_norm_weight"):
        b.check_shape(name, size, why=f"the head size is {size}")
    return Norm(q, epsilon), Norm(k, epsilon)


def check_tables(b: Builder, size: int, offset: int, interleaved: bool) -> Rotary:
    """Inputs cos_cache and sin_cache, which turn channels from ``offset`` on."""
    cos, sin = b.need("cos_cache"), b.need("sin_cache")
    b.check(
        cos.rank == 2 and cos.shape[0] > 0 and cos.shape[1] > 0 and offset + 2 * cos.shape[1] <= size,
        "cos_cache",
        f"has shape {cos.shape}",
        f"(positions, up to {max(0, size - offset) // 2}) because the head size is {size} "
        f"and rotary_offset={offset}",
    )
    b.check_shape("sin_cache", *cos.shape, why=f"cos_cache has shape {cos.shape}")
    return Rotary(cos.shape[1], interleaved, (cos, sin), offset=offset)


def check_heads(op: str, heads: int, kv_heads: int) -> None:
    if heads <= 0 or kv_heads <= 0 or heads % kv_heads:
        raise SchemaError(
            f"{op}: num_heads={heads}, kv_num_heads={kv_heads}; "
            "expected positive numbers, the first a multiple of the second"
        )


def check_rotary_offset(op: str, offset: int) -> None:
    if offset < 0 or offset % 8:
        raise SchemaError(f"{op}: rotary_offset={offset}; expected a non-negative multiple of 8")


@dataclass(frozen=True)
class Call:
    """The sizes of one call, and where its new Q, K and V lie."""

    tokens: int
    batch: int
    size: int
    q: Rows
    k: Rows
    v: Rows | None
    span: Span
    pages: Pages

    @property
    def slots(self) -> int:
        """The rows of a cache."""
        return self.pages.rows * self.pages.count


@dataclass(frozen=True, kw_only=True)
class PagedOperator(Operator):
    """What PagedAttention and SparsePagedAttention have in common."""

    num_heads: int
    kv_num_heads: int
    do_rotary: int = 0
    is_causal: int = 1
    k_quant_type: str = "NONE"
    local_window_size: int = -1
    qk_norm_epsilon: float = 1e-6
    rotary_interleaved: int = 0
    rotary_offset: int = 0
    scale: float = 0.0
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    def __post_init__(self) -> None:
        check_heads(self.op, self.num_heads, self.kv_num_heads)
        check_rotary_offset(self.op, self.rotary_offset)
        for name in ("do_rotary", "is_causal", "rotary_interleaved"):
            self._expect(getattr(self, name) in (0, 1), name, "0 or 1")
        window = self.local_window_size
        self._expect(window == -1 or window > 0, "local_window_size", "-1 or a positive number")
        for name in ("k_quant_type", "v_quant_type"):
            self._expect(getattr(self, name) in QUANT_TYPES, name, f"one of {', '.join(QUANT_TYPES)}")
        epsilon = self.qk_norm_epsilon
        self._expect(math.isfinite(epsilon) and epsilon > 0, "qk_norm_epsilon", "a finite positive number")
        self._expect(math.isfinite(self.scale), "scale", "a finite number")
        self._expect(self.softcap >= 0, "softcap", "0 or a positive number")

    def _expect(self, ok: bool, name: str, expected: str) -> None:
        if not ok:
            raise SchemaError(f"{self.op}: {name}={getattr(self, name)!r}; expected {expected}")

    # What the call brings

    def _inputs(self, b: Builder, *, latent: bool = False) -> tuple[int, Rows, Rows, Rows | None]:
        """The head size, and where the new Q, K and V lie."""
        query, key, value = b.need("query"), b.get("key"), b.get("value")
        b.check(query.rank == 2, "query", f"has shape {query.shape}", "(tokens, hidden)")
        if latent:
            b.check(value is None, "value", "is given", "none because kv_cache_layout is LATENT")
            b.check(key is not None, "key", "is missing", "it because kv_cache_layout is LATENT")
        else:
            missing = "key" if key is None else "value"
            b.check((key is None) == (value is None), missing, "is missing", "key and value, or neither")
        n, kv = self.num_heads, self.kv_num_heads
        parts = n if key is not None else n + 2 * kv
        what = f"num_heads={n}" + ("" if key is not None else f" and kv_num_heads={kv} of packed QKV")
        hidden = query.shape[1]
        b.check(
            hidden > 0 and hidden % parts == 0,
            "query",
            f"has shape {query.shape}",
            f"a positive multiple of {parts} channels because of {what}",
        )
        size = hidden // parts
        if key is None:
            starts = (0, n * size, (n + kv) * size)
            q, k, v = (packed_rows(query, size, start) for start in starts)
            return size, q, k, v
        for name in ("key", "value"):
            why = f"query has shape {query.shape} and {n} heads to {kv}"
            b.check_shape(name, query.shape[0], kv * size, why=why)
        return (
            size,
            packed_rows(query, size),
            packed_rows(key, size),
            packed_rows(value, size) if value is not None else None,
        )

    def _call(self, b: Builder, *, latent: bool = False) -> Call:
        size, q, k, v = self._inputs(b, latent=latent)
        tokens = b.need("query").shape[0]
        cumulative, table, keys = (
            b.need("cumulative_sequence_length"),
            b.need("block_table"),
            b.need("key_cache"),
        )
        b.check(
            cumulative.rank == 1 and cumulative.size > 0,
            "cumulative_sequence_length",
            f"has shape {cumulative.shape}",
            "(batch + 1,)",
        )
        batch = cumulative.size - 1
        why = f"cumulative_sequence_length has shape {cumulative.shape}"
        b.check_shape("past_seqlens", batch, why=why)
        b.check_shape("block_table", batch, "max_blocks", why=why)
        b.check_shape("slot_mapping", tokens, why=f"query has {tokens} tokens")
        b.check_shape("head_sink", self.num_heads, why=f"num_heads={self.num_heads}")
        b.check(
            keys.rank == 4 and min(keys.shape) > 0,
            "key_cache",
            f"has shape {keys.shape}",
            "(num_blocks, block_size, kv_num_heads, cache_head_size), none of them 0",
        )
        blocks, rows = keys.shape[:2]
        limit = table.shape[1] * rows
        b.check(limit < UNBOUNDED, "block_table", f"has room for {limit} rows", f"fewer than {UNBOUNDED}")
        span = Span(
            total=limit,
            new=tokens,
            rows=tokens,
            lengths=b.need("past_seqlens"),
            cumulative=cumulative,
            tokens=tokens,
        )
        return Call(tokens, batch, size, q, k, v, span, Pages(table, rows, blocks))

    def _metadata(self, b: Builder, *counts: int) -> list[int]:
        """Input attention_metadata: bounds for a whole replay, of which 0 says nothing."""
        slot = b.get("attention_metadata")
        if slot is None:
            return [0] * max(counts)
        b.check(
            slot.rank == 1 and slot.size in counts,
            "attention_metadata",
            f"has shape {slot.shape}",
            " or ".join(f"({n},)" for n in counts),
        )
        bounds = [int(v) for v in b.host("attention_metadata")]
        b.check(min(bounds) >= 0, "attention_metadata", f"holds {bounds}", "no negative bounds")
        return bounds

    # Caches

    def _cache(self, b: Builder, name: str, size: int, logical: str, quant_type: str) -> Stored:
        """Where input ``name`` is updated in place, and how its rows are encoded."""
        x = name[0]
        keys, slot = b.need("key_cache"), b.need(name)
        nibbles: Nibbles = "int4" if logical == "int4" else "float4e2m1" if logical == "float4e2m1" else ""
        wanted = "uint8" if nibbles else logical
        b.check(
            slot.dtype.name == wanted if wanted else slot.dtype != dtypes.uint8,
            name,
            f"has type {slot.dtype}",
            f"{wanted or 'a type that names its elements'} because {x}_cache_dtype={logical!r}",
        )
        quantized = bool(nibbles) or slot.dtype in (dtypes.int8, dtypes.float8e4m3fn)
        b.check(
            quantized == (quant_type != "NONE"),
            name,
            f"holds {nibbles or slot.dtype} with {x}_quant_type={quant_type}",
            f"{x}_quant_type {'PER_TENSOR or PER_CHANNEL' if quantized else 'NONE'}",
        )
        width = -(-size // 2) if nibbles else size
        kv = self.kv_num_heads
        why = f"key_cache has shape {keys.shape}, kv_num_heads={kv} and the head size is {size}"
        b.check_shape(name, *keys.shape[:2], kv, width, why=why)
        out = f"{name}_out"
        if b.wants(out):
            target = b.output(out, slot.shape, slot.dtype)
            b.must_share(out, name)
        else:
            target = b.updates(name)
        rows = Rows(target, 0, width, kv * width)
        if not quantized:
            return Stored(rows)
        scale = b.need(f"{x}_scale")
        wants = "(1,)" if quant_type == "PER_TENSOR" else f"({kv}, 1, {size})"
        good = scale.size == 1 if quant_type == "PER_TENSOR" else scale.shape == (kv, 1, size)
        b.check(good, scale.name, f"has shape {scale.shape}", f"{wants} because of {quant_type}")
        _, head, _, channel = broadcast_strides(scale.shape)
        return Stored(rows, scale, (0, head, 0, channel), nibbles)

    def _prepare(self, b: Builder, call: Call, k: Stored, v: Stored | None) -> Rows:
        """Bring the new keys and values to the caches, and say where the queries then are."""
        q_norm, k_norm = check_norms(b, call.size, self.qk_norm_epsilon)
        rotary = None
        if self.do_rotary:
            rotary = check_tables(b, call.size, self.rotary_offset, self.rotary_interleaved == 1)
        q = call.q
        if q_norm is not None or rotary is not None:
            made = b.scratch("q", (call.tokens, self.num_heads * call.size), dtypes.float32)
            q = packed_rows(made, call.size)
            cache.prepare(
                b,
                call.q,
                Stored(q),
                call.span,
                batch=1,
                heads=self.num_heads,
                rows=call.tokens,
                channels=call.size,
                capacity=call.tokens,
                append=False,
                norm=q_norm,
                rotary=rotary,
            )
        for x, y, norm, turn in ((call.k, k, k_norm, rotary), (call.v, v, None, None)):
            if x is not None and y is not None:
                cache.prepare(
                    b,
                    x,
                    y,
                    call.span,
                    batch=1,
                    heads=self.kv_num_heads,
                    rows=call.tokens,
                    channels=call.size,
                    capacity=call.slots,
                    append=True,
                    norm=norm,
                    rotary=turn,
                    pages=call.pages,
                    slots=b.get("slot_mapping"),
                )
        return q

    def _window(self) -> tuple[int, int]:
        """The rows that a query sees ahead of its own and behind it."""
        behind = self.local_window_size - 1 if self.local_window_size > 0 else UNBOUNDED
        return 0 if self.is_causal else UNBOUNDED, behind


@register("PagedAttention")
@dataclass(frozen=True, kw_only=True)
class PagedAttention(PagedOperator):
    """Packed tokens of several sequences over a cache of pages, which the call extends in place."""

    k_cache_dtype: str = ""
    kv_cache_layout: str = "SEPARATE"
    v_cache_dtype: str = ""
    v_head_size: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("k_cache_dtype", "v_cache_dtype"):
            self._expect(
                getattr(self, name) in CACHE_TYPES, name, f"one of {', '.join(map(repr, CACHE_TYPES))}"
            )
        self._expect(self.kv_cache_layout in ("SEPARATE", "LATENT"), "kv_cache_layout", "SEPARATE or LATENT")
        self._expect(self.v_head_size >= 0, "v_head_size", "0 or a positive number")
        if self.latent:
            self._expect(self.kv_num_heads == 1, "kv_num_heads", "1 because kv_cache_layout is LATENT")
            self._expect(self.v_quant_type == "NONE", "v_quant_type", "NONE because there is no value_cache")
        else:
            self._expect(self.v_head_size == 0, "v_head_size", "0 because kv_cache_layout is SEPARATE")

    @property
    def latent(self) -> bool:
        """Whether V is the leading channels of K."""
        return self.kv_cache_layout == "LATENT"

    def plan(self, b: Builder) -> None:
        call = self._call(b, latent=self.latent)
        value_size = self.v_head_size or call.size
        if self.latent:
            b.check(b.get("value_cache") is None, "value_cache", "is given", "none in layout LATENT")
            b.check(not b.wants("value_cache_out"), "value_cache_out", "is wanted", "none in layout LATENT")
            b.check(
                value_size <= call.size,
                "query",
                f"has heads of {call.size} channels",
                f"at least v_head_size={value_size}",
            )
            b.check(
                value_size == call.size or self.scale != 0,
                "query",
                f"has heads of {call.size} channels and the node no scale",
                f"a scale because v_head_size={value_size} differs",
            )
        k = self._cache(b, "key_cache", call.size, self.k_cache_dtype, self.k_quant_type)
        v = (
            None
            if self.latent
            else self._cache(b, "value_cache", call.size, self.v_cache_dtype, self.v_quant_type)
        )
        bounds = self._metadata(b, 2, 3)
        y = b.output("output", (call.tokens, self.num_heads * value_size), b.need("query").dtype)
        if call.tokens == 0:
            return
        if call.batch == 0:
            b.zero(y)
            return
        q = self._prepare(b, call, k, v)
        ahead, behind = self._window()
        attend(
            b,
            Attention(
                heads=Heads(
                    call.batch, self.num_heads, self.kv_num_heads, call.tokens, call.size, value_size
                ),
                span=call.span,
                q=q,
                k=k,
                v=v or k,
                y=packed_rows(y, value_size),
                scale=self.scale or 1 / math.sqrt(call.size),
                softcap=self.softcap,
                ahead=ahead,
                behind=behind,
                sink=b.get("head_sink"),
                pages=call.pages,
                longest=bounds[1],
            ),
        )
