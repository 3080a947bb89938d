"""The interface of :mod:`onnx.backend.base` for this package.

``prepare(model).run(inputs)`` takes NumPy arrays in graph order and gives NumPy arrays back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TypeProto, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from .core import dtypes
from .core.device import Device
from .core.tensor import SparseTensor, Tensor
from .errors import DeviceError, ModelError, UnsupportedError
from .session import InferenceSession

DEVICE = "WEBGPU"


class WebGpuBackendRep(BackendRep):
    """A model prepared by :class:`WebGpuBackend`."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """Run on arrays, SparseTensors or Tensors in graph order, or on a mapping by input name.

        A single array stands for a single input. Inputs that have a default in the model may be
        left off at the end. Returns the graph outputs as a named tuple.
        """
        _refuse_options(kwargs)
        outputs = self._session.run(None, self._feeds(inputs))
        return namedtupledict("Outputs", [arg.name for arg in self._session.get_outputs()])(*outputs)

    def _feeds(self, inputs: Any) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            return inputs
        if isinstance(inputs, (np.ndarray, SparseTensor, Tensor)):
            inputs = [inputs]
        if not isinstance(inputs, Sequence):
            raise ModelError(
                f"inputs are a {type(inputs).__name__}; expected a sequence or a mapping by name"
            )
        names = [arg.name for arg in self._session.get_inputs()]
        defaults = [arg.name for arg in self._session.get_overridable_initializers()]
        if not len(names) <= len(inputs) <= len(names) + len(defaults):
            raise ModelError(f"{len(inputs)} inputs came; the model has {len(names)}: {', '.join(names)}")
        return dict(zip([*names, *defaults], inputs, strict=False))


class WebGpuBackend(Backend):
    """Runs ONNX models on a GPU that wgpu reaches."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str | Device = DEVICE, **kwargs: Any) -> bool:
        """Whether every operator of ``model`` runs here."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: Any, device: str | Device = DEVICE, **kwargs: Any) -> WebGpuBackendRep:
        """Load ``model`` (ModelProto, bytes or path) on ``device``: "WEBGPU" or a webgpu_ops.Device."""
        _refuse_options(kwargs)
        return WebGpuBackendRep(InferenceSession(model, _device(device)))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str | Device = DEVICE, **kwargs: Any
    ) -> tuple[np.ndarray, ...]:
        """Load ``model`` and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str | Device = DEVICE,
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[np.ndarray, ...]:
        """Run one node; ``inputs`` holds arrays for its non-empty input names, in order or by name.

        ``opset_version`` sets the opset of the node's domain (default: the newest known).
        ``outputs_info`` optionally gives each named output's dtype and shape.
        """
        if not isinstance(node, NodeProto):
            raise ModelError(f"node is a {type(node).__name__}; expected a NodeProto")
        slots = [name for name in node.input if name]
        names = list(dict.fromkeys(slots))
        if isinstance(inputs, Mapping):
            values = [inputs[name] for name in names if name in inputs]
        else:
            given = [inputs] if isinstance(inputs, (np.ndarray, SparseTensor, Tensor)) else inputs
            if not isinstance(given, Sequence):
                raise ModelError(
                    f"{node.op_type}: inputs are a {type(given).__name__}; "
                    "expected a sequence or a mapping by name"
                )
            if len(given) != len(slots):
                raise ModelError(
                    f"{node.op_type}: {len(given)} inputs came; the node has {', '.join(slots) or 'none'}"
                )
            values = list(dict(zip(slots, given, strict=True)).values())
        if len(values) != len(names):
            raise ModelError(f"{node.op_type}: {len(values)} inputs came; the node has {', '.join(names)}")
        domain = "" if node.domain == "ai.onnx" else node.domain
        newest = onnx.defs.onnx_opset_version() if domain == "" else 1
        model = helper.make_model(
            helper.make_graph(
                [node],
                node.op_type,
                [_value_info(name, value) for name, value in zip(names, values, strict=True)],
                _output_infos(node, outputs_info),
            ),
            opset_imports=[helper.make_opsetid(domain, kwargs.pop("opset_version", newest))],
        )
        return cls.run_model(model, dict(zip(names, values, strict=True)), device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``device`` is "WEBGPU" and this machine has an adapter."""
        if device != DEVICE:
            return False
        try:
            Device.default()
        except DeviceError:
            return False
        return True


def _device(device: str | Device) -> Device | None:
    if isinstance(device, Device):
        return device
    if device != DEVICE:
        raise DeviceError(f"device {device!r} is not supported; expected {DEVICE!r} or a webgpu_ops.Device")
    return None


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options:
        raise ModelError(f"option {next(iter(options))!r} is not known to this backend")


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, SparseTensor):
        return helper.make_sparse_tensor_value_info(name, value.dtype.onnx, None)
    dtype = value.dtype if isinstance(value, Tensor) else dtypes.from_numpy(np.asarray(value).dtype)
    return helper.make_tensor_value_info(name, dtype.onnx, None)


def _output_infos(
    node: NodeProto, info: Sequence[tuple[Any, tuple[int, ...]]] | None
) -> list[onnx.ValueInfoProto]:
    names = [name for name in node.output if name]
    if info is None:
        return [helper.make_value_info(name, TypeProto()) for name in names]
    if len(info) != len(names):
        raise ModelError(
            f"{node.op_type}: outputs_info has {len(info)} entries; the node has {', '.join(names)}"
        )
    return [
        helper.make_tensor_value_info(name, dtypes.from_numpy(np.dtype(dtype)).onnx, shape)
        for name, (dtype, shape) in zip(names, info, strict=True)
    ]


is_compatible = WebGpuBackend.is_compatible
prepare = WebGpuBackend.prepare
run_model = WebGpuBackend.run_model
run_node = WebGpuBackend.run_node
supports_device = WebGpuBackend.supports_device
