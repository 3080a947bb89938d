"""Queries, keys and values on their way to where attention reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...core.plan import Builder, Constant, Slot, f32, i32
from .core import Pages, Rows, Span, Stored


@dataclass(frozen=True)
class Positions:
    """Positions given by the caller: int64, read as pairs of int32.

    Token (b, i) is at ``ids[b * batch + i * row] + i * step``.
    """

    slot: Slot
    batch: int
    row: int
    step: int


@dataclass(frozen=True)
class Rotary:
    """Rotation of the ``2 * pairs`` channels from ``offset`` on, by tables or by computed angles.

    ``tables`` are cos and sin ``[positions, pairs]``; without them the angle of pair i at position t
    is ``t / base ** (i / pairs)``. Without ``positions`` new key i stands at past + i, and query i
    beside it.
    """

    pairs: int
    interleaved: bool = False
    tables: tuple[Slot, Slot] | None = None
    base: float = 10000.0
    positions: Positions | None = None
    offset: int = 0


@dataclass(frozen=True)
class Norm:
    """RMS normalization over a head's channels."""

    weight: Slot
    epsilon: float


def turns(rotary: Rotary) -> tuple[Sequence[float], Sequence[float]]:
    """Turns a position of each pair in two parts: twelve bits, and the rest.

    The product of the first with twelve bits of a position is exact in float32, so the fraction of a
    turn survives at positions that amount to thousands of radians.
    """
    exact = rotary.base ** (-np.arange(rotary.pairs) / rotary.pairs) / (2 * np.pi)
    bits = exact.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFF000)
    high = bits.view(np.float32).astype(np.float64)
    return high.tolist(), (exact - high).tolist()


def prepare(
    b: Builder,
    x: Rows,
    y: Stored,
    span: Span,
    *,
    batch: int,
    heads: int,
    rows: int,
    channels: int,
    capacity: int,
    append: bool,
    bias: tuple[Slot, int] | None = None,
    norm: Norm | None = None,
    rotary: Rotary | None = None,
    pages: Pages | None = None,
    slots: Slot | None = None,
) -> None:
    """Append ``y = quantize(rotate(norm(x + bias)))`` for ``rows`` rows of every head.

    ``bias`` is a slot and the element where the channels of all heads start.

    With ``append`` row i goes to row past + i of ``y`` (rows from ``capacity`` on are dropped), else
    to row i. Where the entries of ``span`` are packed, ``rows`` counts the tokens of all of them in one
    batch entry. With ``pages`` rows past + i lie there; ``slots`` (int32) holds a memory row for each token
    instead. A row that is not there is dropped, and so are those of an entry without keys.
    """
    lanes = 1 if b.caps.device_class == "cpu" else 32
    reads: dict[str, Slot | None] = {
        "x": x.slot,
        "scale": y.scale,
        "bias": bias[0] if bias else None,
        "norm": norm.weight if norm else None,
        "cos": None,
        "sin": None,
        "ids": None,
        "table": pages.table if pages and slots is None else None,
        "slots": slots,
        **span.reads(),
    }
    uniforms: dict[str, Any] = {
        **x.uniforms("x"),
        **y.rows.uniforms("y"),
        **span.uniforms(),
        "batch": batch,
        "heads": heads,
        "rows": rows,
        "channels": channels,
        "y_rows": capacity,
        "append": append,
    }
    if pages is not None and slots is None:
        uniforms |= pages.uniforms()
    if y.scale is not None:
        axes = ("batch", "head", "row", "channel")
        uniforms |= {f"scale_{a}": s for a, s in zip(axes, y.scale_strides, strict=True)}
    if bias is not None:
        uniforms["bias_offset"] = bias[1]
    if norm is not None:
        uniforms["epsilon"] = f32(norm.epsilon)
    constants: dict[str, Constant] = {
        "lanes": lanes,
        "nibbles": y.nibbles,
        "y_pack": y.rows.pack,
        "rotary": rotary is not None,
        "interleaved": rotary is not None and rotary.interleaved,
    }
    if rotary is not None:
        uniforms |= {"pairs": rotary.pairs, "turned": rotary.offset}
        uniforms["shift"] = i32(0 if append else span.new - span.rows)
        if rotary.tables is not None:
            reads["cos"], reads["sin"] = rotary.tables
            uniforms["table_rows"] = rotary.tables[0].shape[0]
        else:
            high, low = turns(rotary)
            uniforms |= {"turns_high": f32(high), "turns_low": f32(low)}
        if rotary.positions is not None:
            p = rotary.positions
            reads["ids"] = p.slot
            uniforms |= {"ids_batch": p.batch, "ids_row": p.row, "ids_step": p.step}
    b.dispatch(
        "attention/prepare",
        reads=reads,
        writes={"y": y.rows.slot},
        uniforms=uniforms,
        constants=constants,
        threads=batch * heads * rows * lanes,
    )


def move(b: Builder, x: Slot, y: Slot, span: Span, what: Literal["past", "held", "kept"]) -> None:
    """Append the move of cache rows ``x [B, H, L, D]`` to ``y [B, H, M, D]``, bit for bit.

    ``past`` keeps rows where they are; ``held`` takes the rows that a windowed cache holds before
    the call, ``kept`` those it holds after. Other rows of ``y`` become zeros.
    """
    batch, heads, rows, width = y.shape
    if what == "past" and x.shape == y.shape:
        b.copy(x, y)
        return
    b.dispatch(
        "attention/move",
        reads={"x": x.as_bits(), **span.reads()},
        writes={"y": y.as_bits()},
        uniforms=span.uniforms()
        | {
            "batch": batch,
            "heads": heads,
            "width": width,
            "x_rows": x.shape[2],
            "y_rows": rows,
        },
        constants={"what": what},
        threads=batch * heads * rows * -(-width // 4),
    )
