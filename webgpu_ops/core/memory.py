"""GPU buffers from a pool by size class.

A released buffer is reused by the next request of its class. The queue runs in order, so reuse is
safe as soon as the last command that names it was recorded; the stream flushes before the host
writes to a buffer that recorded commands still use.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import wgpu

from ..errors import DeviceError, LimitError

if TYPE_CHECKING:
    from .device import Device

_uids = itertools.count(1)

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def size_class(nbytes: int) -> int:
    """The bytes reserved for a request: multiples of 256, then eighths of a power of two."""
    if nbytes <= 4096:
        return max(256, -(-nbytes // 256) * 256)
    step = 1 << max(8, (nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class Buffer:
    """A pooled GPU buffer; it returns to its pool when nothing refers to it any more.

    ``uid`` belongs to the GPU buffer, so cached bind groups stay valid when it is reused.
    """

    __slots__ = ("__weakref__", "_returned", "gpu", "size", "uid")

    def __init__(self, gpu: wgpu.GPUBuffer, size: int, uid: int, returned: deque[_Idle]) -> None:
        self.gpu = gpu
        self.size = size
        self.uid = uid
        self._returned = returned

    def __del__(self) -> None:
        self._returned.append((self.gpu, self.size, self.uid))


_Idle = tuple[wgpu.GPUBuffer, int, int]


class BufferPool:
    """Buffers by size class, with a cap on what lies idle."""

    def __init__(self, device: Device, idle_limit: int = 512 << 20) -> None:
        self._device = device
        self._idle: dict[int, list[_Idle]] = defaultdict(list)
        self._returned: deque[_Idle] = deque()  # filled by finalizers, which must not take the lock
        # Keeps lent GPU buffers out of reference cycles, whose collection would release them too.
        self._lent: dict[int, wgpu.GPUBuffer] = {}
        self._idle_limit = idle_limit
        self._in_use = 0
        self._idle_bytes = 0
        self.peak_bytes = 0

    @property
    def bytes_in_use(self) -> int:
        """Bytes of all buffers that something refers to."""
        self._collect()
        return self._in_use

    @property
    def bytes_idle(self) -> int:
        """Bytes of pooled buffers that wait for reuse."""
        self._collect()
        return self._idle_bytes

    def reset_peak(self) -> None:
        """Let ``peak_bytes`` start again at what is in use now."""
        self.peak_bytes = self.bytes_in_use

    def allocate(self, nbytes: int, what: str = "a tensor") -> Buffer:
        """A buffer of at least ``nbytes``; its content is unspecified."""
        limit = self._device.capabilities.max_buffer_bytes
        if nbytes > limit:
            raise LimitError(f"{what} needs {nbytes} bytes; the adapter's largest buffer has {limit}")
        size = min(size_class(nbytes), limit & ~255)
        with self._device.lock:
            self._collect()
            self._device.check_alive()
            if self._idle[size]:
                gpu, _, uid = self._idle[size].pop()
                self._idle_bytes -= size
            else:
                uid = next(_uids)
                try:
                    gpu = self._device.gpu.create_buffer(size=size, usage=USAGE)
                except wgpu.GPUError as error:
                    raise DeviceError(
                        f"{what}: the adapter gave no buffer of {size} bytes: {error}"
                    ) from error
            self._in_use += size
            self.peak_bytes = max(self.peak_bytes, self._in_use)
            self._lent[uid] = gpu
            return Buffer(gpu, size, uid, self._returned)

    def trim(self) -> None:
        """Give all idle buffers back to the driver."""
        with self._device.lock:
            self._collect()
            self._device.stream.flush()
            for idle in self._idle.values():
                for gpu, _, uid in idle:
                    self._device.stream.forget(uid)
                    gpu.destroy()
            self._idle.clear()
            self._idle_bytes = 0

    def _collect(self) -> None:
        with self._device.lock:
            while self._returned:
                gpu, size, uid = self._returned.popleft()
                self._in_use -= size
                del self._lent[uid]
                if self._idle_bytes + size > self._idle_limit:
                    self._device.stream.forget(uid)
                    continue
                self._idle[size].append((gpu, size, uid))
                self._idle_bytes += size
