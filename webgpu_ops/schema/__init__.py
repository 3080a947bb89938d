"""Operator schemas as data, and the checks that follow from them for every operator.

``com.microsoft`` comes from ``contrib.json`` (all 141 operators), ``ai.onnx`` from onnx.defs.
"""

from .check import ValueType, check_node, check_types, output_types
from .names import functions, snake_case
from .read import CONTRIB, contrib_names, descriptions, find
from .types import Attribute, AttributeType, OperatorSchema, Parameter, slot_names

__all__ = [
    "CONTRIB",
    "Attribute",
    "AttributeType",
    "OperatorSchema",
    "Parameter",
    "ValueType",
    "check_node",
    "check_types",
    "contrib_names",
    "descriptions",
    "find",
    "functions",
    "output_types",
    "slot_names",
    "snake_case",
]
