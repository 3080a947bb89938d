"""The judge itself: what it reads, what it lets pass, what it must not let pass. No GPU."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from webgpu_ops import SparseTensor, backend
from webgpu_ops.compare import EXACT, compare
from webgpu_ops.conformance import Case, load_cases, qualified, run_case, split_qualified
from webgpu_ops.errors import ModelError, ShapeError

CASES = Path(__file__).parent / "cases"
F32 = np.float32


def _case(operator: str, name: str) -> Case:
    return next(c for c in load_cases(CASES / f"{operator}.zip") if c.name == name)


def _answer_with(monkeypatch: pytest.MonkeyPatch, answer: Callable[[list[Any]], Any]) -> None:
    """Let the backend answer with ``answer(inputs)``."""
    monkeypatch.setattr(backend, "prepare", lambda model, device: SimpleNamespace(run=answer))


@pytest.mark.parametrize(
    ("got", "want", "tolerance", "fault"),
    [
        (np.ones(3, F32), np.ones((3, 1), F32), EXACT, "shape (3,)"),
        (np.ones(3, F32), np.ones(3, np.float16), EXACT, "type float32"),
        (np.ones(3, np.int64) * 2**53 + 1, np.ones(3, np.int64) * 2**53, EXACT, "3 of 3"),
        (np.array([1.0, 2.1], F32), np.array([1.0, 2.0], F32), (0.04, 0.01), "1 of 2 values, first at [1]"),
        (np.array([1e30], F32), np.array([np.inf], F32), (0.1, 0.1), "got"),
        (np.array([np.nan], F32), np.array([1], F32), (1.0, 1.0), "nan"),
        (np.array([1], F32), np.array([np.nan], F32), (1.0, 1.0), "nan"),
        (np.array([-np.inf], F32), np.array([np.inf], F32), (1.0, 1.0), "inf"),
        (np.array(1, np.uint8), np.array(255, np.uint8), (0.0, 1.0), "1 of 1"),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), EXACT, "first at [1]"),
    ],
)
def test_compare_sees_a_difference(
    got: np.ndarray, want: np.ndarray, tolerance: tuple[float, float], fault: str
) -> None:
    verdict = compare(got, want, tolerance)
    assert not verdict.agrees
    assert fault in verdict.message


@pytest.mark.parametrize(
    ("got", "want", "tolerance"),
    [
        (np.array([1.0, 2.05], F32), np.array([1.0, 2.0], F32), (0.03, 0.0)),
        (np.array([np.nan, np.inf, -0.0], F32), np.array([np.nan, np.inf, 0.0], F32), EXACT),
        (np.array([1, 2], ml_dtypes.int4), np.array([1, 2], ml_dtypes.int4), EXACT),
        (np.array([1, 2], ml_dtypes.bfloat16), np.array([1, 2.01], ml_dtypes.bfloat16), (0.01, 0.0)),
        (np.array([1 + 1j], np.complex64), np.array([1 + 1j], np.complex64), (1e-4, 0.0)),
        (np.array(["ä"], object), np.array(["ä"]), EXACT),
        (np.empty((0, 3), F32), np.empty((0, 3), F32), EXACT),
    ],
)
def test_compare_lets_equals_pass(got: np.ndarray, want: np.ndarray, tolerance: tuple[float, float]) -> None:
    assert compare(got, want, tolerance).message == ""


def test_compare_bytes_and_masks() -> None:
    quiet, payload = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(F32)
    assert compare(F32(quiet).reshape(1), F32(payload).reshape(1)).agrees
    assert not compare(F32([quiet, 0]), F32([payload, 0]), bitwise=True).agrees
    assert not compare(F32([-0.0]), F32([0.0]), bitwise=True).agrees
    assert compare(F32([1, 7]), F32([1, 2]), ignore=np.array([False, True])).agrees
    assert compare(F32([-0.0, 2]), F32([0.0, 2]), bitwise=True, ignore=np.array([True, False])).agrees


def test_compare_reports_the_largest_error() -> None:
    got, want = F32([1.5, 2, 100, np.inf]), F32([1, 2, 1, np.inf])
    verdict = compare(got, want, (0, 2), ignore=np.array([False, False, True, False]))
    assert (verdict.error, verdict.used) == (0.5, 0.25)


def test_every_stored_case_is_read_and_passes_on_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = load_cases(CASES)
    assert len(cases) > 2700
    for case in cases:
        if case.meta["expect_error"] or "check" in case.meta:
            continue
        want = case.outputs
        monkeypatch.setattr(
            backend, "prepare", lambda model, device, want=want: SimpleNamespace(run=lambda _: want)
        )
        assert run_case(case, device=None).message == "", (case.operator, case.name)  # type: ignore[arg-type]


def test_a_wrong_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(
        c for c in load_cases(CASES / "BiasGelu.zip") if not c.meta["expect_error"] and c.outputs[0].size
    )
    wrong = case.outputs[0].copy()
    wrong.flat[0] += 1
    _answer_with(monkeypatch, lambda _: [wrong])
    assert "differs in 1 of" in run_case(case, None).message  # type: ignore[arg-type]
    _answer_with(monkeypatch, lambda _: [])
    assert "returned 0 outputs; expected 1" in run_case(case, None).message  # type: ignore[arg-type]


def _refused(message: str) -> Callable[[list[Any]], Any]:
    def answer(_: list[Any]) -> Any:
        raise ShapeError(message)

    return answer


def _crash(_: list[Any]) -> Any:
    return {}["nothing"]


def test_errors_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = next(c for c in load_cases(CASES / "BiasGelu.zip") if c.meta["expect_error"])
    good = next(c for c in load_cases(CASES / "BiasGelu.zip") if not c.meta["expect_error"])
    for answer, case, fault in [
        (_refused("BiasGelu: B has shape (2,); expected (3,)"), bad, ""),
        (_refused(" "), bad, "refused without a message"),
        (lambda _: [], bad, "accepted; expected an error"),
        (_crash, bad, "raised KeyError"),
        (_crash, good, "raised KeyError"),
        (_refused("no"), good, "refused: no"),
    ]:
        _answer_with(monkeypatch, answer)
        outcome = run_case(case, None)  # type: ignore[arg-type]
        assert (fault in outcome.message) and outcome.passed == (fault == "")


def _dropout(case: Case, dropped: float, seed: int = 3) -> Callable[[list[Any]], list[np.ndarray]]:
    """What a right implementation of BitmaskBiasDropout gives, dropping the fraction ``dropped``."""

    def answer(inputs: list[Any]) -> list[np.ndarray]:
        data, bias, residual = (inputs[case.meta[key]] for key in ("data", "bias", "residual"))
        keep = np.random.default_rng(seed).random(data.size) >= dropped
        full = (data.astype(np.float64) + bias) * case.meta["scale"]
        y = np.where(keep.reshape(data.shape), full, 0) + residual
        padded = np.concatenate([keep, np.ones(-keep.size % 32, bool)])
        mask = np.packbits(padded, bitorder="little").view(np.uint32)
        return [y.astype(data.dtype), mask]

    return answer


def test_dropout_is_judged_by_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    case = _case("BitmaskBiasDropout", "train_default_ratio")
    right = _dropout(case, case.meta["ratio"])
    _answer_with(monkeypatch, right)
    assert run_case(case, None).message == ""  # type: ignore[arg-type]

    _answer_with(monkeypatch, _dropout(case, 0.99))
    assert "dropped" in run_case(case, None).message  # type: ignore[arg-type]

    _answer_with(monkeypatch, lambda inputs: [right(inputs)[0], ~right(inputs)[1]])
    assert "differs" in run_case(case, None).message  # type: ignore[arg-type]

    _answer_with(monkeypatch, lambda inputs: [right(inputs)[0] * 2, right(inputs)[1]])
    assert "differs" in run_case(case, None).message  # type: ignore[arg-type]

    seeds = iter(range(10))
    _answer_with(monkeypatch, lambda inputs: _dropout(case, case.meta["ratio"], next(seeds))(inputs))
    assert "same seed" in run_case(case, None).message  # type: ignore[arg-type]


def test_sparse_inputs_arrive_as_sparse_tensors() -> None:
    for name, shape in (("float32_coo_5x3_tA1_tB0_a1.0", (5, 3)), ("uint32_csr_4x6_tA0_tB0_a1.0", (4, 6))):
        first = _case("SparseToDenseMatMul", name).inputs[0]
        assert isinstance(first, SparseTensor)
        assert tuple(first.shape) == shape


def test_names_of_operators() -> None:
    assert split_qualified("BiasGelu") == ("BiasGelu", "com.microsoft")
    assert split_qualified("Attention@ai.onnx") == ("Attention", "")
    for pair in (("BiasGelu", "com.microsoft"), ("Attention", "")):
        assert split_qualified(qualified(*pair)) == pair


def test_cases_lie_in_zips_or_folders(tmp_path: Path) -> None:
    zipfile.ZipFile(CASES / "BiasGelu.zip").extractall(tmp_path / "BiasGelu")
    from_zip = load_cases(CASES / "BiasGelu.zip")
    for root in (tmp_path, tmp_path / "BiasGelu"):
        unpacked = load_cases(root)
        assert [(c.operator, c.name) for c in unpacked] == [(c.operator, c.name) for c in from_zip]
        assert unpacked[0].meta == from_zip[0].meta


def test_missing_cases_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere does not exist"):
        load_cases(tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"neither <Operator>\.zip"):
        load_cases(tmp_path)
    (tmp_path / "Bad.zip").write_bytes(b"not a zip")
    with pytest.raises(ModelError, match="is not a zip"):
        load_cases(tmp_path)


def test_every_zip_is_small_enough() -> None:
    assert max(p.stat().st_size for p in CASES.iterdir()) < 2 << 20
