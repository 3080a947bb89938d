"""Attentions of int8 matrices in cublasLt's memory orders: QOrderedAttention, QOrderedLongformerAttention."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import Builder, Slot, f32
from ...errors import SchemaError
from ..elementwise import elementwise
from ..integer_matmul import integer_matmul, single
from ..layout import View
from ..matmul import matmul, transposed
from ..ordered import ORDERS, check_tiles, order_of
from ..registry import Operator, register
from ..standard.quantize import saturated
from ..standard.reduction import softmax
from .core import Mask
from .fresh import self_mask
from .longformer import Longformer

LOWEST = float(np.finfo(np.float32).min)
# The order of input and output that a weight's order goes with, as in QOrderedMatMul.
OUTER = {"COL": "ROW", "COL4_4R2_8C": "COL32", "COL32_2R_4R4": "COL32"}


def check_orders(op: str, weights: dict[str, int], others: dict[str, int]) -> None:
    """Refuse attributes of memory orders that do not go together."""
    for attribute, number in weights.items():
        order = order_of(op, attribute, number)
        if order not in OUTER:
            raise SchemaError(f"{op}: {attribute} is {order}; expected one of {', '.join(OUTER)}")
        for other, value in others.items():
            given, expected = order_of(op, other, value), OUTER[order]
            if given != expected:
                raise SchemaError(
                    f"{op}: {other} is {given}; expected {expected} because {attribute} is {order}"
                )


def project(
    b: Builder,
    w: Slot,
    order: str,
    out: Slot,
    *,
    w_scale: str,
    bias: str,
    gemm: str,
    epilogue: str,
) -> None:
    """Append ``out = epilogue(input @ w)``, row-major, for an input in the order that goes with w's.

    The epilogue names ``x_scale``, the scale of the input, and the inputs ``w_scale``, ``bias`` and ``gemm``.
    """
    x = b.need("input")
    inner, columns = w.shape
    scale = b.need(w_scale)
    if scale.size != 1:
        b.check_shape(w_scale, columns, why=f"{w.name} has {columns} columns")
    if order == "COL":
        # Column-major memory is the row-major memory of the transpose.
        orders, right = None, transposed(w.reshape(columns, inner))
    else:
        orders, right = (OUTER[order], order, "row"), View.of(w)
        check_tiles(b, x.name, x.shape[-2], inner, OUTER[order])
        check_tiles(b, w.name, columns, inner, order)
    integer_matmul(
        b,
        x,
        right,
        out,
        epilogue=epilogue,
        operands={
            "x_scale": single(b, "scale_input"),
            "w_scale": scale.reshape(scale.size),
            "bias": b.need(bias),
            "gemm": single(b, gemm),
        },
        compute=dtypes.float32,
        orders=orders,
    )


def output_and_rows(b: Builder, shape: tuple[int, ...], order: str) -> tuple[Slot, Slot]:
    """Output ``output`` in int8, and where its rows are made before :func:`reorder`: there if they can."""
    y = b.output("output", shape, dtypes.int8)
    if order == "ROW":
        return y, y
    check_tiles(b, "output", shape[-2], shape[-1], order)
    return y, b.scratch("output_rows", shape, dtypes.int8)


def reorder(b: Builder, rows: Slot, y: Slot) -> None:
    """Append the move of row-major ``rows [B, S, H]`` to ``y``, which is in COL32 if it is not them."""
    if rows == y:
        return
    batch, count, width = y.shape
    bands = View(rows, (batch, width // 32, count, 32), (count * width, 32, width, 1))
    target = y.reshape(*bands.shape)
    elementwise(b, "x", target.as_bits(), {"x": bands.as_bits()})


@register("QOrderedAttention")
@dataclass(frozen=True, kw_only=True)
class QOrderedAttention(Operator):
    """Self attention whose every matrix (Q, K, V, scores, shares, output) is rounded to int8.

    A share can be rounded only when its row is complete, so scores and shares are in memory. Where the
    scale of one of them is not given, that one stays as it is.
    """

    num_heads: int
    order_input: int
    order_output: int
    order_weight: int
    qkv_hidden_sizes: tuple[int, ...] | None = None
    unidirectional: int = 0

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads={self.num_heads}; expected a positive number")
        if self.unidirectional not in (0, 1):
            raise SchemaError(f"{self.op}: unidirectional={self.unidirectional}; expected 0 or 1")
        check_orders(
            self.op,
            {"order_weight": self.order_weight},
            {"order_input": self.order_input, "order_output": self.order_output},
        )

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, input_hidden)")
        batch, rows, channels = x.shape
        hidden = self._check_weights(b, channels)
        for name in ("past", "attention_bias"):
            b.check(b.get(name) is None, name, "is given", "none: the operator's text does not support it")
        mask = b.get("mask_index")
        if mask is not None and mask.rank == 1:
            good = mask.shape[0] in (batch, 2 * batch)
            b.check(good, "mask_index", f"has shape {mask.shape}", f"({batch},) or ({2 * batch},)")
        seen = self_mask(b, batch, rows, 0, rows, -math.inf)
        y_scale = single(b, "scale_values_gemm")
        y, made = output_and_rows(b, (batch, rows, hidden), ORDERS[self.order_output])
        if not y.size:
            return

        share_scale = single(b, "scale_QKT_softmax") if b.get("scale_QKT_softmax") is not None else None
        # Shares that are not rounded multiply the whole numbers of V as floats.
        types = {"Q": dtypes.int8, "K": dtypes.int8, "V": dtypes.int8 if share_scale else dtypes.float32}
        q, k, v = (self._projection(b, name, (batch, rows, hidden), t) for name, t in types.items())
        scores = b.scratch("scores", (batch, self.num_heads, rows, rows), dtypes.float32)
        self._scores(b, q, k, scores, seen)
        shares = b.scratch("shares", scores.shape, dtypes.float32)
        softmax(b, scores, shares, outer=scores.size // rows, width=rows)
        # A row that sees nothing has no shares.
        share = "(0 if s <= u.lowest else p)"
        parts: dict[str, Slot | View] = {"s": scores, "p": shares}
        lowest = {"lowest": f32(LOWEST)}
        scales: dict[str, Slot | View] = {"v_scale": single(b, "scale_V_gemm"), "y_scale": y_scale}
        if share_scale is not None:
            rounded = b.scratch("rounded_shares", scores.shape, dtypes.int8)
            parts["scale"] = share_scale
            expression = saturated(f"round({share} / scale)", dtypes.int8)
            elementwise(b, expression, rounded, parts, compute=dtypes.float32, cast=True, uniforms=lowest)
            integer_matmul(
                b,
                rounded,
                v,
                self._heads(made),
                epilogue=saturated("round(x * (p_scale * v_scale / y_scale))", dtypes.int8),
                operands=scales | {"p_scale": share_scale},
                compute=dtypes.float32,
            )
        else:
            elementwise(b, share, shares, parts, uniforms=lowest)
            real = b.scratch("real", made.shape, dtypes.float32)
            matmul(b, shares, v, self._heads(real), operands=scales, epilogue="x * (v_scale / y_scale)")
            expression = saturated("round(x)", dtypes.int8)
            elementwise(b, expression, made, {"x": real}, compute=dtypes.float32, cast=True)
        reorder(b, made, y)

    def _check_weights(self, b: Builder, channels: int) -> int:
        """Refuse weights and biases that do not fit; how many columns each weight has."""
        hidden = b.need("Q_weight").shape[-1]
        n, why = self.num_heads, f"input has {channels} channels and Q_weight {hidden} columns"
        for name in "QKV":
            b.check_shape(f"{name}_weight", channels, hidden, why=why)
            b.check_shape(f"{name}_bias", hidden, why=f"{name}_weight has {hidden} columns")
        b.check(
            hidden > 0 and hidden % n == 0,
            "Q_weight",
            f"has {hidden} columns",
            f"a positive multiple of num_heads={n}",
        )
        if self.qkv_hidden_sizes is not None and tuple(self.qkv_hidden_sizes) != (hidden,) * 3:
            raise SchemaError(
                f"{self.op}: qkv_hidden_sizes={list(self.qkv_hidden_sizes)}; expected {[hidden] * 3}, the "
                "columns of the weights: the operator's text does not support others"
            )
        return hidden

    def _heads(self, x: Slot) -> View:
        """``[B, S, H]`` as the matrices ``[B, heads, S, size]``."""
        batch, rows, hidden = x.shape
        size = hidden // self.num_heads
        return View(x, (batch, self.num_heads, rows, size), (rows * hidden, size, hidden, 1))

    def _projection(self, b: Builder, name: str, shape: tuple[int, ...], dtype: DType) -> View:
        """Append Q, K or V, rounded to int8: its heads."""
        out = b.scratch(name, shape, dtype)
        project(
            b,
            b.need(f"{name}_weight"),
            ORDERS[self.order_weight],
            out,
            w_scale=f"scale_{name}_weight",
            bias=f"{name}_bias",
            gemm=f"scale_{name}_gemm",
            epilogue=saturated("round((x * (x_scale * w_scale) + bias) / gemm)", dtypes.int8),
        )
        return self._heads(out)

    def _scores(self, b: Builder, q: View, k: View, scores: Slot, mask: Mask | None) -> None:
        """Append the scaled scores; LOWEST where a query does not see a key."""
        batch, _, rows, size = q.shape
        operands: dict[str, Slot | View] = {
            "q_scale": single(b, "scale_Q_gemm"),
            "k_scale": single(b, "scale_K_gemm"),
        }
        score = "x * (q_scale * k_scale)"
        if b.get("scale_QKT_gemm") is not None:
            operands["scale"] = single(b, "scale_QKT_gemm")
            score = saturated("round(x * (q_scale * k_scale / scale))", dtypes.int8) + " * scale"
        seen = []
        if self.unidirectional or (mask is not None and mask.kind == "ends"):
            places = np.arange(rows, dtype=np.int32)
            operands["key"] = b.constant("keys", places)
        if self.unidirectional:
            operands["query"] = b.constant("queries", places[:, None])
            seen.append("key <= query")
        if mask is not None and mask.kind == "values":
            operands["mask"] = View(mask.slot, scores.shape, mask.strides, mask.offset)
            seen.append("mask != 0")
        elif mask is not None:
            operands["end"] = View(mask.slot, (batch, 1, 1, 1), (1, 0, 0, 0))
            seen.append("key < end")
            if mask.starts:
                operands["start"] = View(mask.slot, (batch, 1, 1, 1), (1, 0, 0, 0), mask.starts)
                seen.append("key >= start")
        epilogue = f"{score} * u.softmax_scale"
        if seen:
            epilogue += f"; x if {' and '.join(seen)} else u.lowest"
        uniforms = {"softmax_scale": f32(1 / math.sqrt(size))} | ({"lowest": f32(LOWEST)} if seen else {})
        integer_matmul(b, q, transposed(k), scores, epilogue=epilogue, operands=operands, uniforms=uniforms)


@register("QOrderedLongformerAttention")
@dataclass(frozen=True, kw_only=True)
class QOrderedLongformerAttention(Longformer):
    """Longformer attention whose projections and output are rounded to int8.

    Biases are in units of the scale of their product; scale_bias has no effect.
    """

    order_global_weight: int
    order_input: int
    order_output: int
    order_weight: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_orders(
            self.op,
            {"order_weight": self.order_weight, "order_global_weight": self.order_global_weight},
            {"order_input": self.order_input, "order_output": self.order_output},
        )

    def plan(self, b: Builder) -> None:
        batch, rows, hidden = self.check(b)
        single(b, "scale_bias")
        y_scale = single(b, "scale_output")
        y, made = output_and_rows(b, (batch, rows, hidden), ORDERS[self.order_output])
        if not y.size:
            return
        projected = []
        for name, prefix, order, gemm in (
            ("local", "", self.order_weight, "scale_qkv_gemm"),
            ("everywhere", "global_", self.order_global_weight, "scale_global_gemm"),
        ):
            out = b.scratch(name, (batch, rows, 3 * hidden), dtypes.float32)
            rounded = saturated("round(x * (x_scale * w_scale / gemm) + bias)", dtypes.int8)
            project(
                b,
                b.need(f"{prefix}weight"),
                ORDERS[order],
                out,
                w_scale=f"scale_{prefix}weight",
                bias=f"{prefix}bias",
                gemm=gemm,
                epilogue=f"{rounded} * gemm",
            )
            projected.append(out)
        local, everywhere = projected
        self.attend(b, local, everywhere, made, y_scale)
        reorder(b, made, y)
