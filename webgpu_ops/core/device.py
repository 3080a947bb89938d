"""The GPU: adapter choice, features, limits, and what hangs on a device."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from typing import Any, cast

import wgpu

from ..errors import DeviceError
from .fence import Fence
from .memory import BufferPool
from .plan import PORTABLE, Capabilities, DeviceClass
from .program import NATIVE_TYPES, ProgramCache
from .stream import Stream

# Without a desktop session, wgpu's search for window systems prints an error for each adapter.
if sys.platform == "linux":
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())

OPTIONAL_FEATURES = NATIVE_TYPES | {"subgroup"}

_uids = itertools.count(1)
_LIMITS = {
    "max_storage_buffers": "max-storage-buffers-per-shader-stage",
    "max_binding_bytes": "max-storage-buffer-binding-size",
    "max_buffer_bytes": "max-buffer-size",
    "max_invocations": "max-compute-invocations-per-workgroup",
    "max_workgroups": "max-compute-workgroups-per-dimension",
    "max_workgroup_bytes": "max-compute-workgroup-storage-size",
    "offset_alignment": "min-storage-buffer-offset-alignment",
}


@dataclass
class Stats:
    """Counters of a device, for tests and curious people."""

    dispatches: int = 0
    submits: int = 0
    uploads: int = 0
    downloads: int = 0
    pipelines_created: int = 0
    plans_made: int = 0


def list_adapters() -> list[wgpu.GPUAdapter]:
    """All adapters wgpu finds that can run compute shaders, best kind first."""
    order = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    return sorted(found, key=lambda a: order.get(a.info["adapter_type"], 2))


def choose_adapter(wish: str | None = None) -> wgpu.GPUAdapter:
    """The adapter that ``wish`` (default: ``WEBGPU_OPS_ADAPTER``) names.

    A wish is a number in the order of ``list_adapters``, or a part of the adapter's name,
    description, backend or type ("lavapipe", "Vulkan", "CPU"), case ignored. Without one, the
    best kind wins: discrete, integrated, other, software.
    """
    wish = wish if wish is not None else os.environ.get("WEBGPU_OPS_ADAPTER", "")
    adapters = list_adapters()
    if not adapters:
        raise DeviceError(
            "no GPU adapter found; install a Vulkan, Metal or DX12 driver "
            "(on Debian or Ubuntu, 'apt-get install mesa-vulkan-drivers' brings a software one)"
        )
    if not wish:
        return adapters[0]
    if wish.isdigit() and int(wish) < len(adapters):
        return adapters[int(wish)]
    for adapter in adapters:
        if wish.lower() in " ".join(str(v) for v in adapter.info.values()).lower():
            return adapter
    names = "; ".join(f"{i}: {adapter_name(a)}" for i, a in enumerate(adapters))
    raise DeviceError(f"no adapter matches {wish!r}; there are {names}")


def adapter_name(adapter: wgpu.GPUAdapter) -> str:
    """A short name of an adapter: device and backend."""
    info = adapter.info
    return f"{info['device'] or info['description']} ({info['backend_type']})"


class Device:
    """A logical GPU device with its memory pool, programs and stream.

    ``adapter`` chooses as ``choose_adapter`` does. ``portable`` (default: whether
    ``WEBGPU_OPS_LIMITS=portable``) restricts limits to what WebGPU guarantees;
    ``disable_features`` (default: ``WEBGPU_OPS_DISABLE_FEATURES``, a comma-separated list or
    ``all``) leaves native features unused, and ``portable=True`` disables them all.
    ``device_class`` (default: ``WEBGPU_OPS_DEVICE_CLASS``, else by the adapter's type) chooses
    between the kernels made for GPUs, ``gpu``, and those for software adapters, ``cpu``.
    """

    _default: Device | None = None
    _default_lock = threading.Lock()

    def __init__(
        self,
        adapter: str | wgpu.GPUAdapter | None = None,
        *,
        portable: bool | None = None,
        disable_features: str | None = None,
        device_class: DeviceClass | None = None,
    ) -> None:
        found = adapter if isinstance(adapter, wgpu.GPUAdapter) else choose_adapter(adapter)
        if disable_features is None:
            disable_features = "all" if portable else os.environ.get("WEBGPU_OPS_DISABLE_FEATURES", "")
        if portable is None:
            limits_wish = os.environ.get("WEBGPU_OPS_LIMITS", "")
            if limits_wish not in ("", "portable"):
                raise DeviceError(f"WEBGPU_OPS_LIMITS is {limits_wish!r}; expected 'portable' or nothing")
            portable = limits_wish == "portable"
        disabled = {f.strip() for f in disable_features.split(",") if f.strip()}
        if unknown := disabled - OPTIONAL_FEATURES - {"all"}:
            raise DeviceError(
                f"feature {sorted(unknown)[0]!r} cannot be disabled; "
                f"expected all or some of {', '.join(sorted(OPTIONAL_FEATURES))}"
            )
        kind = device_class or os.environ.get("WEBGPU_OPS_DEVICE_CLASS") or None
        if kind not in (None, "gpu", "cpu"):
            raise DeviceError(f"device class {kind!r} is not known; expected 'gpu' or 'cpu'")
        by_type: DeviceClass = "cpu" if found.info["adapter_type"] == "CPU" else "gpu"
        features = set() if "all" in disabled else (OPTIONAL_FEATURES & set(found.features)) - disabled
        limits = {key: found.limits[key] for key in _LIMITS.values()}
        self.adapter = found
        self.info: dict[str, Any] = dict(found.info)
        self.name = adapter_name(found)
        self.uid = next(_uids)
        self.lock = threading.RLock()
        self.stats = Stats()
        self._destroyed = False
        capabilities = Capabilities(
            features=frozenset(features),
            device_class=cast(DeviceClass, kind or by_type),
            **{ours: limits[theirs] for ours, theirs in _LIMITS.items()},
        )
        if portable:
            capabilities = replace(
                PORTABLE, features=capabilities.features, device_class=capabilities.device_class
            )
        self.capabilities = capabilities
        required = {theirs: getattr(capabilities, ours) for ours, theirs in _LIMITS.items()}
        required["max-compute-workgroup-size-x"] = capabilities.max_invocations
        try:
            self.gpu: wgpu.GPUDevice = found.request_device_sync(
                required_features=sorted(features), required_limits=required
            )
        except Exception as error:
            raise DeviceError(f"adapter {self.name} gave no device: {error}") from error
        self.stream = Stream(self)
        self.memory = BufferPool(self)
        self.programs = ProgramCache(self)

    @classmethod
    def default(cls) -> Device:
        """The device used where none is given; made once, from the environment's choices."""
        with cls._default_lock:
            if cls._default is None or cls._default._destroyed:
                cls._default = cls()
            return cls._default

    def fence(self) -> Fence:
        """A fence behind all work recorded so far."""
        return self.stream.fence()

    def check_alive(self) -> None:
        """Raise DeviceError once the device was destroyed."""
        if self._destroyed:
            raise DeviceError(f"device {self.name!r} (number {self.uid}) was destroyed")

    def destroy(self) -> None:
        """Free the device and everything on it."""
        with self.lock:
            if not self._destroyed:
                self._destroyed = True
                self.gpu.destroy()

    def __repr__(self) -> str:
        return f"Device({self.name}, {self.capabilities.device_class})"
