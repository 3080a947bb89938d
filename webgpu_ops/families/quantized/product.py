"""The product a @ weights: one builder function, on which all quantized products stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import dtypes
from ...core.plan import MAX_ROUNDS, Builder, Constant, Slot
from ...errors import LimitError
from ..elementwise import elementwise
from ..layout import View
from ..matmul import lay_out, parts_of
from .weights import Weights


def quantized_matmul(
    b: Builder,
    a: Slot | View,
    w: Weights,
    out: Slot | View,
    *,
    operands: Mapping[str, Slot | View] | None = None,
    epilogue: str = "x",
    uniforms: Mapping[str, Any] | None = None,
) -> None:
    """Append ``out = epilogue(a @ w)``.

    ``a`` is ``[..., m, k]`` with consecutive columns and ``out`` ``[..., m, n]``; ``w`` is one matrix
    for the whole batch. Weights become float32 where they are multiplied and nowhere else, and sums
    are made in float32. ``operands``, ``epilogue`` and ``uniforms`` are those of
    :func:`~webgpu_ops.families.matmul.matmul`. What exceeds one binding is multiplied in parts.
    """
    target = View.of(out)
    if not target.size:
        return
    left = View.of(a)
    rows = target.size // target.shape[-1]
    share = "subgroup" in b.caps.features
    if b.caps.device_class == "cpu" and not share and left.slot.dtype.bits < 32 and rows > 1:
        # A software adapter would unpack each row once for every tile along n.
        whole = b.scratch("a", left.shape, dtypes.float32)
        elementwise(b, "a", whole, {"a": left})
        left = View.of(whole)
    others = {name: View.of(x) for name, x in (operands or {}).items()}
    longest = _longest(b, rows)
    if w.by_rows:
        steps = [(left.slice(-1, first, part.lines), part, 0) for first, part in w.parts(b, longest)]
        _sum(b, steps, target, others, epilogue, uniforms)
        return
    span = longest // w.block * w.block if w.regular else longest
    if not span and w.length > longest:
        raise LimitError(
            f"{b.op}: {w.codes.name} has blocks of {w.block} weights; a kernel adds up at most {longest}"
        )
    ends = [*range(span, w.length, span), w.length] if span else [w.length]
    for first, part in w.parts(b):
        steps = [(left.slice(-1, 0, end), part, (end - 1) // span * span if span else 0) for end in ends]
        columns = {name: _columns(v, first, part.lines) for name, v in others.items()}
        _sum(b, steps, _columns(target, first, part.lines), columns, epilogue, uniforms)


def _longest(b: Builder, rows: int) -> int:
    """How much of the inner dimension any kernel adds up within MAX_ROUNDS."""
    if b.caps.device_class == "gpu" and rows >= 16:
        return 16 * (MAX_ROUNDS // 17)  # quantized/shared goes round 17 times for 16 steps
    return 4 * MAX_ROUNDS  # the others make at least 4 steps, with those from block to block


def _sum(
    b: Builder,
    steps: Sequence[tuple[View, Weights, int]],
    target: View,
    operands: Mapping[str, View],
    epilogue: str,
    uniforms: Mapping[str, Any] | None,
) -> None:
    """``target = epilogue(sum of a[:, begin:] @ w)`` over ``steps`` (a, w, begin): a dispatch each."""
    sums: dict[str, View] = {}
    for a, w, begin in steps[:-1]:
        total = View.of(b.scratch("sums", target.shape, dtypes.float32))
        _product(b, a, w, begin, total, sums, "x + sums" if sums else "x", None)
        sums = {"sums": total}
    a, w, begin = steps[-1]
    _product(
        b, a, w, begin, target, sums | dict(operands), f"x + sums; {epilogue}" if sums else epilogue, uniforms
    )


def _columns(view: View, first: int, count: int) -> View:
    """Some of the columns, unless one column stands for all."""
    return view.slice(-1, first, count) if view.shape and view.shape[-1] > 1 else view


def _product(
    b: Builder,
    a: View,
    w: Weights,
    begin: int,
    out: View,
    operands: Mapping[str, View],
    epilogue: str,
    uniforms: Mapping[str, Any] | None,
) -> None:
    """One dispatch: weights that fit a binding, from place ``begin`` of the inner dimension on."""
    if a.strides[-1] != 1:
        raise ValueError(f"{a.slot.name}: the columns of a factor have to be consecutive")
    # Lines take the place of elements: a step along one of the dimensions is a step of a line.
    shape, strides = ((w.lines, w.length), (1, 0)) if w.by_rows else ((a.shape[-1], w.lines), (0, 1))
    layout = lay_out(a, View(w.codes, shape, strides), out, operands)
    m, n, k = (layout.uniforms[name] for name in "mnk")
    constants: dict[str, Constant] = {
        "order": "row" if w.by_rows else "column",
        "epilogue": parts_of(epilogue),
        "operands": layout.operands,
        **w.constants,
    }
    cpu = b.caps.device_class == "cpu"
    if not cpu and m >= 16 and n >= 16:
        template, workgroup = "quantized/shared", 256
        groups = -(-m // 64) * -(-n // 64)
    elif not cpu and m < 16 and not w.by_rows:
        template, workgroup = "quantized/vector", 64
        rows = next(t for t in (1, 2, 4) if t >= min(m, 4))
        groups = -(-m // rows) * -(-n // 4)
        constants |= {"rows": rows, "tail": k % 8 > 0}
    else:
        template, workgroup = "quantized/tile", 8 if cpu else 32
        # Looking up a block for every weight takes much code, so those tiles stay small.
        side = 8 if cpu and w.regular else 4
        rows = next(t for t in (1, 2, 4, 8) if t >= min(m, side))
        narrow = m == 1 or n <= 4 * workgroup or not w.regular
        columns = 4 if narrow and not w.by_rows else 8
        groups = -(-m // rows) * -(-n // (columns * workgroup))
        tail = k % (4 if w.by_rows else 8) > 0
        # On a software adapter a load costs much more than passing its value on.
        share = cpu and "subgroup" in b.caps.features
        constants |= {"rows": rows, "columns": columns, "tail": tail, "share": share}
    b.dispatch(
        template,
        reads={"a": a.slot, **w.reads, **layout.slots},
        writes={"y": out.slot},
        uniforms={**layout.uniforms, **w.uniforms, "begin": begin, **(uniforms or {})},
        constants=constants,
        groups=groups * layout.batches,
        workgroup=workgroup,
    )
