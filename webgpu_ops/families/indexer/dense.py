"""SparseAttentionIndexer: requests of one length, as a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...core import dtypes
from ...core.plan import Builder, Slot
from ..layout import View, contiguous
from ..registry import register
from ..standard.copying import move
from .core import Call, Tokens, keep_pending, pool_blocks, pool_entries, select, show, tabulate
from .policy import Indexer


@register("SparseAttentionIndexer")
@dataclass(frozen=True, kw_only=True)
class SparseAttentionIndexer(Indexer):
    """The state is what the shapes say: raw keys (qsa), or entries and pending tokens (csa)."""

    csa_inputs: ClassVar[tuple[str, ...]] = (
        "gate",
        "position_bias",
        "head_weights",
        "position_ids",
        "past_proj_buffer",
    )
    qsa_inputs: ClassVar[tuple[str, ...]] = ("mask",)
    csa_outputs: ClassVar[tuple[str, ...]] = ("present_proj_buffer",)

    def plan(self, b: Builder) -> None:
        b.path = self.policy
        self.check_company(b)
        heads, size, queries, keys = self.split_query(b, 3)
        batch, sequence = b.need("query").shape[:2]
        why = f"query has shape {b.need('query').shape}"
        b.check_shape("key", batch, sequence, keys.slot.shape[-1], why=why)
        b.check_shape("past_key", batch, "past", size, why=why)
        cos, sin = self.check_tables(b, batch, size)
        past = self._past(b)
        call = Call(
            policy=self.policy,
            ratio=self.compress_ratio,
            batch=batch,
            heads=heads,
            size=size,
            epsilon=self.epsilon,
            cos=cos,
            sin=sin,
            sequence=sequence,
            past=past,
            total=past + sequence,
        )
        width = self.selection_width
        selected = b.output("selected_indices", (batch, sequence, width), dtypes.int32)
        if self.policy == "qsa":
            self._blocks(b, call, queries, keys, selected)
        else:
            self._windows(b, call, queries, keys, selected)

    def _past(self, b: Builder) -> int:
        """How many rows of past_key are valid."""
        given = b.get("past_sequence_length")
        rows = b.need("past_key").shape[1]
        if given is None:
            return rows
        b.check(given.size == 1, "past_sequence_length", f"has shape {given.shape}", "one number")
        past = int(b.host("past_sequence_length").reshape(()))
        b.check(
            0 <= past <= rows,
            "past_sequence_length",
            f"is {past}",
            f"0 to {rows} because past_key has {rows} rows",
        )
        return past

    def _present(self, b: Builder, past: int, added: int) -> Slot:
        """present_key with the valid rows of past_key in it, and room for ``added`` rows behind them."""
        before = b.need("past_key")
        batch, rows, size = before.shape
        if b.get("past_sequence_length") is None:
            present = b.output("present_key", (batch, rows + added, size), before.dtype)
            target = replace(View.of(present), shape=before.shape)
            move(b, before, target)
            return present
        b.check(
            past + added <= rows,
            "past_key",
            f"has {rows} rows",
            f"at least {past + added}: {past} valid ones and {added} that this call adds",
        )
        in_place = b.shares("present_key", "past_key")
        present = b.output("present_key", before.shape, before.dtype)
        if not in_place:
            b.copy(before, present)
        return present

    def _blocks(self, b: Builder, call: Call, queries: Tokens, keys: Tokens, selected: Slot) -> None:
        mask = b.get("mask")
        b.check_shape(
            "mask",
            call.batch,
            call.total,
            why=f"{call.past} tokens came before and query has {call.sequence}",
        )
        rows = call.cos.shape[-2]
        b.check(
            rows >= call.total or not call.sequence,
            "cos_cache",
            f"has {rows} rows",
            f"at least {call.total}, one for each token",
        )
        present = self._present(b, call.past, call.sequence)
        shape = (call.batch, call.sequence, call.size)
        new = View(keys.slot, shape, (call.sequence * keys.stride, keys.stride, 1), keys.column)
        strides = contiguous(present.shape)
        move(b, new, View(present, shape, strides, call.past * call.size))
        if mask is not None:
            call = replace(call, visible=show(b, mask))
        table = tabulate(b, call, call.batch * call.sequence, None)
        blocks = pool_blocks(b, call, present, b.need("key_norm_weight"))
        select(
            b,
            call,
            queries,
            b.need("query_norm_weight"),
            table,
            blocks,
            selected,
            entries=blocks.rows,
            top=self.top,
            scale=self.score_scale(call.heads, call.size),
        )

    def _windows(self, b: Builder, call: Call, queries: Tokens, keys: Tokens, selected: Slot) -> None:
        batch, sequence, ratio, wide = call.batch, call.sequence, call.ratio, 2 * call.size
        why = f"query has shape {b.need('query').shape} and heads have {call.size} channels"
        b.check_shape("gate", batch, sequence, wide, why=why)
        b.check_shape("position_bias", ratio, wide, why=f"compress_ratio is {ratio}")
        b.check_shape("head_weights", batch, sequence, call.heads, why=why)
        b.check_shape("position_ids", batch, sequence, why=why)
        b.check_shape("past_proj_buffer", 2, batch, "length", wide, why=why)
        buffer = b.need("past_proj_buffer")
        pending = buffer.shape[2]
        b.check(
            pending < 2 * ratio,
            "past_proj_buffer",
            f"holds {pending} tokens",
            f"at most {2 * ratio - 1} because compress_ratio is {ratio}",
        )
        rows = call.cos.shape[-2]
        self.check_ids(b, rows)
        whole = (pending + sequence) // ratio
        closed = whole - (pending >= ratio)
        last = (call.past + closed - 1) * ratio
        b.check(
            last < rows or not closed,
            "cos_cache",
            f"has {rows} rows",
            f"at least {last + 1} because entry {call.past + closed - 1} stands at position {last}",
        )
        kept = pending + sequence - max(0, whole - 1) * ratio
        call = replace(call, pending=pending, closed=closed)
        present = self._present(b, call.past, closed)
        table = tabulate(b, call, batch * sequence, b.need("position_ids"))
        entries = pool_entries(
            b,
            call,
            keys,
            buffer,
            present,
            b.need("key_norm_weight"),
            slots=batch * closed,
            kv_rows=pending,
            gate=b.need("gate"),
            plane=buffer.size // 2,
            bias=b.need("position_bias"),
        )
        proj = b.output_if_wanted("present_proj_buffer", (2, batch, kept, wide), buffer.dtype)
        if proj is not None:
            for plane, new in enumerate((keys, Tokens(b.need("gate"), wide))):
                keep_pending(
                    b,
                    call,
                    new,
                    buffer,
                    proj,
                    width=wide,
                    kv_rows=pending,
                    kept_rows=kept,
                    kv_at=plane * buffer.size // 2,
                    kept_at=plane * proj.size // 2,
                )
        select(
            b,
            call,
            queries,
            b.need("query_norm_weight"),
            table,
            entries,
            selected,
            entries=call.past + closed,
            top=self.top,
            scale=self.score_scale(call.heads, call.size),
            head_weights=b.need("head_weights"),
        )
