"""Layer and RMS normalization over rows, and what is fused in front of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core import dtypes
from ..core.dtypes import DType
from ..core.plan import Builder, Slot, uniform_of
from ..errors import LimitError, SchemaError
from .elementwise import elementwise
from .layout import View, axis_of
from .registry import Operator, register
from .standard.copying import move
from .standard.reduction import reduce


def computing_type(dtype: DType) -> DType:
    """The type in which a norm of ``dtype`` is computed: float32, or float64 for itself."""
    return dtypes.float64 if dtype == dtypes.float64 else dtypes.float32


def normalize_rows(
    b: Builder,
    reads: Mapping[str, Slot | None],
    y: Slot,
    *,
    rows: int,
    width: int,
    epsilon: float,
    gamma: Slot | None,
    beta: Slot | None,
    mean: Slot | None = None,
    inv_std: Slot | None = None,
    total: Slot | None = None,
    source: Literal["tensor", "embedding"] = "tensor",
    uniforms: Mapping[str, int] | None = None,
    centered: bool = True,
) -> None:
    """Append the normalization of ``rows`` rows of ``width`` elements into ``y``.

    ``reads`` binds what ``source`` (shaders/norm/<source>.wgsl) makes rows of; ``total`` receives
    the row before normalization, ``mean`` and ``inv_std`` one value a row. Without ``centered`` it
    is RMS normalization. An empty row has nothing to store but its statistics.
    """
    compute = computing_type(y.dtype)
    values: dict[str, Any] = {"rows": rows, "width": width, "epsilon": uniform_of(epsilon, compute)}
    # A software adapter pays for every barrier: a few lanes a row; a GPU wants a row to fill a wave.
    # Four elements of a row cost up to three loops over them, and stores.
    lanes = b.lanes(8 if b.caps.device_class == "cpu" else 64, -(-width // 4) * 24)
    if lanes is None:
        if source != "tensor":
            raise LimitError(f"{b.op}: rows have {width} elements; expected fewer for this device")
        skip_rows = max(1, (uniforms or {}).get("skip_rows", rows))
        long_rows(
            b,
            reads,
            y,
            lines=(rows // skip_rows, skip_rows, width),
            epsilon=epsilon,
            gamma=gamma,
            beta=beta,
            mean=mean,
            inv_std=inv_std,
            total=total,
            centered=centered,
        )
        return
    b.dispatch(
        "norm/row",
        reads={**reads, "gamma": gamma, "beta": beta},
        writes={"y": y, "mean": mean, "inv_std": inv_std, "total": total},
        uniforms=values | dict(uniforms or {}),
        constants={"source": source, "centered": centered, "compute": compute},
        groups=rows,
        workgroup=lanes,
    )


def long_rows(
    b: Builder,
    reads: Mapping[str, Slot | None],
    y: Slot,
    *,
    lines: tuple[int, int, int],
    epsilon: float,
    gamma: Slot | None,
    beta: Slot | None,
    mean: Slot | None,
    inv_std: Slot | None,
    total: Slot | None,
    centered: bool,
) -> None:
    """Append the normalization of rows too long for a workgroup, one step after the other.

    ``lines`` is what x, whose leading rows share those of a skip, is seen as.
    """
    if not y.size:
        return
    repeats, skip_rows, width = lines
    compute = computing_type(y.dtype)
    row_shape = (repeats, skip_rows, 1)
    added = {name: slot for name in ("x", "skip", "bias") if (slot := reads.get(name)) is not None}
    shapes = {"x": lines, "skip": (1, skip_rows, width), "bias": (1, 1, width)}
    terms = {name: slot.reshape(*shapes[name]) for name, slot in added.items()}
    v = terms["x"]
    if len(terms) > 1 or v.dtype != compute:
        v = b.scratch("rows", lines, compute)
        elementwise(b, " + ".join(terms), v, terms)
    if total is not None:
        elementwise(b, "v", total.reshape(*lines), {"v": v}, compute=compute, cast=True)
    if centered:
        middle = b.scratch("row_means", row_shape, compute)
        reduce(b, v, middle, axes=(2,), combine="a + b", finish="a / u.count")
        if mean is not None:
            elementwise(b, "m", mean.reshape(*row_shape), {"m": middle}, compute=compute, cast=True)
        off = v if v.role == "scratch" else b.scratch("rows", lines, compute)
        elementwise(b, "v - m", off, {"v": v, "m": middle})
        v = off
    scale = b.scratch("row_scales", row_shape, compute)
    reduce(b, v, scale, axes=(2,), each="x * x", combine="a + b", finish="a / u.count")
    values = {"epsilon": uniform_of(epsilon, compute)}
    elementwise(b, "1.0 / sqrt(x + u.epsilon)", scale, {"x": scale}, uniforms=values)
    if inv_std is not None:
        elementwise(b, "s", inv_std.reshape(*row_shape), {"s": scale}, compute=compute, cast=True)
    factors = {name: slot.reshape(width) for name, slot in (("gamma", gamma), ("beta", beta)) if slot}
    value = "v * s" + " * gamma" * ("gamma" in factors) + " + beta" * ("beta" in factors)
    elementwise(
        b, value, y.reshape(*lines), {"v": v, "s": scale, **factors}, compute=compute, cast=y.dtype != compute
    )


def check_epsilon(op: str, epsilon: float) -> None:
    if not epsilon >= 0.0:
        raise SchemaError(f"{op}: epsilon is {epsilon}; expected a number that is not negative")


@register("SkipLayerNormalization")
@dataclass(frozen=True, kw_only=True)
class SkipLayerNormalization(Operator):
    """LayerNorm(input + skip + bias) over the last dimension."""

    epsilon: float = 1e-12

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)

    def plan(self, b: Builder) -> None:
        x, skip = b.need("input"), b.need("skip")
        b.check(x.rank == 3, "input", f"has shape {x.shape}", "(batch, sequence, hidden)")
        batch, sequence, hidden = x.shape
        forms = {x.shape, (1, sequence, hidden), (sequence, hidden)}
        b.check(
            skip.shape in forms,
            "skip",
            f"has shape {skip.shape}",
            f"(1, {sequence}, {hidden}), ({sequence}, {hidden}) or {x.shape}, which is input's shape",
        )
        for name in ("gamma", "beta", "bias"):
            b.check_shape(name, hidden, why=f"input has hidden size {hidden}")
        row_shape = (batch, sequence, 1)
        normalize_rows(
            b,
            {"x": x, "skip": skip, "bias": b.get("bias")},
            b.output("output", x.shape, x.dtype),
            rows=batch * sequence,
            width=hidden,
            epsilon=self.epsilon,
            gamma=b.need("gamma"),
            beta=b.get("beta"),
            mean=b.output_if_wanted("mean", row_shape, dtypes.float32),
            inv_std=b.output_if_wanted("inv_std_var", row_shape, dtypes.float32),
            total=b.output_if_wanted("input_skip_bias_sum", x.shape, x.dtype),
            uniforms={"skip_rows": max(1, skip.size // max(1, hidden))},
        )


def fit_scale(b: Builder, scale: Slot | None, shape: tuple[int, ...]) -> Slot | None:
    """``scale`` with one element for each of a row's ``shape``; a broadcast one is expanded."""
    if scale is None or scale.size == math.prod(shape):
        return scale
    view = View.of(scale)
    fits = view.slot.rank <= len(shape) and all(
        have in (1, want) for have, want in zip(reversed(scale.shape), reversed(shape), strict=False)
    )
    b.check(fits, scale.name, f"has shape {scale.shape}", f"a shape that broadcasts to {shape}")
    whole = b.scratch(f"{scale.name}_whole", shape, scale.dtype)
    move(b, view.broadcast(shape), whole)
    return whole


