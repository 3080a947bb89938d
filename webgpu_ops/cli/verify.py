"""``verify``: stored cases or random calls, one line an operator."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import reference, schema
from ..conformance import (
    Outcome,
    check_sample,
    load_cases,
    qualified,
    run_case,
    split_qualified,
)
from ..errors import ModelError, UnsupportedError
from ..families import registry
from ..reference import samples
from .common import device

if TYPE_CHECKING:
    from ..core.device import Device


# A message may hold a whole shader; --json keeps all of it.
MESSAGE_WIDTH = 400


@dataclass(frozen=True)
class Check:
    """One thing to verify: a stored case or a random call."""

    operator: str
    name: str
    run: Callable[[], Outcome]


def verify(
    operators: Sequence[str], cases: Path | None, portable: bool, count: int, seed: int, report: Path | None
) -> int:
    """Verify ``operators`` (default: all that have a handler) and return the exit code."""
    for name in operators:
        op, domain = split_qualified(name)
        schema.find(op, domain)
        if (domain, op) not in registry.supported():
            raise UnsupportedError(f"{name}: no WebGPU implementation yet")
    used = device(portable)
    checks = _stored(operators, cases, used) if cases else _random(operators, count, seed, used)
    console = Console(highlight=False)
    console.print(
        f"{used.name}, {'portable' if portable else 'native'} path, {sum(map(len, checks.values()))} checks"
    )
    results = dict(_run(checks, console))
    failed = sum(not outcome.passed for group in results.values() for outcome in group.values())
    passed = sum(map(len, results.values())) - failed
    colour = "red" if failed else "green"
    console.print(f"[{colour}]{passed} passed, {failed} failed[/{colour}], {len(results)} operators")
    if report:
        _write(report, used, portable, results)
    return 1 if failed else 0


def _stored(operators: Sequence[str], root: Path, device: Device) -> dict[str, list[Check]]:
    """The stored cases by operator, in the order asked for."""
    groups: dict[str, list[Check]] = {name: [] for name in operators}
    unknown: set[str] = set()
    for case in load_cases(root):
        op, domain = split_qualified(case.operator)
        if operators and case.operator not in groups:
            continue
        if (domain, op) not in registry.supported():
            unknown.add(case.operator)
            continue
        check = Check(case.operator, case.name, partial(run_case, case, device))
        groups.setdefault(case.operator, []).append(check)
    for name, found in groups.items():
        if not found:
            raise ModelError(f"{root} holds no cases of {name}")
    if unknown:
        print(f"not implemented yet, left out: {', '.join(sorted(unknown))}")
    return groups


def _random(operators: Sequence[str], count: int, seed: int, device: Device) -> dict[str, list[Check]]:
    """``count`` random calls of each operator that has a reference and a sampler."""
    names = list(operators) or sorted(qualified(op, domain) for domain, op in registry.supported())
    groups: dict[str, list[Check]] = {}
    for name in names:
        op, domain = split_qualified(name)
        if samples.draw_of(op, domain) is None or reference.find(op, domain) is None:
            if operators:
                raise UnsupportedError(f"{name}: no random calls to draw; use --cases")
            continue
        groups[name] = [
            Check(name, f"seed {seed} draw {i}", partial(_draw_and_check, op, domain, (seed, i), device))
            for i in range(count)
        ]
    return groups


def _draw_and_check(op: str, domain: str, seed: tuple[int, int], device: Device) -> Outcome:
    draw = samples.draw_of(op, domain)
    assert draw is not None
    return check_sample(op, draw(np.random.default_rng(seed)), device)


def _run(checks: dict[str, list[Check]], console: Console) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """Run all checks behind a progress bar; print a line an operator and its failures."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=sum(map(len, checks.values())))
        for operator, group in checks.items():
            progress.update(bar, description=operator)
            started = time.perf_counter()
            outcomes: dict[str, Outcome] = {}
            for check in group:
                outcomes[check.name] = check.run()
                progress.advance(bar)
            seconds = time.perf_counter() - started
            _print_line(console, operator, outcomes, seconds)
            yield operator, outcomes


def _print_line(console: Console, operator: str, outcomes: dict[str, Outcome], seconds: float) -> None:
    failures = {name: o.message for name, o in outcomes.items() if not o.passed}
    used = max((o.used for o in outcomes.values() if o.passed), default=0.0)
    state = f"[red]{len(failures):4} failed[/red]" if failures else " " * 11
    passed = len(outcomes) - len(failures)
    error = f"{used:4.0%} of tolerance" if used else "exact"
    line = f"{operator:34}{passed:4} passed{state}  {error:17}{seconds:6.1f} s"
    console.print(line, soft_wrap=True)
    for name, message in failures.items():
        short = textwrap.shorten(message, MESSAGE_WIDTH, placeholder=" ...")
        console.print(f"    [red]{escape(name)}[/red]: {escape(short)}", soft_wrap=True)


def _write(path: Path, device: Device, portable: bool, results: dict[str, dict[str, Outcome]]) -> None:
    document: dict[str, Any] = {
        "adapter": device.name,
        "features": sorted(device.capabilities.features),
        "mode": "portable" if portable else "native",
        "operators": {
            operator: [
                {
                    "name": name,
                    "passed": o.passed,
                    "message": o.message,
                    "max_error": o.error,
                    "tolerance_used": o.used,
                }
                for name, o in outcomes.items()
            ]
            for operator, outcomes in results.items()
        },
    }
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ModelError(f"--json {path}: {error.strerror}") from error
