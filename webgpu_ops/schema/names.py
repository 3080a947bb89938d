"""Operator names as Python names: ``GroupQueryAttention`` -> ``group_query_attention``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from .read import CONTRIB, contrib_names

# Capitals inside these do not start a word.
_ONE_WORD = {"MatMul": "Matmul", "MoE": "Moe", "SiLU": "Silu"}

# An acronym before a word or at the end (RMS, LSTM), or a word with at most one letter before it
# (QLinear, NBits): a lone letter reads better joined.
_WORD = re.compile(r"[A-Z]{2,}(?=[A-Z][a-z]|$)|[A-Z]?[A-Z][a-z0-9]+")


def snake_case(op: str) -> str:
    """The function name of an operator: ``MatMulNBits`` -> ``matmul_nbits``, ``QMoE`` -> ``qmoe``."""
    for spelling, word in _ONE_WORD.items():
        op = op.replace(spelling, word)
    return "_".join(_WORD.findall(op)).lower()


@cache
def functions() -> Mapping[str, tuple[str, str]]:
    """(domain, operator) of every function in ``webgpu_ops.ops``, by function name, sorted.

    They are all operators of ``com.microsoft``, and ONNX's own Attention as ``attention_onnx``.
    """
    found = {snake_case(op): (CONTRIB, op) for op in contrib_names()}
    found["attention_onnx"] = ("", "Attention")
    return MappingProxyType(dict(sorted(found.items())))
