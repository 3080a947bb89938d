"""Tensors in GPU memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DeviceError, ShapeError
from . import dtypes
from .dtypes import DType
from .memory import Buffer
from .plan import MAX_ROUNDS, Shape, TensorSpec

if TYPE_CHECKING:
    from .device import Device


class Tensor:
    """An array in GPU memory, laid out as NumPy's C order.

    Several tensors may share one allocation: ``view`` makes such a tensor, and an output bound to
    an existing tensor is written there. ``host`` is a copy on the CPU where one was kept;
    ``exclusive`` tells that no other tensor's elements follow in the last word.
    """

    __slots__ = ("_buffer", "_offset", "device", "dtype", "exclusive", "host", "shape")

    def __init__(
        self,
        device: Device,
        buffer: Buffer,
        shape: Shape,
        dtype: DType,
        offset: int = 0,
        host: np.ndarray | None = None,
        exclusive: bool = False,
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self.host = host
        self.exclusive = exclusive
        self._buffer = buffer
        self._offset = offset

    @classmethod
    def empty(cls, shape: Sequence[int], dtype: DType | Any, device: Device | None = None) -> Tensor:
        """A tensor of unspecified content; ``dtype`` is a DType, its name or NumPy's."""
        from .device import Device

        device = device or Device.default()
        dtype = dtypes.of(dtype)
        if dtype == dtypes.string:
            raise ShapeError("strings stay on the host; they have no tensor on the device")
        spec = TensorSpec(_whole_numbers(shape, "shape"), dtype)
        if min(spec.shape, default=0) < 0:
            raise ShapeError(
                f"a tensor cannot have shape {spec.shape}; expected numbers that are not negative"
            )
        buffer = device.memory.allocate(spec.nbytes, f"a tensor of shape {spec.shape}")
        return cls(device, buffer, spec.shape, dtype, exclusive=True)

    @classmethod
    def from_numpy(
        cls, array: np.ndarray, device: Device | None = None, *, keep_host: bool = False
    ) -> Tensor:
        """Upload an array; with ``keep_host`` its values stay readable on the CPU as ``host``."""
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise ShapeError(f"cannot make a tensor of {type(array).__name__}: {error}") from None
        tensor = cls.empty(array.shape, dtypes.from_numpy(array.dtype), device)
        tensor.write(array)
        if keep_host:
            tensor.host = dtypes.native(array).copy()
        return tensor

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.shape, self.dtype)

    @property
    def buffer(self) -> Buffer:
        """The allocation; other tensors may share it."""
        return self._buffer

    @property
    def offset(self) -> int:
        """Where the tensor starts in its allocation, in bytes."""
        return self._offset

    def same_memory(self, other: Tensor) -> bool:
        """Whether both tensors are exactly the same bytes of one allocation."""
        return self._buffer is other._buffer and self._offset == other._offset and self.nbytes == other.nbytes

    def overlaps(self, other: Tensor) -> bool:
        """Whether both tensors have bytes in common."""
        return (
            self._buffer is other._buffer
            and self._offset < other._offset + other.nbytes
            and other._offset < self._offset + self.nbytes
        )

    def view(self, shape: Sequence[int], offset: int = 0) -> Tensor:
        """A tensor over the same memory: ``shape`` elements, starting ``offset`` elements in.

        One dimension may be -1 (the rest of this tensor, whole rows).
        """
        dims = list(_whole_numbers(shape, "shape"))
        (offset,) = _whole_numbers([offset], "offset")
        if dims.count(-1) == 1:
            known = math.prod(d for d in dims if d != -1)
            rest = self.size - offset
            dims[dims.index(-1)] = rest // known if known and rest % known == 0 else -2
        if min(dims, default=0) < 0 or offset < 0 or offset + math.prod(dims) > self.size:
            raise ShapeError(
                f"a view of shape {tuple(shape)} at element {offset} does not fit "
                f"a tensor of shape {self.shape}"
            )
        whole = offset == 0 and math.prod(dims) == self.size
        host = self.host.reshape(dims) if self.host is not None and whole else None
        start = self._offset + offset * self.dtype.itemsize
        exclusive = self.exclusive and offset + math.prod(dims) == self.size
        return Tensor(self.device, self._buffer, tuple(dims), self.dtype, start, host, exclusive)

    def write(self, array: np.ndarray) -> None:
        """Replace the content; shape and type must match."""
        array = np.asarray(array)
        if array.shape != self.shape or dtypes.from_numpy(array.dtype) != self.dtype:
            raise ShapeError(
                f"cannot write {array.dtype} {array.shape} into a tensor of {self.dtype} {self.shape}"
            )
        self.host = None
        self.device.stream.upload(self, np.ascontiguousarray(dtypes.native(array)))

    def numpy(self) -> np.ndarray:
        """Wait for pending work and copy the content to the CPU."""
        raw = self.device.stream.download(self)
        return np.frombuffer(raw, dtype=self.dtype.numpy, count=self.size).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **_: Any) -> Any:
        """A DLPack capsule of a copy on the CPU."""
        return self.numpy().__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.dtype} {list(self.shape)} on {self.device.name})"

    def check_device(self, device: Device, what: str) -> None:
        """Refuse a tensor of another or a destroyed device."""
        if self.device is not device:
            raise DeviceError(
                f"{what} is on device {self.device.name!r} (number {self.device.uid}); "
                f"expected device {device.name!r} (number {device.uid})"
            )
        device.check_alive()


