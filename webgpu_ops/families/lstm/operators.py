"""The LSTM operators: ONNX's LSTM, AttnLSTM and DynamicQuantizeLSTM."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..integer_matmul import integer_matmul
from ..layout import View
from ..matmul import computing_type, matmul, transposed
from ..registry import register
from ..standard.quantize import dynamically_quantized
from .layer import Attention, Project, Quantized, Recurrent, Sizes


def pack(b: Builder, source: Slot, target: Slot, sizes: Sizes, *, skip: int, first: int, count: int) -> None:
    """Append the turning of weights [direction, 4 * hidden, width] for lstm/step.wgsl.

    Columns ``skip``.. ``skip + count`` of ``source`` become rows ``first``.. of ``target``
    [direction, inner, 4 * padded].
    """
    blocks = -(-count // 4)
    b.dispatch(
        "lstm/pack",
        reads={"x": source},
        writes={"y": target},
        uniforms={
            "directions": sizes.directions,
            "hidden": sizes.hidden,
            "padded": sizes.padded,
            "inner": target.shape[1],
            "row": source.shape[2],
            "offset": skip,
            "first": first,
            "count": count,
            "blocks": blocks,
        },
        threads=sizes.directions * blocks * sizes.padded,
    )


def projection(b: Builder, w: Slot, sizes: Sizes) -> Project:
    """The product with W^T for W [direction, 4 * hidden, inputs and maybe more]."""
    width = 4 * sizes.hidden
    columns = View.of(w.reshape(sizes.directions * width, w.shape[2])).slice(1, 0, sizes.inputs)

    def project(rows: View, first: int, count: int, out: Slot) -> None:
        own = columns.slice(0, first * width, count * width)
        matmul(b, rows, transposed(own), out.reshape(out.shape[0], count * width))

    return project


@register("LSTM", domain="")
@dataclass(frozen=True, kw_only=True)
class LSTM(Recurrent):
    """ONNX's LSTM: X [step, row, input], Y [step, direction, row, unit], states [direction, row, unit].

    With ``layout`` 1 the row comes first in all of them.
    """

    layout: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in (0, 1):
            raise SchemaError(f"{self.op}: layout is {self.layout}; expected 0 or 1")

    def plan(self, b: Builder) -> None:
        x, w, r = b.need("X"), b.need("W"), b.need("R")
        b.check(x.rank == 3, "X", f"has shape {x.shape}", "three dimensions")
        steps, batch = (x.shape[1], x.shape[0]) if self.layout else x.shape[:2]
        hidden = self.hidden(b, 2)
        sizes = Sizes(self.directions, steps, batch, x.shape[2], hidden, hidden, bool(self.layout))
        why = f"X has {sizes.inputs} columns, hidden_size is {hidden} and direction {self.direction}"
        b.check_shape("W", sizes.directions, 4 * hidden, sizes.inputs, why=why)
        b.check_shape("R", sizes.directions, 4 * hidden, hidden, why=why)
        self.check(b, sizes)
        compute = computing_type(x.dtype)
        weights = b.scratch("R by unit", (sizes.directions, hidden, 4 * sizes.padded), r.dtype)
        pack(b, r, weights, sizes, skip=0, first=0, count=hidden)
        pieces = self.pieces(b, sizes, x, compute, projection(b, w, sizes))
        self.unroll(b, sizes, pieces, weights, compute)


@register("AttnLSTM")
@dataclass(frozen=True, kw_only=True)
class AttnLSTM(Recurrent):
    """An LSTM whose input is X_t and behind it the attention over the memory M after the step before.

    The attention (at first 0) has the new H as query: softmax over the valid memory steps of
    V . tanh(M MW + H QW), times M, and with AW the layer [H, context] AW.
    """

    def plan(self, b: Builder) -> None:
        x, w, r = b.need("X"), b.need("W"), b.need("R")
        qw, mw, v, memory, aw = b.need("QW"), b.need("MW"), b.need("V"), b.need("M"), b.get("AW")
        b.check(x.rank == 3, "X", f"has shape {x.shape}", "three dimensions")
        steps, batch, inputs = x.shape
        dirs, hidden = self.directions, self.hidden(b, 2)
        b.check_shape("M", batch, "max_memory_step", "memory_depth", why=f"X has {batch} rows")
        _, memory_steps, depth = memory.shape
        b.check_shape("QW", dirs, hidden, "am_attn_size", why=f"hidden_size is {hidden}")
        query = qw.shape[2]
        b.check_shape("MW", dirs, depth, query, why=f"M has shape {memory.shape} and QW {qw.shape}")
        b.check_shape("V", dirs, query, why=f"QW has shape {qw.shape}")
        b.check_shape("memory_seq_lens", batch, why=f"X has {batch} rows")
        b.check_shape("AW", dirs, depth + hidden, "aw_attn_size", why=f"M has {depth} columns")
        attention = depth if aw is None else aw.shape[2]
        sizes = Sizes(dirs, steps, batch, inputs, hidden, hidden + attention)
        why = f"X has {inputs} columns and the attention {attention}; hidden_size is {hidden}"
        b.check_shape("W", dirs, 4 * hidden, inputs + attention, why=why)
        b.check_shape("R", dirs, 4 * hidden, hidden, why=why)
        self.check(b, sizes)
        self.check_lengths(b, "memory_seq_lens", memory_steps)

        keys = b.scratch("keys", (dirs, batch, memory_steps, query), x.dtype)
        matmul(b, memory, mw.reshape(dirs, 1, depth, query), keys)
        weights = b.scratch("R and W by unit", (dirs, sizes.inner, 4 * sizes.padded), r.dtype)
        pack(b, r, weights, sizes, skip=0, first=0, count=hidden)
        pack(b, w, weights, sizes, skip=inputs, first=hidden, count=attention)
        row = query + 2 * memory_steps + depth
        slots: dict[str, Slot | None] = {
            "query_weight": qw,
            "v": v,
            "keys": keys,
            "memory": memory,
            "memory_lengths": b.get("memory_seq_lens"),
            "layer": aw,
        }
        uniforms = {
            "query": query,
            "memory_steps": memory_steps,
            "depth": depth,
            "attention": attention,
            "work_row": row,
        }
        work = b.scratch("attention", (dirs, batch, max(1, row)), x.dtype)
        pieces = self.pieces(b, sizes, x, x.dtype, projection(b, w, sizes))
        self.unroll(b, sizes, pieces, weights, x.dtype, attention=Attention(slots, work, uniforms))


@register("DynamicQuantizeLSTM")
@dataclass(frozen=True, kw_only=True)
class DynamicQuantizeLSTM(Recurrent):
    """An LSTM with 8-bit weights W [direction, input, 4 * hidden] and R [direction, hidden, 4 * hidden].

    X is quantized to 8 bits once over the whole tensor, H before each step over all rows of the
    direction that still run; the products are exact.
    """

    def plan(self, b: Builder) -> None:
        x, w, r = b.need("X"), b.need("W"), b.need("R")
        b.check(x.rank == 3, "X", f"has shape {x.shape}", "three dimensions")
        steps, batch, inputs = x.shape
        dirs, hidden = self.directions, self.hidden(b, 1)
        sizes = Sizes(dirs, steps, batch, inputs, hidden, hidden)
        why = f"X has {inputs} columns, hidden_size is {hidden} and direction {self.direction}"
        b.check_shape("W", dirs, inputs, 4 * hidden, why=why)
        b.check_shape("R", dirs, hidden, 4 * hidden, why=why)
        self.check(b, sizes)
        channels = {name: self.channels(b, name, hidden) for name in ("W", "R")}

        codes = b.scratch("X codes", (steps * batch, inputs), dtypes.uint8)
        scale, zero = b.scratch("X scale", (), dtypes.float32), b.scratch("X zero point", (), dtypes.uint8)
        dynamically_quantized(b, x.reshape(steps * batch, inputs), codes, scale, zero)

        def project(rows: View, first: int, count: int, out: Slot) -> None:
            columns = {
                name: View.of(b.need(name).reshape(dirs, 1, channels["W"])).slice(0, first, count)
                for name in ("W_scale", "W_zero_point")
            }
            integer_matmul(
                b,
                rows,
                View.of(w).slice(0, first, count),
                View.of(out).permute((1, 0, 2)),
                a_zero=zero,
                w_zero=columns["W_zero_point"],
                epilogue="x * (x_scale * w_scale)",
                operands={"x_scale": scale, "w_scale": columns["W_scale"]},
            )

        words = sizes.padded // 4
        weights = b.scratch("R by unit", (dirs, words, 4 * sizes.padded), dtypes.uint32)
        sums = b.scratch("R sums", (dirs, 4 * sizes.padded), dtypes.int32)
        b.dispatch(
            "lstm/pack_codes",
            reads={"x": r, "zero": b.need("R_zero_point")},
            writes={"y": weights, "sums": sums},
            uniforms={
                "directions": dirs,
                "hidden": hidden,
                "padded": sizes.padded,
                "inner": words,
                "channels": channels["R"],
            },
            threads=dirs * sizes.padded,
        )
        state = b.scratch("H codes", (dirs, 4 + batch * words), dtypes.uint32)
        quantized = Quantized(sums, b.need("R_scale"), b.need("R_zero_point"), state, channels["R"])
        pieces = self.pieces(b, sizes, codes.reshape(*x.shape), dtypes.float32, project)
        self.unroll(b, sizes, pieces, weights, dtypes.float32, quantized=quantized)

    def channels(self, b: Builder, name: str, hidden: int) -> int:
        """How many scales a direction of weight ``name`` has: one, or one a column."""
        scale = b.need(f"{name}_scale")
        dirs, columns = self.directions, 4 * hidden
        b.check(
            scale.shape in ((dirs,), (dirs, 1), (dirs, columns)),
            scale.name,
            f"has shape {scale.shape}",
            f"({dirs},) or ({dirs}, {columns})",
        )
        b.check_shape(f"{name}_zero_point", *scale.shape, why=f"{scale.name} has shape {scale.shape}")
        return math.prod(scale.shape[1:])
