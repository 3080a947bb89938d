"""Binding of tensors to dispatches: views, sharing, packing, folding; copies, fences and batches."""

from __future__ import annotations

import threading
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import Builder, Plan, Slot
from webgpu_ops.core.stream import PreparedPlan
from webgpu_ops.core.tensor import Tensor
from webgpu_ops.errors import DeviceError, LimitError, ShapeError, WebGpuOpsError

AddShader = Callable[[str, str], None]


def builder(device: Device, tensors: dict[str, Tensor], outputs: list[str]) -> Builder:
    slots = {n: Slot(t.shape, t.dtype, "input", i, n) for i, (n, t) in enumerate(tensors.items())}
    return Builder("Test", slots, outputs, frozenset(outputs), device.capabilities)


def execute(device: Device, plan: Plan, tensors: dict[str, Tensor], outputs: list[Tensor]) -> None:
    device.stream.execute(PreparedPlan(plan, device), list(tensors.values()), outputs)


def sum_template(n: int) -> str:
    loads = " + ".join(f"load_x{k}(i)" for k in range(n))
    body = f"let i = thread;\n if (i < u.size) {{ store_y(i, {loads}); }}"
    return f"{{% call kernel() %}}\n {body}\n{{% endcall %}}\n"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [3, 7, 12, 31])
def test_more_inputs_than_bindings_are_packed(
    device: Device, shaders: AddShader, count: int, dtype: type
) -> None:
    shaders(f"sum{count}", sum_template(count))
    arrays = [np.arange(k, k + 9).astype(dtype) for k in range(count)]
    tensors = {f"x{k}": Tensor.from_numpy(a, device) for k, a in enumerate(arrays)}
    b = builder(device, tensors, ["y"])
    y = b.output("y", (9,), dtypes.from_numpy(dtype))
    b.dispatch(f"sum{count}", reads=b.inputs, writes={"y": y}, uniforms={"size": 9}, threads=9)
    out = Tensor.empty((9,), y.dtype, device)
    execute(device, b.finish(), tensors, [out])
    want = sum(a.astype(np.float64) for a in arrays).astype(dtype)
    np.testing.assert_array_equal(out.numpy(), want)


SCALE = """
{% call kernel() %}
    let i = thread * 4u;
    if (i < u.size) {
        var q = load4_x(i);
        for (var k = 0u; k < 4u; k++) { q[k] = q[k] * u.factor; }
        store4_y(i, q, min(4u, u.size - i));
    }
{% endcall %}
"""


