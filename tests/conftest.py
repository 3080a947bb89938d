"""Fixtures of all tests. Tests that take ``device`` run in both modes."""

from __future__ import annotations

import os
import tempfile
from functools import cache

import pytest

# wgpu's window-system probe complains on machines without a desktop session.
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())

from webgpu_ops.core.device import Device

MODES = ("native", "portable")


@cache
def device_of(mode: str) -> Device:
    """One device a mode for the whole run, so that pipelines are compiled once."""
    if mode == "gpu-kernels":
        return Device(portable=True, device_class="gpu")
    return Device(portable=True) if mode == "portable" else Device.default()


@pytest.fixture(params=MODES)
def device(request: pytest.FixtureRequest) -> Device:
    """``native``: every feature the adapter offers; ``portable``: none, and WebGPU's smallest limits."""
    return device_of(request.param)


@pytest.fixture
def gpu_tiles() -> Device:
    """The portable path with the kernels that GPUs get, whatever kind the adapter is."""
    return device_of("gpu-kernels")


@pytest.fixture(params=(*MODES, "gpu-kernels"))
def any_device(request: pytest.FixtureRequest) -> Device:
    """``device``, and a third mode with the kernels that GPUs get."""
    return device_of(request.param)
