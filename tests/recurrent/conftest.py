"""Paths of the recurrent tests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import pytest

from webgpu_ops import api
from webgpu_ops.families.recurrent.recurrence import Recurrence

Force = Callable[[str], None]


@pytest.fixture
def force(monkeypatch: pytest.MonkeyPatch) -> Force:
    """``force("chunked")`` or ``force("recurrent")``: every call that can take that path takes it."""

    def choose(path: str) -> None:
        def prefers_chunks(call: Recurrence, b: object) -> bool:
            return path == "chunked" and not call.per_key and call.state_update is None

        monkeypatch.setattr(Recurrence, "prefers_chunks", prefers_chunks)
        monkeypatch.setattr(api, "_NODES", OrderedDict())  # nodes keep their plans

    return choose
