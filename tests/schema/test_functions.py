"""The typed functions: names, signatures, docstrings, stub file, and how they call ``run``."""

import inspect
import keyword
import math
import subprocess
import sys
import typing

import numpy as np
import pytest

import webgpu_ops.api
from webgpu_ops import ops, schema
from webgpu_ops.api import supported_ops
from webgpu_ops.core.tensor import Tensor
from webgpu_ops.schema import read, signatures, stubs


def test_names_are_unique_identifiers_of_all_operators():
    names = schema.functions()
    assert len(names) == 142
    assert {op for domain, op in names.values() if domain} == set(schema.contrib_names())
    assert names["attention_onnx"] == ("", "Attention")
    for name, (domain, op) in names.items():
        assert name.isidentifier() and name.islower() and not keyword.iskeyword(name)
        assert schema.snake_case(op) == name or not domain
    assert set(names) <= set(dir(ops))
    assert set(ops.__all__) == set(names)


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("GroupQueryAttention", "group_query_attention"),
        ("MatMulNBits", "matmul_nbits"),
        ("MatMulBnb4", "matmul_bnb4"),
        ("MatMulFpQ4", "matmul_fp_q4"),
        ("DynamicQuantizeMatMul", "dynamic_quantize_matmul"),
        ("QOrderedMatMul", "qordered_matmul"),
        ("QGemm", "qgemm"),
        ("QMoE", "qmoe"),
        ("MoE", "moe"),
        ("CDist", "cdist"),
        ("GatherND", "gather_nd"),
        ("DequantizeBFP", "dequantize_bfp"),
        ("QLinearAdd", "qlinear_add"),
        ("RMSNormRotary", "rms_norm_rotary"),
        ("BranchwiseRMSNorm", "branchwise_rms_norm"),
        ("MRotaryEmbedding", "mrotary_embedding"),
        ("VarlenNGramHashMapping", "varlen_ngram_hash_mapping"),
        ("ScaledSiLU", "scaled_silu"),
        ("EPContext", "ep_context"),
        ("AttnLSTM", "attn_lstm"),
        ("MurmurHash3", "murmur_hash3"),
        ("SampleOp", "sample_op"),
    ],
)
def test_snake_case(op, name):
    assert schema.snake_case(op) == name


