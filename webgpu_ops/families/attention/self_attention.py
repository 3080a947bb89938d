"""com.microsoft Attention: input projection, then multi-head attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError, ShapeError
from ..matmul import matmul
from ..registry import Operator, register
from . import cache, core
from .cache import Rotary
from .core import UNBOUNDED, Beams, Bias, Heads, Mask, Rows, Span, Stored
from .fresh import Change, Keep, attend_fresh, check_bias, check_length, self_mask

ROTARY_DIMS = (32, 64, 128)


@dataclass(frozen=True)
class Projected:
    """A merged projection ``[B, S, heads * (size + size + value_size)]``: Q, then K, then V."""

    slot: Slot
    heads: int
    size: int
    value_size: int


def checked_sizes(op: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """Attribute qkv_hidden_sizes: the channels of Q, K and V, the first two equal."""
    if len(sizes) != 3:
        raise SchemaError(f"{op}: qkv_hidden_sizes={list(sizes)}; expected three numbers")
    if sizes[0] != sizes[1]:
        raise SchemaError(f"{op}: qkv_hidden_sizes={list(sizes)}; expected the sizes of Q and K to be equal")
    return tuple(sizes)


def merged_sizes(b: Builder, heads: int, sizes: tuple[int, ...] | None) -> tuple[int, int]:
    """Channels of Q (and of K), and of V, in the columns of input weights."""
    w = b.need("weights")
    width = w.shape[1]
    if sizes is None:
        b.check(
            width % 3 == 0,
            "weights",
            f"has shape {w.shape}",
            "columns divisible by three because qkv_hidden_sizes is not given",
        )
        sizes = (width // 3,) * 3
    why = f"{sum(sizes)} columns because qkv_hidden_sizes={list(sizes)}"
    b.check(sum(sizes) == width, "weights", f"has shape {w.shape}", why)
    for name, n in zip("QKV", sizes, strict=True):
        b.check(
            n > 0 and n % heads == 0,
            "weights",
            f"has shape {w.shape}, so {name} has {n} channels",
            f"a positive multiple of num_heads={heads}",
        )
    return sizes[0], sizes[2]


def attend_projected(
    b: Builder,
    x: Projected,
    y: Slot,
    past: Slot | None,
    had: int,
    present: Slot | None,
    *,
    share: bool,
    scale: float,
    causal: bool = False,
    reorder: bool = False,
    rotary: Rotary | None = None,
    bias: Bias | None = None,
    mask: Mask | None = None,
    beams: Beams | None = None,
) -> None:
    """Append attention of a merged projection to itself, and to the ``had`` rows of a past.

    ``past`` and ``present`` are ``[2, B, heads, rows, size]``, keys before values; ``share`` says that
    they may be one buffer. ``reorder``: keys lie as :meth:`Rows.reordered` has them.
    """
    batch, rows, _ = x.slot.shape
    hidden = x.heads * x.size
    total = had + rows
    span = Span(total=total, new=rows, rows=rows, past=had)
    keep = None
    if present is not None:
        room = present.shape[3]
        if past is not None and not (share and b.shares("present", "past")):
            source = past.reshape(2 * batch, *past.shape[2:])
            cache.move(b, source, present.reshape(2 * batch, *present.shape[2:]), span, "past")
        layout = Rows.reordered if reorder else Rows.heads_first
        keep = Keep(layout(present), Rows.heads_first(present, present.size // 2), room, past is not None)
    turned = Change(rotary=rotary)
    attend_fresh(
        b,
        core.Attention(
            heads=Heads(batch, x.heads, x.heads, rows, x.size, x.value_size),
            span=span,
            q=Rows.tokens_first(x.slot, x.size),
            k=Stored(Rows.tokens_first(x.slot, x.size, hidden)),
            v=Stored(Rows.tokens_first(x.slot, x.value_size, 2 * hidden)),
            y=Rows.tokens_first(y, x.value_size),
            scale=scale or 1 / math.sqrt(x.size),
            ahead=0 if causal else UNBOUNDED,
            bias=bias,
            mask=mask,
            beams=beams,
        ),
        rows,
        q=turned,
        k=turned,
        keep=keep,
    )


@register("Attention")
@dataclass(frozen=True, kw_only=True)
class Attention(Operator):
    """Projects its input to Q, K and V and attends, with the masks of BERT and GPT-2 exports."""

    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    qkv_hidden_sizes: tuple[int, ...] | None = None
    rotary_embedding_dim: int = 0
    scale: float = 0.0
    unidirectional: int = 0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"Attention: num_heads={self.num_heads}; expected a positive number")
        if self.qkv_hidden_sizes is not None:
            object.__setattr__(self, "qkv_hidden_sizes", checked_sizes(self.op, self.qkv_hidden_sizes))
        if self.rotary_embedding_dim not in (0, *ROTARY_DIMS):
            raise SchemaError(
                f"Attention: rotary_embedding_dim={self.rotary_embedding_dim}; expected 32, 64 or 128"
            )

    def plan(self, b: Builder) -> None:
        x, w = b.need("input"), b.need("weights")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, input_hidden)")
        batch, rows, hidden = x.shape
        b.check_shape("weights", hidden, "qkv_hidden", why=f"input has {hidden} channels")
        q_size, v_size = merged_sizes(b, self.num_heads, self.qkv_hidden_sizes)
        b.check_shape("bias", w.shape[1], why=f"weights has {w.shape[1]} columns")
        size, value_size = q_size // self.num_heads, v_size // self.num_heads
        past, had, room = self._past(b, batch, rows, size, value_size)
        total = had + rows
        mask = self_mask(b, batch, rows, had, total, self.mask_filter_value)
        bias = check_bias(b, batch, self.num_heads, rows, total)
        rotary = self._rotary(size)
        y = b.output("output", (batch, rows, v_size), x.dtype)
        present = None
        if b.wants("present"):
            b.check(
                size == value_size,
                "present",
                f"is wanted with heads of {size} channels in K and {value_size} in V",
                "equal sizes because one tensor holds both",
            )
            present = b.output("present", (2, batch, self.num_heads, room, size), x.dtype)
        qkv = b.scratch("qkv", (batch, rows, w.shape[1]), dtypes.float32)
        matmul(b, x, w, qkv, bias=b.get("bias"))
        attend_projected(
            b,
            Projected(qkv, self.num_heads, size, value_size),
            y,
            past,
            had,
            present,
            share=self.past_present_share_buffer == 1,
            rotary=rotary,
            scale=self.scale,
            causal=self.unidirectional == 1,
            bias=bias,
            mask=mask,
        )

    def _past(
        self, b: Builder, batch: int, rows: int, size: int, value_size: int
    ) -> tuple[Slot | None, int, int]:
        """The past, its valid length, and the rows of the present."""
        past = b.get("past")
        if past is None:
            b.check(
                not self.past_present_share_buffer or not b.wants("present"),
                "past",
                "is missing",
                "the shared buffer because past_present_share_buffer=1",
            )
            return None, 0, rows
        b.check(
            size == value_size,
            "past",
            f"is given with heads of {size} channels in K and {value_size} in V",
            "equal sizes because one tensor holds both",
        )
        why = f"input has batch {batch}, num_heads={self.num_heads}, head size {size}"
        b.check_shape("past", 2, batch, self.num_heads, "past_length", size, why=why)
        b.check(b.wants("present"), "present", "is not wanted", "it because past is given")
        if not self.past_present_share_buffer:
            return past, past.shape[3], past.shape[3] + rows
        room = past.shape[3]
        why = f"past has room for {room} rows and input has {rows}"
        return past, check_length(b, "past_sequence_length", 0, room - rows, why), room

    def _rotary(self, size: int) -> Rotary | None:
        if not self.do_rotary:
            return None
        dim = self.rotary_embedding_dim or size
        if dim > size or dim % 2:
            raise ShapeError(
                f"{self.op}: rotary dimension {dim} with head size {size}; expected an even number up to it"
            )
        return Rotary(dim // 2)
