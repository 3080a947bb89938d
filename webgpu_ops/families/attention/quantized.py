"""com.microsoft QAttention: attention of a quantized projection."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError, ShapeError
from ..integer_matmul import integer_matmul
from ..registry import Operator, register
from .cache import Rotary
from .fresh import self_mask
from .self_attention import Projected, attend_projected


@register("QAttention")
@dataclass(frozen=True, kw_only=True)
class QAttention(Operator):
    """Projects 8-bit integers exactly, scales the result, and attends as Attention does."""

    num_heads: int
    do_rotary: int = 0
    mask_filter_value: float = -10000.0
    past_present_share_buffer: int = 0
    scale: float = 0.0
    unidirectional: int = 0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")
        if self.past_present_share_buffer:
            raise SchemaError(
                f"{self.op}: past_present_share_buffer={self.past_present_share_buffer}; expected 0 because "
                "no input says how much of a shared buffer is valid"
            )

    def plan(self, b: Builder) -> None:
        x, w, bias, n = b.need("input"), b.need("weight"), b.need("bias"), self.num_heads
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, input_hidden)")
        batch, rows, channels = x.shape
        b.check_shape("weight", channels, "3 * hidden", why=f"input has {channels} channels")
        width = w.shape[1]
        b.check(
            width > 0 and width % (3 * n) == 0,
            "weight",
            f"has shape {w.shape}",
            f"columns of Q, K and V in num_heads={n} heads of equal size",
        )
        size = width // 3 // n
        b.check_shape("bias", width, why=f"weight has {width} columns")
        input_scale = self._one(b, "input_scale")
        weight_scale = self._one(b, "weight_scale", width)
        input_zero = self._one(b, "input_zero_point") if b.get("input_zero_point") else None
        weight_zero = self._one(b, "weight_zero_point", width) if b.get("weight_zero_point") else None
        past, had = b.get("past"), 0
        if past is not None:
            why = f"input has batch {batch}, num_heads={n}, head size {size}"
            b.check_shape("past", 2, batch, n, "past_length", size, why=why)
            had = past.shape[3]
        total = had + rows
        mask = self_mask(b, batch, rows, had, total, self.mask_filter_value)
        if self.do_rotary and size % 2:
            raise ShapeError(f"{self.op}: rotary embedding of head size {size}; expected an even number")
        y = b.output("output", (batch, rows, n * size), bias.dtype)
        present = None
        if past is not None or b.wants("present"):
            present = b.output("present", (2, batch, n, total, size), bias.dtype)
        qkv = b.scratch("qkv", (batch, rows, width), dtypes.float32)
        integer_matmul(
            b,
            x,
            w,
            qkv,
            a_zero=input_zero,
            w_zero=weight_zero,
            epilogue="x * (x_scale * w_scale) + bias",
            operands={"x_scale": input_scale, "w_scale": weight_scale, "bias": bias},
        )
        attend_projected(
            b,
            Projected(qkv, n, size, size),
            y,
            past,
            had,
            present,
            share=False,
            rotary=Rotary(size // 2) if self.do_rotary else None,
            scale=self.scale,
            causal=self.unidirectional == 1,
            mask=mask,
        )

    def _one(self, b: Builder, name: str, columns: int = 1) -> Slot:
        """A scale or zero point: one value, or one for each of ``columns``."""
        slot = b.need(name)
        good = slot.size == 1 if columns == 1 else slot.size == 1 or slot.shape == (columns,)
        expected = "one element" if columns == 1 else f"one element or ({columns},)"
        b.check(good, name, f"has shape {slot.shape}", expected)
        return slot.reshape(slot.size)
