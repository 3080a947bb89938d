"""One function an operator, named in snake case, with the schema's inputs, attributes and defaults.

    from webgpu_ops import ops
    y = ops.bias_gelu(a, b)                                     # Tensor
    y, k, v = ops.group_query_attention(q, k, v, ..., num_heads=8, kv_num_heads=2,
                                        outputs=["output", "present_key", "present_value"])

Inputs are positional or named, attributes are keywords; an operator with a list of inputs takes
them as positional arguments (``ops.qlinear_concat(y_scale, y_zero_point, a, a_scale, a_zero, ...)``).
All operators of ``com.microsoft`` are here, and ONNX's own Attention as ``attention_onnx``.

Functions are made when they are first asked for: ``help(ops.moe)`` shows inputs, types and defaults.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from .core.device import Device
from .core.tensor import SparseTensor, Tensor
from .schema import find, functions, slot_names
from .schema.signatures import definition, docstring, schema_of

Array = Tensor | np.ndarray
Outputs = Sequence[str] | Mapping[str, Tensor | None]

# The annotations of the generated functions refer to these.
_NAMES = (Array, Device, GraphProto, Outputs, SparseTensor)


def _call(
    op: str,
    domain: str,
    opset: int,
    inputs: Mapping[str, Any],
    attributes: Mapping[str, Any],
    outputs: Outputs | None,
    device: Device | None,
) -> Any:
    from .api import run

    given = run(op, inputs, attributes, domain=domain, opset=opset, outputs=outputs, device=device)
    schema = find(op, domain, opset)
    by_name = dict(zip(slot_names(schema.outputs, len(given)), given, strict=True))
    results = tuple(by_name[name] for name in outputs or schema.required_outputs)
    return results[0] if len(results) == 1 else results


def _build(name: str) -> Callable[..., Any]:
    """The function ``name``, compiled from the text that the stub file shows."""
    from .api import supported_ops

    schema = schema_of(name)
    namespace: dict[str, Any] = {}
    exec(compile(definition(name, schema), f"<webgpu_ops.ops.{name}>", "exec"), globals(), namespace)
    function = namespace[name]
    runs = (schema.domain, schema.name) in supported_ops()
    note = "" if runs else "Not implemented yet: a call raises UnsupportedError."
    function.__doc__ = docstring(schema, note)
    return function


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return list(functions())
    if name not in functions():
        # Where words end is the commonest slip.
        joined = {f.replace("_", ""): f for f in functions()}
        close = [joined[n] for n in difflib.get_close_matches(name.replace("_", "").lower(), joined, n=1)]
        hint = f"; did you mean {close[0]}?" if close else ""
        message = f"no operator has the function name {name!r}{hint}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__])
    globals()[name] = function = _build(name)
    return function


def __dir__() -> list[str]:
    return sorted(functions())
