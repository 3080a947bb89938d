"""What LSTM layers share: attributes and checks, the shares of a step, and the run through the steps.

The inputs' part of all gates of all steps is one matrix product. What is left of a step, the product
of the state and the cell, is one kernel (lstm/step.wgsl) for all directions and rows. Where a
workgroup can own all units of a row it also walks through the steps, so that a sequence is one
dispatch; wider layers share each step among many workgroups and take a dispatch a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.dtypes import DType
from ...core.plan import MAX_ROUNDS, Builder, Constant, Slot, uniform_of
from ...errors import LimitError, SchemaError
from ..elementwise import elementwise
from ..layout import View, contiguous
from ..registry import Operator
from ..standard.movement import move


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


# Appends the products of X's rows [row, input] with the weights of some directions: (rows, the first
# direction, how many, the result [row, direction, 4 * hidden] in the computing type).
Project = Callable[[View, int, int, Slot], None]


@dataclass(frozen=True)
class Piece:
    """Steps ``begin`` to ``end`` of ``count`` directions from ``first`` on.

    ``projected`` [step, row, direction, 4 * hidden] is the inputs' part of the gates, of the steps of
    X, or ``in_order`` of those from ``begin`` on in the order in which each row runs through them.
    """

    first: int
    count: int
    begin: int
    end: int
    projected: View
    in_order: bool


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
            units = max(4, sizes.padded) if loops else 64 if cpu else 16
            rows = next(r for r in (4, 2, 1) if r == 1 or (r < 2 * sizes.batch and r * units <= room))
            parts = max(1, min(workgroup // max(1, units), room // max(1, rows * units), -(-quads // 4)))
            span = max(1, sizes.batch) if loops and quantized else rows
            rounds = -(-parts * units // workgroup) * (-(-quads // parts) + 8)
            rounds += -(-rows * units // 4 // workgroup) * (20 * parts + 30)
            rounds *= -(-span // rows)
            if quantized:
                rounds += 2 * -(-sizes.batch * sizes.padded // workgroup) + 40
            if attention is not None:
                rounds += attention.rounds(sizes, rows, workgroup)
            if not loops:
                break
            if units <= room and rounds <= MAX_ROUNDS // 4:
                return cls(True, units, rows, parts, workgroup, span, MAX_ROUNDS // max(1, rounds))
        return cls(False, units, rows, parts, workgroup, span, 1)


def sharing_lanes(b: Builder, sizes: Sizes, quantized: Quantized | None, attention: Attention | None) -> int:
    """Invocations of the workgroup that quantizes a direction's state, or that attends for a row.

    A software adapter takes as few as its rounds allow.
    """
    if b.caps.device_class == "gpu":
        return 256

    def rounds(lanes: int) -> int:
        if attention is not None:
            return attention.rounds(sizes, 1, lanes)
        return -(-3 * sizes.batch * sizes.hidden // lanes) if quantized is not None else 0

    lanes = 64
    while rounds(lanes) > MAX_ROUNDS:
        lanes *= 2
        if lanes > b.caps.max_invocations:
            what = "X" if attention is None else "M"
            raise LimitError(
                f"{b.op}: {what} has shape {b.need(what).shape} and hidden_size is {sizes.hidden}; "
                "expected less of it, which this device's largest workgroup can share"
            )
    return lanes


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

    @property
    def first_reverse(self) -> int:
        """From which direction on sequences run backwards."""
        return 0 if self.direction == "reverse" else 1

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

    def pieces(self, b: Builder, sizes: Sizes, x: Slot, compute: DType, project: Project) -> Iterator[Piece]:
        """Append the products of ``x``, and yield what is ready to run: all, if a binding can hold it."""
        steps, batch, dirs, width = sizes.steps, sizes.batch, sizes.directions, 4 * sizes.hidden
        a_step = batch * width * compute.itemsize
        if steps * dirs * a_step <= b.caps.max_binding_bytes:
            products = b.scratch("projected", (steps * batch, dirs, width), compute)
            project(View.of(x.reshape(steps * batch, sizes.inputs)), 0, dirs, products)
            view = sizes.by_row(products.reshape(*x.shape[:2], dirs, width))
            yield Piece(0, dirs, 0, steps, view, in_order=False)
            return
        at_once = max(1, b.caps.max_binding_bytes // a_step)
        products = b.scratch("projected", (at_once, batch, 1, width), compute)
        ordered = [self._ordered(b, sizes, x, d) for d in range(dirs)]
        for begin in range(0, steps, at_once):
            count = min(at_once, steps - begin)
            part = products.rows(0, count)
            for d, rows in enumerate(ordered):
                wanted = View.of(rows.reshape(steps * batch, sizes.inputs)).slice(
                    0, begin * batch, count * batch
                )
                project(wanted, d, 1, part.reshape(count * batch, 1, width))
                yield Piece(d, 1, begin, begin + count, View.of(part), in_order=True)

    def _ordered(self, b: Builder, sizes: Sizes, x: Slot, direction: int) -> Slot:
        """X [step, row, input] in the order in which each row of a direction runs through its steps."""
        backward = direction >= self.first_reverse
        if not backward and not sizes.batch_first:
            return x
        target = b.scratch("X in order", (sizes.steps, sizes.batch, sizes.inputs), x.dtype)
        strides = sizes.by_row(x).strides
        b.dispatch(
            "lstm/order",
            reads={"x": x.as_bits(), "lengths": b.get("sequence_lens")},
            writes={"y": target.as_bits()},
            uniforms={
                "size": target.size,
                "steps": sizes.steps,
                "batch": sizes.batch,
                "width": sizes.inputs,
                "x_step": strides[0],
                "x_row": strides[1],
            },
            constants={"backward": backward},
            threads=-(-target.size // 4),
        )
        return target

    def unroll(
        self,
        b: Builder,
        sizes: Sizes,
        pieces: Iterator[Piece],
        weights: Slot,
        compute: DType,
        *,
        quantized: Quantized | None = None,
        attention: Attention | None = None,
    ) -> None:
        """Declare Y, Y_h and Y_c and append the steps of ``pieces``.

        ``weights`` are packed as lstm/step.wgsl says.
        """
        x = b.need("X")
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
            "y_step": y_steps[0],
            "y_dir": y_steps[1],
            "y_row": y_steps[2],
            "reverse": self.first_reverse,
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
        shared_lanes = sharing_lanes(b, sizes, quantized, attention) if not tiling.loops else 0
        runs = (
            (piece, begin, min(begin + tiling.at_once, piece.end))
            for piece in pieces
            for begin in range(piece.begin, piece.end, tiling.at_once)
        )
        for piece, begin, end in runs:
            before, after = h, h
            if not tiling.loops:
                before, after = (other, h) if (sizes.steps - begin) % 2 else (h, other)
            own = {"directions": piece.count, "first_direction": piece.first}
            if quantized is not None and not tiling.loops:
                b.dispatch(
                    "lstm/quantize",
                    reads={"h_in": before, "lengths": lengths},
                    writes={"codes": quantized.codes},
                    uniforms=shared | own | quantizing | {"begin": begin},
                    groups=piece.count,
                    workgroup=shared_lanes,
                )
            steps = piece.projected.strides
            places = {"x_step": steps[0], "x_row": steps[1], "x_dir": steps[2]}
            places |= {"x_begin": piece.begin if piece.in_order else 0, "in_order": piece.in_order}
            b.dispatch(
                "lstm/step",
                reads=reads | {"projected": piece.projected.slot, "h_in": before},
                writes=writes | {"h": after},
                uniforms=uniforms | own | places | {"begin": begin, "end": end},
                constants=constants,
                groups=piece.count * row_blocks * unit_blocks,
                workgroup=tiling.workgroup,
            )
            if attention is not None and not tiling.loops:
                b.dispatch(
                    "lstm/attention",
                    reads=dict(attention.slots) | {"lengths": lengths},
                    writes={"h": after, "work": attention.work},
                    uniforms=shared | own | dict(attention.uniforms),
                    constants={"compute": compute},
                    groups=piece.count * batch,
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
