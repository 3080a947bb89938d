"""Lookups in tables of quantized weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Shape, Slot
from ...errors import LimitError, SchemaError
from ..layout import axis_of, contiguous, padded
from ..registry import Operator, register
from .matmul_nbits import check_block_size


@register("GatherBlockQuantized")
@dataclass(frozen=True, kw_only=True)
class GatherBlockQuantized(Operator):
    """Slices of a block-quantized table, dequantized; an index out of range gives zeros."""

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def __post_init__(self) -> None:
        if self.block_size:
            check_block_size(self.op, self.block_size)

    def plan(self, b: Builder) -> None:
        data, indices, scales, zeros = (
            b.need("data"),
            b.need("indices"),
            b.need("scales"),
            b.get("zero_points"),
        )
        b.check(data.rank > 0, "data", "is a scalar", "at least one dimension")
        gather = axis_of(b, self.gather_axis, data.rank, what="gather_axis")
        axis = axis_of(b, self.quantize_axis, data.rank, what="quantize_axis")
        packing = self._packing(b, data, gather, axis)
        shape = (*data.shape[:-1], data.shape[-1] * (8 // packing if packing else 1))
        block = self.block_size or max(1, shape[axis])
        self._check_scales(b, shape, axis, block, packing)

        out = b.output("output", shape[:gather] + indices.shape + shape[gather + 1 :], scales.dtype)
        if not out.size:
            return
        zero = "none"
        if zeros is not None:
            zero = "packed" if packing else "plain"
        elif data.dtype == dtypes.uint8:
            zero = "middle"
        walk, steps, at = _walk(shape, scales.shape, axis)
        inner = math.prod(shape[gather + 1 :])
        together = at == len(walk) - 1 and not any(n % 4 for n in (block, walk[-1], inner))
        values = {
            "size": out.size,
            "count": indices.size,
            "length": shape[gather],
            "inner": inner,
            "rank": len(walk),
            "shape": padded(walk),
            "steps": padded(steps),
            "axis": at,
            "block": block,
            "scale_row": scales.shape[-1],
            # In codes: a row of zero points starts on a byte.
            "zero_row": zeros.shape[-1] * (8 // packing if packing else 1) if zeros is not None else 0,
        }
        parts = _parts(b, data, scales, zeros, block if axis == 0 else None)
        for first, count in parts:
            rows = _Rows(data.shape[0], first, count)
            blocks = _Rows(scales.shape[0], first, count)
            if axis == 0:
                blocks = _Rows(scales.shape[0], first // block, -(-(first + count) // block) - first // block)
            elif scales.shape[0] < data.shape[0]:
                blocks = _Rows(scales.shape[0], 0, scales.shape[0])
            line = math.prod(shape[1:])
            b.dispatch(
                "quantized/gather",
                reads={
                    "data": rows.of(data),
                    "indices": indices,
                    "scales": blocks.of(scales),
                    "zeros": blocks.of(zeros) if zeros is not None else None,
                },
                writes={"y": out},
                uniforms=values
                | {
                    "first": first * line,
                    "end": (first + count) * line,
                    "first_scale": blocks.first * math.prod(scales.shape[1:]),
                },
                constants={
                    "bits": packing,
                    "zero": zero,
                    "together": together,
                    "parted": len(parts) > 1,
                },
                threads=-(-out.size // 4),
            )

    def _packing(self, b: Builder, data: Slot, gather: int, axis: int) -> int:
        """The width of codes packed into bytes, or 0 where every element is a code."""
        if data.dtype.is_float:
            return 0
        if self.block_size == 0:
            raise SchemaError(
                f"{self.op}: block_size is 0; expected at least 16 because data is {data.dtype}"
            )
        if self.bits not in (2, 4, 8):
            raise SchemaError(f"{self.op}: bits is {self.bits}; expected 2, 4 or 8")
        if data.dtype != dtypes.uint8:
            return 0
        b.check(gather == 0, "gather_axis", f"is {self.gather_axis}", "0 because data is uint8")
        if self.bits == 8:
            return 0
        b.check(axis != 0, "quantize_axis", f"is {self.quantize_axis}", "another axis than gather_axis")
        return self.bits

    def _check_scales(self, b: Builder, shape: Shape, axis: int, block: int, packing: int) -> None:
        data, scales, zeros = b.need("data"), b.need("scales"), b.get("zero_points")
        want = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
        fits = scales.rank == len(want) and all(
            have == size or (have == 1 and data.dtype.is_float and d != axis)
            for d, (have, size) in enumerate(zip(scales.shape, want, strict=True))
        )
        why = f"data holds {shape} weights in blocks of {block} along axis {axis}"
        b.check(fits, "scales", f"has shape {scales.shape}", f"{want} because {why}")
        if zeros is not None:
            b.check(not data.dtype.is_float, "zero_points", "was given", f"none because data is {data.dtype}")
            last = -(-want[-1] * packing // 8) if packing else want[-1]
            b.check_shape("zero_points", *want[:-1], last, why=why)


@dataclass(frozen=True)
class _Rows:
    """Rows ``first`` on of tensors with ``whole`` rows."""

    whole: int
    first: int
    count: int

    def of(self, slot: Slot) -> Slot:
        return slot if self.count == self.whole else slot.rows(self.first, self.count)


def _walk(shape: Shape, scales: Shape, axis: int) -> tuple[Shape, tuple[int, ...], int]:
    """The fewest dimensions that walk a table, the steps of its scales, and the one with blocks."""
    sizes: list[int] = []
    steps: list[int] = []
    at = 0
    for d, (size, have, step) in enumerate(zip(shape, scales, contiguous(scales), strict=True)):
        step = 0 if have == 1 and d != axis else step
        # A dimension joins the one before where scales step evenly through both.
        joins = sizes and d != axis and d - 1 != axis and steps[-1] == step * size
        if joins:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
        if d == axis:
            at = len(sizes) - 1
    return tuple(sizes), tuple(steps), at


def _parts(
    b: Builder, data: Slot, scales: Slot, zeros: Slot | None, block: int | None
) -> list[tuple[int, int]]:
    """(first row, rows) of the parts of a table that fit a binding; they start on whole words.

    ``block`` rows share a scale where blocks lie along the first dimension.
    """
    limit = b.caps.max_binding_bytes
    largest = max(s.nbytes for s in (data, scales, zeros) if s is not None)
    rows = data.shape[0]
    if largest <= limit:
        return [(0, rows)]
    step = 4 * (block or 1)
    count = rows * limit // largest // step * step
    if count == 0:
        raise LimitError(
            f"{b.op}: {data.name} has {data.nbytes} bytes in {rows} rows; the adapter binds at most {limit}, "
            f"which is less than {step} rows"
        )
    return [(first, min(count, rows - first)) for first in range(0, rows, count)]
