"""Sparse attention indexers: which cache entries each query may attend to."""

from . import dense, merge, packed

__all__ = ["dense", "merge", "packed"]
