"""MoE, and what it shares with its quantized form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..elementwise import elementwise
from ..fused_matmul import FAST_GELU
from ..layout import View
from ..registry import Operator, register
from .product import MOST_PAIRS, Room, Routing, mix, project, route, unpacked
from .weights import ExpertWeights

# Of the first projection. Comparisons keep a NaN, which WGSL's own min and max may drop.
ACTIVATIONS: Mapping[str, str] = {
    "relu": "0 if x < 0 else x",
    "relu2": "0 if x < 0 else x * x",
    "gelu": FAST_GELU,
    "silu": "x * sigmoid(x)",
    "swiglu": "x * sigmoid(u.alpha * x)",
    "identity": "x",
}
BELOW = "u.limit if {0} > u.limit else {0}"
BETWEEN = "u.limit if {0} > u.limit else (-u.limit if {0} < -u.limit else {0})"
LARGEST_CHUNK = 128 << 20  # bytes of an intermediate tensor
CHUNK_STEP = 128  # tokens; rows of any type then start where bindings may


@dataclass(frozen=True, kw_only=True)
class Experts(Operator):
    """A mixture of experts, whatever its weights.

    Router logits choose k experts a token; an expert is fc2(act(fc1(x))), with a gate
    fc2(act(fc1(x)) * fc3(x)), and for swiglu_fusion 1 and 2 fc1 makes gate and up side by side. The
    output is the sum of the experts' results weighted by their shares. All sums are made in float32.
    """

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float | None = None
    use_sparse_mixer: int = 0

    def __post_init__(self) -> None:
        if self.activation_type not in ACTIVATIONS:
            known = ", ".join(sorted(ACTIVATIONS))
            raise SchemaError(
                f"{self.op}: activation_type is {self.activation_type!r}; expected one of {known}"
            )
        if self.k < 1:
            raise SchemaError(f"{self.op}: k is {self.k}; expected at least 1")
        if self.swiglu_fusion not in (0, 1, 2):
            raise SchemaError(f"{self.op}: swiglu_fusion is {self.swiglu_fusion}; expected 0, 1 or 2")
        if self.use_sparse_mixer and self.k != 2:
            raise SchemaError(f"{self.op}: k is {self.k}; expected 2 because use_sparse_mixer picks two")

    @property
    def swiglu(self) -> bool:
        return self.activation_type == "swiglu"

    @property
    def fused(self) -> bool:
        """Whether the first projection makes gate and up."""
        return self.swiglu and self.swiglu_fusion > 0

    # What a subclass knows of its weights

    def inner_size(self, b: Builder) -> int:
        """The columns of the first projection."""
        raise NotImplementedError

    def weights(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        """The checked weights of projection ``name`` (fc1, fc2 or fc3)."""
        raise NotImplementedError

    def seen(self, b: Builder, name: str, routing: Routing, a: Slot, share: int, room: Room) -> Slot | None:
        """What projection ``name`` sees of ``a[pair / share]``, a row a pair, or None: a as it is."""
        return None

    # The call

    def plan(self, b: Builder) -> None:
        x, router = b.need("input"), b.need("router_probs")
        b.check(x.rank in (2, 3), "input", f"has shape {x.shape}", "two or three dimensions")
        tokens, hidden = math.prod(x.shape[:-1]), x.shape[-1]
        b.check_shape("router_probs", tokens, "experts", why=f"input has shape {x.shape}")
        experts = router.shape[1]
        b.check(
            self.k <= experts,
            "router_probs",
            f"has shape {router.shape}",
            f"at least k={self.k} experts",
        )
        if self.use_sparse_mixer:
            b.check(
                experts in (8, 16),
                "router_probs",
                f"has shape {router.shape}",
                "8 or 16 experts because use_sparse_mixer=1",
            )
        first = self.inner_size(b)
        self._check_third(b)
        if self.fused:
            why = f"an even number of rows because swiglu_fusion={self.swiglu_fusion}"
            b.check(first % 2 == 0, "fc1_experts_weights", f"has {first} rows an expert", why)
        inter = first // 2 if self.fused else first
        sizes = {"fc1": (first, hidden), "fc2": (hidden, inter), "fc3": (inter, hidden)}
        weights: dict[str, ExpertWeights] = {}
        for name, (lines, length) in sizes.items():
            if name == "fc3" and b.get("fc3_experts_weights") is None:
                continue
            weights[name] = self.weights(b, name, experts, lines, length)
            b.check_shape(f"{name}_experts_bias", experts, lines, why=f"{name} makes {lines} columns")
        y = b.output("output", x.shape, x.dtype)
        if not y.size:
            return
        rows, target = x.reshape(tokens, hidden), y.reshape(tokens, hidden)
        scores = b.inputs.get("router_weights")
        chunk = self._chunk(b, tokens, max(first, hidden))
        room = Room(b, {})
        for start in range(0, tokens, chunk):
            count = min(chunk, tokens - start)
            routing = route(
                b,
                _rows(router, start, count),
                self.k,
                mix=None if scores is None else _rows(scores, start, count),
                sparse=bool(self.use_sparse_mixer),
                normalize=bool(self.normalize_routing_weights),
                room=room,
                start=start,
            )
            self._run(b, routing, _rows(rows, start, count), weights, _rows(target, start, count), room)

    def _check_third(self, b: Builder) -> None:
        third = b.get("fc3_experts_weights")
        if self.swiglu and not self.fused:
            b.check(
                third is not None, "fc3_experts_weights", "is missing", "the up projection: swiglu_fusion=0"
            )
        for name in b.inputs:
            if name.startswith("fc3") and b.get(name) is not None:
                here = (
                    f"nothing here because fc1 holds both projections with swiglu_fusion={self.swiglu_fusion}"
                )
                b.check(not self.fused, name, "was given", here)
                b.check(third is not None, name, "was given", "fc3_experts_weights with it")

    def _chunk(self, b: Builder, tokens: int, width: int) -> int:
        """How many tokens are worked on at once: intermediate tensors stay small and fit a binding."""
        limit = min(LARGEST_CHUNK, b.caps.max_binding_bytes)
        most = min(MOST_PAIRS // self.k, limit // (4 * self.k * width))
        if tokens <= most:
            return tokens
        step = CHUNK_STEP if most >= CHUNK_STEP else 4  # rows of any type then start at whole words
        return max(step, most // step * step)

    def _run(
        self,
        b: Builder,
        routing: Routing,
        x: Slot,
        weights: Mapping[str, ExpertWeights],
        out: Slot,
        room: Room,
    ) -> None:
        """Append the products of some tokens, whose routing is known, and their sums."""
        tokens, share = self.seen(b, "fc1", routing, x, self.k, room), 1
        if tokens is None:
            tokens, share = unpacked(b, x, room), self.k
        bias = {name: b.get(f"{name}_experts_bias") for name in weights}
        added = {name: "x" if slot is None else "x + bias" for name, slot in bias.items()}
        gate, up, values = self._halves()
        first = room.take("first", routing.pairs, weights["fc1"].lines)
        ending = added["fc1"] if self.fused else f"{added['fc1']}; {gate}"
        project(
            b,
            routing,
            tokens,
            weights["fc1"],
            first,
            share=share,
            bias=bias["fc1"],
            epilogue=ending,
            uniforms={} if self.fused else values["gate"],
        )
        inner = first
        if self.fused:
            inner = room.take("inner", routing.pairs, weights["fc1"].lines // 2)
            self._join(b, first, inner)
        elif "fc3" in weights:
            inner = room.take("inner", routing.pairs, weights["fc3"].lines)
            project(
                b,
                routing,
                tokens,
                weights["fc3"],
                inner,
                share=share,
                bias=bias["fc3"],
                other=first,
                epilogue=f"{added['fc3']}; {up}; x * other",
                uniforms=values["up"],
            )
        inner = self.seen(b, "fc2", routing, inner, 1, room) or inner
        parts = room.take("parts", routing.pairs, out.shape[-1])
        project(b, routing, inner, weights["fc2"], parts, share=1, bias=bias["fc2"], epilogue=added["fc2"])
        mix(b, routing, parts, out)

    def _halves(self) -> tuple[str, str, dict[str, dict[str, float]]]:
        """What becomes of the first projection and of the third before they meet, and the uniforms."""
        gate, up = ACTIVATIONS[self.activation_type], "x"
        values: dict[str, dict[str, float]] = {"gate": {}, "up": {}}
        if self.swiglu:
            up = "x + u.beta"
            values = {"gate": {"alpha": self.activation_alpha}, "up": {"beta": self.activation_beta}}
            if self.swiglu_limit is not None:
                gate, up = f"{BELOW.format('x')}; {gate}", f"{BETWEEN.format('x')}; {up}"
                values = {half: {**of, "limit": self.swiglu_limit} for half, of in values.items()}
        return gate, up, values

    def _join(self, b: Builder, first: Slot, inner: Slot) -> None:
        """Append the gate times the up that the first projection made side by side."""
        rows, width = inner.shape
        step, second = (2, 1) if self.swiglu_fusion == 1 else (1, width)
        steps = ["a = g", "c = l"]
        values: dict[str, Any] = {"alpha": self.activation_alpha, "beta": self.activation_beta}
        if self.swiglu_limit is not None:
            steps = [f"a = {BELOW.format('g')}", f"c = {BETWEEN.format('l')}"]
            values["limit"] = self.swiglu_limit
        elementwise(
            b,
            "; ".join([*steps, "a * sigmoid(u.alpha * a) * (c + u.beta)"]),
            inner,
            {
                "g": View(first, (rows, width), (2 * width, step)),
                "l": View(first, (rows, width), (2 * width, step), second),
            },
            uniforms=values,
        )


def _rows(slot: Slot, start: int, count: int) -> Slot:
    """``count`` rows from ``start`` on."""
    return slot if count == slot.shape[0] else slot.rows(start, count)


@register("MoE")
@dataclass(frozen=True, kw_only=True)
class MoE(Experts):
    """A mixture of experts with weights of the input's own type."""

    def inner_size(self, b: Builder) -> int:
        w = b.need("fc1_experts_weights")
        b.check(w.rank == 3, w.name, f"has shape {w.shape}", "three dimensions")
        return w.shape[1]

    def weights(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        why = f"there are {experts} experts, and {name} makes {lines} columns of {length}"
        b.check_shape(f"{name}_experts_weights", experts, lines, length, why=why)
        return ExpertWeights(b.need(f"{name}_experts_weights"), experts, lines, length)