def scaled(device: Device, source: Tensor, target: Tensor) -> None:
    tensors = {"x": source}
    b = builder(device, tensors, ["y"])
    y = b.output("y", target.shape, target.dtype)
    b.dispatch(
        "scale",
        reads={"x": b.need("x")},
        writes={"y": y},
        uniforms={"size": target.size, "factor": 2.0},
        threads=-(-target.size // 4),
    )
    execute(device, b.finish(), tensors, [target])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_in_place(device: Device, shaders: AddShader, dtype: type) -> None:
    shaders("scale", SCALE)
    x = Tensor.from_numpy(np.arange(10).astype(dtype), device)
    scaled(device, x, x)
    np.testing.assert_array_equal(x.numpy(), (np.arange(10) * 2).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize(("start", "end"), [(0, 7), (1, 8), (2, 5), (3, 21), (64, 75), (65, 70), (127, 128)])
def test_views_keep_their_neighbours(
    device: Device, shaders: AddShader, dtype: type, start: int, end: int
) -> None:
    shaders("scale", SCALE)
    rng = np.random.default_rng(start)
    whole = rng.integers(0, 255, 130 * np.dtype(dtype).itemsize).astype(np.uint8).view(dtype)
    source = np.arange(end - start).astype(dtype)
    into = Tensor.from_numpy(whole, device)
    scaled(device, Tensor.from_numpy(source, device), into.view((end - start,), start))
    want = whole.copy()
    want[start:end] = (source.astype(np.float32) * 2).astype(dtype)
    np.testing.assert_array_equal(into.numpy().view(np.uint8), want.view(np.uint8))

    back = Tensor.empty((end - start,), into.dtype, device)
    scaled(device, into.view((end - start,), start), back)
    np.testing.assert_array_equal(
        back.numpy().astype(np.float32),
        (want[start:end].astype(np.float32) * 2).astype(dtype).astype(np.float32),
    )


@pytest.mark.parametrize("gap", [10, 16, 64, 67])
def test_two_views_of_one_buffer_read_and_written(device: Device, shaders: AddShader, gap: int) -> None:
    shaders("scale", SCALE)
    whole = np.arange(200, dtype=np.float32)
    tensor = Tensor.from_numpy(whole, device)
    scaled(device, tensor.view((10,), 2), tensor.view((10,), 2 + gap))
    whole[2 + gap : 12 + gap] = whole[2:12] * 2
    np.testing.assert_array_equal(tensor.numpy(), whole)


def test_groups_fold_beyond_the_limit(device: Device, shaders: AddShader) -> None:
    shaders("ids", "{% call kernel() %}\n if (group < u.size) { store_y(group, group); }\n{% endcall %}\n")
    n = 65535 * 2 + 7
    b = builder(device, {}, ["y"])
    y = b.output("y", (n,), dtypes.uint32)
    b.dispatch("ids", reads={}, writes={"y": y}, uniforms={"size": n}, groups=n, workgroup=1)
    out = Tensor.empty((n,), dtypes.uint32, device)
    execute(device, b.finish(), {}, [out])
    np.testing.assert_array_equal(out.numpy(), np.arange(n, dtype=np.uint32))


def test_a_batch_may_outgrow_the_uniform_arena(device: Device, shaders: AddShader) -> None:
    shaders("scale", SCALE)
    x = Tensor.from_numpy(np.ones(4, np.float32), device)
    before = device.stats.submits
    for _ in range(100):
        scaled(device, x, x)
    assert device.stats.submits == before  # nothing was waited for
    for _ in range(500):
        scaled(device, x, x)
        x.write(np.ones(4, np.float32))
    scaled(device, x, x)
    np.testing.assert_array_equal(x.numpy(), np.full(4, 2, np.float32))


def test_uploads_do_not_overtake_recorded_reads(device: Device, shaders: AddShader) -> None:
    shaders("scale", SCALE)
    x = Tensor.from_numpy(np.full(4, 1, np.float32), device)
    y, z = Tensor.empty((4,), dtypes.float32, device), Tensor.empty((4,), dtypes.float32, device)
    scaled(device, x, y)
    x.write(np.full(4, 5, np.float32))
    scaled(device, x, z)
    np.testing.assert_array_equal(y.numpy(), np.full(4, 2, np.float32))
    np.testing.assert_array_equal(z.numpy(), np.full(4, 10, np.float32))


@pytest.mark.parametrize("itemtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.complex128])
def test_copies_at_any_offset(device: Device, itemtype: type) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 255, 301).astype(itemtype)
    b = rng.integers(0, 255, 301).astype(itemtype)
    source, target = Tensor.from_numpy(a, device), Tensor.from_numpy(b, device)
    for at, to, n in [(0, 0, 301), (1, 3, 200), (4, 8, 101), (7, 2, 3), (2, 1, 1), (5, 5, 0)]:
        device.stream.copy(source, target, at, to, n)
        b[to : to + n] = a[at : at + n]
        np.testing.assert_array_equal(target.numpy(), b)
    device.stream.copy(target, target, 1, 3, 200)  # overlapping
    b[3:203] = b[1:201].copy()
    np.testing.assert_array_equal(target.numpy(), b)
    device.stream.zero(target.view((5,), 6))
    b[6:11] = 0
    np.testing.assert_array_equal(target.numpy(), b)


def test_binding_beyond_the_limit_is_refused_with_numbers(device: Device) -> None:
    n = device.capabilities.max_binding_bytes // 4 + 1
    b = builder(device, {}, ["y"])
    y = b.output("y", (n,), dtypes.uint32)
    b.dispatch("core/zero", reads={}, writes={"target": y}, uniforms={"offset": 0, "count": n}, threads=n)
    with pytest.raises(LimitError, match=str(n * 4)):
        PreparedPlan(b.finish(), device)


def test_fence(device: Device) -> None:
    x = Tensor.from_numpy(np.ones(1000, np.float32), device)
    y = Tensor.empty((1000,), dtypes.float32, device)
    device.stream.copy(x, y)
    fence = device.fence()
    fence.wait(10)
    fence.wait()


def test_destroyed_device_is_named() -> None:
    device = Device()
    x = Tensor.from_numpy(np.ones(4, np.float32), device)
    device.destroy()
    with pytest.raises(DeviceError, match="destroyed"):
        x.numpy()
    with pytest.raises(DeviceError, match="destroyed"):
        Tensor.from_numpy(np.ones(4, np.float32), device)


def test_memory_returns_to_the_pool(device: Device) -> None:
    start = device.memory.bytes_in_use
    x = Tensor.empty((1 << 16,), dtypes.float32, device)
    assert device.memory.bytes_in_use == start + (1 << 18)
    view = x.view((4,), 8)
    del x
    assert device.memory.bytes_in_use == start + (1 << 18)  # the view keeps it
    del view
    assert device.memory.bytes_in_use == start


def test_threads_share_a_device(device: Device, shaders: AddShader) -> None:
    shaders("scale", SCALE)
    failures: list[str] = []

    def work(k: int) -> None:
        for _ in range(20):
            x = Tensor.from_numpy(np.full(100, k, np.float32), device)
            y = Tensor.empty((100,), dtypes.float32, device)
            scaled(device, x, y)
            if not (y.numpy() == 2 * k).all():
                failures.append(f"thread {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_view_outside_is_refused(device: Device) -> None:
    x = Tensor.empty((4, 4), dtypes.float32, device)
    assert x.view((2, -1), 8).shape == (2, 4)
    for shape, offset in [((17,), 0), ((4,), 13), ((3, -1), 0), ((4,), -1)]:
        with pytest.raises(ShapeError, match="does not fit"):
            x.view(shape, offset)


def test_careless_tensors_are_refused(device: Device) -> None:
    x = Tensor.empty((4, 4), dtypes.float32, device)
    for make in (
        lambda: Tensor.empty(None, dtypes.float32, device),
        lambda: Tensor.empty((2.5,), dtypes.float32, device),
        lambda: Tensor.empty((1,), "nonsense", device),
        lambda: Tensor.from_numpy([[1, 2], [3]], device),
        lambda: x.view(None),
        lambda: x.view((2,), offset=1.5),
    ):
        with pytest.raises(WebGpuOpsError):
            make()


def test_array_protocols(device: Device) -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = Tensor.from_numpy(a, device)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.from_dlpack(x), a)
    assert len(x) == 2


def test_parts_of_tensors(device: Device, shaders: AddShader) -> None:
    """Rows of an input and of an output are bound, copied and filled as tensors of their own."""
    shaders("scale", SCALE)
    x = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
    tensors = {"x": Tensor.from_numpy(x, device)}
    b = builder(device, tensors, ["y"])
    source, y = b.need("x"), b.output("y", x.shape, dtypes.float32)
    # The adapter binds 64 rows where they lie, and 3 only through an index.
    for start, count in ((0, 3), (3, 61), (64, 32)):
        b.dispatch(
            "scale",
            reads={"x": source.rows(start, count)},
            writes={"y": y.rows(start, count)},
            uniforms={"size": 8 * count, "factor": 2.0},
            threads=2 * count,
        )
    b.copy(source.rows(96, 16), y.rows(112, 16))
    b.zero(y.rows(96, 16))
    b.zero(y.rows(0, 1))
    out = Tensor.empty(x.shape, y.dtype, device)
    execute(device, b.finish(), tensors, [out])
    want = np.concatenate([np.zeros((1, 8)), x[1:96] * 2, np.zeros((16, 8)), x[96:112]]).astype(np.float32)
    np.testing.assert_array_equal(out.numpy(), want)


def test_parts_stay_inside(device: Device) -> None:
    slot = Slot((4, 3), dtypes.float16, "input", 0, "x")
    assert slot.rows(2, 2).rows(0, 1).offset == 12
    for start, count, message in ((3, 2, "no rows 3 to 5"), (1, 1, "starts inside a word")):
        with pytest.raises(ShapeError, match=message):
            slot.rows(start, count)
