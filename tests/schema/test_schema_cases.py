"""The stored cases against the generic checks: no valid node is refused."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import onnx
import pytest

from webgpu_ops import schema
from webgpu_ops.conformance import Case, load_cases
from webgpu_ops.core import dtypes
from webgpu_ops.core.dtypes import DType
from webgpu_ops.errors import SchemaError

CASES = {
    operator: list(cases)
    for operator, cases in groupby(
        load_cases(Path(__file__).parents[1] / "conformance" / "cases"), key=lambda case: case.operator
    )
}


def _value_type(value: onnx.ValueInfoProto) -> DType | str:
    if value.type.HasField("sparse_tensor_type"):
        return f"sparse_{dtypes.from_onnx(value.type.sparse_tensor_type.elem_type).type_string}"
    return dtypes.from_onnx(value.type.tensor_type.elem_type)


def _check(model: onnx.ModelProto) -> Iterator[tuple[str, DType, DType]]:
    """Check every node; yield (output, type by the schema, declared type) where both are known."""
    opsets = {o.domain: o.version for o in model.opset_import}
    known = {v.name: _value_type(v) for v in model.graph.input}
    known |= {t.name: dtypes.from_onnx(t.data_type) for t in model.graph.initializer}
    declared = {v.name: _value_type(v) for v in model.graph.output}
    for node in model.graph.node:
        found = schema.find(node.op_type, node.domain, opsets[node.domain])
        schema.check_node(
            found,
            [n != "" for n in node.input],
            [n != "" for n in node.output],
            {a.name: a for a in node.attribute},
        )
        types: dict[str, DType | str | list[DType | str]] = {}
        for i, name in enumerate(node.input):
            p = found.inputs[min(i, len(found.inputs) - 1)]
            if p.variadic:
                types.setdefault(p.name, []).append(known[name])
            elif name:
                types[p.name] = known[name]
        by_schema = schema.output_types(found, schema.check_types(found, types))
        for i, name in enumerate(node.output):
            result = by_schema[found.outputs[min(i, len(found.outputs) - 1)].name]
            if result is not None:
                known[name] = result
                if name in declared:
                    yield name, result, declared[name]
            elif name in declared:
                known[name] = declared[name]


def _refusal(case: Case) -> str | None:
    try:
        list(_check(case.model))
    except SchemaError as error:
        return str(error)
    return None


@pytest.mark.parametrize("operator", CASES)
def test_valid_cases_pass_with_their_declared_types(operator):
    for case in CASES[operator]:
        if not case.meta.get("expect_error"):
            for name, by_schema, declared in _check(case.model):
                assert by_schema == declared, f"{case.name}: output {name}"


@pytest.mark.parametrize(
    ("operator", "name", "message"),
    [
        ("Attention@ai.onnx", "err_nonpad_int32", "input nonpad_kv_seqlen has type int32; expected int64"),
        ("Attention@ai.onnx", "err_types", "input K has type float16; expected float32, the type of Q"),
        ("Gelu", "err_no_inputs", "input X is required and was not given"),
        ("GreedySearch", "err_missing_decoder", "attribute decoder (graph) is required"),
        ("MurmurHash3", "err_type_int8", "input X has type int8; expected one of uint32"),
        ("NGramRepeatBlock", "err_type_int32", "input input_ids has type int32; expected int64"),
        ("NhwcMaxPool", "err_missing_kernel_shape", "attribute kernel_shape (ints) is required"),
        ("QLinearSoftmax", "err_missing_opset", "attribute opset (int) is required"),
        ("Snpe", "err_no_dlc", "attribute DLC (string) is required"),
    ],
)
def test_bad_cases_that_the_schema_alone_refuses(operator, name, message):
    (case,) = (c for c in CASES[operator] if c.name == name)
    refusal = _refusal(case)
    assert refusal is not None and message in refusal
