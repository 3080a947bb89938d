"""Attention over the queries, keys and values of a call, and over what a cache holds already."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core import dtypes
from ...core.plan import Builder, Slot
from . import cache
from .cache import Rotary
from .core import Attention, Bias, Heads, Mask, Rows, Span, Stored, attend, broadcast_strides


@dataclass(frozen=True)
class Change:
    """What new rows take before attention: a bias, then a rotation.

    ``bias`` is a slot and the element where the channels of all heads start.
    """

    bias: tuple[Slot, int] | None = None
    rotary: Rotary | None = None


@dataclass(frozen=True)
class Keep:
    """The caches that new keys and values join, each with room for ``capacity`` rows.

    ``read`` says that attention reads them there, beside what came before; otherwise it reads the new
    rows as they came, at their own precision.
    """

    k: Rows
    v: Rows
    capacity: int
    read: bool


AS_IT_IS = Change()


def attend_fresh(
    b: Builder,
    a: Attention,
    new: int,
    *,
    q: Change = AS_IT_IS,
    k: Change = AS_IT_IS,
    v: Change = AS_IT_IS,
    keep: Keep | None = None,
) -> None:
    """Append the steps of ``a``, whose rows of Q, K and V (``new`` keys) lie where the call brought them."""
    h = a.heads
    q_rows = changed(b, "q", a.q, q, a.span, h, h.rows, h.size)
    lines = []
    for name, source, change, channels, target in (
        ("k", a.k.rows, k, h.size, keep.k if keep else None),
        ("v", a.v.rows, v, h.value_size, keep.v if keep else None),
    ):
        if keep is not None and target is not None:
            _prepare(b, source, target, change, a.span, h, new, channels, keep.capacity, append=True)
        if keep is not None and target is not None and keep.read:
            lines.append(target)
        else:
            lines.append(changed(b, name, source, change, a.span, h, new, channels))
    attend(b, replace(a, q=q_rows, k=Stored(lines[0]), v=Stored(lines[1])))


def changed(
    b: Builder, name: str, x: Rows, change: Change, span: Span, heads: Heads, rows: int, channels: int
) -> Rows:
    """``x`` itself where there is nothing to do, else its rows in scratch memory."""
    if change == AS_IT_IS:
        return x
    made = Rows.heads_first(b.scratch(name, (heads.batch, heads.heads, rows, channels), dtypes.float32))
    _prepare(b, x, made, change, span, heads, rows, channels, rows, append=False)
    return made


def _prepare(
    b: Builder,
    x: Rows,
    y: Rows,
    change: Change,
    span: Span,
    heads: Heads,
    rows: int,
    channels: int,
    capacity: int,
    append: bool,
) -> None:
    cache.prepare(
        b,
        x,
        Stored(y),
        span,
        batch=heads.batch,
        heads=heads.heads,
        rows=rows,
        channels=channels,
        capacity=capacity,
        append=append,
        bias=change.bias,
        rotary=change.rotary,
    )


# Checks that operators share


def check_bias(b: Builder, batch: int, heads: int, rows: int, columns: int) -> Bias | None:
    """Input attention_bias, which broadcasts over batch entries and heads only."""
    bias = b.get("attention_bias")
    if bias is None:
        return None
    good = (
        bias.rank == 4
        and bias.shape[0] in (1, batch)
        and bias.shape[1] in (1, heads)
        and bias.shape[2:] == (rows, columns)
    )
    b.check(
        good,
        "attention_bias",
        f"has shape {bias.shape}",
        f"({batch} or 1, {heads} or 1, {rows}, {columns})",
    )
    return Bias(bias, broadcast_strides(bias.shape))


def check_length(b: Builder, name: str, least: int, most: int, why: str) -> int:
    """The value of ``name``, one integer from ``least`` to ``most``."""
    slot = b.need(name)
    b.check(slot.size == 1, name, f"has shape {slot.shape}", "one element")
    value = int(b.host(name).reshape(()))
    b.check(least <= value <= most, name, f"is {value}", f"{least} to {most} because {why}")
    return value


def check_lengths(b: Builder, batch: int) -> None:
    """Input seqlens_k, a length for each batch entry."""
    lengths = b.need("seqlens_k")
    b.check(
        lengths.shape in ((batch,), (batch, 1)),
        "seqlens_k",
        f"has shape {lengths.shape}",
        f"({batch},) because query has batch {batch}",
    )


def self_mask(b: Builder, batch: int, rows: int, had: int, total: int, value: float) -> Mask | None:
    """Input mask_index of a self attention, in one of its forms."""
    mask = b.get("mask_index")
    if mask is None:
        return None
    if mask.shape in ((batch,), (3 * batch + 2,)):
        return Mask(mask, value, "ends")
    if mask.shape == (2 * batch,):
        return Mask(mask, value, "ends", starts=batch)
    if mask.shape == (batch, total):
        return Mask(mask, value, strides=(total, 0, 0, 1))
    if mask.shape == (batch, rows, total):
        return Mask(mask, value, strides=(rows * total, 0, total, 1))
    if mask.rank == 4 and mask.shape[:2] == (batch, 1) and mask.shape[2] == mask.shape[3] >= total:
        side = mask.shape[3]
        return Mask(mask, value, strides=(side * side, 0, side, 1), offset=had * side)
    raise b.refuse(
        "mask_index",
        f"has shape {mask.shape}",
        f"({batch},), ({2 * batch},), ({3 * batch + 2},), ({batch}, {total}), ({batch}, {rows}, {total}) "
        f"or ({batch}, 1, M, M) with M of at least {total}",
    )
