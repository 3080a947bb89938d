"""The product a @ weights: one builder function, on which all quantized products stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import dtypes
from ...core.plan import Builder, Constant, Slot
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
    parts = w.parts(b)
    if not w.by_rows:
        for first, part in parts:
            columns = {name: _columns(v, first, part.lines) for name, v in others.items()}
            _product(b, left, part, _columns(target, first, part.lines), columns, epilogue, uniforms)
        return
    # Parts are steps of the inner dimension: each adds to the sums of those before.
    sums: dict[str, View] = {}
    for first, part in parts[:-1]:
        total = b.scratch("sums", target.shape, dtypes.float32)
        step = left.slice(-1, first, part.lines)
        _product(b, step, part, View.of(total), sums, "x + sums" if sums else "x", None)
        sums = {"sums": View.of(total)}
    first, part = parts[-1]
    epilogue = f"x + sums; {epilogue}" if sums else epilogue
    _product(b, left.slice(-1, first, part.lines), part, target, sums | others, epilogue, uniforms)


def _columns(view: View, first: int, count: int) -> View:
    """Some of the columns, unless one column stands for all."""
    return view.slice(-1, first, count) if view.shape and view.shape[-1] > 1 else view


def _product(
    b: Builder,
    a: View,
    w: Weights,
    out: View,
    operands: Mapping[str, View],
    epilogue: str,
    uniforms: Mapping[str, Any] | None,
) -> None:
    """One dispatch: weights that fit a binding."""
    if a.strides[-1] != 1:
        raise ValueError(f"{a.slot.name}: the columns of a factor have to be consecutive")
    # Lines take the place of elements: a step along one of the dimensions is a step of a line.
    shape, strides = ((w.lines, w.length), (1, 0)) if w.by_rows else ((w.length, w.lines), (0, 1))
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
        uniforms={**layout.uniforms, **w.uniforms, **(uniforms or {})},
        constants=constants,
        groups=groups * layout.batches,
        workgroup=workgroup,
    )
