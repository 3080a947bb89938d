"""Plain NumPy references in float64, written from the operator text.

They import nothing of this package but each other, so that they stay a second opinion.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

Function = Callable[..., tuple[Any, ...]]
F = TypeVar("F", bound=Function)
_FUNCTIONS: dict[tuple[str, str], Function] = {}


def reference(*names: str, domain: str = "com.microsoft") -> Callable[[F], F]:
    """Register a function as the reference of the operators ``names``.

    It takes inputs by schema name (None = not given; ``global_`` for what is a Python keyword) and
    attributes as keywords, and returns a tuple of all outputs in schema order.
    """

    def add(function: F) -> F:
        for name in names:
            _FUNCTIONS[domain, name] = function
        return function

    return add


def find(op: str, domain: str = "com.microsoft") -> Function | None:
    """The reference of an operator, or None."""
    for module in pkgutil.iter_modules(__path__):
        if module.name != "samples":
            importlib.import_module(f"{__name__}.{module.name}")
    return _FUNCTIONS.get((domain, op))
