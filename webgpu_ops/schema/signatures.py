"""The Python function of an operator as text: parameters, docstring, definition.

``webgpu_ops.ops`` executes the definition and the stub file prints it, so editors, type checkers
and ``inspect.signature`` see one and the same thing.
"""

from __future__ import annotations

import json
import keyword
import textwrap

from .check import readable
from .names import functions
from .read import descriptions, find
from .types import Attribute, OperatorSchema, Parameter

# ONNX Attention came with opset 23; 24 is the newest form.
ATTENTION_OPSET = 24

_ANNOTATIONS = {
    "int": "int",
    "float": "float",
    "string": "str",
    "graph": "GraphProto",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "strings": "Sequence[str]",
}


def schema_of(function: str) -> OperatorSchema:
    """The schema behind a function of ``webgpu_ops.ops``."""
    domain, op = functions()[function]
    return find(op, domain, 1 if domain else ATTENTION_OPSET)


def python_name(name: str) -> str:
    """An input's or attribute's name as a parameter: ``global`` -> ``global_``."""
    return f"{name}_" if keyword.iskeyword(name) else name


def parameters(schema: OperatorSchema, *, outputs: str = "outputs: Outputs | None = None") -> list[str]:
    """The function's parameters, one a string; ``outputs`` is the text of that parameter."""
    result = []
    optional = False
    for p in schema.inputs:
        if p.variadic:
            result.append(f"*{python_name(p.name)}: {_array(schema, p)}")
            continue
        # Python allows no parameter without a default behind one with a default, so a required input
        # back there gets None too; the schema's check misses it if it is not given.
        optional = optional or p.optional
        annotation = _array(schema, p) + (" | None" if optional else "")
        result.append(f"{python_name(p.name)}: {annotation}" + (" = None" if optional else ""))
    if not any(p.variadic for p in schema.inputs):
        result.append("*")
    attributes = sorted(schema.attributes.values(), key=lambda a: not a.required)
    result += [_attribute(a) for a in attributes]
    if not schema.domain:
        result.append(f"opset: int = {ATTENTION_OPSET}")
    return [*result, outputs, "device: Device | None = None"]


def returned(schema: OperatorSchema, *, chosen: bool) -> str:
    """What the function returns: where the caller may have chosen outputs, or by default."""
    types = [_result(schema, p) for p in schema.outputs]
    if any(p.variadic for p in schema.outputs) or (chosen and len(types) > 1):
        return "Tensor | tuple[Tensor, ...]"
    types = [t for t, p in zip(types, schema.outputs, strict=True) if p.name in schema.required_outputs]
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"


def definition(name: str, schema: OperatorSchema) -> str:
    """Python source of the function; ``_call`` runs the operator."""
    inputs = ", ".join(f"{p.name!r}: {python_name(p.name)}" for p in schema.inputs)
    attributes = ", ".join(f"{a!r}: {python_name(a)}" for a in schema.attributes)
    opset = "opset" if not schema.domain else str(schema.since_version)
    return (
        f"def {name}({', '.join(parameters(schema))}) -> {returned(schema, chosen=True)}:\n"
        f"    return _call({schema.name!r}, {schema.domain!r}, {opset}, "
        f"{{{inputs}}}, {{{attributes}}}, outputs, device)\n"
    )


def docstring(schema: OperatorSchema, note: str = "") -> str:
    """Inputs, attributes, outputs and types, what is raised, and where the operator comes from.

    A ``note`` stands behind the summary.
    """
    texts = descriptions(schema)

    def entry(name: str, kind: str, described: str | None) -> list[str]:
        line = f"    {name}: {kind}"
        if described is None:
            return [line]
        return textwrap.wrap(f"{line}; {described}", 98, subsequent_indent=" " * 8)

    lines = [schema.doc.strip(), ""]
    if note:
        lines += [note, ""]
    lines += ["Inputs:"]
    for p in schema.inputs:
        lines += entry(python_name(p.name), _described(p), texts.get(p.name))
    if schema.attributes:
        lines += ["", "Attributes:"]
        for a in schema.attributes.values():
            lines += entry(python_name(a.name), _valued(a), texts.get(a.name))
    lines += ["", "Outputs:"]
    for p in schema.outputs:
        lines += entry(p.name, _described(p).removesuffix(", required"), texts.get(p.name))
    if schema.type_constraints:
        lines += ["", "Types:"]
        lines += [
            f"    {variable}: {', '.join(readable(t) for t in types)}"
            for variable, types in schema.type_constraints.items()
        ]
    wanted = ", ".join(schema.required_outputs)
    lines += [
        "",
        "Inputs are Tensors or NumPy arrays. `outputs` names the outputs wanted, or maps a name to the",
        f"Tensor to write into (None: allocate); the default is {wanted}. One output comes back as it",
        "is, several as a tuple in the order asked for.",
        "",
        "Raises SchemaError for inputs, types or attributes that the operator does not have, ShapeError",
        "for shapes or values that do not fit, UnsupportedError and LimitError for what cannot run here.",
        "",
        f"Source: {_source(schema)}.",
    ]
    return "\n".join(lines)


def _array(schema: OperatorSchema, p: Parameter) -> str:
    sparse = all(t.startswith("sparse_tensor") for t in schema.allowed_types(p))
    return "SparseTensor" if sparse else "Array"


def _result(schema: OperatorSchema, p: Parameter) -> str:
    # Strings have no tensor on the device.
    return "np.ndarray" if schema.allowed_types(p) == ("tensor(string)",) else "Tensor"


def _attribute(attribute: Attribute) -> str:
    name, annotation = python_name(attribute.name), _ANNOTATIONS[attribute.type]
    if attribute.required:
        return f"{name}: {annotation}"
    if attribute.default is None:
        return f"{name}: {annotation} | None = None"
    return f"{name}: {annotation} = {_literal(attribute)}"


def _described(p: Parameter) -> str:
    type_ = readable(p.type)
    if p.variadic:
        each = "all of one type" if p.homogeneous else "each of its own type"
        return f"{type_}, {p.min_count} or more, {each}"
    return f"{type_}, {'optional' if p.optional else 'required'}"


def _valued(attribute: Attribute) -> str:
    annotation = _ANNOTATIONS[attribute.type]
    if attribute.required:
        return f"{annotation}, required"
    return annotation if attribute.default is None else f"{annotation}, {_literal(attribute)} by default"


def _literal(attribute: Attribute) -> str:
    """The default in Python, spelled as formatters prefer it."""
    if attribute.type == "string":
        return json.dumps(attribute.default)
    return repr(attribute.default).replace("e+", "e")


def _source(schema: OperatorSchema) -> str:
    if schema.domain:
        return f"ONNX Runtime contrib operators, {schema.domain} {schema.since_version} ({schema.name})"
    return f"ONNX operators, ai.onnx {schema.since_version} ({schema.name})"
