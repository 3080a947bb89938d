"""A device that takes the kernels made for GPUs, whatever kind its adapter is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from webgpu_ops.core.device import Device


@cache
def device_with_gpu_tiles() -> Device:
    device = Device(portable=True)
    device.capabilities = replace(device.capabilities, device_class="gpu")
    return device


@pytest.fixture
def gpu_tiles() -> Device:
    return device_with_gpu_tiles()
