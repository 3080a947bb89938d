"""Which descriptor handles which operator.

A descriptor is a frozen dataclass: its fields are the node's attributes (schema defaults already
filled in), ``opset`` is passed in, ``__post_init__`` refuses attribute values the text does not
allow, and ``plan`` turns concrete shapes into a plan.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core.plan import Builder
from ..errors import UnsupportedError


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Base of all descriptors."""

    op: str
    opset: int

    def plan(self, b: Builder) -> None:
        """Check the call in ``b``, declare its outputs and append its steps."""
        raise NotImplementedError


O = TypeVar("O", bound=type[Operator])
_HANDLERS: dict[tuple[str, str], type[Operator]] = {}


def register(*names: str, domain: str = "com.microsoft") -> Callable[[O], O]:
    """Class decorator: the descriptor handles the operators ``names`` of ``domain``."""

    def add(cls: O) -> O:
        for name in names:
            if (domain, name) in _HANDLERS:
                raise ValueError(f"{domain}:{name} has two handlers")
            _HANDLERS[domain, name] = cls
        return cls

    return add


def supported() -> frozenset[tuple[str, str]]:
    """All (domain, operator) pairs with a handler; the standard domain is ''."""
    return frozenset(_HANDLERS)


def handler(domain: str, op: str) -> type[Operator] | None:
    """The descriptor class of an operator, or None."""
    return _HANDLERS.get((domain, op))


def describe(domain: str, op: str, opset: int, attributes: Mapping[str, Any]) -> Operator:
    """The descriptor of a node whose attributes were checked against the schema."""
    cls = handler(domain, op)
    if cls is None:
        raise UnsupportedError(f"{op}: no WebGPU implementation of {domain or 'ai.onnx'}:{op}")
    fields = {f.name for f in dataclasses.fields(cls)} - {"op", "opset"}
    given = {k: v for k, v in attributes.items() if k in fields and v is not None}
    return cls(op=op, opset=opset, **given)
