"""Checks that hold for every operator: arity, attributes, element types.

What an operator's own text adds (allowed strings, shapes, values) is its descriptor's business.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import numpy_helper

from ..core import dtypes
from ..core.dtypes import DType
from ..errors import SchemaError
from .types import Attribute, OperatorSchema, Parameter

# A tensor is known by its element type, anything else by ONNX's spelling: "sparse_tensor(float)".
ValueType: TypeAlias = DType | str


def check_node(
    schema: OperatorSchema,
    inputs: Sequence[bool],
    outputs: Sequence[bool],
    attributes: Mapping[str, Any],
) -> dict[str, Any]:
    """Check a node's arity and attributes; return the attributes with defaults filled in.

    ``inputs`` and ``outputs`` say slot by slot whether the node has a value there. Attributes are
    Python values, NumPy scalars or AttributeProto; None counts as not given. The result holds int,
    float (rounded to float32, which is what ONNX stores), str, np.ndarray for tensors and lists of
    these; graphs stay GraphProto. Bytes that are not UTF-8 become str with ``surrogateescape``. An
    attribute neither given nor with a default is absent.

    Raises SchemaError.
    """
    _check_most(schema, "input", schema.inputs, schema.input_count[1], inputs)
    _check_most(schema, "output", schema.outputs, schema.output_count[1], outputs)
    for i, p in enumerate(schema.inputs):
        if p.variadic and sum(inputs[i:]) < p.min_count:
            raise SchemaError(
                f"{schema.name}: {p.name} came with {_plural(sum(inputs[i:]), 'value')}; "
                f"expected {p.min_count} or more"
            )
        if not (p.optional or p.variadic) and not any(inputs[i : i + 1]):
            raise SchemaError(f"{schema.name}: input {p.name} is required and was not given")
    if schema.outputs and not any(outputs):
        raise SchemaError(f"{schema.name}: no output is wanted; it gives {_names(schema.outputs)}")
    return _check_attributes(schema, attributes)


def check_types(
    schema: OperatorSchema, inputs: Mapping[str, ValueType | Sequence[ValueType] | None]
) -> dict[str, DType]:
    """Check the inputs' types by name; return the element type that each type variable took.

    A variadic input is a sequence of types; an absent input is None or left out. Raises SchemaError.
    """
    bindings: dict[str, DType] = {}
    first: dict[str, tuple[str, str]] = {}
    parameters = {p.name: p for p in schema.inputs}
    for name, given in inputs.items():
        if name not in parameters:
            raise SchemaError(f"{schema.name}: no input {name}; expected {_names(schema.inputs)}")
        p = parameters[name]
        allowed = schema.allowed_types(p)
        variable = p.type if p.type in schema.type_constraints else None
        for label, value in _labelled(p, given):
            text = value.type_string if isinstance(value, DType) else value
            if text not in allowed:
                hint = f" ({variable})" if variable else ""
                raise SchemaError(
                    f"{schema.name}: input {label} has type {readable(text)}; "
                    f"expected {_one_of([readable(t) for t in allowed])}{hint}"
                )
            if variable is None or not p.homogeneous:
                continue
            earlier, seen = first.setdefault(variable, (label, text))
            if text != seen:
                raise SchemaError(
                    f"{schema.name}: input {label} has type {readable(text)}; expected {readable(seen)}, "
                    f"the type of {earlier} (both are {variable})"
                )
            element = _element(text)
            if element is not None:
                bindings[variable] = element
    return bindings


def output_types(schema: OperatorSchema, bindings: Mapping[str, DType]) -> dict[str, DType | None]:
    """The element type of each output, or None where the inputs' types do not determine it."""

    def of(p: Parameter) -> DType | None:
        allowed = schema.allowed_types(p)
        if p.type in bindings:
            return bindings[p.type]
        return _element(allowed[0]) if len(allowed) == 1 else None

    return {p.name: of(p) for p in schema.outputs}


# Slots


def _check_most(
    schema: OperatorSchema,
    what: str,
    parameters: Sequence[Parameter],
    most: int | None,
    given: Sequence[bool],
) -> None:
    used = max((i + 1 for i, there in enumerate(given) if there), default=0)
    if most is not None and used > most:
        raise SchemaError(
            f"{schema.name}: {_plural(used, what)} came; expected at most {most} ({_names(parameters)})"
        )