@dataclass(frozen=True, kw_only=True)
class _AxisNormalization(Operator):
    """Normalization over the dimensions from ``axis`` on."""

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: int = 1

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)

    def _plan(self, b: Builder, names: tuple[str, str | None], outputs: tuple[str, str, str]) -> None:
        x = b.need("X")
        b.check(x.rank > 0, "X", "is a scalar", "at least one dimension")
        axis = axis_of(b, self.axis, x.rank)
        inner = x.shape[axis:]
        scale, bias = names
        stash = dtypes.from_onnx(self.stash_type)
        row_shape = x.shape[:axis] + (1,) * len(inner)
        y, mean, inv_std = outputs
        normalize_rows(
            b,
            {"x": x, "skip": None, "bias": None},
            b.output(y, x.shape, b.declared.get(y, x.dtype)),
            rows=math.prod(x.shape[:axis]),
            width=math.prod(inner),
            epsilon=self.epsilon,
            gamma=fit_scale(b, b.need(scale), inner),
            beta=fit_scale(b, b.get(bias), inner) if bias else None,
            mean=b.output_if_wanted(mean, row_shape, stash) if mean else None,
            inv_std=b.output_if_wanted(inv_std, row_shape, stash) if inv_std else None,
            centered=bias is not None,
        )


@register("LayerNormalization", domain="")
@dataclass(frozen=True, kw_only=True)
class LayerNormalization(_AxisNormalization):
    """ONNX LayerNormalization (opset 17)."""

    def plan(self, b: Builder) -> None:
        self._plan(b, ("Scale", "B"), ("Y", "Mean", "InvStdDev"))


@register("SimplifiedLayerNormalization", domain="")
@dataclass(frozen=True, kw_only=True)
class SimplifiedLayerNormalization(_AxisNormalization):
    """RMS normalization as ONNX Runtime writes it into optimized graphs."""

    def plan(self, b: Builder) -> None:
        self._plan(b, ("scale", None), ("Y", "", "inv_std_var"))


@register("RMSNormalization", domain="")
@dataclass(frozen=True, kw_only=True)
class RMSNormalization(_AxisNormalization):
    """ONNX RMSNormalization (opset 23)."""

    def plan(self, b: Builder) -> None:
        self._plan(b, ("scale", None), ("Y", "", ""))
