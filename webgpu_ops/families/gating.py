"""Gates, and the RMS norms in front of them: values scaled by what a small network says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..core.plan import Builder, Slot
from ..errors import SchemaError
from .elementwise import elementwise
from .layout import View
from .registry import Operator, register

Activation = Literal["none", "silu", "sigmoid"]
WORKGROUP = 64


def row_lanes(b: Builder, width: int) -> int:
    """How many neighbouring invocations share a row (a power of two; see shaders/gating/row.wgsl).

    A software adapter pays for every barrier, and one invocation a row needs none, up to some width.
    """
    quads = max(1, -(-width // 4))
    b.check_rounds("a row", f"has {width} elements", -(-8 * quads // WORKGROUP))
    if b.caps.device_class == "cpu":
        return min(WORKGROUP, b.lanes(1, 8 * quads) or WORKGROUP)
    return min(WORKGROUP, 1 << (quads - 1).bit_length())


def rms_rows(
    b: Builder,
    x: Slot,
    y: Slot,
    *,
    width: int,
    epsilon: float,
    scale: Slot | None,
    gate: Slot | None = None,
    activation: Activation = "none",
) -> None:
    """Append ``y = x / sqrt(mean(x^2) + epsilon) [* scale] [* activation(gate)]`` for rows of ``width``.

    ``scale`` holds one row or several, which repeat. Computed in float32 and rounded once.
    """
    if not x.size:
        return
    rows, lanes = x.size // width, row_lanes(b, width)
    b.dispatch(
        "gating/rms",
        reads={"x": x, "scale": scale, "gate": gate},
        writes={"y": y},
        uniforms={
            "rows": rows,
            "width": width,
            "epsilon": epsilon,
            "scale_rows": scale.size // width if scale else 1,
        },
        constants={"lanes": lanes, "activation": activation},
        threads=rows * lanes,
        workgroup=WORKGROUP,
    )


def scaled_silu(b: Builder, x: Slot, y: Slot, scale: Slot | float) -> None:
    """Append ``y = z * sigmoid(z)``, ``z = scale * x``, each of the three rounded to x's type."""
    if isinstance(scale, Slot):
        elementwise(b, "scaled_silu(x, scale)", y, {"x": x, "scale": View.of(scale.reshape())}, library=GATES)
    else:
        elementwise(b, "scaled_silu(x, u.scale)", y, {"x": x}, uniforms={"scale": scale}, library=GATES)


GATES = "gating/gates.wgsl"


def check_epsilon(op: str, epsilon: float) -> None:
    if not epsilon >= 0.0:
        raise SchemaError(f"{op}: epsilon is {epsilon}; expected a number that is not negative")


def branches_of(b: Builder, name: str, num_branches: int) -> tuple[tuple[int, ...], int, int]:
    """Leading dimensions, branches C and width H of input ``name``: (..., C, H) or (..., C * H)."""
    x = b.need(name)
    if num_branches == 0:
        b.check(x.rank >= 2, name, f"has shape {x.shape}", "(..., C, H) because num_branches is 0")
        return x.shape[:-2], x.shape[-2], x.shape[-1]
    b.check(
        x.rank >= 1 and x.shape[-1] % num_branches == 0,
        name,
        f"has shape {x.shape}",
        f"a last dimension that {num_branches} divides because num_branches is {num_branches}",
    )
    return x.shape[:-1], num_branches, x.shape[-1] // num_branches


def check_branches(op: str, num_branches: int, least: int = 0) -> None:
    if num_branches < least:
        raise SchemaError(f"{op}: num_branches is {num_branches}; expected at least {least}")


