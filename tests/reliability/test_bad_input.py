"""What a careless caller does: one clear refusal each, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from webgpu_ops import Device, InferenceSession, SparseTensor, Tensor, WebGpuOpsError, backend, plan, run
from webgpu_ops.core.plan import Builder, Capabilities
from webgpu_ops.reference.activation import bias_gelu

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones(3, np.float32)
ADD = helper.make_node("Add", ["a", "b"], ["c"])


def gelu(inputs: Any = (A, B), attributes: Any = None, op: Any = "BiasGelu", **options: Any) -> Any:
    return run(op, inputs, attributes, **options)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gelu(None), "BiasGelu: inputs came as a NoneType"),
        (lambda: gelu(A), "BiasGelu: inputs came as one tensor"),
        (lambda: gelu([A.astype("M8[s]"), B]), r"BiasGelu: input A: NumPy dtype datetime64\[s\]"),
        (lambda: gelu(attributes=["x"]), "BiasGelu: attributes are a list"),
        (lambda: gelu(attributes={1: 2}), "BiasGelu: unknown attribute 1"),
        (lambda: gelu(op=5), "operator 5"),
        (lambda: gelu(opset="1"), "BiasGelu: opset is '1'"),
        (lambda: gelu(opset=1.5), "BiasGelu: opset is 1.5"),
        (lambda: gelu(device="x"), "BiasGelu: device is a str"),
        (lambda: gelu(device=0), "BiasGelu: device is a int"),
        (lambda: gelu(outputs=5), "BiasGelu: outputs is a int"),
        (lambda: gelu(outputs={"C": A}), "BiasGelu: output C is bound to a ndarray"),
        (
            lambda: run("SkipLayerNormalization", [A[None], A[None], B], {"epsilon": 10**400}),
            "SkipLayerNormalization: attribute epsilon",
        ),
    ],
)
def test_arguments_of_run(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(WebGpuOpsError, match=said):
        call()


def test_arrays_of_the_other_byte_order(device: Device) -> None:
    swapped = [x.astype(x.dtype.newbyteorder()) for x in (A, B)]
    (y,) = run("BiasGelu", swapped, device=device)
    np.testing.assert_allclose(y.numpy(), bias_gelu(A, B)[0], rtol=1e-5)
    assert Tensor.from_numpy(swapped[0], device).numpy().tobytes() == A.tobytes()


def test_two_outputs_cannot_be_bound_to_the_same_memory(device: Device) -> None:
    x = np.ones((1, 2, 4), np.float32)
    target = Tensor.from_numpy(np.full((2, 2, 4), 7, np.float32), device)
    bound = {"output": target.view(x.shape), "input_skip_bias_sum": target.view(x.shape, 4)}
    with pytest.raises(WebGpuOpsError, match="input_skip_bias_sum is bound to memory of output output"):
        run("SkipLayerNormalization", [x, x, x[0, 0]], outputs=bound, device=device)
    assert (target.numpy() == 7).all()


def test_a_kept_host_copy_does_not_follow_the_callers_array(device: Device) -> None:
    array = A.copy()
    tensor = Tensor.from_numpy(array, device, keep_host=True)
    array[:] = -1
    assert tensor.host is not None
    np.testing.assert_array_equal(tensor.host, tensor.numpy())


@pytest.mark.parametrize(
    "make",
    [
        lambda: SparseTensor.from_coo(np.ones(2), np.array([0, 99]), (2, 2)),
        lambda: SparseTensor.from_coo(np.ones(2), np.array([0, -1]), (2, 2)),
        lambda: SparseTensor.from_coo(np.ones(2), np.array([0.5, 1]), (2, 2)),
        lambda: SparseTensor.from_coo(np.ones(0), np.zeros(0, np.int64), (-2, 2)),
        lambda: SparseTensor.from_csr(np.ones(1), np.zeros(1, np.int64), np.zeros(0, np.int64), (-1, 2)),
        lambda: Tensor.empty((-1, 2), np.float32),
    ],
)
def test_impossible_tensors(make: Callable[[], Any]) -> None:
    with pytest.raises(WebGpuOpsError, match=r"shape|indices"):
        make()


# GroupQueryAttention and GatedDeltaNet


def gqa(window: int = -1, positions: Any = None, new: int = 1, past: int = 3) -> Any:
    x = np.ones((1, new, 4), np.float32)
    cache = np.ones((1, 1, past, 4), np.float32)
    total = new + past
    inputs = {
        "query": x,
        "key": x,
        "value": x,
        "past_key": cache,
        "past_value": cache,
        "seqlens_k": np.array([total - 1], np.int32),
        "total_sequence_length": np.array(total, np.int32),
    }
    attributes = {"num_heads": 1, "kv_num_heads": 1, "local_window_size": window}
    if positions is not None:
        table = np.ones((4, 2), np.float32)
        ids = np.array([positions], np.int64)
        inputs |= {"cos_cache": table, "sin_cache": table, "position_ids": ids}
        attributes["do_rotary"] = 1
    return plan("GroupQueryAttention", inputs, attributes, outputs=["output", "present_key", "present_value"])


@pytest.mark.parametrize("window", [(1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_a_window_beyond_every_cache(window: int) -> None:
    def uniforms(made: Any) -> list[Any]:
        return [dict(d.uniforms).get("behind") for d in made.dispatches]

    assert uniforms(gqa(window)) == uniforms(gqa(1 << 30))


@pytest.mark.parametrize(
    ("positions", "new", "past"), [([4], 1, 3), ([-1], 1, 3), ([1 << 40], 1, 3), ([4, 0, 0], 3, 0)]
)
def test_positions_outside_of_the_tables(positions: list[int], new: int, past: int) -> None:
    with pytest.raises(WebGpuOpsError, match=r"position_ids holds .*cos_cache has shape \(4, 2\)"):
        gqa(positions=positions, new=new, past=past)


def test_a_prompt_reads_the_first_position_only() -> None:
    assert gqa(positions=[1, 99, -7], new=3, past=0).dispatches


def test_a_number_that_no_shader_can_take() -> None:
    builder = Builder("Op", {}, ["y"], frozenset(), Capabilities())
    for value in (-1, 1 << 32, (3, 1 << 40)):
        with pytest.raises(WebGpuOpsError, match=r"Op: size of a/template is .*; expected 0 to 4294967295"):
            builder.dispatch("a/template", reads={}, writes={}, uniforms={"size": value}, threads=1)


# Sessions and the backend


def add_model(*initializers: Any) -> Any:
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "abc"]
    inputs = [v for v in values[:2] if v.name not in {t.name for t in initializers}]
    graph = helper.make_graph([ADD], "g", inputs, values[2:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_inputs_of_one_name() -> None:
    model = add_model()
    model.graph.input[1].name = "a"
    with pytest.raises(WebGpuOpsError, match="graph input 'a' is defined twice"):
        InferenceSession(model)


def test_initializers_of_one_name() -> None:
    twice = [numpy_helper.from_array(x, "b") for x in (A, A + 1)]
    with pytest.raises(WebGpuOpsError, match="initializer 'b' is defined twice"):
        InferenceSession(add_model(*twice))


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.run(5, {"a": A, "b": A}),
        lambda s: s.run([["c"]], {"a": A, "b": A}),
        lambda s: s.run_with_iobinding(None),
        lambda s: InferenceSession(add_model(), device="x"),
        lambda s: backend.run_model(add_model(), None),
        lambda s: backend.run_node(ADD, None),
        lambda s: backend.run_node(ADD, [A, A, A]),
        lambda s: backend.run_node("Add", [A, A]),
        lambda s: backend.run_node(ADD, [A, A], outputs_info=[]),
    ],
)
def test_sessions_and_backend(call: Callable[[Any], Any]) -> None:
    with pytest.raises(WebGpuOpsError):
        call(InferenceSession(add_model()))
