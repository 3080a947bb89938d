"""Where schemas come from: the package's own data for ``com.microsoft``, onnx.defs for ``ai.onnx``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, cast, get_args

import numpy as np
import onnx
from onnx.defs import OpSchema

from ..errors import SchemaError
from .types import Attribute, AttributeType, OperatorSchema, Parameter

CONTRIB = "com.microsoft"


def find(op: str, domain: str = CONTRIB, opset: int | None = None) -> OperatorSchema:
    """The schema of ``op`` that holds at ``opset`` of ``domain`` (default: the newest one known).

    ``ai.onnx`` is another spelling of the standard domain ``""``. An unknown operator, domain or
    opset raises SchemaError.
    """
    if not isinstance(op, str) or not isinstance(domain, str):
        raise SchemaError(f"operator {op!r} of domain {domain!r}: expected two strings")
    if opset is not None and not isinstance(opset, (int, np.integer)):
        raise SchemaError(f"{op}: opset is {opset!r} ({type(opset).__name__}); expected an int")
    return _find(op, "" if domain == "ai.onnx" else domain, opset)


@cache
def contrib_names() -> tuple[str, ...]:
    """All operators of ``com.microsoft``, sorted."""
    return tuple(sorted(_data("contrib.json")))


@cache
def _find(op: str, domain: str, opset: int | None) -> OperatorSchema:
    if domain == "":
        return _standard(op, opset)
    if domain != CONTRIB:
        raise SchemaError(f"{op}: domain {domain!r} is not known; expected {CONTRIB!r} or '' (ai.onnx)")
    if op not in _data("contrib.json"):
        raise _unknown(op, domain, contrib_names())
    return _available(_from_data(op, _data("contrib.json")[op]), opset)


def _standard(op: str, opset: int | None) -> OperatorSchema:
    # ONNX Runtime keeps a few operators in the standard domain that ONNX itself does not define.
    extra = _data("extra.json")
    if op in extra:
        return _available(_from_data(op, extra[op]), opset)
    newest = onnx.defs.onnx_opset_version()
    try:
        found = onnx.defs.get_schema(op, newest if opset is None else opset, "")
    except onnx.defs.SchemaError:
        versions = sorted(s.since_version for s in _standard_schemas() if s.name == op)
        if versions:
            raise SchemaError(
                f"{op}: ai.onnx has it since opset {versions[0]}; the model imports opset {opset}"
            ) from None
        raise _unknown(op, "ai.onnx", [*extra, *(s.name for s in _standard_schemas())]) from None
    if opset is not None and opset > newest:
        raise SchemaError(
            f"{op}: ai.onnx opset {opset} is newer than {newest}, the last that onnx {onnx.__version__} knows"
        )
    if found.deprecated:
        raise SchemaError(f"{op}: ai.onnx has deprecated it since opset {found.since_version}")
    return _from_onnx(found)


def _available(schema: OperatorSchema, opset: int | None) -> OperatorSchema:
    if opset is not None and opset < schema.since_version:
        raise SchemaError(
            f"{schema.name}: {schema.domain or 'ai.onnx'} has it since opset {schema.since_version}; "
            f"the model imports opset {opset}"
        )
    return schema


def _unknown(op: str, domain: str, names: Iterable[str]) -> SchemaError:
    # Case is the commonest slip, and difflib does not see through it.
    by_lower = {name.lower(): name for name in names}
    close = [by_lower[n] for n in difflib.get_close_matches(op.lower(), by_lower, n=3, cutoff=0.7)]
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return SchemaError(f"{op}: {domain} has no such operator{hint}")


def descriptions(schema: OperatorSchema) -> Mapping[str, str]:
    """What an operator's inputs, attributes and outputs are, as far as this package describes them."""
    return described().get(schema.name if schema.domain else f"{schema.name}@ai.onnx", {})


# Readers


@cache
def described() -> Mapping[str, Mapping[str, str]]:
    """All descriptions, by operator (``Attention@ai.onnx`` for the standard domain)."""
    found: dict[str, Mapping[str, str]] = {}
    for file in resources.files(__package__).joinpath("descriptions").iterdir():
        found |= json.loads(file.read_text(encoding="utf-8"))
    return found


