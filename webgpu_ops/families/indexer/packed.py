"""PackedSparseAttentionIndexer: requests of several lengths, whose metadata stay on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...core import dtypes
from ...core.plan import Builder, Slot
from ..registry import register
from .core import LIMIT, Call, Tokens, keep_pending, lanes, pool_entries, select, tabulate
from .policy import Indexer

INDEXSHARE = ("indexshare_mode", "merged_indices", "merged_counts", "merged_status")


@register("PackedSparseAttentionIndexer")
@dataclass(frozen=True, kw_only=True)
class PackedSparseAttentionIndexer(Indexer):
    """State of fixed capacity, refused request by request on the device where it would not fit."""

    state_capacity: int
    state_update_capacity: int = 0
    max_output_entries: int = 0
    indexshare_state_policy: str = "default"

    csa_inputs: ClassVar[tuple[str, ...]] = (
        "gate",
        "position_bias",
        "head_weights",
        "position_ids",
        "past_gate_buffer",
    )
    qsa_inputs: ClassVar[tuple[str, ...]] = ("state_update_capture_count", "state_update_active")
    csa_outputs: ClassVar[tuple[str, ...]] = ("present_gate_buffer",)
    qsa_outputs: ClassVar[tuple[str, ...]] = ("state_update",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            0 < self.state_capacity < LIMIT, "state_capacity", self.state_capacity, "a positive int32"
        )
        updates = self.state_update_capacity
        self.require(0 <= updates <= 8, "state_update_capacity", updates, "0 to 8")
        self.require(self.policy == "qsa" or not updates, "state_update_capacity", updates, self._nothing)
        policies = ("default", "hold", "advance")
        state_policy = self.indexshare_state_policy
        self.require(
            state_policy in policies,
            "indexshare_state_policy",
            state_policy,
            "'default', 'hold' or 'advance'",
        )
        width = self.max_output_entries
        self.require(
            width == 0 or self.selection_width <= width < LIMIT,
            "max_output_entries",
            width,
            f"at least {self.selection_width}, which a selection may fill",
        )

    def plan(self, b: Builder) -> None:
        self.check_company(b)
        reuse = self._reuse(b)
        held = reuse and (
            self.indexshare_state_policy == "hold"
            or (self.indexshare_state_policy == "default" and self.policy == "qsa")
        )
        b.path = f"{self.policy}, {'held' if held else 'reuse'}" if reuse else self.policy
        heads, size, queries, keys = self.split_query(b, 2)
        batch = self._batch(b)
        rows = self._rows(b, batch, keys, reuse=reuse, held=held)
        cos, sin = self.check_tables(b, batch, size)
        self._check_state(b, batch, rows, size, heads)
        call = Call(
            policy=self.policy,
            ratio=self.compress_ratio,
            batch=batch,
            heads=heads,
            size=size,
            epsilon=self.epsilon,
            cos=cos,
            sin=sin,
        )
        width = self.max_output_entries or self.selection_width
        count = batch if reuse else b.need("query").shape[0]
        selected = b.output("selected_indices", (count, width), dtypes.int32)
        counts = b.output("selected_counts", (count,), dtypes.int32)
        share = b.output_if_wanted("indexshare_status", (count,), dtypes.int32)
        if reuse:
            b.copy(b.need("merged_indices"), selected)
            b.copy(b.need("merged_counts"), counts)
            if share is not None:
                b.copy(b.need("merged_status"), share)
        elif share is not None:
            b.zero(share)
        state = self._carry(b, "key_state")
        buffers = [("kv_buffer", keys, self._carry(b, "kv_buffer"))]
        gate = b.get("gate")
        if gate is not None:
            buffers.append(("gate_buffer", Tokens(gate, 2 * size), self._carry(b, "gate_buffer")))
        update = b.output_if_wanted("state_update", (batch, self.state_update_capacity, size), state.dtype)
        if held:
            self._hold(b, batch, update)
            return
        call = replace(call, requests=self._judge(b, call, rows))
        room = 2 * call.ratio - 1
        entries = pool_entries(
            b,
            call,
            keys,
            b.need("past_kv_buffer"),
            state,
            b.need("key_norm_weight"),
            slots=rows // call.ratio + batch,
            kv_rows=room,
            gate=gate,
            gates=b.get("past_gate_buffer"),
            bias=b.get("position_bias"),
        )
        if update is not None:
            self._capture(b, call, keys, state, update)
        for name, new, kept in buffers:
            past = b.need(f"past_{name}")
            keep_pending(b, call, new, past, kept, width=past.shape[2], kv_rows=room, kept_rows=room)
        if reuse:
            return
        select(
            b,
            call,
            queries,
            b.need("query_norm_weight"),
            tabulate(b, call, rows, b.get("position_ids")),
            entries,
            selected,
            entries=self.state_capacity,
            top=self.top,
            scale=self.score_scale(heads, size),
            head_weights=b.get("head_weights"),
            counts=counts,
        )

    # Checks

    def _reuse(self, b: Builder) -> bool:
        """Whether the call takes a merged selection instead of making one."""
        given = [name for name in INDEXSHARE if b.get(name) is not None]
        shared = bool(given) or bool(self.max_output_entries)
        for name in INDEXSHARE if shared else ():
            what = f"it because {given[0]} is given" if given else "it because max_output_entries is set"
            b.check(name in given, name, "is missing", what)
        if not shared:
            b.check(
                not b.wants("indexshare_status"),
                "indexshare_status",
                "is an output",
                "none without indexshare_mode",
            )
            return False
        b.check(
            self.max_output_entries > 0,
            "max_output_entries",
            "is missing",
            "the width of merged_indices because indexshare_mode is given",
        )
        b.check_shape("indexshare_mode", 1)
        mode = int(b.host("indexshare_mode")[0])
        b.check(mode in (0, 1), "indexshare_mode", f"is {mode}", "0 (refresh) or 1 (reuse)")
        return mode == 1

    def _batch(self, b: Builder) -> int:
        b.check_shape("cumulative_sequence_lengths", "batch + 1")
        offsets = b.need("cumulative_sequence_lengths")
        b.check(offsets.size > 0, "cumulative_sequence_lengths", "is empty", "batch_size + 1 offsets")
        batch = offsets.size - 1
        b.check_shape("past_sequence_lengths", batch, why=f"there are {batch} requests")
        return batch

    def _rows(self, b: Builder, batch: int, keys: Tokens, *, reuse: bool, held: bool) -> int:
        """How many new tokens there are; refuses other numbers of rows."""
        query = b.need("query")
        packed = b.get("key") is None
        rows = query.shape[0]
        why = f"query has {rows} rows"
        if reuse:
            rows = 0 if held else batch
            why = f"indexshare_mode is 1, the state is {'held' if held else 'advanced'}"
            why += f", and there are {batch} requests"
            wanted = rows if packed else 0
            b.check_shape("query", wanted, query.shape[1], why=why)
        merged = batch if reuse else 0
        share = f"indexshare_mode is {int(reuse)} and there are {batch} requests"
        b.check_shape("merged_indices", merged, self.max_output_entries, why=share)
        b.check_shape("merged_counts", merged, why=share)
        b.check_shape("merged_status", merged, why=share)
        b.check(
            batch > 0 or not rows,
            "cumulative_sequence_lengths",
            "holds no request",
            f"at least one because {why}",
        )
        if not packed:
            b.check_shape("key", rows, keys.stride, why=why)
        return rows

    def _check_state(self, b: Builder, batch: int, rows: int, size: int, heads: int) -> None:
        ratio, wide = self.compress_ratio, 2 * size
        why = f"there are {batch} requests and state_capacity is {self.state_capacity}"
        b.check_shape("past_key_state", batch, self.state_capacity, size, why=why)
        why = f"there are {batch} requests and compress_ratio is {ratio}"
        columns = size if self.policy == "qsa" else wide
        b.check_shape("past_kv_buffer", batch, 2 * ratio - 1, columns, why=why)
        b.check_shape("past_gate_buffer", batch, 2 * ratio - 1, wide, why=why)
        b.check_shape("past_state_lengths", batch, 2, why=f"there are {batch} requests")
        why = f"there are {rows} new tokens and heads have {size} channels"
        b.check_shape("gate", rows, wide, why=why)
        b.check_shape("position_bias", ratio, wide, why=f"compress_ratio is {ratio}")
        b.check_shape("head_weights", b.need("query").shape[0], heads, why="query has as many rows and heads")
        b.check_shape("position_ids", rows, why=why)
        b.check_shape("state_update_capture_count", batch, why=f"there are {batch} requests")
        b.check_shape("state_update_active", 1)
        b.check(
            self.state_update_capacity == 0 or b.get("state_update_capture_count") is not None,
            "state_update_capture_count",
            "is missing",
            f"it because state_update_capacity is {self.state_update_capacity}",
        )
        self.check_ids(b, b.need("cos_cache").shape[-2])

    # Steps

    def _carry(self, b: Builder, name: str) -> Slot:
        """Output ``present_<name>`` with the content of ``past_<name>``."""
        past = b.need(f"past_{name}")
        in_place = b.shares(f"present_{name}", past.name)
        present = b.output(f"present_{name}", past.shape, past.dtype)
        if not in_place:
            b.copy(past, present)
        return present

    def _hold(self, b: Builder, batch: int, update: Slot | None) -> None:
        self._carry(b, "state_lengths")
        status = b.output_if_wanted("state_status", (batch,), dtypes.int32)
        for output in (update, status):
            if output is not None:
                b.zero(output)

    def _judge(self, b: Builder, call: Call, rows: int) -> Slot:
        """Append the check of the requests, their lengths after the call, and their status."""
        lengths = b.need("past_state_lengths")
        # In place: a request's lengths are written once all others' and its own were read.
        b.shares("present_state_lengths", "past_state_lengths")
        requests = b.scratch("requests", (call.batch, 5), dtypes.uint32)
        b.dispatch(
            "indexer/requests",
            reads={
                "cu": b.need("cumulative_sequence_lengths"),
                "past": b.need("past_sequence_lengths"),
                "lengths": lengths,
            },
            writes={
                "requests": requests,
                "present": b.output("present_state_lengths", lengths.shape, lengths.dtype),
                "status": b.output_if_wanted("state_status", (call.batch,), dtypes.int32),
            },
            uniforms={
                "batch": call.batch,
                "ratio": call.ratio,
                "tokens": rows,
                "capacity": self.state_capacity,
            },
            constants={"policy": call.policy},
            groups=1 if call.batch else 0,
            workgroup=lanes(b),
        )
        return requests

    def _capture(self, b: Builder, call: Call, keys: Tokens, state: Slot, update: Slot) -> None:
        b.dispatch(
            "indexer/capture",
            reads={
                **call.reads,
                "x": keys.slot.as_bits(),
                "state": state.as_bits(),
                "counts": b.get("state_update_capture_count"),
                "active": b.get("state_update_active"),
            },
            writes={"update": update.as_bits()},
            uniforms=call.uniforms
            | {
                "size": call.size,
                "capacity": self.state_update_capacity,
                "state_rows": self.state_capacity,
                "stride": keys.stride,
                "column": keys.column,
            },
            constants={"policy": call.policy},
            threads=update.shape[0] * update.shape[1] * -(-call.size // 4),
        )
