"""``info``: what this machine offers."""

from __future__ import annotations

from dataclasses import fields

import typer
from rich.console import Console
from rich.table import Table

from ..core import dtypes
from ..core.device import OPTIONAL_FEATURES, adapter_name, choose_adapter, list_adapters
from ..core.dtypes import DType
from ..core.plan import Capabilities
from ..errors import DeviceError
from .common import device


def check() -> None:
    """Print the adapter that would be used; exit with 1 where there is none."""
    try:
        print(adapter_name(choose_adapter()))
    except DeviceError as error:
        print(error)
        raise typer.Exit(1) from None


def show(portable: bool) -> None:
    """Print adapters, then features, limits and type paths of the device in use."""
    console = Console()
    used = device(portable)
    adapters = Table("", "adapter", "kind", "backend", "driver", title="Adapters", title_justify="left")
    for i, adapter in enumerate(list_adapters()):
        a = adapter.info
        mark = "*" if a == used.adapter.info else ""
        adapters.add_row(f"{i}{mark}", a["device"], a["adapter_type"], a["backend_type"], a["description"])
    console.print(adapters)
    console.print("* in use; WEBGPU_OPS_ADAPTER chooses another by number or by a part of its name\n")

    capabilities = used.capabilities
    features = Table("optional feature", "", title="Features", title_justify="left")
    for feature in sorted(OPTIONAL_FEATURES):
        offered = feature in used.adapter.features
        state = "in use" if feature in capabilities.features else "disabled" if offered else "not offered"
        features.add_row(feature, state)
    console.print(features)

    limits = Table("limit", "value", title="Limits", title_justify="left")
    limits.columns[1].justify = "right"
    for field in fields(Capabilities):
        if field.name not in ("features", "device_class"):
            limits.add_row(field.name.replace("_", " "), f"{getattr(capabilities, field.name):,}")
    console.print(limits)

    types = Table("element type", "in memory", "computed in", title="Types", title_justify="left")
    for dtype in dtypes.ALL:
        types.add_row(dtype.name, *type_path(dtype, capabilities))
    console.print(types)


def type_path(dtype: DType, capabilities: Capabilities) -> tuple[str, str]:
    """How a type is stored and what its arithmetic is made of."""
    if dtype.kind == "string":
        return "host", "host"
    if dtype.words > 1:
        memory = f"{dtype.words} words"
    else:
        memory = f"{dtype.per_word} a word" if dtype.per_word > 1 else "1 word"
    native = dtype.feature in capabilities.features
    if native and dtype.bits == 16:
        memory = f"native ({dtype.feature})"
    if dtype.bits == 64 and dtype.kind != "complex":
        return memory, f"native ({dtype.feature})" if native else "software, on pairs of u32"
    if dtype.kind == "complex":
        return memory, "f32 pairs" if dtype.bits == 64 else "moved, not computed"
    if dtype.is_float:
        return memory, "f32"
    return memory, {"int": "i32", "uint": "u32", "bool": "bool"}[dtype.kind]
