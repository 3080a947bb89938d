"""Attention in float64, step by step: the scores are in memory, and other families do the work.

Software float64 has no streaming kernel, so this path is for who asks for that precision: memory grows
with queries times keys. Keys that no query sees may hold anything, NaN included; what some query sees is
finite.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.plan import Builder, Slot, f64
from ..elementwise import elementwise
from ..layout import View
from ..matmul import matmul, transposed
from ..standard.reduction import reduce, softmax
from .core import Attention, Rows

LOWEST = -sys.float_info.max


def attend_materialized(b: Builder, a: Attention, columns: int) -> None:
    """Append the steps of ``a``, whose keys and values are the first ``columns`` rows of their memory.

    Entries that are packed, beams and quantized keys have no place here.
    """
    h = a.heads
    if h.all_rows == 0 or h.value_size == 0:
        return
    b.path = "materialized in float64"
    stack = (h.batch, h.kv_heads, h.group)
    q = _view(a.q, (*stack, h.rows, h.size), h.group)
    k = _view(a.k.rows, (*stack, columns, h.size), 0)
    v = _view(a.v.rows, (*stack, columns, h.value_size), 0)
    y = _view(a.y, (*stack, h.rows, h.value_size), h.group)
    shape = (*stack, h.rows, columns)

    def emit(stage: str, x: Slot) -> None:
        if a.scores is not None and a.scores.stage == stage:
            out = a.scores.slot.reshape(*shape)
            elementwise(b, "x", out, {"x": x}, compute=dtypes.float64, cast=True)

    if not columns:
        b.zero(a.y.slot)
        return
    scores = b.scratch("scores", shape, dtypes.float64)
    matmul(b, q, transposed(k), scores, epilogue="u.scale * x", uniforms={"scale": f64(a.scale)})
    emit("raw", scores)
    if a.softcap:
        cap = {"cap": f64(a.softcap)}
        elementwise(b, "u.cap * tanh(x / u.cap)", scores, {"x": scores}, uniforms=cap)
    emit("softcapped", scores)
    _mask(b, a, scores, columns)
    emit("masked", scores)
    # Finite numbers keep a row of hidden keys from becoming NaN; such keys have no share anywhere.
    lowest = {"lowest": f64(LOWEST)}
    elementwise(b, "u.lowest if x < u.lowest else x", scores, {"x": scores}, uniforms=lowest)
    shares = b.scratch("shares", shape, dtypes.float64)
    softmax(b, scores, shares, outer=h.all_rows, width=columns)
    operands = {"x": scores, "p": shares}
    elementwise(b, "0 if x <= u.lowest else p", shares, operands, uniforms=lowest)
    emit("weights", shares)
    matmul(b, shares, _values(b, v, shares), y)


def _values(b: Builder, v: View, shares: Slot) -> Slot:
    """``v`` with zeros for keys that no query has a share of: their memory may hold anything."""
    used = b.scratch("used", (*v.shape[:2], 1, v.shape[3], 1), dtypes.float64)
    reduce(b, shares, used.reshape(*v.shape[:2], 1, 1, v.shape[3]), axes=(2, 3), combine="a if a > b else b")
    values = b.scratch("values", (*v.shape[:2], 1, *v.shape[3:]), dtypes.float64)
    one = View(v.slot, values.shape, v.strides, v.offset)
    operands: dict[str, Slot | View] = {"v": one, "used": used}
    elementwise(b, "v if used > 0 else 0", values, operands, compute=dtypes.float64, cast=True)
    return values


def _mask(b: Builder, a: Attention, scores: Slot, columns: int) -> None:
    """Adds bias and mask to the scores; -inf where a query does not see a key."""
    h, span = a.heads, a.span
    full = (h.batch, h.kv_heads, h.group, h.rows, columns)
    operands: dict[str, Slot | View] = {
        "x": scores,
        "query": b.constant("queries", np.arange(h.rows, dtype=np.int32)[:, None]),
        "key": b.constant("keys", np.arange(columns, dtype=np.int32)),
    }
    seen = ["key < u.total", "key <= at + u.ahead", "key >= at - u.behind"]
    level = "query + u.level"
    # Query i is level with key past + new - rows + i; the past is what the new keys leave of a length.
    values: dict[str, Any] = {
        "total": f64(min(span.total, span.shown)),
        "ahead": f64(a.ahead),
        "behind": f64(a.behind),
        "level": f64(span.past + span.new - span.rows),
        "hidden": f64(-math.inf),
    }
    if span.lengths is not None:
        lengths = span.lengths.as_type(dtypes.int64).reshape(h.batch, 1, 1, 1, 1)
        operands["length"] = lengths
        seen.append("key < length")
        level, values["level"] = "query + length + u.level", f64(-span.rows)
    value = "x"
    if a.bias is not None:
        operands["m"] = _heads_apart(a.bias.slot, a.bias.strides, 0, full, h.group)
        value = "(m if m == u.hidden else x + m)"
    elif a.mask is not None:
        operands["m"] = _heads_apart(a.mask.slot, a.mask.strides, a.mask.offset, full, h.group)
        seen.append("m")
    expression = f"at = {level}; {value} if {' and '.join(seen)} else u.hidden"
    elementwise(b, expression, scores, operands, uniforms=values)


def _view(x: Rows, shape: tuple[int, ...], group: int) -> View:
    """Rows as ``[batch, kv_heads, group, row, channel]``; a ``group`` of 0 shares one head."""
    steps = (x.batch, x.head * max(group, 1), x.head if group else 0, x.row, 1)
    return View(x.slot, shape, steps, x.offset)


def _heads_apart(
    slot: Slot, strides: tuple[int, ...], offset: int, shape: tuple[int, ...], group: int
) -> View:
    """A tensor over batch, head, query and key with its heads in groups."""
    batch, head, row, column = strides
    return View(slot, shape, (batch, head * group, head, row, column), offset)
