"""Fences: proof that submitted work finished.

The queue's own completion callback is unusable in wgpu-py 0.32, so a fence copies four bytes into a
mappable buffer in the same submission and maps it.
"""

from __future__ import annotations

import threading
from typing import Any

import wgpu

from ..errors import CompletionError


def wait_for(promise: Any, timeout: float | None, what: str) -> None:
    """Wait until a promise of wgpu resolves, or raise CompletionError.

    The promise has no timeout of its own, so a bounded wait runs it in a thread.
    """
    failure: list[BaseException] = []

    def run() -> None:
        try:
            promise.sync_wait()
        except Exception as error:
            failure.append(error)

    if timeout is None:
        run()
    else:
        waiter = threading.Thread(target=run, daemon=True)
        waiter.start()
        waiter.join(timeout)
        if waiter.is_alive():
            raise CompletionError(f"{what} did not finish within {timeout} s")
    if failure:
        raise CompletionError(f"{what} did not finish: {failure[0]}") from failure[0]


class Fence:
    """Signals when everything submitted before it has finished."""

    def __init__(self, buffer: wgpu.GPUBuffer) -> None:
        self._buffer = buffer
        self._promise = buffer.map_async(wgpu.MapMode.READ)
        self._done = False

    def wait(self, timeout: float | None = None) -> None:
        """Return once the work finished; CompletionError after ``timeout`` seconds or on failure."""
        if not self._done:
            wait_for(self._promise, timeout, "submitted work")
            self._done = True
            self._buffer.unmap()
