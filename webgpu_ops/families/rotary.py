"""Rotary position embeddings: pairs of channels turned by angles that tables hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from ..core import dtypes
from ..core.plan import Builder, Constant, Slot
from ..errors import SchemaError, UnsupportedError
from .elementwise import elementwise
from .layout import View
from .registry import Operator, register

# How pairs share the three position streams of M-RoPE: in runs, or in turn. "" is a single stream.
Streams = Literal["", "runs", "turns"]


@dataclass(frozen=True)
class Angles:
    """Where a token's pair of channels finds its cosine and sine (shaders/rotary/angle.wgsl).

    Row r of the tables belongs to position r. ``ids`` holds a position for each token, or one for
    the first token of every ``sequence``, whose others follow; without it the tables have a row for
    each token. With ``streams`` a token has three positions, and ``sections`` says how many pairs
    go by each.
    """

    cos: Slot
    sin: Slot
    ids: Slot | None
    pairs: int
    tokens: int
    sequence: int
    streams: Streams = ""
    sections: tuple[int, ...] = (0, 0, 0)

    @property
    def counted(self) -> bool:
        """Whether one position stands for a sequence."""
        return self.ids is not None and self.ids.size == 1 and self.tokens > 1

    def reads(self) -> dict[str, Slot | None]:
        # As words: a position of any size is clamped to the tables without 64-bit arithmetic.
        ids = self.ids.reshape(self.ids.size).as_type(dtypes.int32) if self.ids is not None else None
        return {"cos": self.cos, "sin": self.sin, "ids": ids}

    def uniforms(self) -> dict[str, Any]:
        width = self.cos.shape[-1]
        return {
            "pairs": self.pairs,
            "table_width": width,
            "table_rows": self.cos.size // max(1, width),
            "tokens": self.tokens,
            "sequence": self.sequence,
            "sections": self.sections,
        }

    def constants(self) -> dict[str, Constant]:
        return {"counted": self.counted, "streams": self.streams}

    def check_ids(self, b: Builder) -> None:
        """Refuse positions outside the tables where the host knows them; shaders clamp the others."""
        if self.ids is None or not self.tokens:
            return
        rows = self.cos.shape[0]
        further = self.sequence - 1 if self.counted else 0
        why = f"because {self.cos.name} has {rows} rows"
        if further:
            why += f" and {further} positions follow"
        b.check(rows > further, self.cos.name, f"has {rows} rows", f"at least {further + 1}, one a position")
        known = b.host_if_known(self.ids.name)
        if known is None or not known.size:
            return
        bad = known[(known < 0) | (known >= rows - further)]
        if bad.size:
            expected = f"positions in [0, {rows - further - 1}] {why}"
            raise b.refuse(self.ids.name, f"holds {int(bad.flat[0])}", expected)


@dataclass(frozen=True)
class Rows:
    """A tensor as rows of one head's channels; a token's heads are together unless ``heads_first``."""

    batch: int
    heads: int
    sequence: int
    size: int
    heads_first: bool


def rotate(b: Builder, x: Slot, y: Slot, rows: Rows, angles: Angles, *, interleaved: bool) -> None:
    """Append ``y = x`` with the first ``2 * pairs`` channels of every row turned.

    A pair is (p, p + pairs), or with ``interleaved`` (2p, 2p + 1).
    """
    whole = rows.size % 4 == 0 and angles.pairs % (2 if interleaved else 4) == 0
    # Invocations a row: the two halves of a pair are turned together, where they lie apart.
    units = (rows.size if interleaved else rows.size - angles.pairs) // 4
    count = rows.batch * rows.heads * rows.sequence
    b.dispatch(
        "rotary/rotate",
        reads={"x": x, **angles.reads()},
        writes={"y": y},
        uniforms={
            "size": x.size,
            "rows": count,
            "units": units,
            "channels": rows.size,
            "heads": rows.heads,
            **angles.uniforms(),
        },
        constants={
            "interleaved": interleaved,
            "whole": whole,
            "heads_first": rows.heads_first,
            **angles.constants(),
        },
        threads=count * units if whole else -(-x.size // 4),
    )


@dataclass(frozen=True, kw_only=True)
class _Rotary(Operator):
    """What the rotary embeddings of heads have in common."""

    interleaved: int = 0
    num_heads: int = 0
    rotary_embedding_dim: int = 0

    def __post_init__(self) -> None:
        check_flag(self.op, "interleaved", self.interleaved)
        for name, value in (
            ("num_heads", self.num_heads),
            ("rotary_embedding_dim", self.rotary_embedding_dim),
        ):
            if value < 0:
                raise SchemaError(f"{self.op}: {name} is {value}; expected a number that is not negative")
        if self.rotary_embedding_dim % 2:
            raise SchemaError(
                f"{self.op}: rotary_embedding_dim is {self.rotary_embedding_dim}; expected an even number"
            )

    def rows(self, b: Builder, x: Slot, guess: int | None) -> Rows:
        """The heads of ``x``; ``guess`` is the head size where a 3-D input leaves it to the tables."""
        b.check(
            x.rank in (3, 4),
            x.name,
            f"has shape {x.shape}",
            "(batch, sequence, hidden) or (batch, heads, sequence, head size)",
        )
        if x.rank == 4:
            batch, heads, sequence, size = x.shape
            why = f"{self.num_heads} heads because num_heads={self.num_heads}"
            b.check(self.num_heads in (0, heads), x.name, f"has shape {x.shape}", why)
        else:
            batch, sequence, hidden = x.shape
            if self.num_heads:
                why = f"a hidden size divisible by num_heads={self.num_heads}"
                b.check(hidden % self.num_heads == 0, x.name, f"has shape {x.shape}", why)
                size = hidden // self.num_heads
            elif guess is None:
                raise SchemaError(
                    f"{self.op}: num_heads is missing; expected it because {x.name} has shape {x.shape}"
                )
            else:
                size = guess
                why = f"a hidden size divisible by {size}, twice the columns of cos_cache"
                b.check(size > 0 and hidden % size == 0, x.name, f"has shape {x.shape}", why)
            heads = hidden // max(1, size)
        turned = self.rotary_embedding_dim or size
        b.check(size % 2 == 0 or turned < size, x.name, f"has head size {size}", "an even head size")
        b.check(turned <= size, "rotary_embedding_dim", f"is {turned}", f"at most the head size, {size}")
        return Rows(batch, heads, sequence, size, heads_first=x.rank == 4)

    def check_tables(self, b: Builder, lead: tuple[int | str, ...], *widths: int) -> tuple[Slot, Slot]:
        """cos_cache and sin_cache of shape ``(*lead, width)``."""
        cos, sin = b.need("cos_cache"), b.need("sin_cache")
        width = cos.shape[-1] if cos.rank and cos.shape[-1] in widths else widths[0]
        of = "rotary_embedding_dim" if self.rotary_embedding_dim else "the head size"
        b.check_shape("cos_cache", *lead, width, why=f"{of} is {2 * widths[0]}")
        b.check(
            sin.shape == cos.shape, "sin_cache", f"has shape {sin.shape}", f"{cos.shape} as cos_cache has"
        )
        return cos, sin


@dataclass(frozen=True, kw_only=True)
class _ContribRotary(_Rotary):
    """Packed batches differ in nothing here: positions are checked one by one in any case."""

    is_packed_batching: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(self.op, "is_packed_batching", self.is_packed_batching)
        if self.rotary_embedding_dim and not self.num_heads:
            raise SchemaError(
                f"{self.op}: rotary_embedding_dim is {self.rotary_embedding_dim} without num_heads; "
                "expected both"
            )
        if self.scale != 1.0:
            raise UnsupportedError(
                f"{self.op}: scale is {self.scale}; expected 1.0, the operator's text gives it no meaning"
            )

    def heads_and_tables(self, b: Builder) -> tuple[Rows, Slot, Slot, int]:
        """The heads of the input, the tables, and the number of pairs that turn."""
        b.check_shape("cos_cache", "positions", "pairs")
        rows = self.rows(b, b.need("input"), 2 * b.need("cos_cache").shape[1])
        turned = self.rotary_embedding_dim or rows.size
        cos, sin = self.check_tables(b, ("positions",), turned // 2, rows.size // 2)
        return rows, cos, sin, turned // 2


@register("RotaryEmbedding")
@dataclass(frozen=True, kw_only=True)
class RotaryEmbedding(_ContribRotary):
    """Every head turned at the position of its token."""

    def plan(self, b: Builder) -> None:
        x, ids = b.need("input"), b.need("position_ids")
        rows, cos, sin, pairs = self.heads_and_tables(b)
        batch, sequence = rows.batch, rows.sequence
        one = ids.rank in (1, 2) and ids.size == 1
        b.check(
            one or ids.shape == (batch, sequence),
            "position_ids",
            f"has shape {ids.shape}",
            f"(1,) or ({batch}, {sequence}) because input has shape {x.shape}",
        )
        angles = Angles(cos, sin, ids, pairs, batch * sequence, sequence)
        angles.check_ids(b)
        rotate(b, x, b.output("output", x.shape, x.dtype), rows, angles, interleaved=bool(self.interleaved))


@register("MRotaryEmbedding")
@dataclass(frozen=True, kw_only=True)
class MRotaryEmbedding(_ContribRotary):
    """Pairs turned at the temporal, height or width position of their token."""

    mrope_section: tuple[int, ...]
    mrope_layout: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag(self.op, "mrope_layout", self.mrope_layout)
        if len(self.mrope_section) != 3 or min(self.mrope_section) < 0:
            raise SchemaError(
                f"{self.op}: mrope_section is {list(self.mrope_section)}; "
                "expected three numbers that are not negative"
            )

    def plan(self, b: Builder) -> None:
        x, ids = b.need("input"), b.need("position_ids")
        rows, cos, sin, pairs = self.heads_and_tables(b)
        total = sum(self.mrope_section)
        if total != pairs:
            raise SchemaError(
                f"{self.op}: mrope_section is {list(self.mrope_section)}, {total} pairs; "
                f"expected {pairs} because {2 * pairs} channels turn"
            )
        batch, sequence = rows.batch, rows.sequence
        b.check_shape("position_ids", 3, batch, sequence, why=f"input has shape {x.shape}")
        streams: Streams = "turns" if self.mrope_layout else "runs"
        angles = Angles(cos, sin, ids, pairs, batch * sequence, sequence, streams, tuple(self.mrope_section))
        angles.check_ids(b)
        rotate(b, x, b.output("output", x.shape, x.dtype), rows, angles, interleaved=bool(self.interleaved))


@register("RotaryEmbedding", domain="")
@dataclass(frozen=True, kw_only=True)
class StandardRotaryEmbedding(_Rotary):
    """ONNX RotaryEmbedding (opset 23): positions are optional, a 3-D input needs num_heads."""

    def plan(self, b: Builder) -> None:
        x, ids = b.need("X"), b.get("position_ids")
        rows = self.rows(b, x, None)
        batch, sequence = rows.batch, rows.sequence
        pairs = (self.rotary_embedding_dim or rows.size) // 2
        lead: tuple[int | str, ...] = (batch, sequence) if ids is None else ("positions",)
        cos, sin = self.check_tables(b, lead, pairs)
        b.check_shape("position_ids", batch, sequence, why=f"X has shape {x.shape}")
        angles = Angles(cos, sin, ids, pairs, batch * sequence, sequence)
        angles.check_ids(b)
        rotate(b, x, b.output("Y", x.shape, x.dtype), rows, angles, interleaved=bool(self.interleaved))


@register("GemmaRotaryEmbedding")
@dataclass(frozen=True, kw_only=True)
class GemmaRotaryEmbedding(Operator):
    """``q * cos(emb) + q_rot * sin(emb)`` and the same for k, every step rounded to float16."""

    def plan(self, b: Builder) -> None:
        emb, q = b.need("emb"), b.need("q")
        b.check(emb.rank == 3, "emb", f"has shape {emb.shape}", "(batch, sequence, dim)")
        batch, sequence, dim = emb.shape
        b.check_shape("q", batch, "heads", sequence, dim, why=f"emb has shape {emb.shape}")
        for name in ("q_rot", "k", "k_rot"):
            b.check_shape(name, *q.shape, why=f"q has shape {q.shape}")
        angle = View.of(emb).insert(1, q.shape[1])
        for name, turned, output in (("q", "q_rot", "output1"), ("k", "k_rot", "output2")):
            elementwise(
                b,
                "c = cos(angle); s = sin(angle); half(x * half(c)) + half(turned * half(s))",
                b.output(output, q.shape, q.dtype),
                {"x": b.need(name), "turned": b.need(turned), "angle": angle},
                library="rotary/half.wgsl",
            )


@register("RMSNormRotary")
@dataclass(frozen=True, kw_only=True)
class RMSNormRotary(Operator):
    """RMS normalization of a slice of every head, rounded to bfloat16, then a partial rotation."""

    rotary_embedding_dim: int
    epsilon: float = 1e-6
    flatten_batch: int = 0
    input_start: int = 0
    input_width: int = 0
    use_fp32_arithmetic: int = 1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0.0):
            raise SchemaError(
                f"{self.op}: epsilon is {self.epsilon}; expected a finite number that is not negative"
            )
        if self.rotary_embedding_dim <= 0 or self.rotary_embedding_dim % 2:
            raise SchemaError(
                f"{self.op}: rotary_embedding_dim is {self.rotary_embedding_dim}; "
                "expected a positive even number"
            )
        for name, value in (("input_start", self.input_start), ("input_width", self.input_width)):
            if value < 0:
                raise SchemaError(f"{self.op}: {name} is {value}; expected a number that is not negative")
        check_flag(self.op, "flatten_batch", self.flatten_batch)
        check_flag(self.op, "use_fp32_arithmetic", self.use_fp32_arithmetic)

    def plan(self, b: Builder) -> None:
        x, ids = b.need("X"), b.need("position_ids")
        cos, sin = b.need("cosine"), b.need("sine")
        b.check(x.rank == 4, "X", f"has shape {x.shape}", "(batch, sequence, heads, stride)")
        batch, sequence, heads, stride = x.shape
        start, width = self.input_start, self.input_width or stride
        b.check(
            start + width <= stride,
            "X",
            f"has shape {x.shape}",
            f"at least {start + width} channels because input_start={start} and the width is {width}",
        )
        b.check(
            self.rotary_embedding_dim <= width,
            "rotary_embedding_dim",
            f"is {self.rotary_embedding_dim}",
            f"at most the normalized width, {width}",
        )
        b.check_shape("scale", width, why=f"{width} channels are normalized")
        pairs = self.rotary_embedding_dim // 2
        b.check_shape("cosine", "positions", pairs, why=f"rotary_embedding_dim is {2 * pairs}")
        b.check(sin.shape == cos.shape, "sine", f"has shape {sin.shape}", f"{cos.shape} as cosine has")
        one = ids.rank in (0, 1, 2) and ids.size == 1
        b.check(
            one or ids.shape == (batch, sequence),
            "position_ids",
            f"has shape {ids.shape}",
            f"one position or ({batch}, {sequence}) because X has shape {x.shape}",
        )
        prefill = self._prefill(b)
        tokens = batch * sequence
        angles = Angles(cos, sin, ids, pairs, tokens, tokens if self.flatten_batch else sequence)
        angles.check_ids(b)
        rows = tokens * heads
        # Barriers are dear on a software adapter; a GPU spreads a row over as many lanes as have work.
        cpu = b.caps.device_class == "cpu"
        lanes = 1 if cpu else min(64, 1 << (max(1, -(-width // 4)) - 1).bit_length())
        b.dispatch(
            "rotary/rms_norm",
            reads={"x": x, "scale": b.need("scale"), **angles.reads()},
            writes={
                "y": b.output(
                    "Y",
                    ((1, tokens) if self.flatten_batch else (batch, sequence)) + (heads * width,),
                    x.dtype,
                ),
                "normalized": b.output_if_wanted(
                    "normalized_fp32", (batch, sequence, heads, width), dtypes.float32
                ),
            },
            uniforms={
                "rows": rows,
                "heads": heads,
                "stride": stride,
                "start": start,
                "width": width,
                "epsilon": float(self.epsilon),
                **angles.uniforms(),
            },
            constants={
                "lanes": lanes,
                "whole": width % 4 == 0 and pairs % 4 == 0,
                **angles.constants(),
                "divide": not prefill,
                "narrow": prefill or not self.use_fp32_arithmetic,
            },
            threads=rows * lanes,
            workgroup=8 if cpu else 64,
        )

    def _prefill(self, b: Builder) -> bool:
        given = b.get("prefill_numerics")
        if given is None:
            return False
        b.check(given.size == 1, "prefill_numerics", f"has shape {given.shape}", "a scalar")
        value = int(b.host("prefill_numerics").item())
        b.check(value in (0, 1), "prefill_numerics", f"is {value}", "0 or 1")
        return value == 1


def check_flag(op: str, name: str, value: int) -> None:
    if value not in (0, 1):
        raise SchemaError(f"{op}: {name} is {value}; expected 0 or 1")
