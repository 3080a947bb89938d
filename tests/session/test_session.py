"""Running graphs: results, what stays where, and what is refused."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from webgpu_ops.core.device import Device
from webgpu_ops.core.tensor import Tensor
from webgpu_ops.errors import DeviceError, ModelError, ShapeError
from webgpu_ops.session import InferenceSession

from .models import FLOAT, INT64, REPLAYED, contrib, model, node, replay, replay_feeds

X, Y = ("x", FLOAT, ["b", "n"]), ("y", FLOAT, None)
erf = np.vectorize(math.erf)


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def one() -> Device:
    """For tests that need a device and would pass alike in both modes."""
    return Device.default()


# Results


def test_a_chain_with_a_shared_initializer(device: Device) -> None:
    x, b = floats(3, 5), floats(5, seed=1)
    nodes = [contrib("BiasGelu", "x b", "g"), node("Add", "g b", "s"), node("Mul", "s g", "y")]
    uploads = device.stats.uploads
    session = InferenceSession(model(nodes, [X], [Y], {"b": b}), device)
    assert device.stats.uploads == uploads + 1, "b is uploaded once, at load"
    gelu = (x + b) * 0.5 * (1 + erf((x + b) / math.sqrt(2)))
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, (gelu + b) * gelu, rtol=1e-5, atol=1e-6)
    session.run(None, {"x": x})
    assert device.stats.uploads == uploads + 3, "x is uploaded once a run"


def test_outputs_are_chosen_by_name_and_only_they_are_computed(one: Device) -> None:
    nodes = [node("Neg", "x", "a"), node("Abs", "x", "b"), node("Add", "a b", "y")]
    outputs = [Y, ("a", FLOAT, None), ("b", FLOAT, None)]
    session, x = InferenceSession(model(nodes, [X], outputs), one), floats(2, 3)
    dispatches = one.stats.dispatches
    b, a, again = session.run(["b", "a", "b"], {"x": x})
    assert one.stats.dispatches == dispatches + 2, "the sum was not asked for"
    np.testing.assert_array_equal(a, -x)
    np.testing.assert_array_equal(b, np.abs(x))
    np.testing.assert_array_equal(again, b)
    y, a, b = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, a + b)


def test_operators_with_several_outputs_and_gaps(device: Device) -> None:
    x, s, w = floats(1, 2, 8), floats(1, 2, 8, seed=1), floats(8, seed=2)
    skip = contrib("SkipLayerNormalization", "x s w", "y - - total", epsilon=1e-5)
    shape = ["b", "s", 8]
    outputs = [("total", FLOAT, None), ("y", FLOAT, None)]
    session = InferenceSession(
        model([skip], [("x", FLOAT, shape), ("s", FLOAT, shape)], outputs, {"w": w}), device
    )
    total, y = session.run(None, {"x": x, "s": s})
    np.testing.assert_allclose(total, x + s, rtol=1e-6)
    centred = (x + s) - (x + s).mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [11, 13])
def test_axes_as_attribute_and_as_input(one: Device, opset: int) -> None:
    constants = {"two": np.array([2], np.int64)} if opset >= 13 else {}
    axes = ("y two", {}) if opset >= 13 else ("y", {"axes": [2]})
    nodes = [node("Neg", "x", "y"), node("Unsqueeze", axes[0], "u", **axes[1])]
    nodes += [node("Abs", "u", "v"), node("Squeeze", axes[0].replace("y", "v"), "z", **axes[1])]
    outputs = [("u", FLOAT, None), ("z", FLOAT, None)]
    u, z = InferenceSession(model(nodes, [X], outputs, constants, opset=opset), one).run(
        None, {"x": floats(2, 3)}
    )
    np.testing.assert_array_equal(u, -floats(2, 3)[:, :, None])
    np.testing.assert_array_equal(z, np.abs(floats(2, 3)))


def test_nodes_given_out_of_order_and_in_domain_ai_onnx(one: Device) -> None:
    nodes = [node("Neg", "a", "y"), node("Abs", "x", "a", domain="ai.onnx")]
    (y,) = InferenceSession(model(nodes, [X], [Y]), one).run(None, {"x": floats(2, 3)})
    np.testing.assert_array_equal(y, -np.abs(floats(2, 3)))


def test_sessions_take_path_bytes_and_proto(one: Device, tmp_path: Any) -> None:
    proto = model([node("Neg", "x", "y")], [X], [Y])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (path, str(path), path.read_bytes(), proto):
        (y,) = InferenceSession(source, one).run(["y"], {"x": floats(1, 2)})
        np.testing.assert_array_equal(y, -floats(1, 2))


def test_two_sessions_with_different_attributes_do_not_mix(one: Device) -> None:
    sessions = [InferenceSession(model([node("Softmax", "x", "y", axis=a)], [X], [Y]), one) for a in (0, 1)]
    x = floats(4, 4)
    for axis in (0, 1, 0):
        (y,) = sessions[axis].run(None, {"x": x})
        np.testing.assert_allclose(y, np.exp(x) / np.exp(x).sum(axis, keepdims=True), rtol=1e-5)


# What happens where


def test_shape_arithmetic_runs_on_the_host(one: Device) -> None:
    """The usual export of x.reshape(x.shape[0], -1).shape: no dispatch, no upload but x."""
    constants = {"zero": np.array(0), "minus": np.array([-1]), "first": np.array([0])}
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "b", axis=0),
        node("Unsqueeze", "b first", "b1"),
        node("Concat", "b1 minus", "target", axis=0),
        node("Reshape", "x target", "flat"),
        node("Shape", "flat", "y"),
    ]
    session = InferenceSession(model(nodes, [("x", FLOAT, None)], [("y", INT64, None)], constants), one)
    before = replace(one.stats)
    (y,) = session.run(None, {"x": floats(2, 3, 5)})
    np.testing.assert_array_equal(y, np.array([2, 15]), strict=True)
    assert one.stats == before, "nothing of this concerns the device"


def test_views_copy_nothing(one: Device) -> None:
    constants = {"to": np.array([4, -1]), "axis": np.array([0])}
    nodes = [
        node("Neg", "x", "a"),
        node("Reshape", "a to", "b"),
        node("Unsqueeze", "b axis", "c"),
        node("Identity", "c", "d"),
        node("Flatten", "d", "e", axis=2),
        node("Abs", "e", "y"),
    ]
    session = InferenceSession(model(nodes, [X], [Y], constants), one)
    dispatches = one.stats.dispatches
    (y,) = session.run(None, {"x": floats(2, 6)})
    assert one.stats.dispatches == dispatches + 2, "Neg and Abs"
    np.testing.assert_array_equal(y, np.abs(floats(2, 6)).reshape(4, 3))


def test_data_stays_on_the_device(one: Device) -> None:
    """Small or not, tensors of rank 2 are data, and so are floats."""
    nodes = [node("Add", "i i", "j"), node("Mul", "f f", "g"), node("Add", "n n", "m")]
    inputs = [("i", INT64, [1, 2]), ("f", FLOAT, [1]), ("n", INT64, [2])]
    outputs = [("j", INT64, None), ("g", FLOAT, None), ("m", INT64, None)]
    session = InferenceSession(model(nodes, inputs, outputs), one)
    dispatches = one.stats.dispatches
    feeds = {"i": np.array([[1, 2]]), "f": np.array([3], np.float32), "n": np.array([4, 5])}
    j, g, m = session.run(None, feeds)
    assert one.stats.dispatches == dispatches + 2, "n, two lengths, is shape arithmetic; i and f are not"
    assert (j.tolist(), g.tolist(), m.tolist()) == ([[2, 4]], [9], [8, 10])


def test_constants_are_folded_at_load(one: Device) -> None:
    nodes = [
        node("Constant", "", "four", value_float=4.0),
        node("Sqrt", "four", "two"),
        node("Mul", "x two", "y"),
        node("Cast", "shape", "wide", to=INT64),
        node("Shape", "w", "shape_of_w"),
        node("Concat", "wide shape_of_w", "z", axis=0),
    ]
    constants = {"shape": np.array([7], np.int32), "w": np.zeros((300, 20), np.float32)}
    session = InferenceSession(model(nodes, [X], [Y, ("z", INT64, None)], constants), one)
    assert [step.node.op for step in session._steps] == ["Mul"]
    assert "w" not in session._constants, "only its shape was used"
    y, z = session.run(None, {"x": floats(1, 3)})
    np.testing.assert_array_equal(y, floats(1, 3) * 2)
    np.testing.assert_array_equal(z, [7, 300, 20])


def test_what_grows_large_moves_to_the_device(device: Device) -> None:
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "zeros"), node("Add", "x zeros", "y")]
    session = InferenceSession(model(nodes, [X], [Y]), device)
    for shape in ((2, 3), (40, 50), (1, 1)):
        (y,) = session.run(None, {"x": floats(*shape)})
        np.testing.assert_array_equal(y, floats(*shape))


def test_later_runs_plan_and_compile_nothing(one: Device) -> None:
    nodes = [contrib("BiasGelu", "x b", "g"), node("Softmax", "g", "y")]
    session = InferenceSession(model(nodes, [X], [Y], {"b": floats(5)}), one)
    session.run(None, {"x": floats(1, 5)})
    plans, pipelines = one.stats.plans_made, one.stats.pipelines_created
    session.run(None, {"x": floats(1, 5, seed=1)})
    assert (one.stats.plans_made, one.stats.pipelines_created) == (plans, pipelines)
    for rows in range(2, 12):
        session.run(None, {"x": floats(rows, 5)})
    assert one.stats.pipelines_created == pipelines, "a growing batch compiles nothing"


def test_values_are_freed_after_their_last_use(one: Device) -> None:
    """A chain of ten keeps two tensors at a time, and nothing after the run."""
    links = [node("Neg", f"v{i}", f"v{i + 1}") for i in range(10)]
    size = 1 << 16
    session = InferenceSession(model(links, [("v0", FLOAT, [size])], [("v10", FLOAT, None)]), one)
    session.run(None, {"v0": floats(size)})
    in_use = one.memory.bytes_in_use
    one.memory.reset_peak()
    session.run(None, {"v0": floats(size)})
    assert one.memory.bytes_in_use == in_use
    assert one.memory.peak_bytes - in_use <= 2 * 4 * size


def test_a_view_keeps_its_memory_alive(one: Device) -> None:
    """`a` is not named again after its view was taken; other steps must not get its memory."""
    nodes = [node("Neg", "x", "a"), node("Reshape", "a flat", "b")]
    nodes += [
        node("Abs", "x", "c"),
        node("Abs", "c", "d"),
        node("Reshape", "d flat", "e"),
        node("Add", "b e", "y"),
    ]
    session = InferenceSession(model(nodes, [X], [Y], {"flat": np.array([-1])}), one)
    (y,) = session.run(None, {"x": floats(3, 4)})
    np.testing.assert_array_equal(y, (-floats(3, 4) + np.abs(floats(3, 4))).ravel())


# Feeds and results


def test_tensors_may_be_fed(one: Device) -> None:
    session = InferenceSession(model([node("Neg", "x", "y")], [X], [Y]), one)
    x = Tensor.from_numpy(floats(2, 3), one)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, -floats(2, 3))
    np.testing.assert_array_equal(x.numpy(), floats(2, 3))


def test_results_belong_to_the_caller(one: Device) -> None:
    """Inputs and constants that are outputs come back as copies, and results can be written."""
    nodes = [node("Identity", "x", "y"), node("Identity", "c", "d")]
    outputs = [("x", FLOAT, None), Y, ("d", INT64, None), ("c", INT64, None), ("n", FLOAT, None)]
    nodes.append(node("Neg", "x", "n"))
    session = InferenceSession(model(nodes, [X], outputs, {"c": np.array([1, 2])}), one)
    x = floats(2, 2)
    for _ in range(2):
        results = session.run(None, {"x": x})
        for result, want in zip(
            results, (floats(2, 2), floats(2, 2), [1, 2], [1, 2], -floats(2, 2)), strict=True
        ):
            np.testing.assert_array_equal(result, want)
            result[...] = 99
    np.testing.assert_array_equal(x, floats(2, 2))


def test_feeds_in_any_layout_and_byte_order(one: Device) -> None:
    session = InferenceSession(model([node("Neg", "x", "y")], [X], [Y]), one)
    x = floats(3, 4)
    for fed in (np.asfortranarray(x), x.astype(">f4"), x[::-1, ::-1][::-1, ::-1]):
        np.testing.assert_array_equal(session.run(None, {"x": fed})[0], -x)
    scalar = InferenceSession(model([node("Neg", "x", "y")], [("x", FLOAT, [])], [Y]), one)
    np.testing.assert_array_equal(scalar.run(None, {"x": np.float32(3)})[0], np.float32(-3), strict=True)


@pytest.mark.parametrize(
    ("elem", "dtype"),
    [
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.INT4, ml_dtypes.int4),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BOOL, np.bool_),
    ],
)
def test_types_pass_through_unchanged(one: Device, elem: int, dtype: Any) -> None:
    nodes = [node("Reshape", "x to", "y")]
    session = InferenceSession(
        model(nodes, [("x", elem, [6])], [("y", elem, [2, 3])], {"to": np.array([2, 3])}, opset=21), one
    )
    x = np.array([0, 1, 1, 0, 1, 0]).astype(dtype)
    (y,) = session.run(None, {"x": Tensor.from_numpy(x, one)})
    assert y.dtype == x.dtype and y.tobytes() == x.tobytes() and y.shape == (2, 3)
    if dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        (y,) = session.run(None, {"x": x.view(f"u{x.itemsize}")})
        assert y.dtype == x.dtype and y.tobytes() == x.tobytes(), "words stand for the declared type"


def test_strings_stay_on_the_host(one: Device) -> None:
    nodes = [node("Gather", "words i", "picked"), node("Concat", "picked more", "y", axis=0)]
    constants = {"i": np.array([2, 0]), "more": np.array(["ü"], dtype=object)}
    proto = model(nodes, [("words", TensorProto.STRING, [3])], [("y", TensorProto.STRING, None)], constants)
    for words in (np.array(["a", "b", "c"]), np.array([b"a", b"b", b"c"]), ["a", "b", "c"]):
        (y,) = InferenceSession(proto, one).run(None, {"words": words})
        assert y.dtype == object and y.tolist() == ["c", "a", "ü"]
    session = InferenceSession(proto, one)
    with pytest.raises(ModelError, match="input 'words' holds 3 of type int; expected str or bytes"):
        session.run(None, {"words": np.array(["a", 3, "c"], dtype=object)})
    with pytest.raises(ModelError, match="expected text in UTF-8"):
        session.run(None, {"words": np.array([b"a", b"\xff", b"c"], dtype=object)})


def test_overridable_initializers(one: Device) -> None:
    inputs = [X, ("w", FLOAT, ["n"])]
    session = InferenceSession(model([node("Add", "x w", "y")], inputs, [Y], {"w": floats(3)}), one)
    assert [a.name for a in session.get_inputs()] == ["x"]
    assert [a.name for a in session.get_overridable_initializers()] == ["w"]
    x = floats(2, 3, seed=1)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + floats(3))
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": -floats(3)})[0], x - floats(3))


def test_replay_binds_its_output_to_the_uploaded_feed(device: Device) -> None:
    session, feeds = InferenceSession(replay(), device), replay_feeds()
    for _ in range(2):
        (out,) = session.run(None, feeds)
        np.testing.assert_array_equal(out, REPLAYED)
        np.testing.assert_array_equal(feeds["destination"], replay_feeds()["destination"])


def test_replay_may_overwrite_values_of_the_graph_that_nobody_reads_again(one: Device) -> None:
    proto = replay()
    proto.graph.node.insert(0, node("Neg", "before", "destination"))
    proto.graph.input[2].name = "before"
    session = InferenceSession(proto, one)
    feeds = replay_feeds()
    feeds["before"] = -feeds.pop("destination")
    np.testing.assert_array_equal(session.run(None, feeds)[0], REPLAYED)
    proto.graph.output.append(helper.make_tensor_value_info("destination", FLOAT, None))
    with pytest.raises(ShapeError, match="destination_out was not bound"):
        InferenceSession(proto, one).run(None, feeds)


def test_replay_does_not_overwrite_what_is_not_its_own(one: Device) -> None:
    session, feeds = InferenceSession(replay(), one), replay_feeds()
    mine = Tensor.from_numpy(feeds["destination"], one)
    with pytest.raises(ShapeError, match="destination_out was not bound; expected the allocation of input"):
        session.run(None, {**feeds, "destination": mine})
    np.testing.assert_array_equal(mine.numpy(), feeds["destination"])
    proto = replay()
    constant = proto.graph.input.pop(2)
    proto.graph.initializer.append(numpy_helper.from_array(feeds.pop("destination"), constant.name))
    session = InferenceSession(proto, one)
    for _ in range(2):
        with pytest.raises(ShapeError, match="destination_out was not bound"):
            session.run(None, feeds)


# About the model


def test_metadata(one: Device) -> None:
    proto = model([node("Neg", "x", "y")], [X], [Y])
    proto.producer_name, proto.domain, proto.doc_string, proto.model_version = (
        "maker",
        "org.example",
        "text",
        7,
    )
    proto.metadata_props.add(key="language", value="fr")
    session = InferenceSession(proto, one)
    meta = session.get_modelmeta()
    assert (meta.producer_name, meta.graph_name, meta.domain) == ("maker", "test", "org.example")
    assert (meta.description, meta.version, meta.custom_metadata_map) == ("text", 7, {"language": "fr"})
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["b", "n"])
    assert (y.name, y.type) == ("y", "tensor(float)")
    assert session.get_providers() == ["WebGpuOpsExecutionProvider"]
    assert session.device is one


# Refusals of a call

TWO = model([node("Add", "x w", "y")], [("x", FLOAT, ["b", 3]), ("w", FLOAT, [3])], [Y])
GOOD = {"x": np.zeros((2, 3), np.float32), "w": np.zeros(3, np.float32)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"v": 1}, ModelError, "the model has no input 'v'; its inputs are 'x', 'w'"),
        ({"w": None}, ModelError, "input 'w' is a NoneType; expected a NumPy array or a webgpu_ops.Tensor"),
        ({"w": np.zeros(3)}, ModelError, r"input 'w' has type tensor\(double\); expected tensor\(float\)"),
        ({"w": np.array(["a"] * 3)}, ModelError, r"input 'w' has type tensor\(string\)"),
        ({"w": np.zeros(3, "M8[s]")}, ModelError, "input 'w' is no array of an ONNX type"),
        ({"x": [[1.0], [1.0, 2.0]]}, ModelError, "input 'x' is no array of an ONNX type"),
        (
            {"w": GOOD["w"][:2]},
            ShapeError,
            r"input 'w' has shape \(2,\) \(rank 1\); expected \(3\) \(rank 1\)",
        ),
        (
            {"x": GOOD["w"]},
            ShapeError,
            r"input 'x' has shape \(3,\) \(rank 1\); expected \(b, 3\) \(rank 2\)",
        ),
    ],
)
def test_wrong_feeds(one: Device, change: dict[str, Any], error: type[Exception], message: str) -> None:
    dispatches = one.stats.dispatches
    with pytest.raises(error, match=message) as caught:
        InferenceSession(TWO, one).run(None, {**GOOD, **change})
    assert "\n" not in str(caught.value)
    assert one.stats.dispatches == dispatches


def test_missing_feeds_and_wrong_outputs(one: Device) -> None:
    session = InferenceSession(TWO, one)
    with pytest.raises(ModelError, match="input 'w' was not fed; the model needs 'x', 'w'"):
        session.run(None, {"x": GOOD["x"]})
    with pytest.raises(ModelError, match="the model has no output 'z'; its outputs are 'y'"):
        session.run(["z"], GOOD)
    with pytest.raises(ModelError, match="expected a sequence of names"):
        session.run("y", GOOD)
    with pytest.raises(ModelError, match="feeds are a list; expected a mapping"):
        session.run(None, [GOOD["x"], GOOD["w"]])  # type: ignore[arg-type]


def test_errors_while_running_name_the_node(one: Device) -> None:
    nodes = [
        node("Neg", "x", "a"),
        helper.make_node("BiasGelu", ["a", "b"], ["y"], "act", domain="com.microsoft"),
    ]
    session = InferenceSession(model(nodes, [X, ("b", FLOAT, None)], [Y]), one)
    with pytest.raises(ShapeError, match=r"node 'act': BiasGelu: B has shape \(4,\)"):
        session.run(None, {"x": floats(2, 3), "b": floats(4)})
    reshape = model([node("Neg", "x", "a"), node("Reshape", "a s", "y")], [X, ("s", INT64, [1])], [Y])
    with pytest.raises(ShapeError, match=r"node 1: Reshape: data of shape \(2, 3\) does not fit shape \[4\]"):
        InferenceSession(reshape, one).run(None, {"x": floats(2, 3), "s": np.array([4])})


def test_tensors_of_another_device_and_destroyed_devices() -> None:
    first, second = Device(), Device()
    session = InferenceSession(model([node("Neg", "x", "y")], [X], [Y]), first)
    with pytest.raises(DeviceError, match=r"input 'x' is on device .*; expected device"):
        session.run(None, {"x": Tensor.from_numpy(floats(1, 2), second)})
    second.destroy()
    with pytest.raises(DeviceError, match="was destroyed"):
        InferenceSession(model([node("Neg", "x", "y")], [X], [Y]), second)
    np.testing.assert_array_equal(session.run(None, {"x": floats(1, 2)})[0], -floats(1, 2))
    first.destroy()
    with pytest.raises(DeviceError, match="was destroyed"):
        session.run(None, {"x": floats(1, 2)})


def test_a_shape_that_only_the_device_knows_is_fetched(one: Device) -> None:
    """Reshape to a target that a kernel computed: rare, and correct."""
    nodes = [
        node("Neg", "t", "m"),
        node("ReduceSum", "m axis", "target", keepdims=0),
        node("Reshape", "x target", "y"),
    ]
    proto = model(nodes, [X, ("t", INT64, [1, 2])], [Y], {"axis": np.array([0])})
    (y,) = InferenceSession(proto, one).run(None, {"x": floats(2, 6), "t": np.array([[-3, -4]])})
    np.testing.assert_array_equal(y, floats(2, 6).reshape(3, 4))


def test_threads_share_a_session(one: Device) -> None:
    nodes = [
        node("Shape", "x", "s"),
        contrib("BiasGelu", "x b", "g"),
        node("Reshape", "g s", "h"),
        node("Neg", "h", "y"),
    ]
    session = InferenceSession(model(nodes, [X], [Y], {"b": floats(5)}), one)
    feeds = [floats(rows, 5, seed=rows) for rows in (1, 2, 3, 4)]
    want = [session.run(None, {"x": x})[0] for x in feeds]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for got, expected in zip(
                pool.map(lambda x: session.run(None, {"x": x})[0], feeds), want, strict=True
            ):
                np.testing.assert_array_equal(got, expected)
