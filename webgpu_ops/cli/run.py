"""``run``: an ONNX model on arrays from files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from ..core import dtypes
from ..errors import ModelError
from ..session import InferenceSession
from .common import device, read_array, split_assignment


def run(model: Path, assignments: Sequence[str], output_dir: Path, portable: bool) -> None:
    """Run ``model`` on the given inputs; write and list its outputs."""
    files = dict(split_assignment(text, "--input") for text in assignments)
    session = InferenceSession(str(model), device=device(portable))
    declared = {i.name: i.type for i in session.get_inputs()}
    feeds = {name: _fit(read_array(Path(file)), declared.get(name)) for name, file in files.items()}
    names = [o.name for o in session.get_outputs()]
    results = dict(zip(names, session.run(names, feeds), strict=True))
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"--output-dir {output_dir}: {error.strerror}") from error
    table = Table("output", "type", "shape", "file")
    for name, file in file_names(names).items():
        value = results[name]
        np.save(output_dir / file, _savable(value))
        table.add_row(name, str(value.dtype), str(list(value.shape)), str(output_dir / file))
    Console().print(table)


def file_names(outputs: Sequence[str]) -> dict[str, str]:
    """A distinct file name for each output: ONNX names may hold what file systems do not allow."""
    taken: dict[str, str] = {}
    for name in outputs:
        stem = re.sub(r"[^\w.-]", "_", name) or "output"
        file, count = f"{stem}.npy", 1
        while file.lower() in (f.lower() for f in taken.values()):
            count += 1
            file = f"{stem}_{count}.npy"
        taken[name] = file
    return taken


def _savable(value: np.ndarray) -> np.ndarray:
    """.npy files don't know ml_dtypes (bfloat16, float8, int4, ...): widen those without loss."""
    if value.dtype.kind == "O":
        return value.astype(str)
    if value.dtype.isbuiltin == 1:
        return value
    return value.astype(np.float32 if dtypes.from_numpy(value.dtype).is_float else np.int8)


def _fit(array: np.ndarray, declared: str | None) -> np.ndarray:
    """The way back: a widened array becomes the declared type again, if no value changes."""
    if declared is None:
        return array  # an unknown name; the session says so
    dtype = dtypes.from_type_string(declared)
    if dtype.kind == "string" or dtype.numpy.isbuiltin == 1 or array.dtype == dtype.numpy:
        return array
    narrow = array.astype(dtype.numpy)
    same = np.array_equal(narrow.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    return narrow if same else array
