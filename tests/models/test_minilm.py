"""paraphrase-MiniLM-L3 as shipped (standard operators) and fused (contrib operators)."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from webgpu_ops import InferenceSession
from webgpu_ops.core.device import Device
from webgpu_ops.demos import embed, minilm

DATA = Path(__file__).parent / "paraphrase-minilm-l3"
README = Path(__file__).parents[2] / "README.md"
FORMS = {"as shipped": minilm.model_path, "fused": minilm.fused_path}
pytestmark = pytest.mark.xdist_group("minilm")


def _load(name: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{name}.npz") as data:
        return dict(data)


@pytest.mark.parametrize("form", FORMS)
def test_equals_the_stored_outputs(form: str, device: Device) -> None:
    session = InferenceSession(str(FORMS[form]()), device=device)
    wanted = _load("expected")
    got = session.run(list(wanted), _load("inputs"))
    for name, value in zip(wanted, got, strict=True):
        np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=2e-5, err_msg=name)


def test_fused_form_is_made_of_contrib_operators() -> None:
    graph = onnx.load(minilm.fused_path()).graph
    counts = Counter(n.op_type for n in graph.node if n.domain == "com.microsoft")
    assert counts == {
        "EmbedLayerNormalization": 1,
        "Attention": 3,
        "SkipLayerNormalization": 6,
        "BiasGelu": 3,
    }


def test_tokenizer_gives_the_stored_inputs() -> None:
    """The demo's four sentences are those of the stored inputs."""
    feeds = minilm.tokenize(embed.SENTENCES)
    for name, value in _load("inputs").items():
        np.testing.assert_array_equal(feeds[name], value)


def test_another_length_gives_the_same_embedding(device: Device) -> None:
    """A sentence alone, without padding, equals the same sentence in the padded batch."""
    session = InferenceSession(str(minilm.fused_path()), device=device)
    (alone,) = session.run([minilm.EMBEDDING], minilm.tokenize(embed.SENTENCES[1:2]))
    want = _load("expected")[minilm.EMBEDDING][1:2]
    np.testing.assert_allclose(alone, want, rtol=1e-4, atol=2e-5)


def test_readme_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    first, loop = (
        part.split("```")[0] for part in README.read_text(encoding="utf-8").split("```python\n")[1:]
    )
    exec(compile(first, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "(2, 8, 64) float16" in out
    similarity = np.array(re.findall(r"-?\d\.\d*(?:e-\d+)?", out.split("[[")[1]), float).reshape(3, 3)
    assert similarity[0, 1] > 0.5 > similarity[0, 2]
    exec(compile(loop, "README.md", "exec"), {})
    assert "(1, 1, 512)" in capsys.readouterr().out


def test_guitars_are_alike() -> None:
    similarity = minilm.similarities(_load("expected")[minilm.EMBEDDING])
    assert similarity[0, 1] > 0.6
    assert np.abs(similarity[np.triu_indices(4, 1)][1:]).max() < 0.1
