"""MatMulNBits and the operators that fuse several of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..layout import View
from ..norm import check_epsilon, normalize_rows
from ..registry import Operator, register
from .product import quantized_matmul
from .weights import Weights, check_packing


def check_block_size(op: str, block_size: int) -> None:
    if block_size < 16 or block_size & (block_size - 1):
        raise SchemaError(f"{op}: block_size is {block_size}; expected a power of two of at least 16")


def check_sizes(op: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise SchemaError(f"{op}: {name} is {size}; expected at least 1")


def as_rows(b: Builder, name: str, width: int, why: str) -> Slot:
    """Input ``name`` as a matrix of rows of ``width``; a vector is one row."""
    a = b.need(name)
    b.check(a.rank > 0, name, "is a scalar", "at least one dimension")
    b.check(a.shape[-1] == width, name, f"has shape {a.shape}", f"{width} columns because {why}")
    return a.reshape(math.prod(a.shape[:-1]), width)


def output_rows(b: Builder, name: str, a: Slot, width: int) -> Slot:
    """Output ``name``: input ``a`` with another last dimension, as a matrix of rows."""
    shape = (*a.shape[:-1], width)
    return b.output(name, shape, a.dtype).reshape(math.prod(shape[:-1]), width)


@dataclass(frozen=True, kw_only=True)
class _NBits(Operator):
    """What the operators on n-bit weights have in common."""

    K: int
    block_size: int
    bits: int = 4
    accuracy_level: int = 0

    def __post_init__(self) -> None:
        check_sizes(self.op, K=self.K)
        check_block_size(self.op, self.block_size)
        if not 2 <= self.bits <= 8:
            raise SchemaError(f"{self.op}: bits is {self.bits}; expected 2 to 8")
        # Each level allows less accuracy than float32, which is what is computed with.
        if not 0 <= self.accuracy_level <= 4:
            raise SchemaError(f"{self.op}: accuracy_level is {self.accuracy_level}; expected 0 to 4")

    def weights(self, b: Builder, prefix: str, n: int) -> Weights:
        """The checked [n, K] weights of inputs <prefix>B and <prefix>scales."""
        codes, scales = b.need(f"{prefix}B"), b.need(f"{prefix}scales")
        blocks = -(-self.K // self.block_size)
        why = f"{n} rows of K={self.K} make blocks of {self.block_size} and bits={self.bits}"
        b.check_shape(codes.name, n, blocks, self.block_size * self.bits // 8, why=why)
        if scales.rank != 1 or scales.size != n * blocks:  # older models hold them flat
            b.check_shape(scales.name, n, blocks, why=why)
        return Weights(
            codes.reshape(codes.size),
            lines=n,
            length=self.K,
            stride=blocks * self.block_size,
            bits=self.bits,
            code="integer",
            block=self.block_size,
            scales=scales,
        )


def with_bias(b: Builder, name: str, width: int) -> dict[str, Slot]:
    """The operand "bias", if input ``name`` is there."""
    bias = b.get(name)
    b.check_shape(name, width, why=f"the product has {width} columns")
    return {} if bias is None else {"bias": bias}


def add_bias(operands: Mapping[str, Slot | View]) -> str:
    """The epilogue that adds the operand "bias", where it is there."""
    return "x + bias" if "bias" in operands else "x"


@register("MatMulNBits")
@dataclass(frozen=True, kw_only=True)
class MatMulNBits(_NBits):
    """A times the transpose of an [N, K] matrix of n-bit integers, plus bias."""

    N: int
    weight_prepacked: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.op, N=self.N)
        check_packing(self.op, self.weight_prepacked)

    def plan(self, b: Builder) -> None:
        a = as_rows(b, "A", self.K, f"K={self.K}")
        weights = self.weights(b, "", self.N)  # first, so that wrong bits are said of B
        weights = replace(weights, zeros=self._zeros(b), groups=self._groups(b))
        bias = with_bias(b, "bias", self.N)
        y = output_rows(b, "Y", b.need("A"), self.N)
        quantized_matmul(b, a, weights, y, operands=bias, epilogue=add_bias(bias))

    def _zeros(self, b: Builder) -> Slot | None:
        zeros = b.get("zero_points")
        if zeros is None:
            return None
        blocks = -(-self.K // self.block_size)
        width = blocks
        why = f"{blocks} zero points of {zeros.dtype} a row"
        if zeros.dtype == dtypes.uint8:
            width = -(-blocks * self.bits // 8)
            why = f"{blocks} zero points of {self.bits} bits a row, packed into bytes"
        else:
            b.check(
                zeros.dtype == b.need("A").dtype,
                "zero_points",
                f"has type {zeros.dtype}",
                f"uint8 or A's type, which is {b.need('A').dtype}",
            )
        if zeros.rank != 1 or zeros.size != self.N * width:  # older models hold them flat
            b.check_shape("zero_points", self.N, width, why=why)
        return zeros

    def _groups(self, b: Builder) -> Slot | None:
        groups = b.get("g_idx")
        if groups is not None:
            whole = -(-self.K // self.block_size) * self.block_size
            fits = groups.shape in ((self.K,), (whole,))
            b.check(fits, "g_idx", f"has shape {groups.shape}", f"({self.K},) because K={self.K}")
        return groups


@dataclass(frozen=True, kw_only=True)
class _NormalizedNBits(_NBits):
    """Products that share one input, which may be normalized first."""

    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_epsilon(self.op, self.epsilon)

    def factor(self, b: Builder) -> Slot:
        """What is multiplied: A's rows, or RMSNorm(A + skip) * norm_scale in float32."""
        a, skip, scale = b.need("A"), b.get("skip"), b.get("norm_scale")
        rows = as_rows(b, "A", self.K, f"K={self.K}")
        b.check_shape("norm_scale", self.K, why=f"K={self.K}")
        b.check_shape("skip", *a.shape, why="A has that shape")
        b.check(skip is None or scale is not None, "skip", "was given without norm_scale", "both or neither")
        b.check(
            skip is not None or not b.wants("input_skip_bias_sum"),
            "input_skip_bias_sum",
            "is wanted without skip",
            "input skip",
        )
        if scale is None:
            return rows
        total = b.output_if_wanted("input_skip_bias_sum", a.shape, a.dtype)
        normal = b.scratch("normalized", rows.shape, dtypes.float32)
        normalize_rows(
            b,
            {"x": a, "skip": skip, "bias": None},
            normal,
            rows=rows.shape[0],
            width=self.K,
            epsilon=self.epsilon,
            gamma=scale,
            beta=None,
            total=total,
            uniforms={"skip_rows": max(1, rows.shape[0])},
            centered=False,
        )
        return normal


