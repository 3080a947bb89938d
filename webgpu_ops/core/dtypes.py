"""Element types: their ONNX, NumPy and WGSL sides.

Byte layout in a buffer is exactly NumPy's. An element narrower than 32 bits lives inside a
u32 word; float64 and 64-bit integers are two words unless the adapter has the native type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from onnx import TensorProto

from ..errors import SchemaError

Kind = Literal["float", "int", "uint", "bool", "complex", "bits", "string"]


@dataclass(frozen=True)
class DType:
    """One element type.

    ``bits`` is the size of an element in a buffer (int4, uint4 and float4e2m1 take a byte, as in
    ml_dtypes). ``onnx`` is the TensorProto enum, 0 for the internal ``bits`` types that move
    elements without reading them as numbers.
    """

    name: str
    onnx: int
    bits: int
    kind: Kind

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def itemsize(self) -> int:
        return self.bits // 8

    @property
    def per_word(self) -> int:
        """Elements in one 32-bit word (1 for elements of 32 bits and more)."""
        return max(1, 32 // self.bits)

    @property
    def words(self) -> int:
        """32-bit words in one element (1 for elements of 32 bits and fewer)."""
        return max(1, self.bits // 32)

    @property
    def numpy(self) -> np.dtype:
        return _NUMPY[self.name]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def feature(self) -> str | None:
        """The adapter feature that gives this type natively, if WGSL has one."""
        return _FEATURES.get(self.name)

    @property
    def type_string(self) -> str:
        """ONNX's spelling, e.g. ``tensor(float16)``."""
        return f"tensor({_ONNX_SPELLING.get(self.name, self.name)})"

    def as_bits(self) -> DType:
        """The type that moves this one's elements bit for bit; strings have none and stay what they are."""
        return {0: self, 8: bits8, 16: bits16, 32: bits32, 64: bits64, 128: bits128}[self.bits]


_FEATURES = {
    "float16": "shader-f16",
    "float64": "shader-f64",
    "int64": "shader-int64",
    "uint64": "shader-int64",
}
_ONNX_SPELLING = {"float32": "float", "float64": "double"}

float16 = DType("float16", TensorProto.FLOAT16, 16, "float")
bfloat16 = DType("bfloat16", TensorProto.BFLOAT16, 16, "float")
float32 = DType("float32", TensorProto.FLOAT, 32, "float")
float64 = DType("float64", TensorProto.DOUBLE, 64, "float")
float8e4m3fn = DType("float8e4m3fn", TensorProto.FLOAT8E4M3FN, 8, "float")
float8e4m3fnuz = DType("float8e4m3fnuz", TensorProto.FLOAT8E4M3FNUZ, 8, "float")
float8e5m2 = DType("float8e5m2", TensorProto.FLOAT8E5M2, 8, "float")
float8e5m2fnuz = DType("float8e5m2fnuz", TensorProto.FLOAT8E5M2FNUZ, 8, "float")
float8e8m0 = DType("float8e8m0", TensorProto.FLOAT8E8M0, 8, "float")
float4e2m1 = DType("float4e2m1", TensorProto.FLOAT4E2M1, 8, "float")
int4 = DType("int4", TensorProto.INT4, 8, "int")
uint4 = DType("uint4", TensorProto.UINT4, 8, "uint")
int8 = DType("int8", TensorProto.INT8, 8, "int")
uint8 = DType("uint8", TensorProto.UINT8, 8, "uint")
int16 = DType("int16", TensorProto.INT16, 16, "int")
uint16 = DType("uint16", TensorProto.UINT16, 16, "uint")
int32 = DType("int32", TensorProto.INT32, 32, "int")
uint32 = DType("uint32", TensorProto.UINT32, 32, "uint")
int64 = DType("int64", TensorProto.INT64, 64, "int")
uint64 = DType("uint64", TensorProto.UINT64, 64, "uint")
bool_ = DType("bool", TensorProto.BOOL, 8, "bool")
complex64 = DType("complex64", TensorProto.COMPLEX64, 64, "complex")
complex128 = DType("complex128", TensorProto.COMPLEX128, 128, "complex")
string = DType("string", TensorProto.STRING, 0, "string")

bits8 = DType("bits8", 0, 8, "bits")
bits16 = DType("bits16", 0, 16, "bits")
bits32 = DType("bits32", 0, 32, "bits")
bits64 = DType("bits64", 0, 64, "bits")
bits128 = DType("bits128", 0, 128, "bits")

_NUMPY: dict[str, np.dtype] = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "float8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "int4": np.dtype(ml_dtypes.int4),
    "uint4": np.dtype(ml_dtypes.uint4),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(object),
    "bits8": np.dtype(np.uint8),
    "bits16": np.dtype(np.uint16),
    "bits32": np.dtype(np.uint32),
    "bits64": np.dtype(np.uint64),
}
for _name in [
    "float16",
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "complex64",
    "complex128",
]:
    _NUMPY[_name] = np.dtype(_name)

ALL: tuple[DType, ...] = tuple(t for t in list(globals().values()) if isinstance(t, DType) and t.onnx)
BY_NAME: dict[str, DType] = {t.name: t for t in ALL}
_BY_ONNX = {t.onnx: t for t in ALL}
_BY_NUMPY = {t.numpy: t for t in ALL}
_BY_TYPE_STRING = {t.type_string: t for t in ALL}


def from_onnx(elem_type: int) -> DType:
    """The type of a TensorProto enum value."""
    if elem_type not in _BY_ONNX:
        raise SchemaError(f"ONNX element type {elem_type} is not known here")
    return _BY_ONNX[elem_type]


def of(dtype: Any) -> DType:
    """The type meant by one of ours, by its name, or by a NumPy or ml_dtypes dtype."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in BY_NAME:
        return BY_NAME[dtype]
    return from_numpy(dtype)


def from_numpy(dtype: np.dtype) -> DType:
    """The type of a NumPy or ml_dtypes dtype; any string dtype maps to ``string``."""
    try:
        dtype = np.dtype(dtype)
    except TypeError:
        raise SchemaError(f"{dtype!r} is not an element type") from None
    if dtype.kind in "USO" or dtype.kind == "T":
        return string
    found = _BY_NUMPY.get(dtype.newbyteorder("="))
    if found is None:
        raise SchemaError(f"NumPy dtype {dtype} has no ONNX type")
    return found


def native(array: np.ndarray) -> np.ndarray:
    """``array`` with its elements in this machine's byte order, which is how the device has them."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def from_type_string(text: str) -> DType:
    """The type of ONNX's spelling, e.g. ``tensor(float16)``."""
    if text not in _BY_TYPE_STRING:
        raise SchemaError(f"type {text!r} is not a tensor type known here")
    return _BY_TYPE_STRING[text]
