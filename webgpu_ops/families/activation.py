"""Activations, alone and fused with a bias: expressions of the elementwise template."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.plan import Builder
from .elementwise import elementwise
from .registry import Operator, register

GELU = "0.5 * x * (1.0 + erf(x / sqrt(2.0)))"


@register("BiasGelu")
@dataclass(frozen=True, kw_only=True)
class BiasGelu(Operator):
    """GELU (by erf) of A + B, where B has one element for each of A's columns."""

    def plan(self, b: Builder) -> None:
        a, bias = b.need("A"), b.need("B")
        b.check(a.rank > 0, "A", "is a scalar", "at least one dimension")
        b.check_shape("B", a.shape[-1], why=f"A has {a.shape[-1]} columns")
        out = b.output("C", a.shape, a.dtype)
        elementwise(b, f"x = a + b; {GELU}", out, {"a": a, "b": bias})
