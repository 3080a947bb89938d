"""Matrix products of 8-bit integers with zero points, exact in 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.plan import Builder, Slot, i32
from .elementwise import elementwise
from .layout import View
from .matmul import matmul


def integer_matmul(
    b: Builder,
    a: Slot | View,
    w: Slot | View,
    out: Slot,
    *,
    a_zero: Slot | View | None = None,
    w_zero: Slot | View | None = None,
    epilogue: str = "x",
    operands: Mapping[str, Slot | View] | None = None,
) -> None:
    """Append ``out = epilogue((a - a_zero) @ (w - w_zero))`` for int8 or uint8 factors.

    ``a`` is ``[..., m, k]``, ``w`` ``[..., k, n]``, ``out`` ``[..., m, n]``. Zero points broadcast over
    ``[..., m, 1]`` and ``[..., 1, n]``. The epilogue is an expression of ``x``, the int32 product, and of
    ``operands`` that broadcast to ``out``, in the arithmetic of ``out``. The raw product is corrected by
    the sums of rows and columns; since 32-bit arithmetic wraps, it is exact wherever the product fits.
    """
    if epilogue != "x" or out.dtype != dtypes.int32:
        product = b.scratch("product", out.shape, dtypes.int32)
        integer_matmul(b, a, w, product, a_zero=a_zero, w_zero=w_zero)
        elementwise(b, epilogue, out, {"x": product, **(operands or {})})
        return
    left, right = View.of(a), View.of(w)
    size = left.shape[-1]
    one = View(b.constant("one", np.ones(1, np.int32)), (1, 1), (0, 0))
    terms: list[str] = ["x"]
    corrections: dict[str, View] = {}
    if a_zero is not None:
        columns = b.scratch("columns", (*right.shape[:-2], 1, right.shape[-1]), dtypes.int32)
        matmul(b, one.broadcast((1, size)), right, columns)
        corrections |= {"a_zero": View.of(a_zero), "columns": View.of(columns)}
        terms.append("- a_zero * columns")
    if w_zero is not None:
        rows = b.scratch("rows", (*left.shape[:-1], 1), dtypes.int32)
        matmul(b, left, one.broadcast((size, 1)), rows)
        corrections |= {"w_zero": View.of(w_zero), "rows": View.of(rows)}
        terms.append("- w_zero * rows")
    uniforms: dict[str, Any] = {}
    if a_zero is not None and w_zero is not None:
        uniforms["inner"] = i32(size)
        terms.append("+ u.inner * a_zero * w_zero")
    matmul(b, left, right, out, operands=corrections, epilogue=" ".join(terms), uniforms=uniforms)
