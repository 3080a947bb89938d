"""ONNX Runtime's contrib operators as WGSL compute shaders on any local GPU.

``run`` and ``ops`` run single operators, ``plan`` shows what they would do, ``InferenceSession``
runs whole models, ``backend`` is the onnx.backend interface.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import backend, ops
    from .api import plan, run, supported_ops
    from .core.device import Device
    from .core.plan import Capabilities, Plan, TensorSpec
    from .core.tensor import SparseTensor, Tensor
    from .errors import (
        CompletionError,
        DeviceError,
        LimitError,
        ModelError,
        SchemaError,
        ShaderError,
        ShapeError,
        UnsupportedError,
        WebGpuOpsError,
    )
    from .session import InferenceSession

# Names load on first use: importing the package must not need a GPU driver.
_HOMES = {
    "api": ("plan", "run", "supported_ops"),
    "core.device": ("Device",),
    "core.plan": ("Capabilities", "Plan", "TensorSpec"),
    "core.tensor": ("SparseTensor", "Tensor"),
    "errors": (
        "CompletionError",
        "DeviceError",
        "LimitError",
        "ModelError",
        "SchemaError",
        "ShaderError",
        "ShapeError",
        "UnsupportedError",
        "WebGpuOpsError",
    ),
    "session": ("InferenceSession",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = [
    "Capabilities",
    "CompletionError",
    "Device",
    "DeviceError",
    "InferenceSession",
    "LimitError",
    "ModelError",
    "Plan",
    "SchemaError",
    "ShaderError",
    "ShapeError",
    "SparseTensor",
    "Tensor",
    "TensorSpec",
    "UnsupportedError",
    "WebGpuOpsError",
    "backend",
    "ops",
    "plan",
    "run",
    "supported_ops",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    if name in ("backend", "ops"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
