"""LSTM layers: ONNX's LSTM, AttnLSTM and DynamicQuantizeLSTM.

The inputs' part of all gates of all steps is one matrix product. What is left of a step, the product
of the state and the cell, is one kernel (lstm/step.wgsl) for all directions and rows. Where a
workgroup can own all units of a row it also walks through the steps, so that a sequence is one
dispatch; wider layers share each step among many workgroups and take a dispatch a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core import dtypes
from ..core.dtypes import DType
from ..core.plan import Builder, Constant, Slot, uniform_of
from ..errors import SchemaError
from .elementwise import elementwise
from .integer_matmul import integer_matmul
from .layout import View, contiguous
from .matmul import computing_type, matmul, transposed
from .registry import Operator, register
from .standard.movement import move
from .standard.quantize import dynamically_quantized


@dataclass(frozen=True)
class Activation:
    """An expression of x, alpha and beta, and the defaults of the parameters that it takes."""

    expression: str
    defaults: tuple[float, ...] = ()


_ACTIVATIONS = {
    "relu": Activation("max(x, 0)"),
    "tanh": Activation("tanh(x)"),
    "sigmoid": Activation("sigmoid(x)"),
    "affine": Activation("alpha * x + beta", (1.0, 0.0)),
    "leakyrelu": Activation("x if x >= 0 else alpha * x", (0.01,)),
    "thresholdedrelu": Activation("x if x >= alpha else 0", (1.0,)),
    "scaledtanh": Activation("alpha * tanh(beta * x)", (1.0, 1.0)),
    "hardsigmoid": Activation("min(max(alpha * x + beta, 0), 1)", (0.2, 0.5)),
    "elu": Activation("x if x >= 0 else alpha * expm1(min(x, 0))", (1.0,)),
    "softsign": Activation("x / (1 + abs(x))"),
    "softplus": Activation("softplus(x)"),
}
_DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call, and which dimension of X, Y and the states counts what.

    ``inner`` is the size of the state that enters the gates: H, and in AttnLSTM the attention.
    """

    directions: int
    steps: int
    batch: int
    inputs: int
    hidden: int
    inner: int
    batch_first: bool = False

    @property
    def padded(self) -> int:
        """Hidden units rounded up to quads: the gates' distance in packed weights."""
        return -(-self.hidden // 4) * 4

    def by_row(self, rows: Slot | View) -> View:
        """A view [step, row, ...] of X or of a product of its rows."""
        view = View.of(rows)
        return view.permute((1, 0, *range(2, len(view.shape)))) if self.batch_first else view

    def states(self, tensor: Slot) -> View:
        """A view [direction, row, unit] of a state."""
        view = View.of(tensor)
        return view.permute((1, 0, 2)) if self.batch_first else view


@dataclass(frozen=True)
class Quantized:
    """What DynamicQuantizeLSTM's steps read beside the packed weights."""

    sums: Slot
    scale: Slot
    zero: Slot
    codes: Slot
    channels: int


@dataclass(frozen=True)
class Attention:
    """What AttnLSTM's steps read and write beside the state."""

    slots: Mapping[str, Slot | None]
    work: Slot
    uniforms: Mapping[str, Any]

    def rounds(self, sizes: Sizes, rows: int, workgroup: int) -> int:
        """How often an invocation goes round the loops of a step's attention."""
        query, steps, depth, width = (
            self.uniforms[name] for name in ("query", "memory_steps", "depth", "attention")
        )
        parts = ((query, sizes.hidden), (steps, query), (depth, steps), (width, sizes.hidden + depth))
        return sum(-(-rows * count // workgroup) * (inner + 4) for count, inner in parts) + 2 * rows * steps


# How often an invocation may go round its loops in one dispatch: long dispatches look like a hang to
# GPU drivers, and llvmpipe ends all loops of an invocation after 65535 rounds.
_ROUNDS = 40_000


@dataclass(frozen=True)
class Tiling:
    """How the units, rows and inner sums of a step are shared out: constants of lstm/step.wgsl.

    ``span`` rows belong to a workgroup, which takes ``rows`` of them at a time; ``at_once`` steps are
    a dispatch.
    """

    loops: bool
    units: int
    rows: int
    parts: int
    workgroup: int
    span: int
    at_once: int

    @classmethod
    def choose(
        cls, b: Builder, sizes: Sizes, compute: DType, quantized: bool, attention: Attention | None
    ) -> Tiling:
        """A workgroup walks through the steps if the gates of all units of a row fit its memory.

        With wider layers the weights, which every step reads again, are also more than one workgroup
        should read alone. A quantized state needs one workgroup for all rows.
        """
        cpu = b.caps.device_class == "cpu"
        room = b.caps.max_workgroup_bytes // 2 // (4 * compute.itemsize)
        workgroup = 8 if cpu else 256
        quads = -(-sizes.inner // 4)
        for loops in (True, False):
            units = sizes.padded if loops else 64 if cpu else 16
            rows = next(r for r in (4, 2, 1) if r == 1 or (r < 2 * sizes.batch and r * units <= room))
            parts = max(1, min(workgroup // max(1, units), room // max(1, rows * units), -(-quads // 4)))
            span = sizes.batch if loops and quantized else rows
            rounds = -(-parts * units // workgroup) * (-(-quads // parts) + 8)
            rounds += -(-rows * units // 4 // workgroup) * (20 * parts + 30)
            rounds *= -(-span // rows)
            if quantized:
                rounds += 2 * -(-sizes.batch * sizes.padded // workgroup) + 40
            if attention is not None:
                rounds += attention.rounds(sizes, rows, workgroup)
            if not loops:
                break
            if units <= room and rounds <= _ROUNDS // 4:
                return cls(True, units, rows, parts, workgroup, span, _ROUNDS // max(1, rounds))
        return cls(False, units, rows, parts, workgroup, span, 1)


@dataclass(frozen=True, kw_only=True)
class Recurrent(Operator):
    """The attributes, checks and steps that the LSTM operators share.

    Gates are in the order i, o, f, c and peepholes i, o, f; B holds the inputs' and then the
    state's biases. ``clip`` bounds the gates' pre-activations.
    """

    activation_alpha: Sequence[float] | None = None
    activation_beta: Sequence[float] | None = None
    activations: Sequence[str] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    input_forget: int = 0

    def __post_init__(self) -> None:
        if self.direction not in _DIRECTIONS:
            raise SchemaError(
                f"{self.op}: direction is {self.direction!r}; expected one of {', '.join(_DIRECTIONS)}"
            )
        for name in self.activations or ():
            if name.lower() not in _ACTIVATIONS:
                raise SchemaError(
                    f"{self.op}: activations hold {name!r}; expected names among {', '.join(_ACTIVATIONS)}"
                )
        count = 3 * self.directions
        if self.activations is not None and len(self.activations) != count:
            raise SchemaError(
                f"{self.op}: activations hold {len(self.activations)} names; "
                f"expected {count} because direction is {self.direction}"
            )
        if self.clip is not None and not self.clip >= 0:
            raise SchemaError(f"{self.op}: clip is {self.clip}; expected a number that is not negative")

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def functions(self) -> tuple[list[str], list[float], list[float]]:
        """Expressions of f, g, h for each direction, and the alpha and beta of each."""
        names = self.activations or ["sigmoid", "tanh", "tanh"] * self.directions
        given: tuple[Iterator[float], ...] = tuple(
            iter(values or ()) for values in (self.activation_alpha, self.activation_beta)
        )
        expressions: list[str] = []
        parameters: tuple[list[float], list[float]] = ([], [])
        for name in names:
            activation = _ACTIVATIONS[name.lower()]
            expressions.append(activation.expression)
            for which, values in enumerate(given):
                takes = len(activation.defaults) > which
                parameters[which].append(next(values, activation.defaults[which]) if takes else 0.0)
        return expressions, *parameters

    def hidden(self, b: Builder, dimension: int) -> int:
        """The number of hidden units: R's ``dimension``, which hidden_size repeats."""
        r = b.need("R")
        b.check(r.rank == 3, "R", f"has shape {r.shape}", "three dimensions")
        size = r.shape[dimension]
        b.check(
            self.hidden_size in (None, size), "R", f"has shape {r.shape}", f"hidden_size {self.hidden_size}"
        )
        return size

    def check(self, b: Builder, sizes: Sizes) -> None:
        """Refuse shapes of inputs that all the operators have, and lengths known to be out of range."""
        dirs, batch, hidden = sizes.directions, sizes.batch, sizes.hidden
        why = f"X has shape {b.need('X').shape}, hidden_size is {hidden} and direction {self.direction}"
        b.check_shape("B", dirs, 8 * hidden, why=why)
        b.check_shape("P", dirs, 3 * hidden, why=why)
        b.check_shape("sequence_lens", batch, why=why)
        state = (batch, dirs, hidden) if sizes.batch_first else (dirs, batch, hidden)
        for name in ("initial_h", "initial_c"):
            b.check_shape(name, *state, why=why)
        self.check_lengths(b, "sequence_lens", sizes.steps)

    def check_lengths(self, b: Builder, name: str, most: int) -> None:
        lengths = b.host_if_known(name) if b.get(name) is not None else None
        if lengths is not None and lengths.size:
            low, high = int(lengths.min()), int(lengths.max())
            b.check(low >= 0 and high <= most, name, f"holds {low}..{high}", f"lengths in [0, {most}]")

    def unroll(
        self,
        b: Builder,
        sizes: Sizes,
        projected: View,
        weights: Slot,
        *,
        quantized: Quantized | None = None,
        attention: Attention | None = None,
    ) -> None:
        """Declare Y, Y_h and Y_c and append the steps.

        ``projected`` is [step, row, direction, 4 * hidden] in the computing type; ``weights`` are
        packed as lstm/step.wgsl says.
        """
        x = b.need("X")
        compute = projected.slot.dtype
        dirs, batch, hidden = sizes.directions, sizes.batch, sizes.hidden
        if sizes.batch_first:
            y_shape, state_shape = (batch, sizes.steps, dirs, hidden), (batch, dirs, hidden)
            y_order = (1, 2, 0)
        else:
            y_shape, state_shape = (sizes.steps, dirs, batch, hidden), (dirs, batch, hidden)
            y_order = (0, 1, 2)
        y = b.output_if_wanted("Y", y_shape, x.dtype)
        results = {name: b.output(name, state_shape, x.dtype) for name in ("Y_h", "Y_c")}
        # The states live in the outputs themselves where those hold what a step reads.
        wide = x.dtype == compute
        c = results["Y_c"] if wide else b.scratch("C", state_shape, compute)
        if attention is not None:
            h = b.scratch("state", (dirs, batch, sizes.inner), compute)
            b.zero(h)
            h_view = View.of(h).slice(2, 0, hidden)
        else:
            h = results["Y_h"] if wide else b.scratch("H", state_shape, compute)
            h_view = sizes.states(h)
        tiling = Tiling.choose(b, sizes, compute, quantized is not None, attention)
        other = h
        if not tiling.loops:
            other = b.scratch("state before", h.shape, compute)
            if attention is not None:
                b.zero(other)
        first = other if sizes.steps % 2 else h
        self._start(b, "initial_h", replace(h_view, slot=first), sizes)
        self._start(b, "initial_c", sizes.states(c), sizes)
        if not sizes.steps:
            # A sequence without steps has no last value.
            b.zero(h)
            b.zero(c)

        expressions, alphas, betas = self.functions()
        roles = {e: tuple(i for i, own in enumerate(expressions) if own == e) for e in expressions}
        lengths = b.get("sequence_lens")
        y_steps = [contiguous(y_shape)[d] for d in y_order]
        shared: dict[str, Any] = {
            "steps": sizes.steps,
            "batch": batch,
            "hidden": hidden,
            "directions": dirs,
            "state_dir": h_view.strides[0],
            "state_row": h_view.strides[1],
        }
        row_blocks, unit_blocks = -(-batch // tiling.span), -(-hidden // tiling.units)
        cells = sizes.states(c).strides
        uniforms = shared | {
            "inner": weights.shape[1],
            "padded": sizes.padded,
            "cell_dir": cells[0],
            "cell_row": cells[1],
            "x_step": projected.strides[0],
            "x_row": projected.strides[1],
            "x_dir": projected.strides[2],
            "y_step": y_steps[0],
            "y_dir": y_steps[1],
            "y_row": y_steps[2],
            "reverse": 0 if self.direction == "reverse" else 1,
            "span": tiling.span,
            "row_blocks": row_blocks,
            "unit_blocks": unit_blocks,
            "clip": uniform_of(0.0 if self.clip is None else self.clip, compute),
            "alpha": uniform_of(tuple(alphas), compute),
            "beta": uniform_of(tuple(betas), compute),
        }
        constants: dict[str, Constant] = {
            "compute": compute,
            "loops": tiling.loops,
            "rows": tiling.rows,
            "parts": tiling.parts,
            "units": tiling.units,
            "functions": tuple(roles.items()),
            "clips": self.clip is not None,
            "input_forget": bool(self.input_forget),
            "quantized": quantized is not None,
            "attention": attention is not None,
        }
        reads: dict[str, Slot | None] = {
            "projected": projected.slot,
            "r": weights,
            "bias": b.get("B"),
            "peephole": b.get("P"),
            "lengths": lengths,
        }
        writes: dict[str, Slot | None] = {"c": c, "y": y}
        if quantized is not None:
            reads |= {"r_sums": quantized.sums, "r_scale": quantized.scale, "r_zero": quantized.zero}
            (writes if tiling.loops else reads)["codes"] = quantized.codes
            quantizing = {"codes_dir": quantized.codes.shape[1]}
            uniforms |= quantizing | {"channels": quantized.channels}
        if attention is not None and tiling.loops:
            reads |= attention.slots
            writes["work"] = attention.work
            uniforms |= attention.uniforms
        shared_lanes = 64 if b.caps.device_class == "cpu" else 256
        for begin in range(0, sizes.steps, tiling.at_once):
            end = min(begin + tiling.at_once, sizes.steps)
            before, after = (
                (h, h) if tiling.loops else (other, h) if (sizes.steps - begin) % 2 else (h, other)
            )
            if quantized is not None and not tiling.loops:
                b.dispatch(
                    "lstm/quantize",
                    reads={"h_in": before, "lengths": lengths},
                    writes={"codes": quantized.codes},
                    uniforms=shared | quantizing | {"begin": begin},
                    groups=dirs,
                    workgroup=shared_lanes,
                )
            b.dispatch(
                "lstm/step",
                reads=reads | {"h_in": before},
                writes=writes | {"h": after},
                uniforms=uniforms | {"begin": begin, "end": end},
                constants=constants,
                groups=dirs * row_blocks * unit_blocks,
                workgroup=tiling.workgroup,
            )
            if attention is not None and not tiling.loops:
                b.dispatch(
                    "lstm/attention",
                    reads=dict(attention.slots) | {"lengths": lengths},
                    writes={"h": after, "work": attention.work},
                    uniforms=shared | dict(attention.uniforms),
                    constants={"compute": compute},
                    groups=dirs * batch,
                    workgroup=shared_lanes,
                )
        if attention is not None and b.wants("Y_h"):
            move(b, h_view, results["Y_h"])
        if not wide:
            for name, state in (("Y_h", h), ("Y_c", c)):
                if b.wants(name):
                    elementwise(b, "x", results[name], {"x": state}, compute=compute, cast=True)

    def _start(self, b: Builder, name: str, state: View, sizes: Sizes) -> None:
        """Set the elements of ``state`` to input ``name``, or to zero."""
        given = b.get(name)
        if given is None:
            if state.size == state.slot.size:
                b.zero(state.slot)
        elif given.dtype == state.slot.dtype:
            move(b, sizes.states(given), state)
        else:
            elementwise(b, "x", state.slot, {"x": given})


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


def project(b: Builder, x: Slot, w: Slot, sizes: Sizes, compute: DType) -> View:
    """Append X @ W^T of all steps and directions; a view [step, row, direction, 4 * hidden].

    W is [direction, 4 * hidden, inputs and maybe more].
    """
    columns = sizes.directions * 4 * sizes.hidden
    products = b.scratch("projected", (*x.shape[:2], columns), compute)
    rows = View.of(w.reshape(columns, w.shape[2])).slice(1, 0, sizes.inputs)
    matmul(b, x, transposed(rows), products)
    view = View.of(products.reshape(*x.shape[:2], sizes.directions, 4 * sizes.hidden))
    return sizes.by_row(view)


@register("LSTM", domain="")
@dataclass(frozen=True, kw_only=True)
class LSTM(Recurrent):
    """ONNX's LSTM: X [step, row, input], Y [step, direction, row, unit], states [direction, row, unit].

    With ``layout`` 1 the row comes first in all of them.
    """

    layout: int = 0

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
        projected = project(b, x, w, sizes, compute)
        weights = b.scratch("R by unit", (sizes.directions, hidden, 4 * sizes.padded), r.dtype)
        pack(b, r, weights, sizes, skip=0, first=0, count=hidden)
        self.unroll(b, sizes, projected, weights)


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

        projected = project(b, x, w, sizes, x.dtype)
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
        self.unroll(b, sizes, projected, weights, attention=Attention(slots, work, uniforms))


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
        products = b.scratch("projected", (dirs, steps * batch, 4 * hidden), dtypes.float32)
        columns = {name: b.need(name).reshape(dirs, 1, channels["W"]) for name in ("W_scale", "W_zero_point")}
        integer_matmul(
            b,
            codes,
            w,
            products,
            a_zero=zero,
            w_zero=columns["W_zero_point"],
            epilogue="x * (x_scale * w_scale)",
            operands={"x_scale": scale, "w_scale": columns["W_scale"]},
        )
        projected = View.of(products.reshape(dirs, steps, batch, 4 * hidden)).permute((1, 2, 0, 3))

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
        self.unroll(b, sizes, projected, weights, quantized=quantized)

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
