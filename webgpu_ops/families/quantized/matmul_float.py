"""Products with weights of 4-bit and 8-bit floats, and with 4-bit integers in blobs."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..elementwise import elementwise
from ..registry import Operator, register
from .matmul_nbits import add_bias, as_rows, check_block_size, check_sizes, output_rows, with_bias
from .product import quantized_matmul
from .weights import Weights


@register("MatMulBnb4")
@dataclass(frozen=True, kw_only=True)
class MatMulBnb4(Operator):
    """A times an [N, K] matrix of FP4 or NF4 codes, transposed or not."""

    K: int
    N: int
    block_size: int
    quant_type: int
    training_mode: int = 0
    transB: int = 1

    def __post_init__(self) -> None:
        check_sizes(self.op, K=self.K, N=self.N)
        check_block_size(self.op, self.block_size)
        if self.quant_type not in (0, 1):
            raise SchemaError(f"{self.op}: quant_type is {self.quant_type}; expected 0 (FP4) or 1 (NF4)")

    def plan(self, b: Builder) -> None:
        inner, outer = (self.K, self.N) if self.transB else (self.N, self.K)
        sizes = f"K={self.K}, N={self.N} and transB={self.transB}"
        a = as_rows(b, "A", inner, sizes)
        codes, absmax = b.need("B"), b.need("absmax")
        size = self.K * self.N
        flat = codes.size == (size + 1) // 2 and codes.rank == 1
        two = codes.shape == ((size + 1) // 2, 1)  # as bitsandbytes keeps it
        b.check(flat or two, "B", f"has shape {codes.shape}", f"({(size + 1) // 2},) because {sizes}")
        b.check_shape("absmax", -(-size // self.block_size), why=f"{sizes} in blocks of {self.block_size}")
        weights = Weights(
            codes.reshape(codes.size),
            lines=self.N,
            length=self.K,
            stride=self.K,
            bits=4,
            code="nf4" if self.quant_type else "fp4",
            packing="high",
            block=self.block_size,
            scales=absmax,
            flat=True,
            by_rows=not self.transB,
        )
        quantized_matmul(b, a, weights, output_rows(b, "Y", b.need("A"), outer))


@register("MatMulFpQ4")
@dataclass(frozen=True, kw_only=True)
class MatMulFpQ4(Operator):
    """A times a [K, N] matrix in a blob of columns, in blocks that begin with their scale."""

    blk_quant_type: int = 1

    def __post_init__(self) -> None:
        if self.blk_quant_type not in (0, 1, 2):
            raise SchemaError(f"{self.op}: blk_quant_type is {self.blk_quant_type}; expected 0, 1 or 2")

    def plan(self, b: Builder) -> None:
        blob = b.need("B")
        b.check_shape("B_shape", 2, why="B is a matrix")
        k, n = (int(d) for d in b.host("B_shape"))
        b.check(k > 0 and n > 0, "B_shape", f"is ({k}, {n})", "positive sizes")
        a = as_rows(b, "A", k, f"B_shape is ({k}, {n})")
        weights = Weights(
            blob,
            lines=n,
            length=k,
            stride=k,
            bits=4,
            code="integer",
            packing="blob",
            block=64 if self.blk_quant_type == 2 else 32,
            scales=None,
            zeroed=self.blk_quant_type == 1,
        )
        why = f"B_shape is ({k}, {n}) and blk_quant_type={self.blk_quant_type}"
        b.check_shape("B", n * weights.line_bits // 8, why=why)
        quantized_matmul(b, a, weights, output_rows(b, "Y", b.need("A"), n))


@dataclass(frozen=True, kw_only=True)
class _BlockFloat(Operator):
    """What the operators on block-scaled float weights have in common."""

    block_size: int

    def __post_init__(self) -> None:
        check_sizes(self.op, block_size=self.block_size)

    def check_scales(self, b: Builder, name: str, n: int, k: int) -> Slot:
        why = f"{n} rows of {k} make blocks of {self.block_size}"
        b.check_shape(name, n, -(-k // self.block_size), why=why)
        return b.need(name)

    def scalar(self, b: Builder, name: str) -> Slot | None:
        """Input ``name``, one number of shape () or (1,)."""
        slot = b.get(name)
        if slot is not None:
            b.check(slot.shape in ((), (1,)), name, f"has shape {slot.shape}", "a scalar")
        return slot


@register("MatMulBlockQuantizedFp4Weight")
@dataclass(frozen=True, kw_only=True)
class MatMulBlockQuantizedFp4Weight(_BlockFloat):
    """A times the transpose of an NVFP4 matrix, whose weights are rounded to A's type."""

    block_size: int = 16

    def plan(self, b: Builder) -> None:
        codes = b.need("B")
        b.check(codes.rank == 2, "B", f"has shape {codes.shape}", "two dimensions, (N, K/2)")
        n, k = codes.shape[0], 2 * codes.shape[1]
        a = as_rows(b, "A", k, f"B has shape {codes.shape}")
        scales = self.check_scales(b, "weight_scale", n, k)
        self.scalar(b, "input_scale")
        factor = self.scalar(b, "weight_scale_2")
        bias = with_bias(b, "bias", n)
        y = output_rows(b, "Y", b.need("A"), n)
        weights = Weights(
            codes,
            lines=n,
            length=k,
            stride=k,
            bits=4,
            code="e2m1",
            block=self.block_size,
            scales=scales.as_type(dtypes.float8e4m3fn),
            factor=factor,
            rounding=a.dtype,
        )
        quantized_matmul(b, a, weights, y, operands=bias, epilogue=add_bias(bias))


@register("MatMulBlockQuantizedFp8Weight")
@dataclass(frozen=True, kw_only=True)
class MatMulBlockQuantizedFp8Weight(_BlockFloat):
    """A, or A through float8e4m3fn, times the transpose of a float8e4m3fn matrix."""

    block_size: int = 128

    def plan(self, b: Builder) -> None:
        codes = b.need("B")
        b.check(codes.rank == 2, "B", f"has shape {codes.shape}", "two dimensions, (N, K)")
        n, k = codes.shape
        a = as_rows(b, "A", k, f"B has shape {codes.shape}")
        scales = self.check_scales(b, "b_scale", n, k)
        a_scale = self.scalar(b, "a_scale")
        bias = with_bias(b, "bias", n)
        y = output_rows(b, "Y", b.need("A"), n)
        if a_scale is not None and y.size:
            a = through_float8(b, a, a_scale)
        weights = Weights(
            codes, lines=n, length=k, stride=k, bits=8, code="e4m3", block=self.block_size, scales=scales
        )
        quantized_matmul(b, a, weights, y, operands=bias, epilogue=add_bias(bias))


def through_float8(b: Builder, a: Slot, scale: Slot) -> Slot:
    """``float8e4m3fn(a / scale) * scale`` in float32; the quotient saturates."""
    out = b.scratch("a_scaled", a.shape, dtypes.float32)
    operands = {"a": a, "scale": scale.reshape(1)}
    elementwise(b, "through_float8e4m3fn(a, scale)", out, operands, library="lib/float8.wgsl")
    return out
