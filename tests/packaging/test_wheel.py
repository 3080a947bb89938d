"""The wheel: built, installed into an empty environment, and used there."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import numpy as np, webgpu_ops
a, b = np.ones((2, 4), np.float32), np.zeros(4, np.float32)
(y,) = webgpu_ops.run("BiasGelu", [a, b])
np.testing.assert_allclose(y.numpy(), np.full((2, 4), 0.841345, np.float32), rtol=1e-5)
print(webgpu_ops.__file__)
"""


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tracked sources: building in place would leave files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for path in [ROOT / n for n in ("pyproject.toml", "README.md", "LICENSE")] + sorted(
        p for p in (ROOT / "webgpu_ops").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ):
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.xdist_group("wheel")
def test_wheel_holds_what_the_package_reads(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = [p for suffix in ("wgsl", "json", "pyi") for p in (ROOT / "webgpu_ops").rglob(f"*.{suffix}")]
    wanted = {str(p.relative_to(ROOT).as_posix()) for p in data} | {"webgpu_ops/py.typed"}
    assert wanted <= inside
    assert not [name for name in inside if name.startswith(("tests/", "docs/"))]


@pytest.mark.xdist_group("wheel")
def test_wheel_runs_an_operator_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    _run(scripts / "python", "-m", "pip", "install", "-q", "--no-compile", wheel, cwd=tmp_path)
    assert str(home) in _run(scripts / "python", "-c", SCRIPT, cwd=tmp_path)
    assert "BiasGelu" in _run(scripts / "webgpu-ops", "ops", cwd=tmp_path)
