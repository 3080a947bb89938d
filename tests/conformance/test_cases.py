"""The stored one-node cases, one test for each operator, case and mode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from webgpu_ops import schema, supported_ops
from webgpu_ops.conformance import STANDARD, Case, load_cases, run_case, split_qualified
from webgpu_ops.core.device import Device

CASES = load_cases(Path(__file__).parent / "cases")
UNSUPPORTED = Path(__file__).parent / "unsupported.txt"


def _parameters() -> list[pytest.ParameterSet]:
    """Cases of operators with a handler; those of one operator stay in one worker and share pipelines."""
    supported = supported_ops()
    size = Counter(case.operator for case in CASES)
    runnable = [c for c in CASES if split_qualified(c.operator)[::-1] in supported]
    # The largest groups first, so that no worker is left alone with one at the end.
    runnable.sort(key=lambda c: (-size[c.operator], c.operator, c.name))
    return [
        pytest.param(c, id=f"{c.operator}-{c.name}", marks=pytest.mark.xdist_group(c.operator))
        for c in runnable
    ]


@pytest.mark.parametrize("case", _parameters())
def test_case(case: Case, device: Device) -> None:
    outcome = run_case(case, device)
    assert outcome.passed, outcome.message


def test_unsupported_list_is_the_truth() -> None:
    """``unsupported.txt`` names every operator of the schemas without a handler; it may only shrink."""
    supported = supported_ops()
    missing = [op for op in schema.contrib_names() if ("com.microsoft", op) not in supported]
    if ("", "Attention") not in supported:
        missing.append(f"Attention@{STANDARD}")
    listed = UNSUPPORTED.read_text().split()
    stale, silent = sorted(set(listed) - set(missing)), sorted(set(missing) - set(listed))
    assert not stale and not silent, (
        f"`make support` drops what is implemented: {stale}; not listed: {silent}"
    )


def test_every_operator_has_cases() -> None:
    assert {c.operator for c in CASES} == {*schema.contrib_names(), f"Attention@{STANDARD}"}