def _labelled(p: Parameter, given: ValueType | Sequence[ValueType] | None) -> list[tuple[str, ValueType]]:
    if given is None:
        return []
    if isinstance(given, (DType, str)):
        return [(p.name, given)]
    return [(f"{p.name}[{i}]", value) for i, value in enumerate(given)]


# Attributes


def _check_attributes(schema: OperatorSchema, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in schema.attributes:
            close = difflib.get_close_matches(str(name), schema.attributes, n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"it has {', '.join(schema.attributes) or 'none'}"
            )
            raise SchemaError(f"{schema.name}: unknown attribute {name}; {hint}")
    result: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        value = given.get(name)
        if value is None:
            if attribute.required:
                raise SchemaError(f"{schema.name}: attribute {name} ({attribute.type}) is required")
            value = attribute.default
        if value is not None:
            result[name] = _normalize(schema, attribute, value)
    return result


def _normalize(schema: OperatorSchema, attribute: Attribute, value: Any) -> Any:
    kind = attribute.type
    plain = value
    if isinstance(value, onnx.AttributeProto):
        if value.ref_attr_name:
            raise SchemaError(
                f"{schema.name}: attribute {attribute.name} refers to {value.ref_attr_name} of a function; "
                f"expected a value"
            )
        plain = onnx.helper.get_attribute_value(value)
    if kind.endswith("s"):
        ok = isinstance(plain, (Sequence, np.ndarray)) and not isinstance(plain, (str, bytes))
        items = [_scalar(kind[:-1], item) for item in plain] if ok else [None]
        if not any(item is None for item in items):
            return items
    else:
        item = _scalar(kind, plain)
        if item is not None:
            return item
    expected = f"a list of {kind}" if kind.endswith("s") else _ARTICLES.get(kind, kind)
    raise SchemaError(f"{schema.name}: attribute {attribute.name} is {_shown(plain)}; expected {expected}")


def _scalar(kind: str, value: Any) -> Any:
    """``value`` as the Python type of ``kind``, or None where it is not of that kind."""
    if kind == "int":
        if isinstance(value, (int, np.integer, np.bool_)) and -(2**63) <= int(value) < 2**63:
            return int(value)
    elif kind == "float":
        if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
            try:
                return _float32(float(value))
            except OverflowError:  # an int beyond float64
                return None
    elif kind == "string":
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            return str(value)
    elif kind == "tensor":
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return np.asarray(value)
    elif isinstance(value, _PROTOS[kind]):
        return value
    return None


def _float32(value: float) -> float | None:
    """``value`` rounded to float32, or None where it is finite and beyond float32."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return None if math.isinf(rounded) and not math.isinf(value) else rounded


_PROTOS: Mapping[str, type] = {
    "graph": onnx.GraphProto,
    "sparse_tensor": onnx.SparseTensorProto,
    "type_proto": onnx.TypeProto,
}
_ARTICLES = {
    "int": "an int (64 bits)",
    "float": "a float (32 bits)",
    "string": "a string",
    "tensor": "a TensorProto or NumPy array",
    "graph": "a GraphProto",
}


# Words for messages


def _shown(value: Any) -> str:
    text = repr(value)
    short = text if len(text) <= 60 and "\n" not in text else ""
    return f"{short} ({type(value).__name__})" if short else f"a {type(value).__name__}"


def _names(parameters: Sequence[Parameter]) -> str:
    return ", ".join(p.name + ("..." if p.variadic else "") for p in parameters) or "none"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _one_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def readable(type_string: str) -> str:
    """``tensor(float)`` -> ``float32``; sparse tensors and sequences keep ONNX's spelling."""
    try:
        return str(dtypes.from_type_string(type_string))
    except SchemaError:
        return type_string


def _element(type_string: str) -> DType | None:
    """The element type inside any ONNX type: ``seq(tensor(float))`` -> float32."""
    inner = re.search(r"tensor\((\w+)\)", type_string)
    return dtypes.from_type_string(f"tensor({inner[1]})") if inner else None