@register("MatMulNBitsMlp")
@dataclass(frozen=True, kw_only=True)
class MatMulNBitsMlp(_NormalizedNBits):
    """silu(gate) * up of two products with the same input."""

    N: int
    activation: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.op, N=self.N)
        if self.activation != "silu":
            raise SchemaError(f"{self.op}: activation is {self.activation!r}; expected 'silu'")

    def plan(self, b: Builder) -> None:
        a = self.factor(b)
        gate_weights, up_weights = (self.weights(b, f"{name}_", self.N) for name in ("gate", "up"))
        gate_bias, up_bias = (with_bias(b, f"{name}_bias", self.N) for name in ("gate", "up"))
        y = output_rows(b, "Y", b.need("A"), self.N)
        gate = b.scratch("gate", y.shape, dtypes.float32)
        activated = f"{add_bias(gate_bias)}; x * sigmoid(x)"
        quantized_matmul(b, a, gate_weights, gate, operands=gate_bias, epilogue=activated)
        gated = f"{add_bias(up_bias)}; x * gate"
        quantized_matmul(b, a, up_weights, y, operands={**up_bias, "gate": gate}, epilogue=gated)


@register("MatMulNBitsQkv")
@dataclass(frozen=True, kw_only=True)
class MatMulNBitsQkv(_NormalizedNBits):
    """Three products with the same normalized input."""

    Nq: int
    Nkv: int
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.op, Nq=self.Nq, Nkv=self.Nkv)

    def plan(self, b: Builder) -> None:
        a = self.factor(b)
        widths = {"q": self.Nq, "k": self.Nkv, "v": self.Nkv}
        weights = {name: self.weights(b, f"{name}_", n) for name, n in widths.items()}
        biases = {name: with_bias(b, f"{name}_bias", n) for name, n in widths.items()}
        for name, n in widths.items():
            y = output_rows(b, name.upper(), b.need("A"), n)
            bias = biases[name]
            quantized_matmul(b, a, weights[name], y, operands=bias, epilogue=add_bias(bias))
