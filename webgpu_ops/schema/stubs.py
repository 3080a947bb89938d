"""Write ``webgpu_ops/ops.pyi``: what type checkers and editors read about ``webgpu_ops.ops``.

python -m webgpu_ops.schema.stubs
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from .names import functions
from .signatures import parameters, returned, schema_of

_HEAD = '''\
"""One function an operator; the signatures of ``webgpu_ops.ops``.

Written by ``python -m webgpu_ops.schema.stubs`` from the schemas; do not edit.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, overload

import numpy as np
from onnx import GraphProto

from .core.device import Device
from .core.tensor import SparseTensor, Tensor

Array: TypeAlias = Tensor | np.ndarray
Outputs: TypeAlias = Sequence[str] | Mapping[str, Tensor | None]
'''


def render() -> str:
    """The whole stub file."""
    return f"{_HEAD}\n{''.join(_function(name) for name in functions())}".rstrip("\n") + "\n"


def _function(name: str) -> str:
    """One definition, or two overloads where ``outputs`` decides what comes back."""
    schema = schema_of(name)
    plain, chosen = returned(schema, chosen=False), returned(schema, chosen=True)
    if plain == chosen:
        return _definition(name, parameters(schema), plain, schema.doc)
    first = _definition(name, parameters(schema, outputs="outputs: None = None"), plain, schema.doc)
    second = _definition(name, parameters(schema, outputs="outputs: Outputs"), chosen)
    return f"@overload\n{first}@overload\n{second}"


def _definition(name: str, items: list[str], result: str, doc: str = "") -> str:
    lines = [f"def {name}(", *(f"    {item}," for item in items), f") -> {result}:"]
    text = "\n".join(lines)
    return f'{text}\n    """{doc}"""\n\n' if doc else f"{text} ...\n"


def path() -> Path:
    """Where the stub file lies in a source tree."""
    return Path(str(resources.files("webgpu_ops"))) / "ops.pyi"


if __name__ == "__main__":
    path().write_text(render(), encoding="utf-8")
    print(path())
