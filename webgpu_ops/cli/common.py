"""What several commands need."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from ..errors import ModelError

if TYPE_CHECKING:
    from ..core.device import Device


def device(portable: bool) -> Device:
    """The device a command runs on."""
    from ..core.device import Device

    return Device(portable=True) if portable else Device.default()


def split_assignment(text: str, option: str) -> tuple[str, str]:
    """``name=value`` as (name, value)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ModelError(f"{option} {text}: expected NAME=VALUE")
    return name, value


def read_array(path: Path) -> np.ndarray:
    """The array of a ``.npy`` or ``.pb`` (TensorProto) file; strings become objects, as in ONNX."""
    try:
        if path.suffix == ".pb":
            return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist") from None
    except Exception as error:  # each reader has errors of its own for a damaged file
        raise ModelError(f"{path} cannot be read as {path.suffix or 'an array'}: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ModelError(f"{path} holds several arrays; expected one .npy array")
    return array.astype(object) if array.dtype.kind in "US" else array
