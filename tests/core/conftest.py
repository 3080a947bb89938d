"""Test templates: shaders that exist only here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jinja2
import pytest

from webgpu_ops.core import template


@pytest.fixture
def shaders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Add a template by name for one test."""
    texts: dict[str, str] = {}
    environment = template.environment()
    both = jinja2.ChoiceLoader([jinja2.DictLoader(texts), environment.loader])
    monkeypatch.setattr(environment, "loader", both)

    def add(name: str, text: str) -> None:
        texts[f"{name}.wgsl"] = text

    yield add
    environment.cache.clear()
