"""QMoE: a mixture of experts with weights of 2 to 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import Builder, Slot
from ...errors import SchemaError, UnsupportedError
from ..registry import register
from .moe import Experts
from .product import Room, Routing
from .weights import ExpertWeights

SCALES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)


@dataclass(frozen=True)
class Format:
    """Weights of 4-bit floats in blocks: how long those are, and the type of their scales."""

    block: int
    scales: DType


FLOAT4: Mapping[str, Format] = {
    "fp4": Format(32, dtypes.float8e8m0),
    "wfp4afp8": Format(32, dtypes.float8e8m0),
    "nvfp4": Format(16, dtypes.float8e4m3fn),
}
# 4 is the attribute's default, of which 8-bit floats make nothing.
WIDTHS: Mapping[str, tuple[int, ...]] = {"int": (2, 3, 4, 8), "fp8": (4, 8)} | {q: (4,) for q in FLOAT4}
ACTIVATION_SCALES = ("fc1_act_scale", "fc2_act_scale", "fc1_act_block_scale", "fc2_act_block_scale")


@register("QMoE")
@dataclass(frozen=True, kw_only=True)
class QMoE(Experts):
    """Weights are dequantized where they are multiplied; activations are not quantized, except by
    wfp4afp8: there each projection sees float8e4m3fn(x / s) * s, where s is the activation scale (1 if
    absent) times that of a block of 32 elements (float8e8m0, [experts or 1, tokens or 1, width / 32]).

    fc3 has no global scale. accuracy_level permits less than float32, which is what is computed with.
    """

    accuracy_level: int = 0
    block_size: int = 0
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quant_type not in WIDTHS:
            known = ", ".join(WIDTHS)
            raise SchemaError(f"{self.op}: quant_type is {self.quant_type!r}; expected one of {known}")
        if self.weights_prepacked not in (-1, 0, 1):
            raise SchemaError(
                f"{self.op}: weights_prepacked is {self.weights_prepacked}; expected -1, 0 or 1"
            )
        if self.quant_type == "int" and self.weights_prepacked == 1:
            raise UnsupportedError(
                f"{self.op}: weights_prepacked is 1, another provider's own layout; expected 0 or -1, the "
                "layout that the operator defines"
            )
        for name in ("fc1", "fc2", "fc3"):
            widths = WIDTHS[self.quant_type]
            if self.bits(name) not in widths:
                expected = " or ".join(map(str, widths))
                raise SchemaError(
                    f"{self.op}: {name} has weights of {self.bits(name)} bits; expected {expected} because "
                    f"quant_type is {self.quant_type!r}"
                )
        block = self.block_size
        if self.quant_type == "int" and block > 0 and (block < 16 or block & (block - 1)):
            raise SchemaError(f"{self.op}: block_size is {block}; expected a power of two of at least 16")
        if self.fused and self.fc3_expert_weight_bits not in (None, self.bits("fc1")):
            raise SchemaError(
                f"{self.op}: fc3_expert_weight_bits is {self.fc3_expert_weight_bits}; expected "
                f"{self.bits('fc1')}, as fc1, because swiglu_fusion={self.swiglu_fusion}"
            )
        if self.three_bits:
            self._check_three_bits()

    def bits(self, name: str) -> int:
        """The width of projection ``name``'s weights."""
        own: int | None = getattr(self, f"{name}_expert_weight_bits")
        return self.expert_weight_bits if own is None else own

    @property
    def three_bits(self) -> bool:
        """Whether the rules for weights of 3 bits hold."""
        return 3 in (self.bits("fc1"), self.bits("fc2"), self.bits("fc3"))

    def _check_three_bits(self) -> None:
        wanted = {
            "activation_type": ("swiglu",),
            "weights_prepacked": (0,),
            "swiglu_fusion": (1,),
            "block_size": (32, 64, 128),
        }
        for name, values in wanted.items():
            if getattr(self, name) not in values:
                expected = " or ".join(map(repr, values))
                raise SchemaError(
                    f"{self.op}: {name} is {getattr(self, name)!r}; expected {expected} with weights of 3 "
                    "bits"
                )
        if self.bits("fc3") != self.bits("fc1"):
            raise SchemaError(
                f"{self.op}: fc3 has weights of {self.bits('fc3')} bits; expected {self.bits('fc1')}, as "
                "fc1, with weights of 3 bits"
            )

    # Refusals of whole groups of inputs

    def plan(self, b: Builder) -> None:
        kind = f"quant_type is {self.quant_type!r}"
        blocked = self.quant_type == "fp8" and self.block_size > 0
        if self.quant_type != "int":
            self._refuse(b, ("fc1_zero_points", "fc2_zero_points", "fc3_zero_points"), kind)
        else:
            self._refuse(b, ("fc1_global_scale", "fc2_global_scale"), kind)
        if self.quant_type != "wfp4afp8":
            self._refuse(b, ACTIVATION_SCALES, kind)
        if self.quant_type == "fp8" and not blocked:
            self._refuse(b, ("fc1_scales", "fc2_scales", "fc3_scales"), f"{kind} without a block_size")
        x, router = b.need("input"), b.need("router_probs")
        if self.three_bits:
            b.check(
                x.dtype in (dtypes.float16, dtypes.bfloat16),
                "input",
                f"has type {x.dtype}",
                "float16 or bfloat16 with weights of 3 bits",
            )
        b.check_shape("router_weights", *router.shape, why="router_probs has that shape")
        super().plan(b)

    def _refuse(self, b: Builder, names: tuple[str, ...], why: str) -> None:
        for name in names:
            b.check(b.get(name) is None, name, "was given", f"nothing here because {why}")

    # Weights

    def inner_size(self, b: Builder) -> int:
        codes = b.need("fc1_experts_weights")
        b.check(codes.rank == 3, codes.name, f"has shape {codes.shape}", "three dimensions")
        return 2 * codes.shape[2] if self.quant_type == "nvfp4" else codes.shape[1]

    def weights(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        wanted = dtypes.float8e4m3fn if self.quant_type == "fp8" else dtypes.uint8
        codes = b.need(f"{name}_experts_weights")
        b.check(
            codes.dtype == wanted,
            codes.name,
            f"has type {codes.dtype}",
            f"{wanted} because quant_type is {self.quant_type!r}",
        )
        if self.quant_type == "int":
            return self._integers(b, name, experts, lines, length)
        if self.quant_type == "fp8":
            return self._float8(b, name, experts, lines, length)
        return self._float4(b, name, experts, lines, length)

    def _integers(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        codes, bits = b.need(f"{name}_experts_weights"), self.bits(name)
        why = f"{name} of each of {experts} experts has {lines} rows of {length} weights of {bits} bits"
        b.check(
            length * bits % 8 == 0,
            codes.name,
            f"has rows of {length} weights of {bits} bits",
            "whole bytes",
        )
        b.check_shape(codes.name, experts, lines, length * bits // 8, why=why)
        scales, zeros = b.need(f"{name}_scales"), b.get(f"{name}_zero_points")
        self._check_scale_type(b, scales)
        if self.block_size > 0:
            self._check_block(b, name, length, self.block_size)
            blocks = length // self.block_size
            why += f" in blocks of {self.block_size}"
            b.check_shape(scales.name, experts, lines, blocks, why=why)
            b.check_shape(f"{name}_zero_points", experts, lines, -(-blocks * bits // 8), why=why)
        else:
            why += " and block_size is not given"
            b.check_shape(scales.name, experts, lines, why=why)
            b.check_shape(f"{name}_zero_points", experts, -(-lines * bits // 8), why=why)
        if self.three_bits:
            x = b.need("input")
            expected = f"input's type, {x.dtype}, with weights of 3 bits"
            b.check(scales.dtype == x.dtype, scales.name, f"has type {scales.dtype}", expected)
        if bits == 3:
            self._check_three_bit_values(b, name, -(-length // self.block_size))
            zeros = None  # they may only say 4, which is what none means
        return ExpertWeights(
            codes,
            experts,
            lines,
            length,
            code="integer",
            bits=bits,
            block=self.block_size if self.block_size > 0 else max(8, -(-length // 8) * 8),
            scales=scales,
            scaled="line",
            zeros=zeros,
            zeroed="line" if self.block_size > 0 else "expert",
        )

    def _check_three_bit_values(self, b: Builder, name: str, blocks: int) -> None:
        """Refuse what the text forbids where the values are on the host."""
        scales = b.host_if_known(f"{name}_scales")
        if scales is not None:
            values = scales.astype(np.float32)
            bad = values[~(np.isfinite(values) & (values >= 0))]
            if bad.size:
                raise b.refuse(f"{name}_scales", f"holds {bad[0]}", "finite and nonnegative scales of 3 bits")
        zeros = None
        if b.get(f"{name}_zero_points") is not None:
            zeros = b.host_if_known(f"{name}_zero_points")
        if zeros is not None:
            stream = np.unpackbits(np.ascontiguousarray(zeros), axis=-1, bitorder="little")
            codes = stream[..., : 3 * blocks].reshape(-1, 3) @ np.array([1, 2, 4])
            if (codes != 4).any():
                raise b.refuse(
                    f"{name}_zero_points", f"holds {codes[codes != 4][0]}", "4 for weights of 3 bits"
                )
            if stream[..., 3 * blocks :].any():
                raise b.refuse(f"{name}_zero_points", "has padding bits that are set", "zeros there")

    def _float8(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        codes = b.need(f"{name}_experts_weights")
        why = f"{name} of each of {experts} experts has {lines} rows of {length} weights"
        b.check_shape(codes.name, experts, lines, length, why=why)
        if self.block_size <= 0:
            return ExpertWeights(
                codes,
                experts,
                lines,
                length,
                code="e4m3",
                bits=8,
                block=max(8, -(-length // 8) * 8),
                gain=self._gain(b, name, experts),
            )
        block, scales = self.block_size, b.need(f"{name}_scales")
        self._check_scale_type(b, scales)
        why += f" in blocks of {block} x {block}"
        b.check_shape(scales.name, experts, -(-lines // block), -(-length // block), why=why)
        return ExpertWeights(
            codes, experts, lines, length, code="e4m3", bits=8, block=block, scales=scales, scaled="square"
        )

    def _float4(self, b: Builder, name: str, experts: int, lines: int, length: int) -> ExpertWeights:
        form = FLOAT4[self.quant_type]
        codes, scales = b.need(f"{name}_experts_weights"), b.need(f"{name}_scales")
        self._check_block(b, name, length, form.block)
        why = f"{name} of each of {experts} experts has {lines} rows of {length} weights"
        if self.quant_type == "nvfp4":
            b.check(lines % 2 == 0, codes.name, f"makes {lines} columns", "an even number, two in a byte")
            b.check_shape(codes.name, experts, length, lines // 2, why=why)
        else:
            b.check_shape(codes.name, experts, lines, length // 2, why=why)
        b.check_shape(
            scales.name, experts, lines, length // form.block, why=f"{why} in blocks of {form.block}"
        )
        b.check(
            scales.dtype == form.scales,
            scales.name,
            f"has type {scales.dtype}",
            f"{form.scales} because quant_type is {self.quant_type!r}",
        )
        return ExpertWeights(
            codes,
            experts,
            lines,
            length,
            code="e2m1",
            bits=4,
            block=form.block,
            scales=scales,
            scaled="line",
            gain=self._gain(b, name, experts),
            across=self.quant_type == "nvfp4" and self.weights_prepacked != 1,
        )

    def _check_scale_type(self, b: Builder, scales: Slot) -> None:
        b.check(
            scales.dtype in SCALES,
            scales.name,
            f"has type {scales.dtype}",
            f"float32, float16 or bfloat16 because quant_type is {self.quant_type!r}",
        )

    def _check_block(self, b: Builder, name: str, length: int, block: int) -> None:
        b.check(
            length % block == 0,
            f"{name}_experts_weights",
            f"has rows of {length} weights",
            f"a multiple of the block size {block}",
        )

    def _gain(self, b: Builder, name: str, experts: int) -> Slot | None:
        """The scale of each expert, which fc3 has no input for."""
        if name == "fc3":
            return None
        gain = b.get(f"{name}_global_scale")
        b.check(
            gain is not None,
            f"{name}_global_scale",
            "is missing",
            f"a scale of each expert because quant_type is {self.quant_type!r}",
        )
        b.check_shape(f"{name}_global_scale", experts, why=f"there are {experts} experts")
        return gain

    # Activations

    def seen(self, b: Builder, name: str, routing: Routing, a: Slot, share: int, room: Room) -> Slot | None:
        if self.quant_type != "wfp4afp8":
            return None
        width = a.shape[-1]
        scale, blocks = b.get(f"{name}_act_scale"), b.get(f"{name}_act_block_scale")
        tokens, experts = b.need("router_probs").shape
        if scale is not None:
            good = scale.shape in ((1,), (experts,))
            b.check(good, scale.name, f"has shape {scale.shape}", f"(1,) or ({experts},), one an expert")
        if blocks is not None:
            full = (experts, tokens, width // 32)
            good = blocks.rank == 3 and all(d in (1, f) for d, f in zip(blocks.shape[:2], full, strict=False))
            good = good and blocks.shape[2] == full[2]
            b.check(good, blocks.name, f"has shape {blocks.shape}", f"{full}, where the first two may be 1")
            b.check(blocks.dtype == dtypes.float8e8m0, blocks.name, f"has type {blocks.dtype}", "float8e8m0")
        out = room.take(f"{name}_seen", routing.pairs, width)
        shape = (1, 1, 1) if blocks is None else blocks.shape
        b.dispatch(
            "experts/narrow",
            reads={"a": a, "picks": routing.picks, "scale": scale, "blocks": blocks},
            writes={"y": out},
            uniforms={
                "size": out.size,
                "width": width,
                "share": share,
                "k": routing.k,
                "start": routing.start,
                "scales": 1 if scale is None else scale.size,
                "block_experts": shape[0],
                "block_tokens": shape[1],
            },
            threads=-(-out.size // 4),
        )
        return out
