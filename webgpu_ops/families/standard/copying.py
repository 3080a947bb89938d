"""Copies between views: the one kernel behind everything that only moves elements."""

from __future__ import annotations

from ...core.plan import Builder, Slot
from ..layout import View, collapse, contiguous, padded, wrapped


def move(b: Builder, source: Slot | View, target: Slot | View) -> None:
    """Append a bit-exact copy of ``source`` to ``target``, which has the same shape.

    The target's elements must be distinct. Two dense sides become a plain copy.
    """
    read, write = View.of(source), View.of(target)
    if not read.size:
        return
    shape, (steps, target_steps) = collapse(read, write)
    if shape == (1,) or steps == target_steps == (1,):
        b.copy(
            read.slot,
            write.slot,
            source_offset=read.offset,
            target_offset=write.offset,
            count=read.size,
        )
        return
    b.dispatch(
        "standard/move",
        reads={"x": read.as_bits().slot},
        writes={"y": write.as_bits().slot},
        uniforms={
            "size": read.size,
            "rank": len(shape),
            "shape": padded(shape),
            "x_strides": wrapped(steps),
            "x_offset": read.offset,
            "y_strides": wrapped(target_steps),
            "y_offset": write.offset,
        },
        constants={"dense": target_steps == contiguous(shape)},
        threads=-(-read.size // 4),
    )
