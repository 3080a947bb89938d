"""The command line: ``webgpu-ops info | ops | run | verify | render | demo``."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

from typer.exceptions import TyperException

from ..errors import WebGpuOpsError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 a check failed, 2 bad input in one clear line."""
    # wgpu's window-system probe complains on machines without a desktop session.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    from .app import app

    try:
        sys.exit(app(arguments, standalone_mode=False))
    except WebGpuOpsError as error:
        message = str(error)
    except TyperException as error:
        message = error.format_message()  # empty where help was shown for want of arguments
    if message:
        print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
