"""LinearAttention on packed heads, and the gate that feeds its recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.plan import Builder
from ...errors import SchemaError
from ..registry import Operator, register
from .recurrence import RULES, Recurrence, Rows

WINDOWS = 8  # states that a window may hold


@register("LinearAttention")
@dataclass(frozen=True, kw_only=True)
class LinearAttention(Operator):
    """query [B, T, Hq dk], key [B, T, Hkv dk], value [B, T, Hkv dv] -> output [B, T, max(Hq, Hkv) dv].

    States are [B, Hkv, dk, dv], with ``state_window`` of them [W, B, Hkv, dk, dv]; they may have
    another type than the rest. present_state may share past_state's allocation.
    """

    q_num_heads: int
    kv_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    state_window: int = 0
    update_rule: str = "gated_delta"

    def __post_init__(self) -> None:
        if self.update_rule not in RULES:
            raise SchemaError(
                f"{self.op}: update_rule is {self.update_rule!r}; expected one of {', '.join(RULES)}"
            )
        for name in ("q_num_heads", "kv_num_heads"):
            if getattr(self, name) < 1:
                raise SchemaError(f"{self.op}: {name} is {getattr(self, name)}; expected at least 1")
        most, least = self.heads, min(self.q_num_heads, self.kv_num_heads)
        if most % least:
            raise SchemaError(
                f"{self.op}: q_num_heads is {self.q_num_heads}; expected a multiple or a divisor of "
                f"kv_num_heads = {self.kv_num_heads}"
            )
        if not 0 <= self.state_window <= WINDOWS:
            raise SchemaError(f"{self.op}: state_window is {self.state_window}; expected 0 to {WINDOWS}")
        if not math.isfinite(self.scale):
            raise SchemaError(f"{self.op}: scale is {self.scale}; expected a finite number")

    @property
    def heads(self) -> int:
        """Heads of the output."""
        return max(self.q_num_heads, self.kv_num_heads)

    def plan(self, b: Builder) -> None:
        query, key, value = b.need("query"), b.need("key"), b.need("value")
        dk, dv = self._head_sizes(b)
        batch, length = query.shape[:2]
        hkv = self.kv_num_heads
        slots = (self.state_window,) if self.state_window else ()
        state_shape = (*slots, batch, hkv, dk, dv)
        why = f"states are ({'W, ' if slots else ''}B, H_kv, d_k, d_v)"
        b.check_shape("past_state", *state_shape, why=why)
        decays, retrieves = self._check_gates(b, dk)

        past = b.get("past_state")
        state_type = past.dtype if past else b.declared.get("present_state", query.dtype)
        output = b.output("output", (batch, length, self.heads * dv), query.dtype)
        present = b.output_if_wanted("present_state", state_shape, state_type)
        b.shares("present_state", "past_state")  # each state is read before any of it is written
        decay = b.need("decay") if decays else None
        Recurrence(
            query=Rows(query, 0, query.shape[2]),
            key=Rows(key, 0, key.shape[2]),
            value=Rows(value, 0, value.shape[2]),
            tokens=batch * length,
            batch=batch,
            length=length,
            heads_q=self.q_num_heads,
            heads_k=hkv,
            heads_v=hkv,
            dk=dk,
            dv=dv,
            scale=self.scale or 1.0 / math.sqrt(dk),
            retrieves=retrieves,
            l2_norm=False,
            sigmoid_beta=False,
            per_key=decay is not None and decay.shape[2] != hkv,
            capacity=0,
            chunk_size=self.chunk_size,
            cu_seqlens=None,
            decay=decay,
            beta=b.need("beta") if retrieves else None,
            initial_state=past,
            a_log=None,
            dt_bias=None,
            capture_count=None,
            output=output,
            final_state=present,
            state_update=None,
            k_major=True,
            window=max(1, self.state_window) if present else 1,
            initial_slot=max(0, self.state_window - 1),
        ).plan(b)

    def _head_sizes(self, b: Builder) -> tuple[int, int]:
        """d_k and d_v, after the shapes of query, key and value were checked."""
        query, value = b.need("query"), b.need("value")
        b.check_shape("query", "B", "T", "H_q * d_k")
        batch, length, width = query.shape
        dk, rest = divmod(width, self.q_num_heads)
        b.check(
            dk > 0 and rest == 0,
            "query",
            f"has shape {query.shape}",
            f"a positive multiple of q_num_heads = {self.q_num_heads} columns",
        )
        hkv = self.kv_num_heads
        why = f"query has shape {query.shape}"
        b.check_shape("key", batch, length, hkv * dk, why=f"{why} and kv_num_heads is {hkv}")
        b.check_shape("value", batch, length, "H_kv * d_v", why=why)
        dv, rest = divmod(value.shape[2], hkv)
        b.check(
            dv > 0 and rest == 0,
            "value",
            f"has shape {value.shape}",
            f"a positive multiple of kv_num_heads = {hkv} columns",
        )
        return dk, dv

    def _check_gates(self, b: Builder, dk: int) -> tuple[bool, bool]:
        """Whether the rule decays and whether it retrieves; refuses gates that do not fit it."""
        decays = self.update_rule in ("gated", "gated_delta")
        retrieves = self.update_rule in ("delta", "gated_delta")
        lead, hkv = b.need("query").shape[:2], self.kv_num_heads
        forms = {"decay": (hkv, hkv * dk), "beta": (hkv, 1)}
        for name, used in (("decay", decays), ("beta", retrieves)):
            slot = b.get(name)
            rule = f"update_rule is {self.update_rule!r}"
            b.check(slot is not None or not used, name, "is missing", f"an input because {rule}")
            expected = [(*lead, width) for width in forms[name]]
            b.check(
                slot is None or slot.shape in expected,
                name,
                f"has shape {slot and slot.shape}",
                f"{expected[0]} or {expected[1]} because kv_num_heads is {hkv}",
            )
        return decays, retrieves


@register("LinearAttentionGate")
@dataclass(frozen=True, kw_only=True)
class LinearAttentionGate(Operator):
    """decay = decay_scale * softplus(a + dt_bias) and beta = sigmoid(b), all [B, T, H], in float32."""

    def plan(self, b: Builder) -> None:
        a, rates = b.need("a"), b.get("b")
        b.check_shape("a", "B", "T", "H")
        why = f"a has shape {a.shape}"
        for name in ("dt_bias", "decay_scale"):
            b.check_shape(name, a.shape[2], why=why)
        b.check_shape("b", *a.shape, why=why)
        b.check(
            rates is not None or not b.wants("beta"), "b", "is missing", "an input because beta is an output"
        )
        decay = b.output("decay", a.shape, a.dtype)
        beta = b.output_if_wanted("beta", a.shape, a.dtype)
        b.shares("decay", "a")
        b.shares("beta", "b")
        b.dispatch(
            "recurrent/gate",
            reads={
                "a": a,
                "dt_bias": b.need("dt_bias"),
                "decay_scale": b.need("decay_scale"),
                "b": rates if beta else None,
            },
            writes={"decay": decay, "beta": beta},
            uniforms={"size": a.size, "heads": a.shape[2]},
            threads=-(-a.size // 4),
        )
