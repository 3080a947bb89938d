"""Operators that read where other tensors say."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.plan import Builder, Slot
from ..layout import axis_of, padded
from ..registry import Operator, register


def check_indices(b: Builder, name: str, size: int, what: str) -> None:
    """Refuse indices outside [-size, size) where the host knows them; shaders clamp the others."""
    known = b.host_if_known(name)
    if known is None or not known.size:
        return
    bad = known[(known < -size) | (known >= size)]
    if bad.size:
        raise b.refuse(name, f"holds {int(bad.flat[0])}", f"indices in [{-size}, {size - 1}], {what}")


@register("Gather", domain="")
@dataclass(frozen=True, kw_only=True)
class Gather(Operator):
    """Slices of data along ``axis``, one for each index."""

    axis: int = 0

    def plan(self, b: Builder) -> None:
        data, indices = b.need("data"), b.need("indices")
        axis = axis_of(b, self.axis, data.rank)
        length = data.shape[axis]
        check_indices(b, "indices", length, f"because data has shape {data.shape}")
        shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
        out = b.output("output", shape, data.dtype)
        if out.size:
            b.check(length > 0, "data", f"has shape {data.shape}", f"something to pick along axis {axis}")
        gather(
            b,
            data,
            indices,
            out,
            length=length,
            inner=math.prod(data.shape[axis + 1 :]),
        )


def gather(b: Builder, data: Slot, indices: Slot, out: Slot, *, length: int, inner: int) -> None:
    """Append ``out[o, j, i] = data[o, indices[j], i]``; negative indices count from the end."""
    b.dispatch(
        "standard/gather",
        reads={"data": data.as_bits(), "indices": indices},
        writes={"y": out.as_bits()},
        uniforms={"size": out.size, "count": indices.size, "length": length, "inner": inner},
        constants={"each": False},
        threads=-(-out.size // 4),
    )


@register("GatherElements", domain="")
@dataclass(frozen=True, kw_only=True)
class GatherElements(Operator):
    """out[.., j, ..] = data[.., indices[.., j, ..], ..] along ``axis``."""

    axis: int = 0

    def plan(self, b: Builder) -> None:
        data, indices = b.need("data"), b.need("indices")
        axis = axis_of(b, self.axis, data.rank)
        fits = indices.rank == data.rank and all(
            d == axis or i <= s for d, (i, s) in enumerate(zip(indices.shape, data.shape, strict=False))
        )
        b.check(fits, "indices", f"has shape {indices.shape}", f"at most {data.shape} but for axis {axis}")
        check_indices(b, "indices", data.shape[axis], f"because data has shape {data.shape}")
        out = b.output("output", indices.shape, data.dtype)
        if out.size:
            b.check(data.size > 0, "data", f"has shape {data.shape}", "something to pick")
        strides = [math.prod(data.shape[d + 1 :]) for d in range(data.rank)]
        b.dispatch(
            "standard/gather",
            reads={"data": data.as_bits(), "indices": indices},
            writes={"y": out.as_bits()},
            uniforms={
                "size": out.size,
                "length": data.shape[axis],
                "axis_stride": strides[axis],
                "rank": data.rank,
                "shape": padded(indices.shape),
                "strides": padded([0 if d == axis else s for d, s in enumerate(strides)]),
            },
            constants={"each": True},
            threads=-(-out.size // 4),
        )