def _whole_numbers(values: Sequence[int], what: str) -> tuple[int, ...]:
    try:
        return tuple(operator.index(v) for v in values)
    except TypeError:
        raise ShapeError(f"{what} is {values!r}; expected whole numbers") from None


@dataclass(frozen=True)
class SparseTensor:
    """A sparse matrix or tensor as arrays on the host: COO or CSR.

    ``values`` [nnz]; COO ``indices`` [nnz, rank] or linear [nnz]; CSR ``col_indices`` [nnz] and
    ``row_offsets`` [rows + 1]. Values stored for one index several times add up.
    """

    format: str
    values: np.ndarray
    shape: Shape
    indices: np.ndarray | None = None
    col_indices: np.ndarray | None = None
    row_offsets: np.ndarray | None = None

    @classmethod
    def from_coo(cls, values: np.ndarray, indices: np.ndarray, shape: Sequence[int]) -> SparseTensor:
        """Coordinates: ``indices`` int64 [nnz, rank], or [nnz] as positions in the flat tensor."""
        values, indices = np.asarray(values), np.asarray(indices)
        dims = tuple(int(d) for d in shape)
        if min(dims, default=0) < 0:
            raise ShapeError(f"SparseTensor: shape {dims}; expected numbers that are not negative")
        if indices.size and indices.dtype.kind not in "iu":
            raise ShapeError(f"SparseTensor: indices are {indices.dtype}; expected integers")
        if indices.ndim == 1 and ((indices < 0) | (indices >= math.prod(dims))).any():
            raise ShapeError(f"SparseTensor: an index lies outside of shape {dims}")
        if indices.ndim == 1 and len(dims) > 1:
            indices = (
                np.stack(np.unravel_index(indices, dims), axis=-1)
                if indices.size
                else indices.reshape(0, len(dims))
            )
        elif indices.ndim == 1:
            indices = indices.reshape(-1, 1)
        if values.ndim != 1 or indices.shape != (values.size, len(dims)):
            raise ShapeError(
                f"SparseTensor: indices have shape {indices.shape}; expected ({values.size}, {len(dims)}) "
                f"for {values.size} values of a tensor of shape {dims}"
            )
        if indices.size and ((indices < 0) | (indices >= np.array(dims))).any():
            raise ShapeError(f"SparseTensor: an index lies outside of shape {dims}")
        return cls("coo", values, dims, indices=indices.astype(np.int64))

    @classmethod
    def from_csr(
        cls, values: np.ndarray, col_indices: np.ndarray, row_offsets: np.ndarray, shape: Sequence[int]
    ) -> SparseTensor:
        """Compressed rows of a matrix."""
        values, cols, rows = np.asarray(values), np.asarray(col_indices), np.asarray(row_offsets)
        dims = tuple(int(d) for d in shape)
        if len(dims) != 2 or min(dims) < 0:
            raise ShapeError(f"SparseTensor: CSR needs a matrix, got shape {dims}")
        if values.shape != cols.shape or values.ndim != 1 or rows.shape != (dims[0] + 1,):
            raise ShapeError(
                f"SparseTensor: values {values.shape}, col_indices {cols.shape}, row_offsets {rows.shape}; "
                f"expected [nnz], [nnz], [{dims[0] + 1}]"
            )
        if rows[0] != 0 or rows[-1] != values.size or (np.diff(rows) < 0).any():
            raise ShapeError("SparseTensor: row_offsets must rise from 0 to the number of values")
        if cols.size and ((cols < 0) | (cols >= dims[1])).any():
            raise ShapeError(f"SparseTensor: a column index lies outside of shape {dims}")
        return cls("csr", values, dims, col_indices=cols.astype(np.int64), row_offsets=rows.astype(np.int64))

    @property
    def dtype(self) -> DType:
        return dtypes.from_numpy(self.values.dtype)

    def toarray(self) -> np.ndarray:
        """The dense array."""
        dense = np.zeros(self.shape, self.values.dtype)
        np.add.at(dense, self._places, self.values)
        return dense

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many values are stored, and for each axis the most along one index.

        The latter is a power of two and at least MAX_ROUNDS: plans do not depend on small changes.
        """
        most = []
        for places in self._places:
            longest = int(np.bincount(places).max(initial=0))
            most.append(max(MAX_ROUNDS, 1 << (longest - 1).bit_length()))
        return self.values.size, *most

    def compressed(self, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A matrix by rows (``axis`` 0) or by columns (1): values, columns and offsets.

        The values of row r and their columns (uint32) are those from ``offsets[r]`` up to
        ``offsets[r + 1]``; with ``axis`` 1 rows and columns change their parts. Made once.
        """
        if axis not in self._compressed:
            lines, positions = self._places[axis], self._places[1 - axis]
            order = np.argsort(lines, kind="stable")
            offsets = np.zeros(self.shape[axis] + 1, np.uint32)
            offsets[1:] = np.cumsum(np.bincount(lines, minlength=self.shape[axis]))
            self._compressed[axis] = self.values[order], positions[order].astype(np.uint32), offsets
        return self._compressed[axis]

    @cached_property
    def _compressed(self) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {}

    @cached_property
    def _places(self) -> tuple[np.ndarray, ...]:
        """The index of each stored value, one array a dimension."""
        if self.indices is not None:
            return tuple(self.indices.T)
        if self.row_offsets is None or self.col_indices is None:
            raise ShapeError("SparseTensor: neither indices nor compressed rows are there")
        return np.repeat(np.arange(self.shape[0]), np.diff(self.row_offsets)), self.col_indices
