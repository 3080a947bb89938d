"""``render``: the WGSL that a call uses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.syntax import Syntax

from .. import plan, schema
from ..conformance import split_qualified
from ..core import dtypes, program
from ..core.plan import Capabilities, Plan, TensorSpec
from ..errors import DeviceError, SchemaError, UnsupportedError
from ..reference import samples
from .common import device, read_array, split_assignment

DRAWS = 20


def render(
    operator: str,
    inputs: Sequence[str],
    attributes: Sequence[str],
    opset: int | None,
    portable: bool,
    seed: int,
) -> None:
    """Print the plan as a comment, then every dispatch's WGSL."""
    op, domain = split_qualified(operator)
    declared = schema.find(op, domain, opset)
    given = dict(_attribute(text, declared) for text in attributes)
    capabilities = _capabilities(portable)
    if inputs:
        call = _call(inputs, declared)
        made = plan(op, call, given, domain=domain, opset=opset, capabilities=capabilities)
    else:
        made = _drawn(op, domain, opset, given, capabilities, seed)
    console = Console()
    for slot in made.inputs:
        if slot is not None:
            print(f"// input {slot.name}: {slot.dtype} {list(slot.shape)}")
    print("\n".join(f"// {line}" for line in made.describe().splitlines()))
    for i, dispatch in enumerate(made.dispatches, 1):
        title = f"// dispatch {i} of {len(made.dispatches)}: {dispatch.template}"
        text = f"\n{title}\n{program.render(dispatch, capabilities)}"
        console.print(Syntax(text, "wgsl", theme="ansi_dark")) if console.is_terminal else print(text)


def _drawn(
    op: str, domain: str, opset: int | None, given: Mapping[str, Any], capabilities: Capabilities, seed: int
) -> Plan:
    """The plan of a random call, preferably one that runs a shader: some draws are empty tensors."""
    draw = samples.draw_of(op, domain)
    if draw is None:
        raise UnsupportedError(f"{op}: no calls to draw; describe one with --input NAME=TYPE[SHAPE]")
    for i in range(DRAWS):
        sample = draw(np.random.default_rng((seed, i)))
        made = plan(
            op,
            {name: value for name, value in sample.inputs.items() if value is not None},
            {**sample.attributes, **given},
            domain=domain,
            opset=opset or sample.opset,
            outputs=sample.outputs or None,
            capabilities=capabilities,
        )
        if made.dispatches:
            break
    return made


def _capabilities(portable: bool) -> Capabilities:
    """What the adapter here offers; without one, what every adapter offers."""
    if portable:
        return Capabilities()
    try:
        return device(False).capabilities
    except DeviceError:
        return Capabilities()


def _call(texts: Sequence[str], declared: schema.OperatorSchema) -> dict[str, Any]:
    """Inputs by name; a variadic one collects what is given for it."""
    variadic = {p.name for p in declared.inputs if p.variadic}
    call: dict[str, Any] = {}
    for text in texts:
        name, value = _input(text)
        if name in variadic:
            call.setdefault(name, []).append(value)
        else:
            call[name] = value
    return call


def _input(text: str) -> tuple[str, TensorSpec | np.ndarray]:
    name, value = split_assignment(text, "--input")
    if value.endswith((".npy", ".pb")):
        return name, read_array(Path(value))
    found = re.fullmatch(r"(\w+)\[([\d,\s]*)\]", value)
    if found is None or found[1] not in dtypes.BY_NAME:
        raise SchemaError(
            f"--input {text}: expected TYPE[SHAPE] such as float32[2,64] or a .npy file; "
            f"types are {', '.join(dtypes.BY_NAME)}"
        )
    shape = tuple(int(d) for d in found[2].replace(",", " ").split())
    return name, TensorSpec(shape, dtypes.BY_NAME[found[1]])


def _attribute(text: str, declared: schema.OperatorSchema) -> tuple[str, Any]:
    name, value = split_assignment(text, "--attribute")
    if name not in declared.attributes:
        known = ", ".join(sorted(declared.attributes)) or "none"
        raise SchemaError(f"{declared.name}: no attribute {name}; there are {known}")
    kind = declared.attributes[name].type
    convert = {"int": int, "float": float, "string": str}.get(kind.removesuffix("s"))
    if convert is None:
        raise SchemaError(f"{declared.name}: attribute {name} is a {kind}; it cannot be given here")
    try:
        parts = [convert(v) for v in value.split(",")] if kind.endswith("s") else convert(value)
    except ValueError:
        raise SchemaError(f"{declared.name}: attribute {name} is of type {kind}, not {value!r}") from None
    return name, parts
