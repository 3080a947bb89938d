"""Where the largest or smallest elements are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import MAX_ROUNDS, Builder, Slot
from ..layout import axis_of
from ..registry import Operator, register


@register("ArgMax", "ArgMin", domain="")
@dataclass(frozen=True, kw_only=True)
class Arg(Operator):
    """The index (int64) along ``axis`` of the largest or smallest element, the first or last of equals.

    As in NumPy, a NaN is larger and smaller than every number.
    """

    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        axis = axis_of(b, self.axis, x.rank)
        length = x.shape[axis]
        kept = (1,) if self.keepdims else ()
        y = b.output("reduced", (*x.shape[:axis], *kept, *x.shape[axis + 1 :]), dtypes.int64)
        if not y.size:
            return
        b.check(length > 0, "data", f"has shape {x.shape}", f"elements along axis {axis}")
        cpu = b.caps.device_class == "cpu"
        lanes = 1
        if length >= 64 and y.size < (64 if cpu else 4096):
            lanes = 8 if cpu else 64

        def search(places: Slot | None, count: int, target: Slot, parts: int) -> None:
            b.dispatch(
                "standard/arg",
                reads={"x": x, "places": places},
                writes={"y": target},
                uniforms={
                    "size": target.size,
                    "length": length,
                    "inner": math.prod(x.shape[axis + 1 :]),
                    "count": count,
                    "parts": parts,
                },
                constants={
                    "largest": self.op == "ArgMax",
                    "last": bool(self.select_last_index),
                    "lanes": lanes,
                },
                groups=target.size if lanes > 1 else -(-target.size // 64),
                workgroup=lanes if lanes > 1 else 64,
            )

        # A long line is searched in parts; then the search is among what they found.
        places, count = None, length
        while count > lanes * MAX_ROUNDS:
            parts = -(-count // (lanes * MAX_ROUNDS))
            found = b.scratch("found", (y.size, parts), dtypes.uint32)
            search(places, count, found, parts)
            places, count = found, parts
        search(places, count, y, 1)
