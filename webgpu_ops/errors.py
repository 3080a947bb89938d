"""Errors of the package. Every message names the operator, the input and both sides."""

from __future__ import annotations


class WebGpuOpsError(Exception):
    """Base of every error this package raises on purpose."""


class SchemaError(WebGpuOpsError, ValueError):
    """A node does not fit its operator's schema: arity, type, attribute or opset."""


class ShapeError(WebGpuOpsError, ValueError):
    """A tensor's shape or value does not fit what the operator expects."""


class UnsupportedError(WebGpuOpsError, NotImplementedError):
    """The request is well formed, but nothing here can run it."""


class ModelError(WebGpuOpsError, ValueError):
    """A model, feed or file cannot be used as given."""


class LimitError(WebGpuOpsError):
    """The request needs more than the adapter's limits allow."""


class ShaderError(WebGpuOpsError):
    """A shader did not compile; the message holds the numbered WGSL."""


class DeviceError(WebGpuOpsError):
    """No usable adapter, or a device that is lost, destroyed or not the tensor's own."""


class CompletionError(WebGpuOpsError):
    """Submitted work did not finish, or did not finish in time."""
