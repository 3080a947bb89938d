"""Schemas load whole, and unknown operators are refused by name."""

import pytest

from webgpu_ops import schema
from webgpu_ops.errors import SchemaError


def test_all_contrib_operators_load():
    assert len(schema.contrib_names()) == 141
    for op in schema.contrib_names():
        found = schema.find(op, "com.microsoft", 1)
        assert (found.name, found.domain, found.since_version) == (op, "com.microsoft", 1)
        assert found.doc and found.outputs and found.required_outputs
        for p in (*found.inputs, *found.outputs):
            assert all(t.endswith(")") for t in found.allowed_types(p)), f"{op}: {p}"
        least, most = found.input_count
        variadic = [p for p in found.inputs if p.variadic]
        assert most == (None if variadic else len(found.inputs))
        assert least >= sum(not (p.optional or p.variadic) for p in found.inputs)
        assert variadic in ([], list(found.inputs[-1:]))


def test_schemas_are_read_once():
    assert schema.find("BiasGelu") is schema.find("BiasGelu")
    assert schema.find("Relu", "ai.onnx", 21) is schema.find("Relu", "", 21)


def test_float_defaults_are_the_shortest_decimal():
    assert schema.find("GroupNorm").attributes["epsilon"].default == 1e-5
    assert schema.find("EmbedLayerNormalization").attributes["epsilon"].default == 1e-12
    assert schema.find("Sampling").attributes["filter_value"].default == -1e20


def test_variadic_parameters():
    (concat,) = (p for p in schema.find("QLinearConcat").inputs if p.variadic)
    assert (concat.name, concat.min_count, concat.homogeneous) == ("inputs", 1, False)
    (finite,) = schema.find("IsAllFinite").inputs
    assert (finite.variadic, finite.min_count, finite.homogeneous) == (True, 1, True)
    (context,) = schema.find("EPContext").inputs
    assert context.min_count == 0


def test_required_outputs():
    assert schema.find("GroupQueryAttention").required_outputs == ("output",)
    assert schema.find("AttnLSTM").required_outputs == ("Y", "Y_h", "Y_c")  # the schema requires none
    assert schema.find("EPContext").required_outputs == ("outputs[0]",)


def test_standard_operators_follow_the_opset():
    assert [p.name for p in schema.find("Attention", "", 23).inputs][-1] == "past_value"
    assert [p.name for p in schema.find("Attention", "", 24).inputs][-1] == "nonpad_kv_seqlen"
    assert schema.find("Softmax", "", 11).attributes["axis"].default == 1
    assert schema.find("Softmax", "", 13).attributes["axis"].default == -1
    loop = schema.find("Loop", "", 21)
    assert loop.input_count == (2, None)
    assert loop.inputs[-1].min_count == 0


def test_simplified_layer_normalization_is_a_standard_operator_of_onnx_runtime():
    found = schema.find("SimplifiedLayerNormalization", "", 21)
    assert [p.name for p in found.inputs] == ["X", "scale"]
    assert {n: a.default for n, a in found.attributes.items()} == {
        "axis": -1,
        "epsilon": 1e-5,
        "stash_type": 1,
    }
    assert found.required_outputs == ("Y",)


@pytest.mark.parametrize(
    ("op", "domain", "opset", "message"),
    [
        (
            "BiasGelo",
            "com.microsoft",
            1,
            "BiasGelo: com.microsoft has no such operator; did you mean BiasGelu",
        ),
        ("biasgelu", "com.microsoft", 1, "did you mean BiasGelu"),
        ("Xyzzy", "com.microsoft", 1, "Xyzzy: com.microsoft has no such operator"),
        ("Conf", "", 21, "Conf: ai.onnx has no such operator; did you mean Conv"),
        ("Attention", "", 21, "Attention: ai.onnx has it since opset 23; the model imports opset 21"),
        ("BiasGelu", "com.microsoft", 0, "since opset 1; the model imports opset 0"),
        ("Relu", "", 9999, "Relu: ai.onnx opset 9999 is newer than"),
        ("Upsample", "", 21, "Upsample: ai.onnx has deprecated it since opset 10"),
        ("Relu", "my.domain", 1, "Relu: domain 'my.domain' is not known"),
    ],
)
def test_unknown_operators_are_refused(op, domain, opset, message):
    with pytest.raises(SchemaError) as refusal:
        schema.find(op, domain, opset)
    assert message in str(refusal.value)


def test_slot_names():
    concat = schema.find("QLinearConcat").inputs
    assert schema.slot_names(concat, 4) == ["Y_scale", "Y_zero_point", "inputs[0]", "inputs[1]"]
    assert schema.slot_names(schema.find("BiasGelu").inputs, 1) == ["A", "B"]
