"""Matrices in cublasLt's memory orders: their product in int8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core import dtypes
from ..core.plan import Builder, Slot
from ..errors import SchemaError
from .integer_matmul import integer_matmul, single
from .layout import View
from .matmul import transposed
from .registry import Operator, register
from .standard.quantize import saturated

# cublasLtOrder_t; shaders/ordered/index.wgsl says where an element lies.
ORDERS = ("COL", "ROW", "COL32", "COL4_4R2_8C", "COL32_2R_4R4")
TILES = {"COL32": (1, 32), "COL4_4R2_8C": (8, 32), "COL32_2R_4R4": (32, 32)}


def order_of(op: str, attribute: str, number: int) -> str:
    """The name of a memory order."""
    if number not in range(len(ORDERS)):
        known = ", ".join(f"{i} ({name})" for i, name in enumerate(ORDERS))
        raise SchemaError(f"{op}: {attribute} is {number}; expected one of {known}")
    return ORDERS[number]


def check_tiles(b: Builder, name: str, rows: int, columns: int, order: str) -> None:
    """Refuse a matrix that does not consist of whole tiles of its order."""
    high, wide = TILES.get(order, (1, 1))
    good = rows % high == 0 and columns % wide == 0
    b.check(
        good,
        name,
        f"is a matrix of {rows} rows and {columns} columns",
        f"multiples of {high} and {wide} in order {order}",
    )


@register("QOrderedMatMul")
@dataclass(frozen=True, kw_only=True)
class QOrderedMatMul(Operator):
    """round((scale_A * scale_B * A @ B + bias + scale_C * C) / scale_Y) in int8.

    Either A, C and Y are in ROW order and B in COL, or A, C and Y are in COL32 and the memory of B
    is its transpose in one of the tiled orders.
    """

    order_A: int
    order_B: int
    order_Y: int

    def __post_init__(self) -> None:
        a, w, y = (order_of(self.op, f"order_{x}", getattr(self, f"order_{x}")) for x in "ABY")
        expected = {"COL": "ROW", "COL4_4R2_8C": "COL32", "COL32_2R_4R4": "COL32"}
        if w not in expected:
            raise SchemaError(f"{self.op}: order_B is {w}; expected one of {', '.join(expected)}")
        for name, order in (("order_A", a), ("order_Y", y)):
            if order != expected[w]:
                raise SchemaError(
                    f"{self.op}: {name} is {order}; expected {expected[w]} because order_B is {w}"
                )

    def plan(self, b: Builder) -> None:
        a, w, bias, c = b.need("A"), b.need("B"), b.get("bias"), b.get("C")
        tiled = ORDERS[self.order_A] == "COL32"
        for x in (a, w, c):
            if x is not None:
                b.check(x.rank in (2, 3), x.name, f"has shape {x.shape}", "two or three dimensions")
        batch, (m, k) = a.shape[:-2], a.shape[-2:]
        n = w.shape[-1]
        b.check(w.shape[-2] == k, "B", f"has shape {w.shape}", f"{k} rows because A has shape {a.shape}")
        for x, shape in ((w, (k, n)), (c, (m, n))):
            if x is None:
                continue
            good = x.shape[-2:] == shape and x.shape[:-2] in ((), (1,), batch)
            b.check(good, x.name, f"has shape {x.shape}", f"{shape}, or that {batch or (1,)} times")
        scale_w = b.need("scale_B")
        if scale_w.size != 1:
            b.check_shape("scale_B", n, why=f"B has {n} columns")
        operands: dict[str, Slot | View] = {
            "a_scale": single(b, "scale_A"),
            "w_scale": scale_w.reshape(scale_w.size),
            "y_scale": single(b, "scale_Y"),
        }
        terms = ["x * (a_scale * w_scale)"]
        if bias is not None:
            b.check(not tiled, "bias", "is given", f"none with order_B={self.order_B}")
            b.check_shape("bias", n, why=f"B has {n} columns")
            operands["bias"] = bias
            terms.append("bias")
        if c is not None:
            operands |= {"c": _stacked(c, batch), "c_scale": single(b, "scale_C")}
            terms.append("c_scale * c")
        y = b.output("Y", (*batch, m, n), dtypes.int8)
        settings: dict[str, Any] = {}
        right = View.of(_stacked(w, batch))
        if tiled:
            order = ORDERS[self.order_B]
            check_tiles(b, "A", m, k, "COL32")
            check_tiles(b, "B", n, k, order)
            check_tiles(b, "Y", m, n, "COL32")
            settings = {"orders": ("COL32", order, "COL32"), "as_out": "c" if c is not None else ""}
        else:
            # Column-major memory is the row-major memory of the transpose.
            right = transposed(_stacked(w.reshape(*w.shape[:-2], n, k), batch))
        epilogue = saturated(f"round(({' + '.join(terms)}) / y_scale)", dtypes.int8)
        integer_matmul(
            b, a, right, y, epilogue=epilogue, operands=operands, compute=dtypes.float32, **settings
        )


def _stacked(x: Slot, batch: tuple[int, ...]) -> Slot:
    """``x`` without a leading dimension of 1 where there is no batch."""
    return x if batch or x.rank == 2 else x.reshape(*x.shape[1:])