@register("EngramGate")
@dataclass(frozen=True, kw_only=True)
class EngramGate(Operator):
    """A value gated by how well a key agrees with a query, for each hyper-connection."""

    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)

    def plan(self, b: Builder) -> None:
        key, value = b.need("key"), b.need("value")
        b.check_shape("key", "batch", "sequence", "hc_mult", "hidden")
        batch, sequence, streams, hidden = key.shape
        why = f"key has shape {key.shape}"
        b.check_shape("query", *key.shape, why=why)
        b.check_shape("value", batch, sequence, hidden, why=why)
        for name in ("key_norm_scale", "query_norm_scale", "conv_norm_scale"):
            b.check_shape(name, streams, hidden, why=why)
        conv_scale = b.get("conv_norm_scale")
        b.check(
            conv_scale is not None or not b.wants("gated_value_normed"),
            "conv_norm_scale",
            "is missing",
            "it because gated_value_normed is an output",
        )
        out = b.output("output", key.shape, key.dtype)
        normed = b.output_if_wanted("gated_value_normed", key.shape, key.dtype)
        lanes = row_lanes(b, hidden)
        rows = batch * sequence * streams if hidden else 0
        b.dispatch(
            "gating/engram",
            reads={
                "key": key,
                "query": b.need("query"),
                "value": value,
                "key_scale": b.need("key_norm_scale"),
                "query_scale": b.need("query_norm_scale"),
                "conv_scale": conv_scale if normed else None,
            },
            writes={"gated": out, "normed": normed},
            uniforms={"rows": rows, "width": hidden, "streams": streams, "epsilon": self.epsilon},
            constants={"lanes": lanes},
            threads=rows * lanes,
            workgroup=WORKGROUP,
        )


@register("BranchwiseRMSNorm")
@dataclass(frozen=True, kw_only=True)
class BranchwiseRMSNorm(Operator):
    """RMS normalization of each branch of its own."""

    epsilon: float = 1e-5
    num_branches: int = 0

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)
        check_branches(self.op, self.num_branches)

    def plan(self, b: Builder) -> None:
        x, scale = b.need("X"), b.get("scale")
        _, branches, width = branches_of(b, "X", self.num_branches)
        forms = [(branches * width,), (branches, width), (width,)]
        b.check(
            scale is None or scale.shape in forms,
            "scale",
            f"has shape {scale and scale.shape}",
            f"{forms[0]}, {forms[1]} or {forms[2]} because X has {branches} branches of {width}",
        )
        y = b.output("Y", x.shape, x.dtype)
        rms_rows(b, x, y, width=width, epsilon=self.epsilon, scale=scale)


@register("GatedRMSNorm")
@dataclass(frozen=True, kw_only=True)
class GatedRMSNorm(Operator):
    """RMS normalization of groups of C elements, times an activated gate."""

    activation: str = "silu"
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)
        if self.activation not in ("silu", "swish", "sigmoid"):
            raise SchemaError(
                f"{self.op}: activation is {self.activation!r}; expected 'silu', 'swish' or 'sigmoid'"
            )

    def plan(self, b: Builder) -> None:
        x, scale, gate = b.need("X"), b.need("scale"), b.need("gate")
        b.check_shape("scale", "C")
        width = scale.size
        b.check(width > 0, "scale", "has no elements", "at least one")
        b.check(
            x.rank > 0 and x.shape[-1] % width == 0,
            "X",
            f"has shape {x.shape}",
            f"a last dimension that {width} divides because scale has {width} elements",
        )
        b.check_shape("gate", *x.shape, why=f"X has shape {x.shape}")
        y = b.output("Y", x.shape, x.dtype)
        activation: Activation = "sigmoid" if self.activation == "sigmoid" else "silu"
        rms_rows(b, x, y, width=width, epsilon=self.epsilon, scale=scale, gate=gate, activation=activation)


@register("GatedAdd")
@dataclass(frozen=True, kw_only=True)
class GatedAdd(Operator):
    """X + Y * gate, one gate a row; the product is rounded before it is added."""

    def plan(self, b: Builder) -> None:
        x, y, gate = b.need("X"), b.need("Y"), b.need("gate")
        b.check(x.rank > 0, "X", "is a scalar", "at least one dimension")
        why = f"X has shape {x.shape}"
        b.check_shape("Y", *x.shape, why=why)
        b.check_shape("gate", *x.shape[:-1], 1, why=why)
        b.shares("output", "X")
        out = b.output("output", x.shape, x.dtype)
        elementwise(b, "gated_add(x, y, gate)", out, {"x": x, "y": y, "gate": gate}, library=GATES)


@register("ScaledSiLU")
@dataclass(frozen=True, kw_only=True)
class ScaledSiLU(Operator):
    """SiLU of a scaled input, each step rounded to its type."""

    alpha: float = 1.0

    def plan(self, b: Builder) -> None:
        x, scale = b.need("X"), b.get("scale")
        b.check(
            scale is None or scale.size == 1, "scale", f"has shape {scale and scale.shape}", "one element"
        )
        b.shares("Y", "X")
        scaled_silu(b, x, b.output("Y", x.shape, x.dtype), self.alpha if scale is None else scale)
