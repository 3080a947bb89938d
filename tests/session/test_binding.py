"""io_binding: results in the caller's memory, in place where asked, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.tensor import Tensor
from webgpu_ops.errors import DeviceError, ModelError, SchemaError, ShapeError
from webgpu_ops.session import InferenceSession

from .models import FLOAT, INT64, REPLAYED, contrib, model, node, replay, replay_feeds

X, Y = ("x", FLOAT, ["b", "n"]), ("y", FLOAT, None)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def one() -> Device:
    return Device.default()


def test_a_bound_output_is_written_where_it_says(device: Device) -> None:
    nodes = [contrib("BiasGelu", "x b", "a"), node("Neg", "a", "y")]
    session = InferenceSession(model(nodes, [X], [Y, ("a", FLOAT, None)], {"b": floats(5)}), device)
    a, y = (Tensor.from_numpy(np.full((3, 5), np.nan, np.float32), device) for _ in range(2))
    binding = session.io_binding()
    binding.bind_cpu_input("x", floats(3, 5))
    binding.bind_output("y", y)
    binding.bind_output("a", a)
    session.run_with_iobinding(binding)
    binding.synchronize_inputs()
    binding.synchronize_outputs(timeout=60)
    assert binding.get_outputs()[0] is y and binding.get_outputs()[1] is a
    want_a, want_y = session.run(["a", "y"], {"x": floats(3, 5)})
    np.testing.assert_array_equal(a.numpy(), want_a)
    np.testing.assert_array_equal(y.numpy(), want_y)
    np.testing.assert_array_equal(want_y, -want_a)
    got_y, got_a = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(got_y, want_y)
    np.testing.assert_array_equal(got_a, want_a)


def test_unbound_outputs_get_new_memory_each_run_and_the_rest_is_not_computed(one: Device) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "x", "y")]
    session = InferenceSession(model(nodes, [X], [Y, ("a", FLOAT, None)]), one)
    binding = session.io_binding()
    assert binding.get_outputs() == []
    binding.bind_input("x", Tensor.from_numpy(floats(2, 3), one))
    binding.bind_output("a")
    dispatches = one.stats.dispatches
    session.run_with_iobinding(binding)
    assert one.stats.dispatches == dispatches + 1
    (first,) = binding.get_outputs()
    session.run_with_iobinding(binding)
    (second,) = binding.get_outputs()
    assert first.buffer is not second.buffer
    np.testing.assert_array_equal(first.numpy(), -floats(2, 3))
    np.testing.assert_array_equal(second.numpy(), -floats(2, 3))
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []
    binding.clear_binding_inputs()
    binding.bind_output("y")
    with pytest.raises(ModelError, match="input 'x' was not fed"):
        session.run_with_iobinding(binding)


def test_a_state_updated_in_place(device: Device) -> None:
    """state_out is bound to state: ten steps, one allocation."""
    nodes = [node("Add", "state x", "state_out"), node("Neg", "state_out", "y")]
    inputs = [("state", FLOAT, [7]), ("x", FLOAT, [7])]
    session = InferenceSession(model(nodes, inputs, [("state_out", FLOAT, [7]), Y]), device)
    state = Tensor.from_numpy(np.zeros(7, np.float32), device, keep_host=True)
    binding = session.io_binding()
    binding.bind_input("state", state)
    binding.bind_output("state_out", state)
    binding.bind_output("y")
    for i in range(10):
        binding.bind_cpu_input("x", np.full(7, i, np.float32))
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(state.numpy(), np.full(7, 45, np.float32))
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], np.full(7, -45, np.float32))
    assert state.host is None, "the copy on the host would be stale"


def test_replay_in_place(device: Device) -> None:
    session, feeds = InferenceSession(replay(), device), replay_feeds()
    state = Tensor.from_numpy(feeds["destination"], device)
    binding = session.io_binding()
    for name in ("source", "capture", "metadata"):
        binding.bind_cpu_input(name, feeds[name])
    binding.bind_input("destination", state)
    binding.bind_output("out", state)
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0] is state
    np.testing.assert_array_equal(state.numpy(), REPLAYED)
    for wrong in (Tensor.from_numpy(feeds["destination"], device), None):
        binding.bind_output("out", wrong)
        with pytest.raises(ShapeError, match="expected the allocation of input destination_backing"):
            session.run_with_iobinding(binding)
    np.testing.assert_array_equal(state.numpy(), REPLAYED)


def test_outputs_that_no_kernel_writes(device: Device) -> None:
    """Views, shape arithmetic, inputs and constants reach a bound tensor too, and only once asked."""
    nodes = [node("Neg", "x", "a"), node("Reshape", "a flat", "r"), node("Shape", "x", "s")]
    outputs = [("r", FLOAT, [6]), ("s", INT64, [2]), ("x", FLOAT, None), ("flat", INT64, [1])]
    constants = {"flat": np.array([-1])}
    session = InferenceSession(model(nodes, [X], outputs, constants), device)
    x = floats(2, 3)
    want = {"r": -x.ravel(), "s": np.array([2, 3]), "x": x, "flat": np.array([-1])}
    bound = {name: Tensor.from_numpy(np.zeros_like(value), device) for name, value in want.items()}
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    for name, tensor in bound.items():
        binding.bind_output(name, tensor)
    session.run_with_iobinding(binding)
    for (name, tensor), result in zip(bound.items(), binding.get_outputs(), strict=True):
        assert result is tensor
        np.testing.assert_array_equal(tensor.numpy(), want[name])


def test_new_outputs_share_memory_with_nothing(one: Device) -> None:
    nodes = [
        node("Identity", "x", "i"),
        node("Identity", "w", "c"),
        node("Neg", "x", "n"),
        node("Identity", "n", "m"),
    ]
    outputs = [(name, FLOAT, None) for name in ("x", "i", "c", "n", "m")]
    session = InferenceSession(model(nodes, [X], outputs, {"w": floats(2, 2)}), one)
    x = Tensor.from_numpy(floats(2, 2, seed=1), one)
    binding = session.io_binding()
    binding.bind_input("x", x)
    for name, *_ in outputs:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    results = binding.get_outputs()
    buffers = {x.buffer.uid, *(t.buffer.uid for t in results)}
    assert len(buffers) == 6
    for result in results:
        result.write(np.zeros((2, 2), np.float32))
    session.run_with_iobinding(binding)
    got = binding.copy_outputs_to_cpu()
    want = [floats(2, 2, seed=1), floats(2, 2, seed=1), floats(2, 2), -floats(2, 2, seed=1)]
    for g, w in zip(got, [*want, want[-1]], strict=True):
        np.testing.assert_array_equal(g, w)


def test_strings_come_back_as_arrays(one: Device) -> None:
    proto = model(
        [node("Identity", "x", "y")], [("x", TensorProto.STRING, [2])], [("y", TensorProto.STRING, None)]
    )
    session = InferenceSession(proto, one)
    binding = session.io_binding()
    binding.bind_cpu_input("x", ["a", "b"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == ["a", "b"]


# Refusals

ADD = model([node("Add", "x w", "y")], [("x", FLOAT, ["b", 3]), ("w", FLOAT, [3])], [("y", FLOAT, ["b", 3])])


def tensor(device: Device, *shape: int, dtype: Any = np.float32) -> Tensor:
    return Tensor.from_numpy(np.zeros(shape, dtype), device)


def test_bad_bindings_are_refused_when_they_are_made(one: Device) -> None:
    binding = InferenceSession(ADD, one).io_binding()
    with pytest.raises(ModelError, match="the model has no input 'z'"):
        binding.bind_cpu_input("z", np.zeros(3))
    with pytest.raises(ModelError, match="the model has no output 'z'"):
        binding.bind_output("z")
    with pytest.raises(ModelError, match=r"input 'w' has type tensor\(double\); expected tensor\(float\)"):
        binding.bind_cpu_input("w", np.zeros(3))
    with pytest.raises(ShapeError, match=r"input 'w' has shape \(4,\)"):
        binding.bind_input("w", tensor(one, 4))
    with pytest.raises(ModelError, match="input 'w' is bound to a ndarray; expected a Tensor"):
        binding.bind_input("w", np.zeros(3, np.float32))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="output 'y' is bound to a list; expected a Tensor"):
        binding.bind_output("y", [1, 2])  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"output 'y' has type tensor\(int32\); expected tensor\(float\)"):
        binding.bind_output("y", tensor(one, 2, 3, dtype=np.int32))
    with pytest.raises(ShapeError, match=r"output 'y' has shape \(2, 4\) .* expected \(b, 3\)"):
        binding.bind_output("y", tensor(one, 2, 4))


def test_a_bound_output_of_the_wrong_size(device: Device) -> None:
    session = InferenceSession(ADD, device)
    binding = session.io_binding()
    binding.bind_cpu_input("x", np.ones((2, 3), np.float32))
    binding.bind_cpu_input("w", np.ones(3, np.float32))
    small = tensor(device, 1, 3)
    binding.bind_output("y", small)
    with pytest.raises(
        ShapeError, match=r"Add: output C is bound to float32 \(1, 3\); expected float32 \(2, 3\)"
    ):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(small.numpy(), np.zeros((1, 3), np.float32))
    view = InferenceSession(model([node("Identity", "x", "y")], [X], [Y]), device)
    binding = view.io_binding()
    binding.bind_cpu_input("x", np.ones((2, 3), np.float32))
    binding.bind_output("y", small)
    with pytest.raises(
        ShapeError, match=r"output 'y' is bound to float32 \(1, 3\); expected float32 \(2, 3\)"
    ):
        view.run_with_iobinding(binding)


def test_memory_that_is_still_needed_is_not_overwritten(one: Device) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "a", "b"), node("Add", "b x", "y")]
    session = InferenceSession(model(nodes, [X], [Y, ("a", FLOAT, None)]), one)
    x = tensor(one, 2, 3)
    binding = session.io_binding()
    binding.bind_input("x", x)
    binding.bind_output("a", x)
    binding.bind_output("y")
    with pytest.raises(
        ModelError, match=r"output 'a' .* memory of input 'x', which is read by node 2 \(Add\)"
    ):
        session.run_with_iobinding(binding)
    binding.bind_output("a", x.view((2, 3)))
    with pytest.raises(ModelError, match="memory of input 'x'"):
        session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    binding.bind_output("y", x)  # the last reader is the writer
    session.run_with_iobinding(binding)
    binding.bind_output("a", x)
    with pytest.raises(ModelError, match="outputs 'y' and 'a' are bound to the same memory"):
        session.run_with_iobinding(binding)
    passing = InferenceSession(model([node("Neg", "x", "y")], [X], [Y, ("x", FLOAT, None)]), one)
    binding = passing.io_binding()
    binding.bind_input("x", x)
    binding.bind_output("x")
    binding.bind_output("y", x)
    with pytest.raises(ModelError, match="memory of input 'x', which is read as an output"):
        passing.run_with_iobinding(binding)


def test_halves_of_one_allocation_may_be_bound_apart(one: Device) -> None:
    both = Tensor.empty((2, 6), dtypes.float32, one)
    session = InferenceSession(
        model([node("Neg", "x", "y"), node("Abs", "x", "a")], [X], [Y, ("a", FLOAT, None)]), one
    )
    binding = session.io_binding()
    binding.bind_cpu_input("x", floats(2, 3))
    binding.bind_output("y", both.view((2, 3)))
    binding.bind_output("a", both.view((2, 3), offset=6))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(both.numpy()[0], -floats(2, 3).ravel())
    np.testing.assert_array_equal(both.numpy()[1], np.abs(floats(2, 3)).ravel())


def test_other_sessions_and_other_devices(one: Device) -> None:
    other = Device()
    session = InferenceSession(ADD, one)
    binding = session.io_binding()
    with pytest.raises(DeviceError, match="output 'y' is on device"):
        binding.bind_output("y", tensor(other, 2, 3))
    with pytest.raises(DeviceError, match="input 'x' is on device"):
        binding.bind_input("x", tensor(other, 2, 3))
    with pytest.raises(ModelError, match="the binding belongs to another session"):
        InferenceSession(ADD, one).run_with_iobinding(binding)
    other.destroy()


def test_schema_errors_of_the_operator_come_through(one: Device) -> None:
    with pytest.raises(SchemaError, match="BiasGelu: input B is required"):
        InferenceSession(model([contrib("BiasGelu", "x", "y")], [X], [Y]), one)
