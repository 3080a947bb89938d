"""Sequences that one invocation may not walk at once: the token-by-token path in several dispatches."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, api
from webgpu_ops import plan as make_plan
from webgpu_ops.core.plan import Capabilities
from webgpu_ops.families.recurrent import recurrence

from . import test_gated_delta_net as delta
from . import test_linear_attention as linear
from .calls import draw
from .conftest import Force

SOFTWARE = Capabilities(device_class="cpu")


@pytest.fixture
def short_walks(force: Force, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walks of a few tokens."""
    force("recurrent")
    monkeypatch.setattr(recurrence, "MAX_ROUNDS", 700)
    monkeypatch.setattr(api, "_NODES", OrderedDict())


def test_a_long_prefill(device: Device, force: Force) -> None:
    force("recurrent")
    inputs = draw(np.random.default_rng(20), [3000], hv=1, dk=64, dv=4)
    delta.compare(device, inputs)


@pytest.mark.usefixtures("short_walks")
def test_ragged_requests_and_captures(device: Device) -> None:
    inputs = draw(np.random.default_rng(21), [40, 5, 0, 21])
    walks = make_plan("GatedDeltaNet", inputs, outputs=delta.ALL, capabilities=SOFTWARE).dispatches
    assert len(walks) > 2
    delta.compare(device, inputs)
    inputs["capture_count"] = np.array([8, 5, 3, 7], np.int32)
    outputs = (*delta.ALL, "state_update")
    want = delta.gated_delta_net(**inputs, state_update_capacity=8)
    got = delta.call(device, inputs, outputs, state_update_capacity=8)
    # What lies behind a request's captured transitions is unspecified, and told apart elsewhere.
    for found, expected in zip(got[:-1], want[:-1], strict=True):
        delta.close(found, expected)


@pytest.mark.usefixtures("short_walks")
def test_malformed_lengths_leave_zeros(device: Device) -> None:
    inputs = draw(np.random.default_rng(22), [30, 30])
    inputs["cu_seqlens"] = Tensor.from_numpy(np.array([15, 25, 40], np.int32), device)
    output = delta.call(device, inputs)[0]
    assert not output[:15].any() and not output[40:].any()
    assert output[15:40].any(axis=(1, 2)).all()


@pytest.mark.usefixtures("short_walks")
@pytest.mark.parametrize("window", [0, 3])
def test_windows_of_states(device: Device, window: int) -> None:
    inputs, attributes = linear.draw(np.random.default_rng(23), 30, hq=4, batch=2, window=window)
    got = linear.call(device, inputs, attributes)
    for found, expected in zip(got, linear.linear_attention(**inputs, **attributes), strict=False):
        linear.close(found, expected)


def test_walks_are_bounded() -> None:
    inputs = draw(np.random.default_rng(24), [2000], dk=128)
    made = make_plan("GatedDeltaNet", inputs, outputs=delta.ALL, capabilities=SOFTWARE)
    lengths = [dict(d.uniforms)["length"].values[0] for d in made.dispatches]
    assert sum(lengths) == 2000 and max(lengths) < 1000
