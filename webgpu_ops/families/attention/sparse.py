"""com.microsoft DynamicSparseAttention and SparseAttention: a contiguous cache, of which a part is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..registry import Operator, register
from . import cache
from .cache import Norm, Rotary
from .cache import Positions as Ids
from .core import UNBOUNDED, Attention, Heads, Rows, Span, Stored, attend
from .fresh import check_lengths
from .paged import check_heads, check_norms, check_rotary_offset, check_tables
from .selection import Others, Positions, mark, pick
from .sparse_paged import MODES, SOURCES, check_selection

BLOCK_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Inputs:
    """The sizes of a call, and where its new Q, K and V lie."""

    batch: int
    rows: int
    size: int
    q: Rows
    k: Rows
    v: Rows


def separate(b: Builder, heads: int, kv_heads: int) -> Inputs:
    """Query ``[B, S, H * D]`` with key and value ``[B, S, K * D]``, or packed QKV."""
    query, key, value = b.need("query"), b.get("key"), b.get("value")
    b.check(query.rank == 3, "query", f"has shape {query.shape}", "(batch, sequence, hidden)")
    missing = "key" if key is None else "value"
    b.check((key is None) == (value is None), missing, "is missing", "key and value, or neither")
    batch, rows, hidden = query.shape
    parts = heads if key is not None else heads + 2 * kv_heads
    what = f"num_heads={heads}" + ("" if key is not None else f" and kv_num_heads={kv_heads} of packed QKV")
    b.check(
        hidden > 0 and hidden % parts == 0,
        "query",
        f"has shape {query.shape}",
        f"a positive multiple of {parts} channels because of {what}",
    )
    size = hidden // parts
    if key is None or value is None:
        starts = (0, heads * size, (heads + kv_heads) * size)
        q, k, v = (Rows.tokens_first(query, size, start) for start in starts)
        return Inputs(batch, rows, size, q, k, v)
    why = f"query has shape {query.shape} and {heads} heads to {kv_heads}"
    for name in ("key", "value"):
        b.check_shape(name, batch, rows, kv_heads * size, why=why)
    return Inputs(batch, rows, size, *(Rows.tokens_first(x, size) for x in (query, key, value)))


def extend(
    b: Builder,
    x: Inputs,
    span: Span,
    caches: tuple[Slot, Slot],
    heads: int,
    norms: tuple[Norm | None, Norm | None],
    rotary: Rotary | None,
) -> tuple[Rows, Stored, Stored]:
    """Append the new rows to the caches ``[B, K, C, D]``, which hold the past ones; Q, K and V as
    attention reads them."""
    q, (q_norm, k_norm) = x.q, norms
    if q_norm is not None or rotary is not None:
        made = b.scratch("q", (x.batch, x.rows, heads * x.size), dtypes.float32)
        q = Rows.tokens_first(made, x.size)
        cache.prepare(
            b,
            x.q,
            Stored(q),
            span,
            batch=x.batch,
            heads=heads,
            rows=x.rows,
            channels=x.size,
            capacity=x.rows,
            append=False,
            norm=q_norm,
            rotary=rotary,
        )
    stored = []
    for new, slot, norm, turn in ((x.k, caches[0], k_norm, rotary), (x.v, caches[1], None, None)):
        target = Stored(Rows.heads_first(slot))
        cache.prepare(
            b,
            new,
            target,
            span,
            batch=x.batch,
            heads=slot.shape[1],
            rows=x.rows,
            channels=x.size,
            capacity=slot.shape[2],
            append=True,
            norm=norm,
            rotary=turn,
        )
        stored.append(target)
    return q, stored[0], stored[1]


def held(b: Builder, span: Span, name: str) -> Slot:
    """Output ``present_<name>`` with the rows that ``past_<name>`` holds."""
    past = b.need(f"past_{name}")
    present = b.output(f"present_{name}", past.shape, past.dtype)
    if not b.shares(f"present_{name}", f"past_{name}"):
        cache.move(b, past, present, span, "past")
    return present


def check_total(b: Builder, rows: int, capacity: int, room: str) -> int | None:
    """Input total_sequence_length, where its value is known: what fits ``capacity``, named ``room``."""
    slot = b.need("total_sequence_length")
    b.check(
        slot.size == 1 and slot.rank <= 1, slot.name, f"has shape {slot.shape}", "a scalar or one element"
    )
    known = b.host_if_known("total_sequence_length")
    if known is None:
        return None
    total = int(known.reshape(()))
    b.check(rows <= total, slot.name, f"is {total}", f"at least the {rows} tokens of this call")
    b.check(total <= capacity, slot.name, f"is {total}", f"at most {capacity} because of {room}")
    return total


def check_turns(b: Builder, total: int | None) -> None:
    """Whether the rotary tables reach the last of ``total`` tokens, where these are known."""
    cos = b.need("cos_cache")
    b.check(
        total is None or cos.shape[0] >= total,
        "cos_cache",
        f"has shape {cos.shape}",
        f"at least {total} positions because of total_sequence_length",
    )


def check_range(b: Builder, name: str, least: int, most: int, why: str) -> None:
    """The numbers in input ``name``, where they are known."""
    known = b.host_if_known(name)
    if known is not None and known.size:
        low, high = int(known.min()), int(known.max())
        b.check(
            low >= least and high <= most, name, f"holds {low} to {high}", f"{least} to {most} because {why}"
        )


@register("DynamicSparseAttention")
@dataclass(frozen=True, kw_only=True)
class DynamicSparseAttention(Operator):
    """Attention to selected rows of the cache, or to a window and selected rows of another cache."""

    num_heads: int
    kv_num_heads: int
    attention_mode: str = "selected_only"
    auxiliary_kv_shared: int = 0
    do_rotary: int = 0
    is_causal: int = 1
    local_window_size: int = -1
    qk_norm_epsilon: float = 1e-6
    rotary_interleaved: int = 0
    rotary_offset: int = 0
    scale: float = 0.0
    selected_kv_source: str = "main"
    smooth_softmax: int = 0

    def __post_init__(self) -> None:
        def need(ok: bool, name: str, expected: str) -> None:
            if not ok:
                raise SchemaError(f"{self.op}: {name}={getattr(self, name)!r}; expected {expected}")

        check_heads(self.op, self.num_heads, self.kv_num_heads)
        check_rotary_offset(self.op, self.rotary_offset)
        need(self.attention_mode in MODES, "attention_mode", " or ".join(MODES))
        need(self.selected_kv_source in SOURCES, "selected_kv_source", " or ".join(SOURCES))
        need(self.is_causal == 1, "is_causal", "1")
        source = "auxiliary" if self.local else "main"
        need(
            self.selected_kv_source == source,
            "selected_kv_source",
            f"{source} because attention_mode is {self.attention_mode}",
        )
        need(
            not self.local or self.local_window_size > 0,
            "local_window_size",
            "a positive number because attention_mode is local_plus_selected",
        )
        epsilon = self.qk_norm_epsilon
        need(math.isfinite(epsilon) and epsilon > 0, "qk_norm_epsilon", "a finite positive number")
        for name in ("auxiliary_kv_shared", "do_rotary", "rotary_interleaved", "smooth_softmax"):
            need(getattr(self, name) in (0, 1), name, "0 or 1")

    @property
    def local(self) -> bool:
        """Whether a window of the main cache is seen too."""
        return self.attention_mode == "local_plus_selected"

    def plan(self, b: Builder) -> None:
        x = separate(b, self.num_heads, self.kv_num_heads)
        kv, t = self.kv_num_heads, b.need("query").dtype
        check_selection(b, x.batch * x.rows)
        check_lengths(b, x.batch)
        b.check_shape("head_sink", self.num_heads, why=f"num_heads={self.num_heads}")
        norms = check_norms(b, x.size, self.qk_norm_epsilon)
        others = self._others(b, x)
        capacity, total, fresh = self._capacity(b, x)
        rotary = self._rotary(b, x, total)
        check_range(b, "seqlens_k", 0, capacity - 1, f"the cache has room for {capacity} rows")
        y = b.output("output", (x.batch, x.rows, self.num_heads * x.size), t)
        span = Span(total=capacity, new=x.rows, rows=x.rows, lengths=b.need("seqlens_k"), add=1)
        if fresh:
            shape = (x.batch, kv, capacity, x.size)
            caches = (b.output("present_key", shape, t), b.output("present_value", shape, t))
        else:
            caches = (held(b, span, "key"), held(b, span, "value"))
        if x.batch * x.rows == 0:
            return
        q, k, v = extend(b, x, span, caches, self.num_heads, norms, rotary)
        window = Attention(
            heads=Heads(x.batch, self.num_heads, kv, x.rows, x.size, x.size),
            span=span,
            q=q,
            k=k,
            v=v,
            y=Rows.tokens_first(y, x.size),
            scale=self.scale or 1 / math.sqrt(x.size),
            ahead=0,
            behind=self.local_window_size - 1,
            sink=b.get("head_sink"),
            smooth=self.smooth_softmax == 1,
        )
        what: Positions | Others = Positions(ahead=0)
        if others is not None:
            k, v, what = others
        picks = pick(b, b.need("selected_indices"), b.need("selected_counts"), span, what, share=x.rows)
        chosen = replace(
            window,
            heads=replace(window.heads, batch=x.batch * x.rows, rows=1),
            span=picks,
            q=replace(q, batch=0),
            k=k,
            v=v,
            y=replace(window.y, batch=0),
            ahead=UNBOUNDED,
            behind=UNBOUNDED,
        )
        attend(b, *([window] if self.local else []), chosen)

    def _capacity(self, b: Builder, x: Inputs) -> tuple[int, int | None, bool]:
        """The rows of the main cache, the tokens of the longest entry where that is known, and whether
        nothing came before this call."""
        past, value = b.get("past_key"), b.get("past_value")
        missing = "past_key" if past is None else "past_value"
        b.check((past is None) == (value is None), missing, "is missing", "both caches or neither")
        if past is None:
            check_total(b, x.rows, UNBOUNDED, "the largest cache")
            total = int(b.host("total_sequence_length").reshape(()))
            b.check(
                total == x.rows,
                "total_sequence_length",
                f"is {total}",
                f"{x.rows}, the tokens of this call, because no past_key is given",
            )
            return total, total, True
        why = f"query gives batch {x.batch} and head size {x.size}, kv_num_heads={self.kv_num_heads}"
        b.check_shape("past_key", x.batch, self.kv_num_heads, "capacity", x.size, why=why)
        b.check_shape("past_value", *past.shape, why=f"past_key has shape {past.shape}")
        room = f"the capacity of past_key, whose shape is {past.shape}"
        return past.shape[2], check_total(b, x.rows, past.shape[2], room), False

    def _rotary(self, b: Builder, x: Inputs, total: int | None) -> Rotary | None:
        if not self.do_rotary:
            return None
        rotary = check_tables(b, x.size, self.rotary_offset, self.rotary_interleaved == 1)
        rows = b.need("cos_cache").shape[0]
        ids = b.get("position_ids")
        if ids is None:
            check_turns(b, total)
            return rotary
        b.check_shape("position_ids", x.batch, x.rows, why=f"query holds ({x.batch}, {x.rows}) tokens")
        check_range(b, "position_ids", 0, rows - 1, f"cos_cache has {rows} rows")
        return replace(rotary, positions=Ids(ids.as_type(dtypes.int32), x.rows, 1, 0))

    def _others(self, b: Builder, x: Inputs) -> tuple[Stored, Stored, Others] | None:
        """The auxiliary cache ``[B, K, capacity, D]``, if it is selected from."""
        key, value = b.get("auxiliary_key"), b.get("auxiliary_value")
        why = f"query gives batch {x.batch} and head size {x.size}, kv_num_heads={self.kv_num_heads}"
        b.check_shape("auxiliary_key", x.batch, self.kv_num_heads, "capacity", x.size, why=why)
        if key is not None:
            b.check_shape("auxiliary_value", *key.shape, why=f"auxiliary_key has shape {key.shape}")
        if self.selected_kv_source != "auxiliary":
            return None
        b.check(key is not None, "auxiliary_key", "is missing", "it because selected_kv_source is auxiliary")
        if value is None and self.auxiliary_kv_shared:
            value = key
        b.check(value is not None, "auxiliary_value", "is missing", "it unless auxiliary_kv_shared is 1")
        assert key is not None and value is not None
        stored = (Stored(Rows.heads_first(key)), Stored(Rows.heads_first(value)))
        return *stored, Others(key.shape[2])


@register("SparseAttention")
@dataclass(frozen=True, kw_only=True)
class SparseAttention(Operator):
    """Causal attention over the blocks of the cache that a layout, one for each head in turn, names."""

    num_heads: int
    kv_num_heads: int
    sparse_block_size: int
    do_rotary: int = 0
    rotary_interleaved: int = 0
    scale: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.op, self.num_heads, self.kv_num_heads)
        if self.sparse_block_size not in BLOCK_SIZES:
            raise SchemaError(
                f"{self.op}: sparse_block_size={self.sparse_block_size}; expected one of {BLOCK_SIZES}"
            )

    def plan(self, b: Builder) -> None:
        x = separate(b, self.num_heads, self.kv_num_heads)
        past, kv = b.need("past_key"), self.kv_num_heads
        why = f"query gives batch {x.batch} and head size {x.size}, kv_num_heads={kv}"
        b.check_shape("past_key", x.batch, kv, "max_cache_sequence_length", x.size, why=why)
        b.check_shape("past_value", *past.shape, why=f"past_key has shape {past.shape}")
        b.check_shape("key_total_sequence_lengths", x.batch, why=f"query has batch {x.batch}")
        starts, columns = self._layouts(b)
        capacity, blocks = past.shape[2], starts.shape[1] - 1
        known = min(capacity, blocks * self.sparse_block_size)
        room = f"past_key with shape {past.shape} and {blocks} blocks of {self.sparse_block_size} tokens"
        total = check_total(b, x.rows, known, room)
        check_range(
            b, "key_total_sequence_lengths", 0, known if total is None else total, "that is the longest"
        )
        rotary = None
        if self.do_rotary:
            rotary = check_tables(b, x.size, 0, self.rotary_interleaved == 1)
            check_turns(b, total)
        y = b.output("output", (x.batch, x.rows, self.num_heads * x.size), b.need("query").dtype)
        span = Span(total=capacity, new=x.rows, rows=x.rows, lengths=b.need("key_total_sequence_lengths"))
        caches = (held(b, span, "key"), held(b, span, "value"))
        if x.batch * x.rows == 0:
            return
        q, k, v = extend(b, x, span, caches, self.num_heads, (None, None), rotary)
        attend(
            b,
            Attention(
                heads=Heads(x.batch, self.num_heads, kv, x.rows, x.size, x.size),
                span=span,
                q=q,
                k=k,
                v=v,
                y=Rows.tokens_first(y, x.size),
                scale=self.scale or 1 / math.sqrt(x.size),
                ahead=0,
                blocks=mark(b, starts, columns, self.sparse_block_size),
            ),
        )

    def _layouts(self, b: Builder) -> tuple[Slot, Slot]:
        """The block masks by compressed rows."""
        starts, columns = b.need("block_row_indices"), b.need("block_col_indices")
        b.check(
            starts.rank == 2 and starts.shape[0] > 0 and starts.shape[1] > 1,
            starts.name,
            f"has shape {starts.shape}",
            "(num_layout, max_blocks + 1)",
        )
        layouts = starts.shape[0]
        b.check(
            self.num_heads % layouts == 0,
            starts.name,
            f"has {layouts} layouts",
            f"a divisor of num_heads={self.num_heads}",
        )
        b.check_shape(columns.name, layouts, "max_nnz_blocks", why=f"{starts.name} has shape {starts.shape}")
        return starts, columns
