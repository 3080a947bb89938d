"""Matrix products of floats fused with scales, biases and activations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core import dtypes
from ..core.plan import Builder, Shape, Slot, uniform_of
from ..errors import SchemaError, UnsupportedError
from .activation import GELU
from .fused_activation import activation, check_activation
from .layout import View, axis_of
from .matmul import Gemm, computing_type, gemm_views, matmul, product_views, transposed
from .registry import Operator, register
from .standard.reduction import softmax

FAST_GELU = "0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"


def operand(x: Slot, transpose: bool, transpose_batch: bool) -> View:
    """A factor as the product sees it: first the first dimension moves behind the batch dimensions,
    then the last two are exchanged. A vector stays as it is."""
    view = View.of(x)
    if transpose_batch and x.rank > 2:
        view = view.permute((*range(1, x.rank - 1), 0, x.rank - 1))
    return transposed(view) if transpose and x.rank > 1 else view


@register("FusedMatMul", "TransposeMatMul")
@dataclass(frozen=True, kw_only=True)
class FusedMatMul(Operator):
    """alpha * A' @ B' as NumPy's matmul, where A' and B' may be transposed views."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0
    transBatchA: int = 0
    transBatchB: int = 0

    def plan(self, b: Builder) -> None:
        left, right, matrices, y = self.factors(b)
        expression, values = self.scaled(y)
        matmul(b, left, right, y.reshape(*matrices), epilogue=expression, uniforms=values)

    def factors(self, b: Builder) -> tuple[View, View, Shape, Slot]:
        """Both factors as matrices, the shape of their product, and output Y."""
        a = operand(b.need("A"), bool(self.transA), bool(self.transBatchA))
        w = operand(b.need("B"), bool(self.transB), bool(self.transBatchB))
        left, right, matrices, shape = product_views(b, a, w)
        return left, right, matrices, b.output("Y", shape, a.slot.dtype)

    def scaled(self, y: Slot) -> tuple[str, dict[str, Any]]:
        if self.alpha == 1.0:
            return "x", {}
        return "u.alpha * x", {"alpha": uniform_of(self.alpha, computing_type(y.dtype))}


@register("FusedMatMulActivation")
@dataclass(frozen=True, kw_only=True)
class FusedMatMulActivation(FusedMatMul):
    """FusedMatMul, then an elementwise activation, or softmax along one axis of the result."""

    activation: str
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None
    activation_axis: int | None = None

    def __post_init__(self) -> None:
        check_activation(self.op, self.activation, "Softmax")

    def plan(self, b: Builder) -> None:
        left, right, matrices, y = self.factors(b)
        expression, values = self.scaled(y)
        compute = computing_type(y.dtype)
        if self.activation == "Softmax":
            # The product stays in the type that sums it, so that the result is rounded once.
            product = y if compute == y.dtype else b.scratch("product", y.shape, compute)
            matmul(b, left, right, product.reshape(*matrices), epilogue=expression, uniforms=values)
            rank = max(1, y.rank)
            axis = axis_of(
                b, -1 if self.activation_axis is None else self.activation_axis, rank, what="activation_axis"
            )
            lines = y.shape or (1,)
            outer, inner = math.prod(lines[:axis]), math.prod(lines[axis + 1 :])
            softmax(b, product, y, outer=outer, width=lines[axis], inner=inner)
            return
        ending, parameters = activation(
            self.op,
            self.activation,
            compute,
            alpha=self.activation_alpha,
            beta=self.activation_beta,
            gamma=self.activation_gamma,
        )
        finish = f"{expression}; {ending}"
        matmul(b, left, right, y.reshape(*matrices), epilogue=finish, uniforms=values | parameters)


