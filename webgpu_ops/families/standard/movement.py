"""Operators that only move elements: other shapes, orders, parts and repetitions of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core import dtypes
from ...core.dtypes import DType
from ...core.plan import Builder, Slot
from ...errors import SchemaError, UnsupportedError
from ..layout import View, axes_of, axis_of, broadcast_shapes, padded, wrapped
from ..registry import Operator, register
from .copying import move
from .creation import fill


def _ints(b: Builder, name: str) -> list[int] | None:
    """The integers that optional host input ``name`` holds, or None."""
    if name not in b.inputs or b.get(name) is None:
        return None
    return [int(v) for v in b.host(name).reshape(-1)]


# The same elements in the same order under another shape. The output has memory of its own, as
# callers may keep or overwrite either.


@register("Identity", domain="")
@dataclass(frozen=True, kw_only=True)
class Identity(Operator):
    """The input itself."""

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        b.copy(x, b.output("output", x.shape, x.dtype))


@register("Reshape", domain="")
@dataclass(frozen=True, kw_only=True)
class Reshape(Operator):
    """The shape is an attribute (before opset 5) or an input; -1 is inferred, 0 keeps a dimension."""

    shape: Sequence[int] | None = None
    allowzero: int = 0

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        asked = _ints(b, "shape")
        asked = [int(v) for v in self.shape or ()] if asked is None else asked
        b.check(all(d >= -1 for d in asked), "shape", f"is {asked}", "sizes that are -1 or more")
        b.check(asked.count(-1) <= 1, "shape", f"is {asked}", "at most one -1")
        shape = list(asked)
        if not self.allowzero:
            for i, size in enumerate(shape):
                if size == 0:
                    b.check(
                        i < x.rank, "shape", f"is {asked}", f"no 0 at {i} because data has shape {x.shape}"
                    )
                    shape[i] = x.shape[i]
        if -1 in shape:
            known = math.prod(d for d in shape if d != -1)
            b.check(
                known > 0 and x.size % known == 0,
                "shape",
                f"is {asked}",
                f"sizes that divide the {x.size} elements of data, whose shape is {x.shape}",
            )
            shape[shape.index(-1)] = x.size // known
        b.check(
            math.prod(shape) == x.size,
            "shape",
            f"is {asked}",
            f"a shape of the {x.size} elements of data, whose shape is {x.shape}",
        )
        b.copy(x, b.output("reshaped", shape, x.dtype))


@register("Flatten", domain="")
@dataclass(frozen=True, kw_only=True)
class Flatten(Operator):
    """Two dimensions: those before ``axis``, and the rest."""

    axis: int = 1

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        axis = x.rank if self.axis == x.rank else axis_of(b, self.axis, max(1, x.rank))
        shape = (math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        b.copy(x, b.output("output", shape, x.dtype))


@register("Squeeze", domain="")
@dataclass(frozen=True, kw_only=True)
class Squeeze(Operator):
    """Drops dimensions of size 1: all of them, or ``axes`` (an attribute; since opset 13 an input)."""

    axes: Sequence[int] | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        given: Sequence[int] | None = _ints(b, "axes")
        given = self.axes if given is None else given
        if given is None:
            axes: Sequence[int] = [d for d, size in enumerate(x.shape) if size == 1]
        else:
            axes = axes_of(b, given, x.rank)
            for d in axes:
                b.check(x.shape[d] == 1, "data", f"has shape {x.shape}", f"size 1 at axis {d}")
        shape = [size for d, size in enumerate(x.shape) if d not in axes]
        b.copy(x, b.output("squeezed", shape, x.dtype))


@register("Unsqueeze", domain="")
@dataclass(frozen=True, kw_only=True)
class Unsqueeze(Operator):
    """Inserts dimensions of size 1 at ``axes`` of the result."""

    axes: Sequence[int] | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        given: Sequence[int] | None = _ints(b, "axes")
        given = list(self.axes or ()) if given is None else given
        axes = axes_of(b, given, x.rank + len(given))
        shape = list(x.shape)
        for d in sorted(axes):
            shape.insert(d, 1)
        b.copy(x, b.output("expanded", shape, x.dtype))


@register("Dropout", domain="")
@dataclass(frozen=True, kw_only=True)
class Dropout(Operator):
    """Inference: the input itself, and a mask of ones. Training mode is refused."""

    is_test: int = 1

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        training = b.inputs.get("training_mode") is not None and bool(b.host("training_mode").reshape(()))
        if training or (self.opset < 7 and not self.is_test):
            raise UnsupportedError(f"{self.op}: training mode is not available; expected inference")
        b.copy(x, b.output("output", x.shape, x.dtype))
        if b.wants("mask"):
            # Before opset 10 the mask has data's type.
            dtype = dtypes.bool_ if self.opset >= 10 else x.dtype
            fill(b, b.output("mask", x.shape, dtype), np.ones((), dtype.numpy))


# The same elements in another order, or some of them, or some of them several times.


@register("Transpose", domain="")
@dataclass(frozen=True, kw_only=True)
class Transpose(Operator):
    """Dimension ``perm[d]`` becomes dimension d; by default they are reversed."""

    perm: Sequence[int] | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        perm = tuple(reversed(range(x.rank))) if self.perm is None else tuple(self.perm)
        b.check(
            sorted(perm) == list(range(x.rank)),
            "perm",
            f"is {perm}",
            f"each of 0..{x.rank - 1} once because data has shape {x.shape}",
        )
        view = View.of(x).permute(perm)
        move(b, view, b.output("transposed", view.shape, x.dtype))


@register("Expand", domain="")
@dataclass(frozen=True, kw_only=True)
class Expand(Operator):
    """Broadcasts the input together with a shape."""

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        asked = tuple(_ints(b, "shape") or ())
        b.check(all(d >= 0 for d in asked), "shape", f"is {asked}", "sizes that are not negative")
        shape = broadcast_shapes(b, [("input", x.shape), ("shape", asked)])
        move(b, View.of(x).broadcast(shape), b.output("output", shape, x.dtype))


@register("Tile", domain="")
@dataclass(frozen=True, kw_only=True)
class Tile(Operator):
    """Repeats the whole tensor along each dimension (opset 1: along one)."""

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        if self.opset < 6:
            repeats = [1] * x.rank
            axis = int(b.host("axis").reshape(()))
            repeats[axis_of(b, axis, x.rank)] = int(b.host("tiles").reshape(()))
        else:
            repeats = _ints(b, "repeats") or []
        b.check(len(repeats) == x.rank, "repeats", f"is {repeats}", f"{x.rank} numbers, one a dimension")
        b.check(all(r >= 0 for r in repeats), "repeats", f"is {repeats}", "numbers that are not negative")
        out = b.output(b.output_names[0], [s * r for s, r in zip(x.shape, repeats, strict=True)], x.dtype)
        # Along a dimension of its own, a repetition is a step of 0.
        view = View.of(x)
        for d in reversed(range(x.rank)):
            view = view.insert(d, repeats[d])
        move(b, view, out.reshape(*view.shape))


@register("Slice", domain="")
@dataclass(frozen=True, kw_only=True)
class Slice(Operator):
    """Ranges along axes; they are attributes (before opset 10) or inputs, and steps may be negative."""

    starts: Sequence[int] | None = None
    ends: Sequence[int] | None = None
    axes: Sequence[int] | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        starts = _ints(b, "starts") if "starts" in b.inputs else list(self.starts or ())
        ends = _ints(b, "ends") if "ends" in b.inputs else list(self.ends or ())
        assert starts is not None and ends is not None
        given = _ints(b, "axes") or self.axes
        axes = axes_of(b, given if given is not None else range(len(starts)), x.rank)
        steps = _ints(b, "steps") or [1] * len(starts)
        counts = {"ends": len(ends), "axes": len(axes), "steps": len(steps)}
        for name, count in counts.items():
            b.check(count == len(starts), name, f"holds {count} numbers", f"{len(starts)}, as starts does")
        b.check(0 not in steps, "steps", f"is {steps}", "steps other than 0")
        view = View.of(x)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            chosen = range(*slice(start, end, step).indices(x.shape[axis]))
            # A range that stops before the front: Python's slice would count it from the back.
            view = view.slice(axis, chosen.start if len(chosen) else 0, len(chosen), step)
        move(b, view, b.output("output", view.shape, x.dtype))


@register("Concat", domain="")
@dataclass(frozen=True, kw_only=True)
class Concat(Operator):
    """The inputs one after another along ``axis``."""

    axis: int = 1

    def plan(self, b: Builder) -> None:
        slots = [b.need(name) for name in b.inputs]
        first = slots[0]
        axis = axis_of(b, self.axis, first.rank)
        for slot in slots[1:]:
            same = slot.rank == first.rank and all(
                have == want
                for d, (have, want) in enumerate(zip(slot.shape, first.shape, strict=True))
                if d != axis
            )
            b.check(
                same,
                slot.name,
                f"has shape {slot.shape}",
                f"{first.shape} but for axis {axis}, as {first.name} has",
            )
        total = sum(s.shape[axis] for s in slots)
        shape = (*first.shape[:axis], total, *first.shape[axis + 1 :])
        out = View.of(b.output("concat_result", shape, first.dtype))
        at = 0
        for slot in slots:
            move(b, slot, out.slice(axis, at, slot.shape[axis]))
            at += slot.shape[axis]


@register("Split", domain="")
@dataclass(frozen=True, kw_only=True)
class Split(Operator):
    """Parts along ``axis``: as ``split`` says, else as even as they can be."""

    axis: int = 0
    split: Sequence[int] | None = None
    num_outputs: int | None = None

    def plan(self, b: Builder) -> None:
        x = b.need("input")
        axis = axis_of(b, self.axis, x.rank)
        length = x.shape[axis]
        names = list(b.output_names)
        parts: Sequence[int] | None = _ints(b, "split")
        parts = self.split if parts is None else parts
        if parts is None:
            count = len(names) if self.num_outputs is None else self.num_outputs
            size = -(-length // count)
            if self.num_outputs is None:
                b.check(
                    length % count == 0, "input", f"has shape {x.shape}", f"axis {axis} to split in {count}"
                )
            parts = [min(size, max(0, length - i * size)) for i in range(count)]
        b.check(len(parts) >= len(names), "split", f"is {parts}", f"{len(names)} parts, one an output")
        b.check(all(p >= 0 for p in parts), "split", f"is {parts}", "sizes that are not negative")
        b.check(
            sum(parts) == length,
            "split",
            f"is {parts}",
            f"parts of {length}, the size of input's axis {axis}",
        )
        at = 0
        for name, part in zip(names, parts, strict=False):
            if b.wants(name):
                view = View.of(x).slice(axis, at, part)
                move(b, view, b.output(name, view.shape, x.dtype))
            at += part


@register("Pad", domain="")
@dataclass(frozen=True, kw_only=True)
class Pad(Operator):
    """Elements before and after the input along axes; a negative number takes some away first.

    The numbers are an attribute (opset 1: ``paddings``) or, since opset 11, an input.
    """

    mode: str = "constant"
    paddings: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    value: float = 0.0

    def __post_init__(self) -> None:
        modes = ("constant", "reflect", "edge", "wrap")[: 4 if self.opset >= 19 else 3]
        if self.mode not in modes:
            raise SchemaError(f"{self.op}: mode={self.mode!r}; expected one of {', '.join(modes)}")

    def plan(self, b: Builder) -> None:
        x = b.need("data")
        name = "paddings" if self.opset < 2 else "pads"
        pads = _ints(b, "pads") if self.opset >= 11 else list(getattr(self, name) or ())
        given = _ints(b, "axes")
        axes = range(x.rank) if given is None else axes_of(b, given, x.rank)
        assert pads is not None
        b.check(len(pads) == 2 * len(axes), name, f"is {pads}", f"{2 * len(axes)} numbers, two for each axis")
        view, before, shape = View.of(x), [0] * x.rank, list(x.shape)
        for axis, first, last in zip(axes, pads, pads[len(axes) :], strict=False):
            kept = x.shape[axis] + min(first, 0) + min(last, 0)
            b.check(
                kept >= 0, name, f"is {pads}", f"no more taken away than the {x.shape[axis]} of axis {axis}"
            )
            view = view.slice(axis, max(-first, 0), kept)
            before[axis] = max(first, 0)
            shape[axis] = before[axis] + kept + max(last, 0)
            b.check(
                kept > 0 or shape[axis] == 0 or self.mode == "constant",
                name,
                f"is {pads}",
                f"no elements beside the none of axis {axis} because of mode={self.mode}",
            )
        y = b.output("output", shape, x.dtype)
        if shape == list(view.shape):
            move(b, view, y)
            return
        b.dispatch(
            "standard/pad",
            reads={"x": x.as_bits(), "value": self._value(b, x.dtype) if self.mode == "constant" else None},
            writes={"y": y.as_bits()},
            uniforms={
                "size": y.size,
                "rank": len(shape),
                "shape": padded(shape),
                "before": padded(before),
                "x_shape": padded(view.shape),
                "x_strides": wrapped(view.strides),
                "x_offset": view.offset,
            },
            constants={"mode": self.mode},
            threads=-(-y.size // 4),
        )

    def _value(self, b: Builder, dtype: DType) -> Slot | None:
        """The constant, or None for zeros."""
        if self.opset < 11:
            return b.constant("value", np.array([self.value], dtype.numpy)).as_bits()
        value = b.get("constant_value")
        if value is None:
            return None
        b.check(value.size == 1, "constant_value", f"has shape {value.shape}", "one element")
        return value.as_bits()