@pytest.mark.parametrize("name", schema.functions())
def test_signature_and_docstring_follow_the_schema(name):
    domain, op = schema.functions()[name]
    found = schema.find(op, domain, None if domain else 24)
    function = getattr(ops, name)
    assert function is getattr(ops, name)
    assert (function.__name__, function.__module__) == (name, "webgpu_ops.ops")
    signature = inspect.signature(function)
    given = {n.removesuffix("_"): p for n, p in signature.parameters.items()}

    tail = ["outputs", "device"] if domain else ["opset", "outputs", "device"]
    assert list(given)[-len(tail) :] == tail
    assert list(given)[: len(found.inputs)] == [p.name for p in found.inputs]
    assert set(given) == {p.name for p in found.inputs} | set(found.attributes) | set(tail)
    for p in found.inputs:
        kind = inspect.Parameter.VAR_POSITIONAL if p.variadic else inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert given[p.name].kind is kind
        if p.optional:
            assert given[p.name].default is None
    for attribute in found.attributes.values():
        parameter = given[attribute.name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == (inspect.Parameter.empty if attribute.required else attribute.default)
    assert set(typing.get_type_hints(function)) == {*signature.parameters, "return"}

    text = function.__doc__
    assert text.startswith(found.doc)
    for word in [
        *(p.name for p in (*found.inputs, *found.outputs)),
        *found.attributes,
        op,
        "Raises",
        "Source",
    ]:
        assert word in text


def test_the_docstring_tells_defaults_types_and_source():
    text = ops.skip_layer_normalization.__doc__
    assert "    epsilon: float, 1e-12 by default" in text
    assert "    bias: T, optional" in text
    assert "    T: float32, float16" in text
    assert "ONNX Runtime contrib operators, com.microsoft 1 (SkipLayerNormalization)" in text


def test_descriptions_are_of_what_the_operators_have():
    """Every operator that runs is described, and whoever describes one describes all of it."""
    described = read.described()
    assert {op for domain, op in supported_ops() if domain} <= set(described)
    for key, texts in described.items():
        op, _, standard = key.partition("@")
        found = schema.find(op, "", signatures.ATTENTION_OPSET) if standard else schema.find(op)
        parameters = {p.name for p in (*found.inputs, *found.outputs)} | set(found.attributes)
        assert set(texts) == parameters, key
        assert all(text and not text.endswith(".") for text in texts.values()), key


def test_the_docstring_describes():
    text = " ".join(ops.group_query_attention.__doc__.split())
    assert schema.descriptions(schema.find("GroupQueryAttention"))["seqlens_k"] in text


def test_the_docstring_of_what_is_missing_says_so():
    missing = [n for n, (domain, op) in schema.functions().items() if (domain, op) not in supported_ops()]
    for name in missing[:3]:
        assert "Not implemented yet" in getattr(ops, name).__doc__
    assert "Not implemented yet" not in ops.bias_gelu.__doc__


@pytest.mark.parametrize(("name", "meant"), [("mat_mul_n_bits", "matmul_nbits"), ("BiasGelu", "bias_gelu")])
def test_near_names_are_suggested(name, meant):
    with pytest.raises(AttributeError, match=f"did you mean {meant}"):
        getattr(ops, name)


def test_unknown_functions_are_attribute_errors():
    with pytest.raises(AttributeError, match="no operator has the function name 'nothing_like_it'"):
        _ = ops.nothing_like_it


def test_missing_arguments_are_named():
    with pytest.raises(TypeError, match=r"bias_gelu\(\) missing 1 required positional argument: 'B'"):
        ops.bias_gelu(np.zeros(1, np.float32))
    with pytest.raises(TypeError, match="num_heads"):
        ops.attention(np.zeros(1), np.zeros(1))


def test_functions_are_made_on_demand():
    code = (
        "from webgpu_ops import ops; before = 'moe' in vars(ops); ops.moe; "
        "print(before, 'moe' in vars(ops), 'qmoe' in vars(ops))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "False"]


# Calls, with ``run`` replaced by a recorder


@pytest.fixture
def calls(monkeypatch):
    made = []

    def run(op, inputs, attributes, **options):
        made.append((op, dict(inputs), dict(attributes), options))
        found = schema.find(op, options["domain"], options["opset"])
        wanted = found.required_outputs if options["outputs"] is None else options["outputs"]
        slots = schema.slot_names(found.outputs, max(len(found.outputs), len(wanted)))
        return [f"<{n}>" if n in wanted else None for n in slots]

    monkeypatch.setattr(webgpu_ops.api, "run", run)
    return made


def test_a_call_passes_everything_by_name(calls):
    assert ops.bias_gelu("a", B="b") == "<C>"
    options = {"domain": "com.microsoft", "opset": 1, "outputs": None, "device": None}
    assert calls == [("BiasGelu", {"A": "a", "B": "b"}, {}, options)]


def test_defaults_gaps_and_keywords_that_python_reserves(calls):
    ops.longformer_attention("x", "w", "b", "m", "gw", "gb", "g", num_heads=2, window=4)
    op, inputs, attributes, _ = calls[0]
    assert op == "LongformerAttention"
    assert inputs["global"] == "g" and list(inputs) == [p.name for p in schema.find(op).inputs]
    assert attributes == {"num_heads": 2, "window": 4}
    ops.qlinear_add("a", "as", None, "b", "bs", None, "cs")
    assert calls[1][1]["A_zero_point"] is None and calls[1][1]["C_scale"] == "cs"


def test_lists_of_inputs_are_positional(calls):
    ops.qlinear_concat("ys", "yz", "a", "as", "az", axis=1)
    assert calls[0][1] == {"Y_scale": "ys", "Y_zero_point": "yz", "inputs": ("a", "as", "az")}
    ops.is_all_finite("a", "b")
    assert calls[1][1] == {"input": ("a", "b")}


def test_outputs_come_in_the_order_asked_for(calls):
    assert ops.causal_conv_with_state("x", "w") == ("<output>", "<present_state>")
    assert ops.attention("x", "w", num_heads=2) == "<output>"
    assert ops.attention("x", "w", num_heads=2, outputs=["present", "output"]) == ("<present>", "<output>")
    assert ops.attention("x", "w", num_heads=2, outputs=["present"]) == "<present>"
    bound = {"output": None, "present": "buffer"}
    assert ops.attention("x", "w", num_heads=2, outputs=bound) == ("<output>", "<present>")
    assert calls[-1][3]["outputs"] is bound
    names = ["outputs[0]", "outputs[1]"]
    assert ops.ep_context("x", outputs=names) == ("<outputs[0]>", "<outputs[1]>")


def test_onnx_attention_takes_an_opset(calls):
    ops.attention_onnx("q", "k", "v")
    ops.attention_onnx("q", "k", "v", opset=23)
    assert [c[3]["opset"] for c in calls] == [24, 23]
    assert calls[0][3]["domain"] == ""


# The stub file


def test_the_stub_file_is_up_to_date():
    written = stubs.path().read_text(encoding="utf-8")
    assert written == stubs.render(), "run `python -m webgpu_ops.schema.stubs`"


def test_the_stub_file_has_each_function_and_compiles():
    text = stubs.render()
    compile(text, "ops.pyi", "exec")
    for name in schema.functions():
        assert f"\ndef {name}(" in text


def test_a_real_call_returns_a_tensor(device):
    a = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    b = np.array([0, 1, -1, 0.5], np.float32)
    c = ops.bias_gelu(a, b, device=device)
    assert isinstance(c, Tensor)
    want = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in (a + b).ravel().tolist()]
    np.testing.assert_allclose(c.numpy().ravel(), want, rtol=1e-5, atol=1e-6)