@register("FusedGemm")
@dataclass(frozen=True, kw_only=True)
class FusedGemm(Gemm):
    """Gemm, then an activation."""

    activation: str = ""
    activation_alpha: float | None = None
    activation_beta: float | None = None
    activation_gamma: float | None = None

    def __post_init__(self) -> None:
        if self.activation:
            check_activation(self.op, self.activation)

    def plan(self, b: Builder) -> None:
        if not self.activation:
            super().plan(b)
            return
        compute = computing_type(b.need("A").dtype)
        ending, values = activation(
            self.op,
            self.activation,
            compute,
            alpha=self.activation_alpha,
            beta=self.activation_beta,
            gamma=self.activation_gamma,
        )
        self.multiply(b, ending=ending, uniforms=values)


@register("GemmFastGelu")
@dataclass(frozen=True, kw_only=True)
class GemmFastGelu(Operator):
    """GELU (by tanh) of X @ W + bias."""

    def plan(self, b: Builder) -> None:
        x, w, bias = b.need("X"), b.need("W"), b.get("bias")
        left, right, matrices, shape = product_views(b, x, w, ("X", "W"))
        b.check_shape("bias", matrices[-1], why=f"W has {matrices[-1]} columns")
        y = b.output("Y", shape, x.dtype).reshape(*matrices)
        start = "x" if bias is None else "x + c"
        matmul(b, left, right, y, bias=bias, epilogue=f"{start}; {FAST_GELU}")


_FLOAT8_ACTIVATIONS: Mapping[str, str] = {"NONE": "x", "RELU": "0 if x < 0 else x", "GELU": GELU}


@register("GemmFloat8")
@dataclass(frozen=True, kw_only=True)
class GemmFloat8(Operator):
    """cast(scaleY * activation(alpha * scaleA * scaleB * A' @ B' + beta * C)); float8 saturates."""

    activation: str = "NONE"
    alpha: float = 1.0
    beta: float = 0.0
    dtype: int = dtypes.float32.onnx
    transA: int = 0
    transB: int = 0

    def __post_init__(self) -> None:
        if self.activation not in _FLOAT8_ACTIVATIONS:
            known = ", ".join(_FLOAT8_ACTIVATIONS)
            raise SchemaError(f"{self.op}: activation is {self.activation!r}; expected one of {known}")

    def plan(self, b: Builder) -> None:
        a, w, c = b.need("A"), b.need("B"), b.get("C")
        result = dtypes.from_onnx(self.dtype)
        known = dtypes.float8e4m3fn, dtypes.float8e5m2, dtypes.float16, dtypes.bfloat16, dtypes.float32
        b.check(result in known, "dtype", f"is {result}", f"one of {', '.join(str(t) for t in known)}")
        for x, given, only in ((a, self.transA, 0), (w, self.transB, 1)):
            if x.dtype.name.startswith("float8") and bool(given) != bool(only):
                raise UnsupportedError(
                    f"{self.op}: trans{x.name} is {given} for {x.dtype}; expected {only} for float8"
                )
        left, right, shape = gemm_views(b, a, w, bool(self.transA), bool(self.transB))
        b.check_shape("C", *shape, why="that is the shape of the product")
        scales = {name: b.get(name) for name in ("scaleA", "scaleB", "scaleY")}
        for name, scale in scales.items():
            size = 1 if scale is None else scale.size
            b.check(size == 1, name, f"has {size} elements", "one")
        operands = {name: scale.reshape() for name, scale in scales.items() if scale is not None}
        steps = ["x"]
        values: dict[str, Any] = {}
        factors: list[str] = [name for name in ("scaleA", "scaleB") if name in operands]
        if self.alpha != 1.0:
            factors.append("u.alpha")
            values["alpha"] = self.alpha
        if factors:
            steps.append(f"x * ({' * '.join(factors)})")
        if c is not None and self.beta != 0.0:
            steps.append("x + u.beta * c")
            values["beta"] = self.beta
        else:
            c = None
        steps.append(_FLOAT8_ACTIVATIONS[self.activation])
        if "scaleY" in operands:
            steps.append("x * scaleY")
        matmul(
            b,
            left,
            right,
            b.output("Y", shape, result),
            bias=c,
            operands=operands,
            epilogue="; ".join(steps),
            uniforms=values,
        )
