"""The weights of experts: where their elements or codes, scales and zero points lie."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core.plan import Builder, Constant, Slot
from ...errors import LimitError
from ..quantized.weights import Weights

Code = Literal["float", "integer", "e2m1", "e4m3"]


@dataclass(frozen=True)
class ExpertWeights:
    """A matrix of ``lines`` lines of ``length`` weights for each of ``experts``; a product with it has
    ``lines`` columns.

    ``codes`` are floats as they are (code "float") or codes of ``bits`` bits, the lowest bits of a byte
    first. With ``across``, codes of 4 bits run from line to line instead: [experts, length, lines / 2].

    ``block`` consecutive codes of a line share a scale and a zero point. ``scaled`` tells what ``scales``
    are: "line" [experts, lines, blocks], "square" one for ``block`` x ``block`` weights, "expert" none.
    ``gain`` is one more scale an expert. Integers have zero points: 2^(bits - 1) where ``zeros`` is None,
    else a stream like the codes, of a line's blocks (``zeroed`` "line") or of an expert's lines
    ("expert"), starting on bytes.
    """

    codes: Slot
    experts: int
    lines: int
    length: int
    code: Code = "float"
    bits: int = 32
    block: int = 8
    scales: Slot | None = None
    scaled: Literal["line", "square", "expert"] = "expert"
    zeros: Slot | None = None
    zeroed: Literal["line", "expert"] = "line"
    gain: Slot | None = None
    across: bool = False

    @property
    def reads(self) -> dict[str, Slot | None]:
        """What shaders/experts/weights.wgsl binds."""
        if self.code == "float":
            return {"w": self.codes}
        return {
            "w": self.codes,
            "scales": self.scales,
            "zeros": self.zeros,
            "gain": self.gain,
            "factor": None,
        }

    @property
    def uniforms(self) -> dict[str, Any]:
        values = {"n": self.lines, "k": self.length}
        if self.code == "float":
            return values
        blocks = -(-self.length // self.block)
        zeros = blocks if self.zeroed == "line" else self.lines
        return values | {
            "stride": self.length,
            "block": self.block,
            "blocks": blocks,
            "zero_stride": -(-zeros * self.bits // 8),
        }

    @property
    def constants(self) -> dict[str, Constant]:
        if self.code == "float":
            return {"code": "float"}
        lines = Weights(
            self.codes,
            lines=self.experts * self.lines,
            length=self.length,
            stride=self.length,
            bits=self.bits,
            code=self.code,
            block=self.block,
            scales=self.scales,
        )
        return lines.constants | {
            "across": self.across,
            "scaled": self.scaled,
            "zero": "middle" if self.zeros is None else self.zeroed,
        }

    @property
    def by_block(self) -> bool:
        """Whether no eight weights, from a multiple of 8 on, are in two blocks."""
        return self.code != "float" and self.block % 8 == 0

    def rounds(self, columns: int) -> int:
        """How often an invocation goes round loops that sums ``columns`` lines, eight weights at a time."""
        if self.code == "float" or self.by_block:
            return self.length // 8 + self.length // self.block
        return self.length // 8 * (1 + 4 * columns)  # each weight finds its block

    def parts(self, b: Builder) -> list[tuple[int, int, ExpertWeights]]:
        """The lines of all experts, cut so that each part fits a binding: first line, number, weights.

        Cuts lie where bindings may start, and between experts where codes run from line to line.
        """
        total = self.experts * self.lines
        cut = {"codes": self.codes}
        if self.scales is not None and self.scaled == "line":
            cut["scales"] = self.scales
        if self.zeros is not None and self.zeroed == "line":
            cut["zeros"] = self.zeros
        largest = max(cut.values(), key=lambda slot: slot.nbytes)
        limit = min(b.caps.max_binding_bytes, b.caps.max_buffer_bytes)
        most = (2**32 - 1) // max(1, self.length)  # shaders count elements in 32 bits
        if largest.nbytes <= limit and total <= most:
            return [(0, total, self)]
        unit = self.lines if self.across else 1
        step = unit * math.lcm(*(_step(slot.nbytes // total * unit) for slot in cut.values()))
        count = min(most, limit * total // largest.nbytes) // step * step
        if not count:
            raise LimitError(
                f"{b.op}: {largest.name} has {largest.nbytes} bytes in {total} lines; the adapter binds at "
                f"most {limit}, which is less than {step} lines"
            )
        result = []
        for first in range(0, total, count):
            size = min(count, total - first)
            taken = {
                name: slot.reshape(total, slot.size // total).rows(first, size) for name, slot in cut.items()
            }
            result.append((first, size, replace(self, **taken)))  # type: ignore[arg-type]
        return result


def _step(nbytes: int) -> int:
    """After how many parts of ``nbytes`` bytes a binding may start."""
    return 256 // math.gcd(256, nbytes)
