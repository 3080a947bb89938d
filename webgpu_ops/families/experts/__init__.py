"""Mixtures of experts: tokens are grouped by expert, and each expert runs once over its tokens."""

from . import moe, qmoe

__all__ = ["moe", "qmoe"]
