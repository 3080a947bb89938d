"""What devices and plans may be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Device, TensorSpec, plan
from webgpu_ops.core import dtypes
from webgpu_ops.errors import DeviceError


def test_unknown_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DeviceError, match=r"feature 'fp16' cannot be disabled; expected all or some of .*f16"
    ):
        Device(disable_features="shader-f16,fp16")
    monkeypatch.setenv("WEBGPU_OPS_DISABLE_FEATURES", "everything")
    with pytest.raises(DeviceError, match="'everything'"):
        Device()


def test_unknown_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBGPU_OPS_LIMITS", "small")
    with pytest.raises(DeviceError, match="WEBGPU_OPS_LIMITS is 'small'; expected 'portable'"):
        Device()


def test_known_wishes_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBGPU_OPS_LIMITS", "portable")
    monkeypatch.setenv("WEBGPU_OPS_DISABLE_FEATURES", " shader-f64 , subgroup")
    capabilities = Device().capabilities
    assert capabilities.max_storage_buffers == 8
    assert not {"shader-f64", "subgroup"} & capabilities.features


@pytest.mark.parametrize("dtype", [np.float16, "float16", np.dtype("float16"), dtypes.float16])
def test_specs_take_types_in_any_spelling(dtype: Any) -> None:
    made = plan("BiasGelu", [TensorSpec((2, 3), dtype), TensorSpec((3,), dtype)])
    (y,) = made.outputs
    assert y is not None and y.dtype == dtypes.float16
