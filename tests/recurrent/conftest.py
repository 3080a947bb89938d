"""Devices and paths of the recurrent tests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from webgpu_ops import api
from webgpu_ops.core.device import Device
from webgpu_ops.families.recurrent.recurrence import Recurrence

Force = Callable[[str], None]


@cache
def device_with_gpu_tiles() -> Device:
    """The default adapter with the kernels that GPUs get, whatever kind of adapter it is."""
    device = Device(portable=True)
    device.capabilities = replace(device.capabilities, device_class="gpu")
    return device


@pytest.fixture
def gpu_tiles() -> Device:
    return device_with_gpu_tiles()


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Force:
    """``force("chunked")`` or ``force("recurrent")``: every call that can take that path takes it."""

    def choose(path: str) -> None:
        def prefers_chunks(call: Recurrence, b: object) -> bool:
            return path == "chunked" and not call.per_key and call.state_update is None

        monkeypatch.setattr(Recurrence, "prefers_chunks", prefers_chunks)
        monkeypatch.setattr(api, "_NODES", OrderedDict())  # nodes keep their plans

    return choose
