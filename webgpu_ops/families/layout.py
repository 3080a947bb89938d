"""Shapes, strides and views: how an operator reads a tensor in another order than its memory's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.plan import Builder, Shape, Slot


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True)
class View:
    """Elements of ``slot`` under another shape: index c is at ``offset + sum(c * strides)``."""

    slot: Slot
    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def of(cls, tensor: Slot | View) -> View:
        """The tensor as it lies in memory (a view stays as it is)."""
        return tensor if isinstance(tensor, View) else cls(tensor, tensor.shape, contiguous(tensor.shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def as_bits(self) -> View:
        """The same view, moved bit for bit."""
        return replace(self, slot=self.slot.as_bits())

    def permute(self, axes: Sequence[int]) -> View:
        """Dimension ``axes[d]`` becomes dimension d."""
        return replace(
            self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes)
        )

    def slice(self, axis: int, start: int, count: int, step: int = 1) -> View:
        """``count`` elements along ``axis`` from ``start``, ``step`` (not 0) apart."""
        shape, strides = list(self.shape), list(self.strides)
        shape[axis], strides[axis] = count, strides[axis] * step
        return View(self.slot, tuple(shape), tuple(strides), self.offset + start * self.strides[axis])

    def insert(self, axis: int, size: int = 1) -> View:
        """A new dimension along which the same elements repeat."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(axis, size)
        strides.insert(axis, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))

    def broadcast(self, shape: Sequence[int]) -> View:
        """Repeat along dimensions of size 1 up to ``shape``, from the right as NumPy does."""
        lead = len(shape) - len(self.shape)
        strides = [0] * lead + [
            0 if have == 1 else stride for have, stride in zip(self.shape, self.strides, strict=True)
        ]
        return replace(self, shape=tuple(shape), strides=tuple(strides))


def cut(b: Builder, view: View) -> tuple[int, list[tuple[int, View]]]:
    """What a binding cannot hold, in parts that it can: the dimension along which they lie, and of each
    part where it begins and its view. Parts begin where bindings may, and those of matrices at
    multiples of 4 rows or columns.

    A tensor that fits, or that has no such parts, is one part.
    """
    axis = max(range(len(view.shape)), key=lambda d: view.strides[d] * view.shape[d])
    size, step, slot = view.shape[axis], view.strides[axis], view.slot
    limit, nbytes = b.caps.max_binding_bytes, step * slot.dtype.itemsize
    count = size
    if slot.nbytes > limit and not view.offset and step * size == slot.size:
        unit = math.lcm(4 if axis >= len(view.shape) - 2 else 1, 256 // math.gcd(256, nbytes))
        count = limit // nbytes // unit * unit or size
    if count == size:
        return axis, [(0, view)]
    lines = slot.reshape(size, step)
    parts = []
    for first in range(0, size, count):
        part = lines.rows(first, min(count, size - first))
        shape = (*view.shape[:axis], part.shape[0], *view.shape[axis + 1 :])
        parts.append((first, View(part, shape, view.strides)))
    return axis, parts


def collapse(*views: View) -> tuple[Shape, list[tuple[int, ...]]]:
    """The fewest dimensions that walk all ``views`` (of one shape), and each view's strides.

    Adjacent dimensions merge where every view steps through them evenly; there is at least one
    dimension, so that rank 0 needs no case of its own.
    """
    shape: list[int] = []
    strides: list[list[int]] = [[] for _ in views]
    for d, size in enumerate(views[0].shape):
        if size == 1:
            continue
        steps = [v.strides[d] for v in views]
        if shape and all(s[-1] == step * size for s, step in zip(strides, steps, strict=True)):
            shape[-1] *= size
            for s, step in zip(strides, steps, strict=True):
                s[-1] = step
        else:
            shape.append(size)
            for s, step in zip(strides, steps, strict=True):
                s.append(step)
    if not shape:
        return (1,), [(0,) for _ in views]
    return tuple(shape), [tuple(s) for s in strides]


def wrapped(strides: Sequence[int]) -> tuple[int, ...]:
    """Strides as padded u32 uniforms; a negative one wraps, and so do the sums it enters."""
    return padded([s & 0xFFFFFFFF for s in strides])


def padded(values: Sequence[int]) -> tuple[int, ...]:
    """``values`` filled up with zeros to a multiple of four: ranks share the layout of uniforms."""
    return (*values, *(0,) * (-len(values) % 4))


def broadcast_shapes(b: Builder, tensors: Sequence[tuple[str, Shape]]) -> Shape:
    """The shape to which named shapes broadcast, or a refusal that names the one that does not."""
    result: list[int] = []
    for name, shape in tensors:
        sides = [1] * (len(shape) - len(result)) + result
        own = [1] * (len(sides) - len(shape)) + list(shape)
        for have, want in zip(own, sides, strict=True):
            b.check(
                have == want or have == 1 or want == 1,
                name,
                f"has shape {tuple(shape)}",
                f"a shape that broadcasts with {tuple(result)}",
            )
        result = [want if have == 1 else have for have, want in zip(own, sides, strict=True)]
    return tuple(result)


def axis_of(b: Builder, axis: int, rank: int, *, what: str = "axis") -> int:
    """``axis`` counted from the front; refused outside [-rank, rank)."""
    b.check(-rank <= axis < rank, what, f"is {axis}", f"[{-rank}, {rank - 1}] because the rank is {rank}")
    return axis % rank


def axes_of(b: Builder, axes: Sequence[int], rank: int, *, what: str = "axes") -> tuple[int, ...]:
    """``axes`` counted from the front, in the given order; refused if out of range or repeated."""
    found = tuple(axis_of(b, int(a), rank, what=what) for a in axes)
    b.check(len(set(found)) == len(found), what, f"are {tuple(int(a) for a in axes)}", "no axis twice")
    return found
