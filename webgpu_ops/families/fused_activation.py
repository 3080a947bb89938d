"""Activations that other operators apply to their results, with ONNX's default parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..core.dtypes import DType
from ..core.plan import Uniform, uniform_of
from ..errors import SchemaError, UnsupportedError
from .activation import GELU


@dataclass(frozen=True)
class Activation:
    """Expressions of ``x`` in the form of an epilogue, and the defaults of ``u.act_<parameter>``."""

    expression: str
    defaults: Mapping[str, float] = field(default_factory=dict)


# Comparisons keep a NaN, which WGSL's own min and max may drop.
ACTIVATIONS: Mapping[str, Activation] = {
    "Affine": Activation("u.act_alpha * x + u.act_beta", {"alpha": 1.0, "beta": 0.0}),
    "Celu": Activation("u.act_alpha * expm1(min(x, 0) / u.act_alpha) if x < 0 else x", {"alpha": 1.0}),
    # Clip's bounds come in the places of the other activations' parameters.
    "Clip": Activation(
        "u.act_alpha if x < u.act_alpha else (u.act_beta if x > u.act_beta else x)",
        {"alpha": -math.inf, "beta": math.inf},
    ),
    "Elu": Activation("u.act_alpha * expm1(min(x, 0)) if x < 0 else x", {"alpha": 1.0}),
    "Gelu": Activation(GELU),
    "HardSigmoid": Activation(
        "u.act_alpha * x + u.act_beta; 0 if x < 0 else (1 if x > 1 else x)", {"alpha": 0.2, "beta": 0.5}
    ),
    "HardSwish": Activation("x * (0 if x < -3 else (1 if x > 3 else x / 6 + 0.5))"),
    "Identity": Activation("x"),
    "LeakyRelu": Activation("u.act_alpha * x if x < 0 else x", {"alpha": 0.01}),
    "Mish": Activation("x * tanh(softplus(x))"),
    "ParametricSoftplus": Activation("u.act_alpha * softplus(u.act_beta * x)", {"alpha": 1.0, "beta": 1.0}),
    "Relu": Activation("0 if x < 0 else x"),
    "ScaledTanh": Activation("u.act_alpha * tanh(u.act_beta * x)", {"alpha": 1.0, "beta": 1.0}),
    "Selu": Activation(
        "u.act_gamma * (u.act_alpha * expm1(min(x, 0)) if x < 0 else x)",
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "Sigmoid": Activation("sigmoid(x)"),
    "Softplus": Activation("softplus(x)"),
    "Softsign": Activation("x / (1 + abs(x))"),
    "Swish": Activation("x * sigmoid(u.act_alpha * x)", {"alpha": 1.0}),
    "Tanh": Activation("tanh(x)"),
    "ThresholdedRelu": Activation("0 if x <= u.act_alpha else x", {"alpha": 1.0}),
}
_OF_INTEGERS = frozenset(["Clip", "Identity", "Relu"])


def check_activation(op: str, name: str, *others: str) -> None:
    """Refuse an activation that is not in the table, nor one of ``others``."""
    if name not in ACTIVATIONS and name not in others:
        known = ", ".join(sorted({*ACTIVATIONS, *others}))
        raise SchemaError(f"{op}: activation is {name!r}; expected one of {known}")


def activation(
    op: str, name: str, compute: DType, **parameters: float | None
) -> tuple[str, dict[str, Uniform]]:
    """The epilogue of an activation in the arithmetic of ``compute``, and its uniforms.

    ``parameters`` are ``alpha``, ``beta`` and ``gamma``; None stands for ONNX's default.
    """
    found = ACTIVATIONS[name]
    if compute.is_integer and name not in _OF_INTEGERS:
        raise UnsupportedError(f"{op}: activation {name} of {compute} values has no meaning")
    uniforms = {}
    for parameter, default in found.defaults.items():
        given = parameters.get(parameter)
        value = default if given is None else given
        if compute.is_integer:
            if math.isnan(value):
                raise UnsupportedError(f"{op}: activation_{parameter} is {value} for {compute} values")
            limits = np.iinfo(compute.numpy)
            value = int(min(max(value, limits.min), limits.max))
        uniforms[f"act_{parameter}"] = uniform_of(value, compute)
    return found.expression, uniforms
