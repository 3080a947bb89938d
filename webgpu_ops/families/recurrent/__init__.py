"""Recurrent operators: gated delta networks, and the replay of their captured states."""

from . import gated_delta_net, replay

__all__ = ["gated_delta_net", "replay"]
