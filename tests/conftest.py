"""Fixtures of all tests, and the quick suite. Tests that take ``device`` run in both modes."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import defaultdict
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, settings

# wgpu's window-system probe complains on machines without a desktop session.
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())

from webgpu_ops.core.device import Device

# Property tests draw the same calls in every run. WEBGPU_OPS_EXAMPLES=500 draws that many others for each.
EXAMPLES = int(os.environ.get("WEBGPU_OPS_EXAMPLES", "0"))
settings.register_profile(
    "suite",
    max_examples=EXAMPLES or 10,
    derandomize=not EXAMPLES,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # smaller calls that fail too would take minutes to find
    # The devices of a run are shared on purpose: pipelines are compiled once.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("suite")

MODES = ("native", "portable")

QUICK = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help=f"at most {QUICK} parameters of each test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The quick suite: every test, of its parameters a few that mix modes and stay the same.

    "A few" are ``QUICK``, or what the mark ``quick(n)`` says. Where tests are grouped by operator
    (the mark ``xdist_group``), each operator has its few.
    """
    if not config.getoption("--quick"):
        return
    groups: defaultdict[tuple[object, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        operator = item.get_closest_marker("xdist_group")
        name = getattr(item, "originalname", item.name)
        groups[item.path, name, operator and operator.args].append(item)
    kept: set[pytest.Item] = set()
    for group in groups.values():
        mark = group[0].get_closest_marker("quick")
        group.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        kept.update(group[: mark.args[0] if mark else QUICK])
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


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


@pytest.fixture(scope="session")
def devices() -> dict[str, Device]:
    """The devices of both modes by name, for tests that choose between them call by call."""
    return {mode: device_of(mode) for mode in MODES}


@pytest.fixture
def gpu_tiles() -> Device:
    """The portable path with the kernels that GPUs get, whatever kind the adapter is."""
    return device_of("gpu-kernels")


@pytest.fixture(params=(*MODES, "gpu-kernels"))
def any_device(request: pytest.FixtureRequest) -> Device:
    """``device``, and a third mode with the kernels that GPUs get."""
    return device_of(request.param)
