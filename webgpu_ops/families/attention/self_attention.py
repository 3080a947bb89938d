"""com.microsoft Attention: input projection, then multi-head attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError, ShapeError
from ..matmul import matmul
from ..registry import Operator, register
from . import cache, core
from .cache import Rotary
from .core import UNBOUNDED, Bias, Heads, Mask, Rows, Span, Stored, attend, broadcast_strides

ROTARY_DIMS = (32, 64, 128)


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
        sizes = self.qkv_hidden_sizes
        if sizes is not None:
            object.__setattr__(self, "qkv_hidden_sizes", tuple(sizes))
            if len(sizes) != 3:
                raise SchemaError(f"Attention: qkv_hidden_sizes={list(sizes)}; expected three numbers")
            if sizes[0] != sizes[1]:
                raise SchemaError(
                    f"Attention: qkv_hidden_sizes={list(sizes)}; expected the sizes of Q and K to be equal"
                )
        if self.rotary_embedding_dim not in (0, *ROTARY_DIMS):
            raise SchemaError(
                f"Attention: rotary_embedding_dim={self.rotary_embedding_dim}; expected 32, 64 or 128"
            )

    def plan(self, b: Builder) -> None:
        x, w = b.need("input"), b.need("weights")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, input_hidden)")
        batch, rows, hidden = x.shape
        b.check_shape("weights", hidden, "qkv_hidden", why=f"input has {hidden} channels")
        q_size, v_size = self._sizes(w)
        b.check_shape("bias", w.shape[1], why=f"weights has {w.shape[1]} columns")
        size, value_size = q_size // self.num_heads, v_size // self.num_heads
        past, had, room = self._past(b, batch, rows, size, value_size)
        total = had + rows
        mask = self._mask(b, batch, rows, had, total)
        bias = self._bias(b, batch, rows, total)
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
        if not y.size:
            return

        qkv = b.scratch("qkv", (batch, rows, w.shape[1]), dtypes.float32)
        matmul(b, x, w, qkv, bias=b.get("bias"))
        q = Rows.tokens_first(qkv, size)
        k = Rows.tokens_first(qkv, size, q_size)
        v = Rows.tokens_first(qkv, value_size, 2 * q_size)
        span = Span(total=total, new=rows, rows=rows, past=had)

        def prepare(source: Rows, target: Rows, turn: Rotary | None, capacity: int, append: bool) -> None:
            cache.prepare(
                b,
                source,
                Stored(target),
                span,
                batch=batch,
                heads=self.num_heads,
                rows=rows,
                channels=size,
                capacity=capacity,
                append=append,
                rotary=turn,
            )

        if rotary is not None:
            turned = b.scratch("q", (batch, self.num_heads, rows, size), dtypes.float32)
            prepare(q, Rows.heads_first(turned), rotary, rows, False)
            q = Rows.heads_first(turned)
        if present is not None:
            if past is not None and not (self.past_present_share_buffer and b.shares("present", "past")):
                flat = (2 * batch, self.num_heads)
                source = past.reshape(*flat, *past.shape[3:])
                cache.move(b, source, present.reshape(*flat, room, size), span, "past")
            kept_k = Rows.heads_first(present)
            kept_v = Rows.heads_first(present, present.size // 2)
            prepare(k, kept_k, rotary, room, True)
            prepare(v, kept_v, None, room, True)
            if past is not None:
                k, v = kept_k, kept_v
        if rotary is not None and past is None:
            turned = b.scratch("k", (batch, self.num_heads, rows, size), dtypes.float32)
            prepare(k, Rows.heads_first(turned), rotary, rows, False)
            k = Rows.heads_first(turned)
        attend(
            b,
            core.Attention(
                heads=Heads(batch, self.num_heads, self.num_heads, rows, size, value_size),
                span=span,
                q=q,
                k=Stored(k),
                v=Stored(v),
                y=Rows.tokens_first(y, value_size),
                scale=self.scale or 1 / math.sqrt(size),
                ahead=0 if self.unidirectional else UNBOUNDED,
                bias=bias,
                mask=mask,
            ),
        )

    def _sizes(self, w: Slot) -> tuple[int, int]:
        """Channels of Q (and K), and of V."""
        width = w.shape[1]
        if self.qkv_hidden_sizes is None:
            if width % 3:
                raise ShapeError(
                    f"{self.op}: weights has shape {w.shape}; expected columns divisible by three "
                    "because qkv_hidden_sizes is not given"
                )
            sizes: tuple[int, ...] = (width // 3,) * 3
        else:
            sizes = self.qkv_hidden_sizes
        if sum(sizes) != width:
            raise ShapeError(
                f"{self.op}: weights has shape {w.shape}; expected {sum(sizes)} columns "
                f"because qkv_hidden_sizes={list(sizes)}"
            )
        for name, n in zip("QKV", sizes, strict=True):
            if n <= 0 or n % self.num_heads:
                raise ShapeError(
                    f"{self.op}: weights has shape {w.shape}, so {name} has {n} channels; "
                    f"expected a positive multiple of num_heads={self.num_heads}"
                )
        return sizes[0], sizes[2]

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
        length = b.need("past_sequence_length")
        b.check(length.size == 1, "past_sequence_length", f"has shape {length.shape}", "one element")
        had, room = int(b.host("past_sequence_length").reshape(())), past.shape[3]
        b.check(
            had >= 0 and had + rows <= room,
            "past_sequence_length",
            f"is {had}",
            f"0 to {room - rows} because past has room for {room} rows and input has {rows}",
        )
        return past, had, room

    def _mask(self, b: Builder, batch: int, rows: int, had: int, total: int) -> Mask | None:
        mask = b.get("mask_index")
        if mask is None:
            return None
        value = self.mask_filter_value
        if mask.shape in ((batch,), (3 * batch + 2,)):
            return Mask(mask, value, "ends")
        if mask.shape == (2 * batch,):
            return Mask(mask, value, "ends", starts=batch)
        if mask.shape == (batch, total):
            return Mask(mask, value, strides=(total, 0, 0, 1))
        if mask.shape == (batch, rows, total):
            return Mask(mask, value, strides=(rows * total, 0, total, 1))
        if mask.rank == 4 and mask.shape[:2] == (batch, 1) and mask.shape[2] == mask.shape[3] >= total:
            side = mask.shape[3]
            return Mask(mask, value, strides=(side * side, 0, side, 1), offset=had * side)
        raise b.refuse(
            "mask_index",
            f"has shape {mask.shape}",
            f"({batch},), ({2 * batch},), ({3 * batch + 2},), ({batch}, {total}), ({batch}, {rows}, {total}) "
            f"or ({batch}, 1, M, M) with M of at least {total}",
        )

    def _bias(self, b: Builder, batch: int, rows: int, total: int) -> Bias | None:
        bias = b.get("attention_bias")
        if bias is None:
            return None
        good = (
            bias.rank == 4
            and bias.shape[0] in (1, batch)
            and bias.shape[1] in (1, self.num_heads)
            and bias.shape[2:] == (rows, total)
        )
        b.check(
            good,
            "attention_bias",
            f"has shape {bias.shape}",
            f"({batch} or 1, {self.num_heads} or 1, {rows}, {total})",
        )
        return Bias(bias, broadcast_strides(bias.shape))

    def _rotary(self, size: int) -> Rotary | None:
        if not self.do_rotary:
            return None
        dim = self.rotary_embedding_dim or size
        if dim > size or dim % 2:
            raise ShapeError(
                f"{self.op}: rotary dimension {dim} with head size {size}; expected an even number up to it"
            )
        return Rotary(dim // 2)
