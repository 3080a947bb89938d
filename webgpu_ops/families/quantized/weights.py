"""Matrices of quantized weights: where their codes, scales and zero points lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core.dtypes import DType
from ...core.plan import Builder, Constant, Slot
from ...errors import LimitError, UnsupportedError

Code = Literal["integer", "e2m1", "e4m3", "fp4", "nf4"]
Packing = Literal["low", "high", "blob"]


@dataclass(frozen=True)
class Weights:
    """A matrix, or a stack of matrices, stored as ``lines`` lines of ``length`` quantized weights.

    A line is a column of the matrix that a product multiplies by, or with ``by_rows`` a row.

    ``codes`` holds bytes. They are a stream of ``bits`` bits a code with ``stride`` codes from line
    to line, the lowest bits of a byte first ("low") or the high half of a byte first ("high"); or a
    "blob" of blocks that carry their scale and zero point (shaders/quantized/blob.wgsl).

    ``block`` consecutive codes share one of ``scales``. With ``flat``, blocks go on from line to
    line as if the matrix were one line; else every line starts a block, and ``groups`` (int32, one a
    code) may name another block of the line for each code. Integer codes have zero points: one for
    all (2^(bits - 1)) where ``zeros`` is None, else a stream like the codes, whose lines start on
    bytes (uint8), or floats shaped as the scales. A blob with zero points sets ``zeroed``.

    ``factor`` scales all weights; ``rounding`` is the type to which each weight is rounded.
    """

    codes: Slot
    lines: int
    length: int
    stride: int
    bits: int
    code: Code
    block: int
    scales: Slot | None
    packing: Packing = "low"
    zeros: Slot | None = None
    zeroed: bool = False
    groups: Slot | None = None
    factor: Slot | None = None
    flat: bool = False
    by_rows: bool = False
    rounding: DType | None = None

    @property
    def blocks(self) -> int:
        """Blocks in a line."""
        return -(-self.length // self.block)

    @property
    def line_bits(self) -> int:
        """Bits from line to line."""
        if self.packing == "blob":
            return 8 * self.blocks * ((5 if self.zeroed else 4) + self.block // 2)
        return self.stride * self.bits

    @property
    def regular(self) -> bool:
        """Whether eight weights from a multiple of eight on share a block that their place names."""
        crossing = self.flat and self.length % self.block > 0
        return self.block % 8 == 0 and self.groups is None and not crossing

    @property
    def reads(self) -> dict[str, Slot | None]:
        """What shaders/quantized/weights.wgsl binds."""
        return {
            "w": self.codes,
            "scales": self.scales,
            "zeros": self.zeros,
            "groups": self.groups,
            "factor": self.factor,
        }

    @property
    def uniforms(self) -> dict[str, Any]:
        crossing = self.flat and self.length % self.block
        zero_stride = -(-self.blocks * self.bits // 8) if self.zeros is not None else 0
        return {
            "stride": self.stride,
            "block": self.block,
            "blocks": 0 if crossing else self.blocks,
            "zero_stride": zero_stride,
        }

    @property
    def constants(self) -> dict[str, Constant]:
        aligned = self.stride % 8 == 0
        # Bits at which eight codes can begin in a word: multiples of what divides their distance.
        latest = 32 - math.gcd(32, (8 if aligned else 1) * self.bits)
        zero = "middle"
        if self.zeroed or self.zeros is not None:
            floats = self.zeros is not None and self.zeros.dtype.is_float
            zero = "float" if floats else "packed"
        blocks = "regular" if self.regular else "listed" if self.groups else "flat" if self.flat else "line"
        return {
            "layout": self.packing,
            "code": self.code,
            "bits": self.bits,
            "words": -(-(latest + 8 * self.bits) // 32),
            "shifted": latest > 0,
            "zero": zero,
            "blocks": blocks,
            "rounding": self.rounding,
        }

    def rows(self, start: int, count: int) -> Weights:
        """Some of the lines, from one on that starts on a byte; the same memory."""

        def part(slot: Slot | None, first: int, end: int) -> Slot | None:
            return None if slot is None else slot.reshape(slot.size).rows(first, min(end, slot.size) - first)

        def lines(slot: Slot | None) -> Slot | None:
            step = slot.size // self.lines if slot is not None else 0
            return part(slot, start * step, (start + count) * step)

        first, end = start * self.line_bits // 8, -(-(start + count) * self.line_bits // 8)
        codes = self.codes.reshape(self.codes.size).rows(first, end - first)
        scales = lines(self.scales)
        if self.flat:
            blocks = start * self.length // self.block, -(-(start + count) * self.length // self.block)
            scales = part(self.scales, *blocks)
        return replace(self, codes=codes, scales=scales, zeros=lines(self.zeros), lines=count)

    def parts(self, b: Builder, most: int | None = None) -> list[tuple[int, Weights]]:
        """The matrix cut at lines so that everything fits a binding, with the first line of each part.

        Parts start where scales, zero points and flat blocks start on whole words, and hold no more
        weights than shaders count in 32 bits, nor ``most`` lines.
        """
        limit = min(b.caps.max_binding_bytes, b.caps.max_buffer_bytes)
        largest = max(s.nbytes for s in (self.codes, self.scales, self.zeros) if s is not None)
        count = min(self.lines, (2**32 - 1) // self.stride, most or self.lines)
        if largest > limit:
            count = min(count, self.lines * limit // largest)
        if count == self.lines:
            return [(0, self)]
        step = math.lcm(256, self.block if self.flat else 1)
        count = count // step * step
        if count == 0:
            raise LimitError(
                f"{b.op}: {self.codes.name} has {self.codes.nbytes} bytes in {self.lines} lines; the adapter "
                f"binds at most {limit}, which is less than {step} lines"
            )
        return [
            (first, self.rows(first, min(count, self.lines - first))) for first in range(0, self.lines, count)
        ]


def check_packing(op: str, weight_prepacked: int) -> None:
    """Refuse weights in another provider's own layout."""
    if weight_prepacked:
        raise UnsupportedError(
            f"{op}: weight_prepacked is {weight_prepacked}, a layout of CUDA kernels; expected 0, the layout "
            "that the operator defines"
        )