@cache
def _data(file: str) -> Mapping[str, Any]:
    return json.loads(resources.files(__package__).joinpath(file).read_text(encoding="utf-8"))


def _summary(domain: str, op: str) -> str:
    return _data("summaries.json")[domain or "ai.onnx"].get(op, "")


@cache
def _standard_schemas() -> tuple[OpSchema, ...]:
    return tuple(s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "")


def _from_data(name: str, data: Mapping[str, Any]) -> OperatorSchema:
    inputs = tuple(_parameter(p, data["input_count"][0], data["inputs"]) for p in data["inputs"])
    outputs = tuple(_parameter(p, data["output_count"][0], data["outputs"]) for p in data["outputs"])
    attributes = {
        attribute: Attribute(
            name=attribute,
            type=_attribute_type(entry["type"]),
            required=entry["required"],
            default=_shortest(entry.get("default")),
        )
        for attribute, entry in data["attributes"].items()
    }
    return OperatorSchema(
        name=name,
        domain=data["domain"],
        since_version=data["since_version"],
        inputs=inputs,
        outputs=outputs,
        input_count=tuple(data["input_count"]),
        output_count=tuple(data["output_count"]),
        attributes=MappingProxyType(attributes),
        type_constraints=MappingProxyType({k: tuple(v) for k, v in data["type_constraints"].items()}),
        doc=_summary(data["domain"], name),
    )


def _parameter(entry: Mapping[str, Any], least: int, siblings: list[Mapping[str, Any]]) -> Parameter:
    if not entry["variadic"]:
        return Parameter(entry["name"], entry["type"], optional=entry["optional"])
    return Parameter(
        entry["name"],
        entry["type"],
        variadic=True,
        homogeneous=entry.get("homogeneous", True),
        min_count=max(0, least - (len(siblings) - 1)),
    )


def _attribute_type(text: str) -> AttributeType:
    """``int``, ``list of ints`` and onnx's ``INTS`` as this package spells them."""
    kind = text.lower().removeprefix("list of ")
    if kind not in get_args(AttributeType):
        raise SchemaError(f"attribute type {text!r} is not known")
    return cast(AttributeType, kind)


def _shortest(default: Any) -> Any:
    """A float default as the shortest decimal of the same float32: 9.99999975e-06 -> 1e-05."""
    return float(str(np.float32(default))) if isinstance(default, float) else default


def _from_onnx(schema: OpSchema) -> OperatorSchema:
    unbounded = 2**31 - 1
    option = OpSchema.FormalParameterOption

    def parameters(formal: Iterable[OpSchema.FormalParameter]) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                name=p.name,
                type=p.type_str,
                optional=p.option == option.Optional,
                variadic=p.option == option.Variadic,
                homogeneous=p.is_homogeneous,
                min_count=p.min_arity,
            )
            for p in formal
        )

    attributes = {
        name: Attribute(
            name=name,
            type=_attribute_type(str(a.type).rpartition(".")[2]),
            required=a.required,
            default=_default(a),
        )
        for name, a in schema.attributes.items()
    }
    return OperatorSchema(
        name=schema.name,
        domain="",
        since_version=schema.since_version,
        inputs=parameters(schema.inputs),
        outputs=parameters(schema.outputs),
        input_count=(schema.min_input, None if schema.max_input == unbounded else schema.max_input),
        output_count=(schema.min_output, None if schema.max_output == unbounded else schema.max_output),
        attributes=MappingProxyType(attributes),
        type_constraints=MappingProxyType(
            {t.type_param_str: tuple(t.allowed_type_strs) for t in schema.type_constraints}
        ),
        doc=_summary("", schema.name) or schema.doc or "",
    )


def _default(attribute: OpSchema.Attribute) -> Any:
    proto = attribute.default_value
    if not proto.name:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return tuple(v.decode() if isinstance(v, bytes) else _shortest(v) for v in value)
    return _shortest(value)
