"""Random valid calls of each operator, drawn for ``verify`` and the property tests."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Sample:
    """One call: inputs by schema name (None or absent = not given), attributes, wanted outputs.

    ``unspecified`` maps an output name to a bool mask of values the text leaves open.
    ``tolerance`` overrides (rtol, atol) for all outputs; ``exact`` compares bytes.
    """

    inputs: Mapping[str, Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    domain: str = "com.microsoft"
    opset: int = 1
    unspecified: Mapping[str, np.ndarray] = field(default_factory=dict)
    tolerance: tuple[float, float] | None = None
    exact: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)


Draw = Callable[[np.random.Generator], Sample]
_DRAWS: dict[tuple[str, str], Draw] = {}


def sample(*names: str, domain: str = "com.microsoft") -> Callable[[Draw], Draw]:
    """Register a function that draws one random valid call of the operators ``names``."""

    def add(draw: Draw) -> Draw:
        for name in names:
            _DRAWS[domain, name] = draw
        return draw

    return add


def draw_of(op: str, domain: str = "com.microsoft") -> Draw | None:
    """The function that draws calls of ``op``, or None."""
    _load()
    return _DRAWS.get((domain, op))


def _load() -> None:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
