"""The generic checks: what passes is normalized, what does not fit is refused in words."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from webgpu_ops import schema
from webgpu_ops.core import dtypes
from webgpu_ops.errors import SchemaError


def check(op, attributes=None, inputs=None, outputs=(True,), domain="com.microsoft", opset=None):
    found = schema.find(op, domain, opset)
    given = [not p.optional for p in found.inputs] if inputs is None else inputs
    return schema.check_node(found, given, outputs, attributes or {})


def refusal(call, *args, **kwargs):
    with pytest.raises(SchemaError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("op", schema.contrib_names())
def test_every_operator_fills_its_defaults(op):
    found = schema.find(op)
    values = {"int": 3, "float": 0.5, "string": "x", "ints": [1, 2], "floats": [0.5], "strings": ["x"]}
    values["graph"] = helper.make_graph([], "g", [], [])
    needed = {n: values[a.type] for n, a in found.attributes.items() if a.required}
    checked = check(op, needed)
    with_default = {n for n, a in found.attributes.items() if a.default is not None}
    assert set(checked) == set(needed) | with_default
    for name in with_default:
        default = found.attributes[name].default
        assert checked[name] == (np.float32(default) if isinstance(default, float) else default)
    for name in needed:
        message = refusal(check, op, {k: v for k, v in needed.items() if k != name})
        assert message == f"{op}: attribute {name} ({found.attributes[name].type}) is required"


# Attributes


def test_python_values_are_normalized():
    checked = check("MatMulNBits", {"K": np.int64(32), "N": True, "block_size": 16, "bits": np.int8(4)})
    assert checked["K"] == 32 and type(checked["K"]) is int
    assert checked["N"] == 1 and type(checked["N"]) is int
    assert checked["bits"] == 4
    assert "weight_prepacked" not in checked or isinstance(checked["weight_prepacked"], int)


def test_an_int_is_good_for_a_float_and_floats_are_float32():
    checked = check("QuickGelu", {"alpha": 2})
    assert checked["alpha"] == 2.0 and type(checked["alpha"]) is float
    assert check("QuickGelu", {"alpha": 0.1})["alpha"] == float(np.float32(0.1))
    assert check("QuickGelu")["alpha"] == float(np.float32(1.702))
    assert math.isinf(check("QuickGelu", {"alpha": -math.inf})["alpha"])


def test_lists_come_from_any_sequence():
    need = {"num_heads": 2}
    for given in ([2, 2, 4], (2, 2, 4), np.array([2, 2, 4], np.int32)):
        assert check("Attention", {**need, "qkv_hidden_sizes": given})["qkv_hidden_sizes"] == [2, 2, 4]
    assert check("Attention", {**need, "qkv_hidden_sizes": []})["qkv_hidden_sizes"] == []


def test_none_counts_as_not_given():
    assert "scale" not in check("Attention", {"num_heads": 2, "scale": None})


def test_protos_are_unpacked():
    node = helper.make_node(
        "AttnLSTM", ["x"], ["y"], hidden_size=3, clip=0.1, activations=["Tanh", "Relu"], direction="reverse",
        activation_alpha=[0.1, 2.0],
    )  # fmt: skip
    checked = check("AttnLSTM", {a.name: a for a in node.attribute})
    assert checked["hidden_size"] == 3
    assert checked["clip"] == float(np.float32(0.1))
    assert checked["activations"] == ["Tanh", "Relu"]
    assert checked["direction"] == "reverse"
    assert checked["activation_alpha"] == [float(np.float32(0.1)), 2.0]


def test_graphs_and_tensors():
    graph = helper.make_graph([], "g", [], [])
    assert check("GreedySearch", {"decoder": graph, "eos_token_id": 1, "pad_token_id": 0})["decoder"] is graph
    value = helper.make_tensor("v", TensorProto.INT32, [1], [7])
    given = check("ConstantOfShape", {"value": value}, domain="", opset=21)["value"]
    assert given.dtype == np.int32 and given.tolist() == [7]


def test_bytes_that_are_no_text_survive():
    payload = bytes(range(256))
    text = check("EPContext", {"ep_cache_context": helper.make_attribute("ep_cache_context", payload)})
    assert text["ep_cache_context"].encode("utf-8", "surrogateescape") == payload


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"alphax": 1.0}, "QuickGelu: unknown attribute alphax; did you mean alpha?"),
        ({"q": 1.0}, "QuickGelu: unknown attribute q; it has alpha"),
        ({"alpha": "1"}, "QuickGelu: attribute alpha is '1' (str); expected a float (32 bits)"),
        ({"alpha": True}, "QuickGelu: attribute alpha is True (bool); expected a float (32 bits)"),
        ({"alpha": 1e39}, "QuickGelu: attribute alpha is 1e+39 (float); expected a float (32 bits)"),
        ({"alpha": [1.0]}, "QuickGelu: attribute alpha is [1.0] (list); expected a float (32 bits)"),
    ],
)
def test_float_attributes_are_refused(attributes, message):
    assert refusal(check, "QuickGelu", attributes) == message


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_heads", 2.0, "attribute num_heads is 2.0 (float); expected an int (64 bits)"),
        ("num_heads", 2**63, "attribute num_heads is 9223372036854775808 (int); expected an int (64 bits)"),
        ("qkv_hidden_sizes", 3, "attribute qkv_hidden_sizes is 3 (int); expected a list of int"),
        ("qkv_hidden_sizes", [1.5], "attribute qkv_hidden_sizes is [1.5] (list); expected a list of int"),
        ("qkv_hidden_sizes", "12", "attribute qkv_hidden_sizes is '12' (str); expected a list of int"),
        ("num_heads", helper.make_attribute("num_heads", 1.5), "num_heads is 1.5 (float); expected an int"),
        ("num_heads", helper.make_attribute("num_heads", "a"), "num_heads is b'a' (bytes); expected an int"),
    ],
)
def test_other_attributes_are_refused(name, value, message):
    text = refusal(check, "Attention", {"num_heads": 2, name: value})
    assert text.startswith("Attention: ") and message in text


def test_string_and_graph_attributes_are_refused():
    assert "expected a string" in refusal(check, "CDist", {"metric": 3})
    need = {"eos_token_id": 1, "pad_token_id": 0}
    assert "decoder is 'x' (str); expected a GraphProto" in refusal(
        check, "GreedySearch", {**need, "decoder": "x"}
    )


def test_a_reference_to_a_function_attribute_is_refused():
    reference = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="beta")
    assert "attribute alpha refers to beta of a function" in refusal(check, "QuickGelu", {"alpha": reference})


def test_an_operator_without_attributes_says_so():
    assert refusal(check, "BiasGelu", {"x": 1}) == "BiasGelu: unknown attribute x; it has none"


# Arity


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "message"),
    [
        ("BiasGelu", [True], [True], "BiasGelu: input B is required and was not given"),
        ("BiasGelu", [False, True], [True], "BiasGelu: input A is required and was not given"),
        ("BiasGelu", [True] * 3, [True], "BiasGelu: 3 inputs came; expected at most 2 (A, B)"),
        ("BiasGelu", [True] * 2, [True] * 2, "BiasGelu: 2 outputs came; expected at most 1 (C)"),
        ("BiasGelu", [True] * 2, [], "BiasGelu: no output is wanted; it gives C"),
        ("BiasGelu", [True] * 2, [False], "BiasGelu: no output is wanted; it gives C"),
        ("IsAllFinite", [], [True], "IsAllFinite: input came with 0 values; expected 1 or more"),
        ("QLinearAdd", [True] * 6, [True], "QLinearAdd: input C_scale is required and was not given"),
    ],
)
def test_arity_is_refused(op, inputs, outputs, message):
    assert message in refusal(check, op, None, inputs, outputs)


def test_gaps_trailing_gaps_and_lists_pass():
    check("QLinearAdd", None, [True, True, False, True, True, False, True])
    check("BiasGelu", None, [True, True, False, False])
    check("QLinearConcat", {"axis": 0}, [True] * 50)
    check("EPContext", None, [], [True] * 5)
    check("AttnLSTM", None, [True] * 3, [False, True])


# Types


def types(op, inputs, domain="com.microsoft", opset=None):
    return schema.check_types(schema.find(op, domain, opset), inputs)


def test_type_variables_are_bound():
    assert types("BiasGelu", {"A": dtypes.float16, "B": dtypes.float16}) == {"T": dtypes.float16}
    bound = types("MultiHeadAttention", {"query": dtypes.float32, "key": None})
    assert bound["T"] == dtypes.float32


def test_concrete_types():
    q = {"query": dtypes.float32, "seqlens_k": dtypes.int32}
    assert types("GroupQueryAttention", {**q, "position_ids": dtypes.int64})["M"] == dtypes.int32
    assert refusal(types, "GroupQueryAttention", {**q, "position_ids": dtypes.int32}) == (
        "GroupQueryAttention: input position_ids has type int32; expected int64"
    )


def test_types_outside_the_constraint_are_refused():
    assert refusal(types, "BiasGelu", {"A": dtypes.int32}) == (
        "BiasGelu: input A has type int32; expected one of float16, float32, float64, bfloat16 (T)"
    )


def test_inputs_of_one_variable_agree():
    assert refusal(types, "BiasGelu", {"A": dtypes.float16, "B": dtypes.float32}) == (
        "BiasGelu: input B has type float32; expected float16, the type of A (both are T)"
    )


def test_variadic_inputs():
    assert types("IsAllFinite", {"input": [dtypes.float16, dtypes.float16]}) == {"V": dtypes.float16}
    assert refusal(types, "IsAllFinite", {"input": [dtypes.float16, dtypes.float32]}) == (
        "IsAllFinite: input input[1] has type float32; expected float16, the type of input[0] (both are V)"
    )
    mixed = {"Y_scale": dtypes.float32, "Y_zero_point": dtypes.uint8}
    assert types("QLinearConcat", {**mixed, "inputs": [dtypes.uint8, dtypes.float32, dtypes.uint8]}) == {
        "TF": dtypes.float32,
        "T8": dtypes.uint8,
    }
    assert "input inputs[1] has type int32" in refusal(
        types, "QLinearConcat", {**mixed, "inputs": [dtypes.uint8, dtypes.int32]}
    )


def test_sparse_inputs():
    bound = types("SparseToDenseMatMul", {"A": "sparse_tensor(float)", "B": dtypes.float32})
    assert bound == {"T": dtypes.float32, "T1": dtypes.float32}
    assert "input A has type float32; expected one of sparse_tensor(float)" in refusal(
        types, "SparseToDenseMatMul", {"A": dtypes.float32, "B": dtypes.float32}
    )


def test_unknown_input_names_are_refused():
    assert refusal(types, "BiasGelu", {"X": dtypes.float32}) == "BiasGelu: no input X; expected A, B"


def test_output_types():
    gqa = schema.find("GroupQueryAttention")
    assert schema.output_types(gqa, {"T": dtypes.float16, "T_CACHE": dtypes.int8}) == {
        "output": dtypes.float16,
        "present_key": dtypes.int8,
        "present_value": dtypes.int8,
        "output_qk": dtypes.float16,
    }
    assert schema.output_types(schema.find("IsAllFinite"), {"V": dtypes.float32}) == {"output": dtypes.bool_}
    assert schema.output_types(schema.find("DequantizeWithOrder"), {})["output"] is None
