"""What a schema says about an operator: plain frozen data, whatever source it was read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

AttributeType = Literal[
    "int",
    "float",
    "string",
    "tensor",
    "graph",
    "sparse_tensor",
    "type_proto",
    "ints",
    "floats",
    "strings",
    "tensors",
    "graphs",
    "sparse_tensors",
    "type_protos",
]


@dataclass(frozen=True)
class Parameter:
    """An input or output.

    ``type`` is a type variable of the schema (``T``) or a concrete ONNX type (``tensor(int64)``).
    A variadic parameter is always the last one; it stands for ``min_count`` or more values, of one
    type if ``homogeneous``.
    """

    name: str
    type: str
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True
    min_count: int = 1


@dataclass(frozen=True)
class Attribute:
    """An attribute; ``default`` is None where the schema gives none."""

    name: str
    type: AttributeType
    required: bool = False
    default: Any = None


@dataclass(frozen=True)
class OperatorSchema:
    """The interface of one operator of one domain since one opset.

    ``input_count`` and ``output_count`` are (least, most) slots of a node; most is None where the
    last parameter is variadic. ``type_constraints`` maps a type variable to the ONNX types it may
    take. ``doc`` is a one-line summary where the package has one, else ONNX's own text.
    """

    name: str
    domain: str
    since_version: int
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    input_count: tuple[int, int | None]
    output_count: tuple[int, int | None]
    attributes: Mapping[str, Attribute]
    type_constraints: Mapping[str, tuple[str, ...]]
    doc: str = ""

    def allowed_types(self, parameter: Parameter) -> tuple[str, ...]:
        """The ONNX types that an input or output may have."""
        return self.type_constraints.get(parameter.type, (parameter.type,))

    @property
    def required_outputs(self) -> tuple[str, ...]:
        """What a call gives if it asks for no outputs: the required ones, or all where none is."""
        needed = [p for p in self.outputs if not p.optional] or self.outputs
        return tuple(slot_names(needed, len(needed)))

    @property
    def qualified_name(self) -> str:
        """Domain and name, e.g. ``com.microsoft:BiasGelu`` or ``ai.onnx:Attention``."""
        return f"{self.domain or 'ai.onnx'}:{self.name}"


def slot_names(parameters: Sequence[Parameter], count: int) -> list[str]:
    """A name for each slot; a variadic X of a node with ``count`` slots gives X[0], X[1], ..."""
    names = [p.name for p in parameters if not p.variadic]
    variadic = [p.name for p in parameters if p.variadic]
    return names + [f"{name}[{i}]" for name in variadic for i in range(count - len(names))]
