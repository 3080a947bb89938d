"""GatedDeltaNet: token-major gated delta network with an explicit state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.dtypes import float32
from ...core.plan import Builder, Shape
from ...errors import SchemaError
from ..registry import Operator, register
from .recurrence import RULES, Recurrence, Rows


@dataclass(frozen=True)
class _Layout:
    """What the shapes of query, key and value say. ``lead`` is (tokens,) or (batch, length)."""

    lead: Shape
    heads_k: int
    heads_v: int
    dk: int
    dv: int
    packed: bool

    @property
    def tokens(self) -> int:
        return math.prod(self.lead)


@register("GatedDeltaNet")
@dataclass(frozen=True, kw_only=True)
class GatedDeltaNet(Operator):
    """query [T, Hk, Dk], key [T, Hk, Dk], value [T, Hv, Dv] -> output [T, Hv, Dv].

    T may be spelled [B, S]; without key and value, query is packed [T, 2 Hk Dk + Hv Dv]. States are
    float [B, Hv, Dv, Dk]; final_state may share initial_state's allocation.
    """

    beta_activation: str = "none"
    chunk_size: int = 64
    gate_activation: str = "none"
    qk_l2_norm: int = 0
    scale: float = 0.0
    state_update_capacity: int = 0
    update_rule: str = "gated_delta"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("update_rule", RULES),
            ("gate_activation", ("none", "qwen")),
            ("beta_activation", ("none", "sigmoid")),
        ):
            if getattr(self, name) not in allowed:
                raise SchemaError(
                    f"{self.op}: {name} is {getattr(self, name)!r}; expected one of {', '.join(allowed)}"
                )
        if self.qk_l2_norm not in (0, 1):
            raise SchemaError(f"{self.op}: qk_l2_norm is {self.qk_l2_norm}; expected 0 or 1")
        if not 0 <= self.state_update_capacity <= 8:
            raise SchemaError(
                f"{self.op}: state_update_capacity is {self.state_update_capacity}; expected 0 to 8"
            )
        if not math.isfinite(self.scale):
            raise SchemaError(f"{self.op}: scale is {self.scale}; expected a finite number")

    def plan(self, b: Builder) -> None:
        at = self._layout(b)
        batch, length = self._requests(b, at)
        state_shape = (batch, at.heads_v, at.dv, at.dk)
        b.check_shape("initial_state", *state_shape, why="states are (batch, heads_v, dv, dk)")
        per_key = self._check_gates(b, at)
        capturing = self._check_capture(b, batch, per_key)

        query = b.need("query")
        output = b.output("output", (*at.lead, at.heads_v, at.dv), query.dtype)
        final_state = b.output_if_wanted("final_state", state_shape, float32)
        b.shares("final_state", "initial_state")  # either path reads a state before it writes any of it
        row = at.heads_v + at.heads_k * at.dk + at.heads_v * at.dv
        state_update = b.output_if_wanted("state_update", (batch, self.state_update_capacity * row), float32)
        if state_update is not None and not capturing:
            b.zero(state_update)
            state_update = None

        if at.packed:
            stride, k = query.shape[-1], at.heads_k * at.dk
            rows = [Rows(query, offset, stride) for offset in (0, k, 2 * k)]
        else:
            rows = [
                Rows(slot, 0, slot.shape[-1] * slot.shape[-2])
                for slot in (query, b.need("key"), b.need("value"))
            ]
        decays = self.update_rule in ("gated", "gated_delta")
        retrieves = self.update_rule in ("delta", "gated_delta")
        decay = b.get("decay") if decays else None
        Recurrence(
            query=rows[0],
            key=rows[1],
            value=rows[2],
            tokens=at.tokens,
            batch=batch,
            length=length,
            heads_q=at.heads_k,
            heads_k=at.heads_k,
            heads_v=at.heads_v,
            dk=at.dk,
            dv=at.dv,
            scale=self.scale or 1.0 / math.sqrt(at.dk),
            retrieves=retrieves,
            l2_norm=bool(self.qk_l2_norm),
            sigmoid_beta=self.beta_activation == "sigmoid",
            per_key=per_key and decay is not None,
            capacity=self.state_update_capacity,
            chunk_size=self.chunk_size,
            cu_seqlens=b.get("cu_seqlens"),
            decay=decay,
            beta=b.get("beta") if retrieves else None,
            initial_state=b.get("initial_state"),
            a_log=b.get("a_log") if decay is not None else None,
            dt_bias=b.get("dt_bias") if decay is not None else None,
            capture_count=b.get("capture_count"),
            output=output,
            final_state=final_state,
            state_update=state_update,
        ).plan(b)

    def _layout(self, b: Builder) -> _Layout:
        query, key, value = b.need("query"), b.get("key"), b.get("value")
        if key is None or value is None:
            b.check(
                key is value,
                "key and value",
                f"came as {'value' if key is None else 'key'} alone",
                "both, or neither for packed QKV",
            )
            return self._packed_layout(b)
        b.check(query.rank in (3, 4), "query", f"has shape {query.shape}", "rank 3 or 4")
        lead, (heads_k, dk) = query.shape[:-2], query.shape[-2:]
        b.check_shape("key", *lead, heads_k, dk, why=f"query has shape {query.shape}")
        b.check_shape("value", *lead, "heads_v", "dv", why=f"query has shape {query.shape}")
        heads_v, dv = value.shape[-2:]
        at = _Layout(lead, heads_k, heads_v, dk, dv, packed=False)
        self._check_heads(b, at, "value", f"has shape {value.shape}")
        return at

    def _packed_layout(self, b: Builder) -> _Layout:
        query, state = b.need("query"), b.get("initial_state")
        b.check(
            state is not None and state.rank == 4,
            "initial_state",
            "is missing" if state is None else f"has shape {state.shape}",
            "(batch, heads_v, dv, dk), which tells the heads of packed QKV",
        )
        assert state is not None
        _, heads_v, dv, dk = state.shape
        b.check(
            query.rank in (2, 3),
            "query",
            f"has shape {query.shape}",
            "(tokens, width) or (batch, length, width) because QKV is packed",
        )
        width = query.shape[-1]
        heads_k, rest = divmod(width - heads_v * dv, 2 * dk) if dk > 0 else (0, 1)
        b.check(
            rest == 0 and heads_k > 0,
            "query",
            f"has {width} columns",
            f"2 * heads_q * {dk} + {heads_v} * {dv} because initial_state has shape {state.shape}",
        )
        at = _Layout(query.shape[:-1], heads_k, heads_v, dk, dv, packed=True)
        self._check_heads(b, at, "query", f"has {width} columns, which makes {heads_k} query heads")
        return at

    def _check_heads(self, b: Builder, at: _Layout, name: str, came: str) -> None:
        b.check(
            min(at.heads_k, at.heads_v, at.dk, at.dv) > 0,
            name,
            came,
            "at least one head of at least one element",
        )
        b.check(
            at.heads_v % at.heads_k == 0,
            name,
            came,
            f"num_heads_v a multiple of num_heads_q = {at.heads_k}, not {at.heads_v}",
        )

    def _requests(self, b: Builder, at: _Layout) -> tuple[int, int | None]:
        """Batch size, and each request's length unless cu_seqlens holds the lengths."""
        cu_seqlens, state = b.get("cu_seqlens"), b.get("initial_state")
        if cu_seqlens is not None:
            b.check(
                cu_seqlens.rank == 1 and cu_seqlens.size >= 1,
                "cu_seqlens",
                f"has shape {cu_seqlens.shape}",
                "(batch + 1,)",
            )
            b.check(
                len(at.lead) == 1,
                "query",
                f"has tokens spelled {at.lead}",
                "one token axis because cu_seqlens is given",
            )
            batch, length = cu_seqlens.size - 1, None
        elif len(at.lead) == 2:
            batch, length = at.lead
        else:
            b.check(
                state is not None and state.rank == 4,
                "initial_state",
                "is missing" if state is None else f"has shape {state.shape}",
                "(batch, heads_v, dv, dk), which tells the batch size without cu_seqlens",
            )
            assert state is not None
            batch = state.shape[0]
            b.check(
                at.tokens % batch == 0 if batch else at.tokens == 0,
                "query",
                f"has {at.tokens} tokens",
                f"a multiple of the batch size {batch} of initial_state",
            )
            length = at.tokens // batch if batch else 0
        b.check(
            batch > 0 or at.tokens == 0,
            "query",
            f"has {at.tokens} tokens",
            "none because the batch is empty",
        )
        return batch, length

    def _check_gates(self, b: Builder, at: _Layout) -> bool:
        """Shapes of decay, beta, a_log and dt_bias; whether the decay is per key channel."""
        decay = b.get("decay")
        per_key = decay is not None and decay.rank == len(at.lead) + 2
        tail = (at.dk,) if per_key else ()
        b.check_shape("decay", *at.lead, at.heads_v, *tail, why=f"value has {at.heads_v} heads of {at.lead}")
        b.check_shape("beta", *at.lead, at.heads_v, why=f"value has {at.heads_v} heads of {at.lead}")
        qwen = self.gate_activation == "qwen"
        for name in ("a_log", "dt_bias"):
            given = b.get(name) is not None
            b.check(given or not qwen, name, "is missing", "an input because gate_activation is 'qwen'")
            b.check(qwen or not given, name, "is given", "none unless gate_activation is 'qwen'")
            b.check_shape(name, at.heads_v, why=f"value has {at.heads_v} heads")
        if qwen and self.update_rule in ("gated", "gated_delta"):
            b.check(decay is not None, "decay", "is missing", "an input because gate_activation is 'qwen'")
        return per_key

    def _check_capture(self, b: Builder, batch: int, per_key: bool) -> bool:
        """Whether transitions are to be captured."""
        capacity = self.state_update_capacity
        given = b.get("capture_count") is not None
        b.check(
            given or not capacity,
            "capture_count",
            "is missing",
            f"an input because state_update_capacity is {capacity}",
        )
        b.check(
            not given or capacity > 0,
            "capture_count",
            "is given",
            "none because state_update_capacity is 0",
        )
        b.check_shape("capture_count", batch, why=f"the batch size is {batch}")
        b.check(
            not (capacity and per_key),
            "decay",
            "is per key dimension",
            f"a scalar for each head because state_update_capacity is {capacity}",
        )
        b.check_shape("state_update_active", 1)
        if not capacity or b.get("state_update_active") is None:
            return capacity > 0
        return int(b.host("state_update_active")[0]) != 0
