"""Elementwise work: one template, of which operators differ by one expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.dtypes import DType
from ..core.plan import Builder, Slot
from .layout import View, collapse, contiguous, padded, wrapped


def elementwise(
    b: Builder,
    expression: str,
    out: Slot,
    operands: Mapping[str, Slot | View],
    *,
    compute: DType | None = None,
    cast: bool = False,
    uniforms: Mapping[str, Any] | None = None,
    library: str | None = None,
) -> None:
    """Append ``out[i] = expression`` over ``operands``, which broadcast to ``out``'s shape.

    The expression (Python syntax, see docs/adding-an-operator.md) names the operands and, as
    ``u.<name>``, the ``uniforms``; parts before a ``;`` name what the last part uses:
    ``"x = a + b; x * sigmoid(x)"``. It is computed in the arithmetic of ``compute`` (default: the
    output's type); operands of another type are converted to it first, except bool, which stays.
    Its value has the WGSL type of ``out``'s elements, or with ``cast`` that of ``compute``, from
    which it is converted. ``library`` names a template (from ``shaders/``) whose functions the
    expression may call. Where ``compute`` is a bits type, elements only move, and the expression is
    plain WGSL.
    """
    compute = compute or out.dtype
    views = {name: View.of(x).broadcast(out.shape) for name, x in operands.items()}
    shape, strides = collapse(View.of(out), *views.values())
    modes: list[tuple[str, str]] = []
    values: dict[str, Any] = {"size": out.size}
    for (name, view), steps in zip(views.items(), strides[1:], strict=True):
        if steps == contiguous(shape) and not view.offset:
            mode = "flat"
        elif not any(steps) and not view.offset:
            mode = "single"
        else:
            mode = "strided"
            values[f"{name}_strides"] = wrapped(steps)
            values[f"{name}_offset"] = view.offset
        modes.append((name, mode))
    if any(mode == "strided" for _, mode in modes):
        values |= {"rank": len(shape), "shape": padded(shape)}
    b.dispatch(
        "standard/elementwise",
        reads={name: view.slot for name, view in views.items()},
        writes={"out": out},
        uniforms=values | dict(uniforms or {}),
        constants={
            "compute": compute,
            "parts": tuple(part.strip() for part in expression.split(";")),
            "operands": tuple((n, m, views[n].slot.dtype) for n, m in modes),
            "cast": cast,
            "library": library,
        },
        threads=-(-out.size // 4),
    )
