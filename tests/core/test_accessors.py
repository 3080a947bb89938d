"""Loads and stores of every element type, aligned and not, in both modes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.dtypes import DType
from webgpu_ops.core.plan import Builder, Slot
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.core.tensor import Tensor

STORED = [t for t in dtypes.ALL if t != dtypes.string and t.name != "complex128"]

# Moves u.count elements from u.at to u.to, four at a time and then one at a time.
MOVE = """
{% call kernel() %}
    let done = thread * 4u;
    if (done >= u.count) { return; }
#% if quads
    store4_y(u.to + done, load4_x(u.at + done), min(4u, u.count - done));
#% else
    for (var k = done; k < min(done + 4u, u.count); k++) { store_y(u.to + k, load_x(u.at + k)); }
#% endif
{% endcall %}
"""


def sample_of(dtype: DType, n: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if dtype.kind == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_float or dtype.kind == "complex":
        values = np.clip(rng.normal(size=n) * 4, -4, 4)
        return (
            np.abs(values).astype(dtype.numpy) if dtype.name == "float8e8m0" else values.astype(dtype.numpy)
        )
    raw = rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8)
    if dtype.name in ("int4", "uint4"):
        return (raw & 15).view(dtype.numpy)
    return raw.view(dtype.numpy)


@pytest.mark.parametrize("quads", [True, False])
@pytest.mark.parametrize("dtype", STORED, ids=str)
def test_move(device: Device, shaders: Callable[[str, str], None], dtype: DType, quads: bool) -> None:
    shaders("move", MOVE)
    x = sample_of(dtype, 61)
    for at, to, count in [(0, 0, 61), (1, 0, 16), (0, 3, 23), (5, 7, 30), (4, 8, 9)]:
        before = sample_of(dtype, 67)
        target = Tensor.from_numpy(before, device)
        source = Tensor.from_numpy(x, device)
        slot = Slot((61,), dtype, "input", 0, "x")
        b = Builder("Move", {"x": slot}, ["y"], frozenset({"y"}), device.capabilities)
        y = b.output("y", (67,), dtype)
        b.dispatch(
            "move",
            reads={"x": slot},
            writes={"y": y},
            uniforms={"at": at, "to": to, "count": count},
            constants={"quads": quads},
            threads=-(-count // 4),
        )
        device.stream.execute(PreparedPlan(b.finish(), device), [source], [target])
        want = before.copy()
        want[to : to + count] = x[at : at + count]
        assert target.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL[:-1], ids=str)
def test_round_trip_through_the_device(device: Device, dtype: DType) -> None:
    for shape in [(), (0,), (1,), (3, 5), (2, 0, 4)]:
        array = sample_of(dtype, int(np.prod(shape))).reshape(shape)
        back = Tensor.from_numpy(array, device).numpy()
        assert back.dtype == array.dtype
        assert back.shape == array.shape
        assert back.tobytes() == array.tobytes()


def test_uniforms_of_every_kind(device: Device, shaders: Callable[[str, str], None]) -> None:
    from webgpu_ops.core.plan import f64, i32, i64, u64

    shaders(
        "uniforms",
        """
{% call kernel() %}
    if (thread == 0u) {
        store_i(0u, u.a);
        store_i(1u, u_list(1u));
        store_i(2u, u_list(4u));
        store_d(0u, u.b);
        store_d(1u, u_doubles(2u));
        store_l(0u, u.c);
        store_l(1u, u_longs(1u));
        store_f(0u, u.x);
        store_w(0u, u.w);
        store_i(3u, i32(u.last));
    }
{% endcall %}
""",
    )
    b = Builder("Uniforms", {}, ["i", "d", "l", "f", "w"], frozenset("idlfw"), device.capabilities)
    b.dispatch(
        "uniforms",
        reads={},
        writes={
            "i": b.output("i", (4,), dtypes.int32),
            "d": b.output("d", (2,), dtypes.float64),
            "l": b.output("l", (2,), dtypes.int64),
            "f": b.output("f", (1,), dtypes.float32),
            "w": b.output("w", (1,), dtypes.uint64),
        },
        uniforms={
            "a": i32(-7),
            "list": i32((1, -2, 3, 4, -5)),
            "b": f64(1 / 3),
            "x": 0.1,
            "doubles": f64((0.1, 0.2, 1e300)),
            "c": i64(-(2**62) - 1),
            "longs": i64((5, -6)),
            "w": u64(2**64 - 3),
            "last": 9,
        },
        threads=1,
    )
    plan = b.finish()
    outs = [Tensor.empty(s.shape, s.dtype, device) for s in plan.outputs if s is not None]
    device.stream.execute(PreparedPlan(plan, device), [], outs)
    i, d, l, f, w = (t.numpy() for t in outs)
    assert i.tolist() == [-7, -2, -5, 9]
    assert d.tolist() == [1 / 3, 1e300]
    assert l.tolist() == [-(2**62) - 1, -6]
    assert f.tolist() == [np.float32(0.1)]
    assert w.tolist() == [2**64 - 3]
