"""ONNX Runtime's contrib operators as WGSL compute shaders on any local GPU."""

__version__ = "0.1.0"
