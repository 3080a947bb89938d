"""Causal depthwise convolutions that carry the last inputs over as state.

Two dispatches whatever the length: the convolution, and the state, which moves as bits. Both see the
input as rows along the causal axis (shaders/causal_conv/lib.wgsl); in 2-D and 3-D a row has
neighbours. A third captures tokens where the node asks for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.plan import MAX_ROUNDS, Builder, Slot
from ..errors import SchemaError
from .registry import Operator, register

ACTIVATIONS = ("none", "silu", "swish")
MOST = 8  # states in a window, and tokens captured


def _check_range(op: str, name: str, value: int, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and value > most):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise SchemaError(f"{op}: {name} is {value}; expected {expected}")


def _check_activation(op: str, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise SchemaError(f"{op}: activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}")


def _history(b: Builder, taps: int, dilation: int) -> int:
    """How many positions before the current one a kernel reaches."""
    history = (taps - 1) * dilation
    b.check(history < 1 << 31, "dilation", f"is {dilation}", f"less than 2**31 over {taps} taps")
    return history


@dataclass(frozen=True)
class _Rows:
    """A call as rows along the causal axis: ``channels`` times ``places`` of the other axes.

    ``length`` is every request's token count; with ``cu_seqlens`` the device knows it. A state holds
    ``history`` positions a row; ``token_major`` and ``state_major`` say that rows lie side by side
    in x and in the states.
    """

    x: Slot
    weight: Slot
    past: Slot | None
    cu_seqlens: Slot | None
    batch: int
    length: int
    channels: int
    others: tuple[int, ...]
    dilation: int
    token_major: bool
    state_major: bool
    window: int = 1

    @property
    def rows(self) -> int:
        return self.channels * math.prod(self.others)

    @property
    def history(self) -> int:
        return (self.weight.shape[-1] - 1) * self.dilation

    def _uniforms(self) -> dict[str, int]:
        size = self.batch * self.rows * self.history
        return {
            "batch": self.batch,
            "length": self.length,
            "rows": self.rows,
            "history": self.history,
            "past_at": (self.window - 1) * size,
            "slot_size": size,
            "tokens": self.x.shape[0] if self.cu_seqlens else 0,
        }

    def _constants(self) -> dict[str, bool]:
        return {"token_major": self.token_major, "state_major": self.state_major}

    def convolve(self, b: Builder, bias: Slot | None, out: Slot, activation: str) -> None:
        kernel_y, kernel_x = (1, 1, *self.weight.shape[2:-1])[-2:]
        products = math.prod(self.weight.shape[2:])
        b.check_rounds("weight", f"has shape {self.weight.shape}", 4 * products)
        b.dispatch(
            "causal_conv/conv",
            reads={
                "x": self.x,
                "weight": self.weight,
                "bias": bias,
                "past": self.past if self.history else None,
                "cu_seqlens": self.cu_seqlens,
            },
            writes={"out": out},
            uniforms=self._uniforms()
            | {
                "size": out.size,
                "taps": self.weight.shape[-1],
                "dilation": self.dilation,
                "places": math.prod(self.others),
                "width": (1, *self.others)[-1],
                "kernel_y": kernel_y,
                "kernel_x": kernel_x,
            },
            constants=self._constants()
            | {
                "spatial": kernel_y * kernel_x > 1,
                "silu": activation in ("silu", "swish"),
                "together": self.cu_seqlens is None and not self.token_major and self.length % 4 == 0,
                "adjacent": self.dilation == 1,
            },
            threads=-(-out.size // 4),
        )

    def carry(self, b: Builder, present: Slot) -> None:
        """Append the states after the call; in the memory of ``past`` an invocation moves a whole row."""
        walk = self.window * self.history
        in_place = walk <= MAX_ROUNDS and self.past is not None and b.shares(present.name, self.past.name)
        b.dispatch(
            "causal_conv/state",
            reads={
                "x": self.x.as_bits(),
                "past": self.past.as_bits() if self.past else None,
                "cu_seqlens": self.cu_seqlens,
            },
            writes={"present": present.as_bits()},
            uniforms=self._uniforms() | {"size": present.size, "window": self.window},
            constants=self._constants() | {"in_place": in_place},
            threads=(self.batch * self.rows if in_place else -(-present.size // 4)) if present.size else 0,
        )

    def capture(self, b: Builder, count: Slot, update: Slot) -> None:
        b.dispatch(
            "causal_conv/capture",
            reads={"x": self.x.as_bits(), "past": None, "count": count, "cu_seqlens": self.cu_seqlens},
            writes={"update": update.as_bits()},
            uniforms=self._uniforms() | {"size": update.size, "capacity": update.shape[1]},
            constants=self._constants(),
            threads=-(-update.size // 4),
        )


@register("CausalConvWithState")
@dataclass(frozen=True, kw_only=True)
class CausalConvWithState(Operator):
    """input [B, C, (D, H,) L], weight [C, 1, (kd, kh,) k] -> output like input.

    States are [B, C, (D, H,) (k - 1) * dilation]; with ``channels_last`` input is [B, L, C...] and
    states are [B, (k - 1) * dilation, C...]; with ``state_window`` there are W of them in front.
    present_state may share past_state's allocation.
    """

    activation: str = "none"
    channels_last: int = 0
    dilation: int = 1
    ndim: int = 1
    state_window: int = 0

    def __post_init__(self) -> None:
        _check_activation(self.op, self.activation)
        _check_range(self.op, "channels_last", self.channels_last, 0, 1)
        _check_range(self.op, "dilation", self.dilation, 1)
        _check_range(self.op, "ndim", self.ndim, 1, 3)
        _check_range(self.op, "state_window", self.state_window, 0, MOST)
        if self.channels_last and self.ndim != 1:
            raise SchemaError(f"{self.op}: ndim is {self.ndim}; expected 1 because channels_last is 1")

    def plan(self, b: Builder) -> None:
        x, weight, last = b.need("input"), b.need("weight"), bool(self.channels_last)
        b.check(
            x.rank >= 3 if last else x.rank == 2 + self.ndim,
            "input",
            f"has shape {x.shape}",
            "(batch, length, channels...) because channels_last is 1"
            if last
            else f"(batch, channels, ...) of rank {2 + self.ndim} because ndim is {self.ndim}",
        )
        batch = x.shape[0]
        channels = math.prod(x.shape[2:]) if last else x.shape[1]
        length = x.shape[1] if last else x.shape[-1]
        others = () if last else x.shape[2:-1]
        b.check_shape(
            "weight",
            channels,
            1,
            *("k" * self.ndim),
            why=f"input has shape {x.shape} and ndim is {self.ndim}",
        )
        *around, taps = weight.shape[2:]
        b.check(taps > 0, "weight", f"has shape {weight.shape}", "at least one tap on the causal axis")
        b.check(
            all(k % 2 == 1 for k in around),
            "weight",
            f"has shape {weight.shape}",
            "an odd size on each axis that is not causal, which 'same' padding needs",
        )
        b.check_shape("bias", channels, why=f"input has {channels} channels")
        history = _history(b, taps, self.dilation)
        one = (batch, history, *x.shape[2:]) if last else (*x.shape[:-1], history)
        state = (self.state_window, *one) if self.state_window else one
        b.check_shape(
            "past_state", *state, why=f"input has shape {x.shape} and the state holds {history} positions"
        )
        out = b.output("output", x.shape, x.dtype)
        present = b.output_if_wanted("present_state", state, x.dtype)
        rows = _Rows(
            x=x,
            weight=weight,
            past=b.get("past_state"),
            cu_seqlens=None,
            batch=batch,
            length=length,
            channels=channels,
            others=others,
            dilation=self.dilation,
            token_major=last,
            state_major=last,
            window=max(1, self.state_window),
        )
        rows.convolve(b, b.get("bias"), out, self.activation)
        if present is not None:
            rows.carry(b, present)


@register("VarlenCausalConvWithState")
@dataclass(frozen=True, kw_only=True)
class VarlenCausalConvWithState(Operator):
    """input [tokens, C], weight [C, 1, k] -> output like input; requests are packed along the tokens.

    States are [batch, C, (k - 1) * dilation], state_update is [batch, capacity, C]. What the device's
    offsets say is checked there: a request with malformed ones is neither read nor written.
    final_state may share initial_state's allocation.
    """

    activation: str = "none"
    dilation: int = 1
    state_update_capacity: int = 0

    def __post_init__(self) -> None:
        _check_activation(self.op, self.activation)
        _check_range(self.op, "dilation", self.dilation, 1)
        _check_range(self.op, "state_update_capacity", self.state_update_capacity, 0, MOST)

    def plan(self, b: Builder) -> None:
        x, weight, offsets = b.need("input"), b.need("weight"), b.need("cumulative_sequence_length")
        b.check_shape("input", "total_tokens", "channels")
        tokens, channels = x.shape
        b.check_shape("weight", channels, 1, "kernel_size", why=f"input has shape {x.shape}")
        taps = weight.shape[2]
        b.check(taps > 0, "weight", f"has shape {weight.shape}", "at least one tap")
        b.check_shape("bias", channels, why=f"input has {channels} channels")
        b.check_shape("cumulative_sequence_length", "batch_size + 1")
        batch = offsets.size - 1
        b.check(
            batch > 0 or (batch == 0 and tokens == 0),
            "cumulative_sequence_length",
            f"has {offsets.size} elements",
            f"at least {2 if tokens else 1} because input has {tokens} tokens",
        )
        history = _history(b, taps, self.dilation)
        state = (batch, channels, history)
        b.need("initial_state")
        b.check_shape("initial_state", *state, why=f"there are {batch} requests and {taps} taps")
        capacity, count = self.state_update_capacity, b.get("capture_count")
        b.check(
            (count is not None) == (capacity > 0),
            "capture_count",
            "is missing" if count is None else "is given",
            f"it exactly where state_update_capacity is positive, and it is {capacity}",
        )
        b.check_shape("capture_count", batch, why=f"there are {batch} requests")

        out = b.output("output", x.shape, x.dtype)
        final = b.output_if_wanted("final_state", state, x.dtype)
        update = b.output_if_wanted("state_update", (batch, capacity, channels), x.dtype)
        rows = _Rows(
            x=x,
            weight=weight,
            past=b.need("initial_state"),
            cu_seqlens=offsets,
            batch=batch,
            length=0,
            channels=channels,
            others=(),
            dilation=self.dilation,
            token_major=True,
            state_major=False,
        )
        rows.convolve(b, b.get("bias"), out, self.activation)
        if final is not None:
            rows.carry(b, final)
        if update is not None and count is not None:
            rows.capture(b, count, update)
