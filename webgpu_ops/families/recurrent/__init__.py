"""Recurrent operators: linear attention, gated delta networks, and the replay of captured states."""

from . import gated_delta_net, linear_attention, replay

__all__ = ["gated_delta_net", "linear_attention", "replay"]
