"""Operators of the standard ONNX domain that models use around the contrib operators."""
