"""The command line: what it prints, its exit codes, and one clear line for bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from webgpu_ops import schema
from webgpu_ops.cli import main
from webgpu_ops.cli.run import file_names

CASES = Path(__file__).parents[1] / "conformance" / "cases"
README = Path(__file__).parents[2] / "README.md"


def _exit_code(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    return int(stopped.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of one BiasGelu, with output names that no file system likes."""
    nodes = [helper.make_node("BiasGelu", ["a", "b"], ["onnx::out/1"], domain="com.microsoft")]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [4]),
        ],
        [helper.make_tensor_value_info("onnx::out/1", TensorProto.FLOAT, ["n", 4])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    np.save(tmp_path / "a.npy", np.ones((2, 4), np.float32))
    np.save(tmp_path / "b.npy", np.zeros(4, np.float32))
    return path


def test_help_needs_no_gpu_library() -> None:
    code = (
        "import sys; from webgpu_ops.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert not e.code\n"
        "assert not {'wgpu', 'onnx', 'numpy', 'jinja2'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in ("info", "ops", "run", "verify", "render", "demo"):
        assert command in done.stdout


def test_info_names_the_adapter_and_the_type_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("info", "--portable") == 0
    out = capsys.readouterr().out
    assert "max storage buffers" in out and "bfloat16" in out and "software, on pairs of u32" in out
    assert _exit_code("info", "--check") == 0
    assert capsys.readouterr().out.strip()


def test_ops_lists_every_operator(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("ops") == 0
    out = capsys.readouterr().out
    assert all(op[:20] in out for op in schema.contrib_names())


def test_readme_holds_the_support_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("ops", "--markdown") == 0
    table = capsys.readouterr().out.strip()
    begin, end = "<!-- support table: make support -->\n", "\n<!-- end of support table -->"
    kept = README.read_text(encoding="utf-8").split(begin)[1].split(end)[0]
    assert kept.strip() == table, "run `make support`"


def test_run_writes_every_output(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results"
    code = _exit_code(
        "run",
        model,
        "--input",
        f"a={tmp_path / 'a.npy'}",
        "-i",
        f"b={tmp_path / 'b.npy'}",
        "--output-dir",
        out,
    )
    assert code == 0
    assert "onnx::out/1" in capsys.readouterr().out
    np.testing.assert_allclose(np.load(out / "onnx__out_1.npy"), np.full((2, 4), 0.841345), rtol=1e-5)


def test_output_files_are_distinct() -> None:
    names = ["a/b", "a:b", "A_b", "x"]
    files = file_names(names)
    assert list(files) == names
    assert len({f.lower() for f in files.values()}) == 4
    assert files["x"] == "x.npy"


def test_verify_stored_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "report.json"
    assert _exit_code("verify", "BiasGelu", "--cases", CASES, "--portable", "--json", report) == 0
    out = capsys.readouterr().out
    assert "BiasGelu" in out and "11 passed" in out and "0 failed" in out
    document = json.loads(report.read_text())
    assert document["mode"] == "portable" and document["features"] == []
    assert len(document["operators"]["BiasGelu"]) == 11
    assert all(entry["passed"] for entry in document["operators"]["BiasGelu"])


def test_verify_random_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("verify", "BiasGelu", "--samples", "3") == 0
    assert "3 passed" in capsys.readouterr().out


def test_verify_fails_with_1_and_names_the_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case whose stored answer is wrong."""
    folder = tmp_path / "BiasGelu" / "wrong"
    (folder / "test_data_set_0").mkdir(parents=True)
    meta = {"op": "BiasGelu", "domain": "com.microsoft", "rtol": 0.1, "atol": 0.1, "expect_error": False}
    (folder / "meta.json").write_text(json.dumps(meta))
    graph = helper.make_graph(
        [helper.make_node("BiasGelu", ["a", "b"], ["y"], domain="com.microsoft")],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "model.onnx")
    for name in ("input_0", "input_1", "output_0"):
        tensor = onnx.numpy_helper.from_array(np.ones(2, np.float32))
        (folder / "test_data_set_0" / f"{name}.pb").write_bytes(tensor.SerializeToString())
    assert _exit_code("verify", "--cases", tmp_path) == 1
    out = capsys.readouterr().out
    assert "wrong" in out and "1 failed" in out and "differs in 2 of 2" in out


def test_render_prints_wgsl_of_a_described_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("render", "BiasGelu", "-i", "A=float16[2,8]", "-i", "B=float16[8]", "--portable") == 0
    out = capsys.readouterr().out
    assert "// input A: float16 [2, 8]" in out
    assert "@compute" in out and "var<storage, read> a_data: array<u32>" in out and "enable f16" not in out


def test_render_prints_wgsl_of_a_random_call(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit_code("render", "SkipLayerNormalization", "-a", "epsilon=0.001") == 0
    assert "fn main" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify", "NoSuchOperator"], "NoSuchOperator"),
        (["render", "BiasGleu"], "BiasGelu"),
        (["verify", "BiasGelu", "--cases", "{tmp}/nowhere"], "nowhere does not exist"),
        (["verify", "BiasGelu", "--cases", __file__], "test_cli.py"),
        (["render", "BiasGelu", "-i", "A=float31[2]"], "float31[2]"),
        (["render", "BiasGelu", "-i", "A"], "expected NAME=VALUE"),
        (["render", "BiasGelu", "-i", "A=float32[2,3]", "-i", "B=float32[4]"], "B has shape (4,)"),
        (["render", "SkipLayerNormalization", "-a", "epsilon=small"], "epsilon"),
        (["render", "SkipLayerNormalization", "-a", "epsilom=1"], "epsilom"),
        (["run", "{tmp}/missing.onnx"], "missing.onnx"),
        (["run", "{tmp}/a.npy"], "a.npy"),
        (["run", "{tmp}/model.onnx"], "a"),
        (["run", "{tmp}/model.onnx", "-i", "a={tmp}/a.npy", "-i", "c={tmp}/b.npy"], "c"),
        (
            ["run", "{tmp}/model.onnx", "-i", "a={tmp}/none.npy", "-i", "b={tmp}/b.npy"],
            "none.npy does not exist",
        ),
        (["run", "{tmp}/model.onnx", "-i", "a={tmp}/model.onnx", "-i", "b={tmp}/b.npy"], "cannot be read"),
        (["run", "{tmp}/model.onnx", "-i", "a={tmp}/a.npy", "-i", "b={tmp}/a.npy"], "b"),
        (["demo", "embed", "only one"], "two sentences"),
        (["render"], "Missing argument 'OP'"),
        (["no-such-command"], "No such command"),
        (["verify", "--samples", "none"], "'--samples'"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], words: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _exit_code(*(a.replace("{tmp}", str(tmp_path)) for a in arguments)) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error
    assert words in error and "Traceback" not in error


def test_no_adapter_is_said_in_one_line() -> None:
    """A wish no adapter fits, in a process of its own because a device is made once."""
    code = "from webgpu_ops.cli import main; main(['info'])"
    environment = {**os.environ, "WEBGPU_OPS_ADAPTER": "no such adapter"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "error: no adapter matches 'no such adapter'" in done.stderr and "Traceback" not in done.stderr
