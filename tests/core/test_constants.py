"""Arrays that a plan carries, and outputs whose shape the steps decide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import PORTABLE, Builder, Plan, Slot
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.core.tensor import Tensor

AddShader = Callable[[str, str], None]

LOOKUP = """
{% call kernel() %}
    if (thread < u.size) { store_y(thread, load_x(thread) * load_factors(thread % u.period)); }
{% endcall %}
"""

# Keeps the positive elements, in order, and says how many there are.
KEEP = """
{% call kernel() %}
    if (thread > 0u) { return; }
    var n = 0u;
    for (var i = 0u; i < u.size; i++) {
        if (load_x(i) > 0.0f) { store_y(n, load_x(i)); n++; }
    }
    store_shape(0u, n);
{% endcall %}
"""


def builder(device: Device, x: Tensor) -> Builder:
    slot = Slot(x.shape, x.dtype, "input", 0, "x")
    return Builder("Test", {"x": slot}, ["y"], frozenset(["y"]), device.capabilities)


def lookup_plan(device: Device, x: Tensor, factors: np.ndarray) -> Plan:
    b = builder(device, x)
    table = b.constant("factors", factors)
    b.dispatch(
        "lookup",
        reads={"x": b.need("x"), "factors": table},
        writes={"y": b.output("y", x.shape, x.dtype)},
        uniforms={"size": x.size, "period": factors.size},
        threads=x.size,
    )
    return b.finish()


def test_a_constant_is_uploaded_once_for_all_runs(device: Device, shaders: AddShader) -> None:
    shaders("lookup", LOOKUP)
    factors = np.array([2, -1, 0.5], np.float32)
    x = Tensor.from_numpy(np.arange(7, dtype=np.float32), device)
    prepared = PreparedPlan(lookup_plan(device, x, factors), device)
    uploads = device.stats.uploads
    for _ in range(3):
        y = Tensor.empty(x.shape, x.dtype, device)
        device.stream.execute(prepared, [x], [y])
        np.testing.assert_array_equal(y.numpy(), x.numpy() * factors[np.arange(7) % 3])
    assert device.stats.uploads == uploads


def test_plans_of_one_program_keep_their_own_constants(device: Device, shaders: AddShader) -> None:
    shaders("lookup", LOOKUP)
    x = Tensor.from_numpy(np.ones(4, np.float32), device)
    tables = [np.full(2, k, np.float32) for k in (3, 5)]
    plans = [PreparedPlan(lookup_plan(device, x, t), device) for t in tables]
    for prepared, table in zip(plans, tables, strict=True):
        y = Tensor.empty(x.shape, x.dtype, device)
        device.stream.execute(prepared, [x], [y])
        np.testing.assert_array_equal(y.numpy(), np.full(4, table[0]))


@pytest.mark.parametrize("values", [[1, -1, 2, 0, 3], [-1, -2], [4]])
def test_the_steps_decide_a_shape(device: Device, shaders: AddShader, values: list[float]) -> None:
    shaders("keep", KEEP)
    array = np.array(values, np.float32)
    x = Tensor.from_numpy(array, device)
    b = builder(device, x)
    y, shape = b.output("y", x.shape, x.dtype), b.scratch("shape", (1,), dtypes.uint32)
    b.measure("y", shape)
    b.dispatch(
        "keep",
        reads={"x": b.need("x")},
        writes={"y": y, "shape": shape},
        uniforms={"size": x.size},
        threads=1,
    )
    plan = b.finish()
    whole = Tensor.empty(x.shape, x.dtype, device)
    measured = device.stream.execute(PreparedPlan(plan, device), [x], [whole])
    want = array[array > 0]
    assert measured == {0: (want.size,)}
    np.testing.assert_array_equal(whole.view(measured[0]).numpy(), want)
    assert f"output y: float32 at most [{array.size}]" in plan.describe()


def test_only_uint32_scratch_holds_a_shape() -> None:
    b = Builder("Test", {}, ["y"], frozenset(["y"]), PORTABLE)
    y = b.output("y", (3,), dtypes.float32)
    for slot in (y, b.scratch("shape", (1,), dtypes.int64)):
        with pytest.raises(TypeError, match="uint32 scratch"):
            b.measure("y", slot)
