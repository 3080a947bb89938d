"""Tensors made from shapes and attributes: constants, ranges, shapes and sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..registry import Operator, register


def fill(b: Builder, y: Slot, value: np.ndarray) -> None:
    """Append a fill of ``y`` with one value of its type."""
    raw = value.tobytes()
    if not any(raw):
        b.zero(y)
        return
    words = np.frombuffer(raw.ljust(16, b"\0"), np.uint32)
    b.dispatch(
        "standard/fill",
        reads={},
        writes={"y": y.as_bits()},
        uniforms={"size": y.size, "words": tuple(int(w) for w in words)},
        threads=-(-y.size // 4),
    )


@register("Constant", domain="")
@dataclass(frozen=True, kw_only=True)
class Constant(Operator):
    """A tensor that the node itself holds."""

    value: Any = None
    value_int: int | None = None
    value_ints: tuple[int, ...] | None = None
    value_float: float | None = None
    value_floats: tuple[float, ...] | None = None
    value_string: str | None = None
    value_strings: tuple[str, ...] | None = None

    def plan(self, b: Builder) -> None:
        b.host_output("output", self.array())

    def array(self) -> np.ndarray:
        """The value as an array."""
        if self.value is not None:
            return as_array(self.value)
        kinds: tuple[tuple[Any, Any], ...] = (
            (self.value_int, np.int64),
            (self.value_ints, np.int64),
            (self.value_float, np.float32),
            (self.value_floats, np.float32),
            (self.value_string, object),
            (self.value_strings, object),
        )
        for value, dtype in kinds:
            if value is not None:
                return np.array(value, dtype)
        raise SchemaError(f"{self.op}: no dense value attribute is given")


def as_array(value: Any) -> np.ndarray:
    """A tensor attribute as an array."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


@register("ConstantOfShape", domain="")
@dataclass(frozen=True, kw_only=True)
class ConstantOfShape(Operator):
    """A tensor of one value (default: float32 zero) and of the shape that the input holds."""

    value: Any = None

    def plan(self, b: Builder) -> None:
        value = np.zeros(1, np.float32) if self.value is None else as_array(self.value)
        b.check(value.size == 1, "value", f"holds {value.size} elements", "one")
        shape = [int(d) for d in b.host("input").reshape(-1)]
        b.check(all(d >= 0 for d in shape), "input", f"holds {shape}", "sizes that are not negative")
        y = b.output("output", shape, dtypes.from_numpy(value.dtype))
        fill(b, y, value.reshape(()))


@register("Shape", domain="")
@dataclass(frozen=True, kw_only=True)
class ShapeOf(Operator):
    """Dimensions ``start`` to ``end`` of the input, as int64."""

    start: int = 0
    end: int | None = None

    def plan(self, b: Builder) -> None:
        b.host_output("shape", np.array(b.need("data").shape[self.start : self.end], np.int64))


@register("Size", domain="")
@dataclass(frozen=True, kw_only=True)
class SizeOf(Operator):
    """The number of elements of the input, as int64."""

    def plan(self, b: Builder) -> None:
        b.host_output("size", np.array(b.need("data").size, np.int64))


@register("Range", domain="")
@dataclass(frozen=True, kw_only=True)
class Range(Operator):
    """start, start + delta, ... below limit; all three are scalars on the host."""

    def plan(self, b: Builder) -> None:
        start, limit, delta = (b.host(name).reshape(()) for name in ("start", "limit", "delta"))
        b.check(delta != 0, "delta", "is 0", "a step other than 0")
        wide = np.float64 if start.dtype.kind == "f" else object
        first, last, step = (v.astype(wide) for v in (start, limit, delta))
        count = max(0, math.ceil((last - first) / step) if wide is np.float64 else -((first - last) // step))
        values = first + np.arange(count).astype(wide) * step
        b.host_output("output", np.asarray(values, start.dtype))
