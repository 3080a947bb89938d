"""Replay of captured transitions into an inactive state: speculative decoding's way back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...core.plan import Builder, Slot
from ..registry import Operator, register

INDEX_LIMIT = 1 << 32  # shaders index with u32


def _fields(b: Builder, names: tuple[str, ...]) -> dict[str, int]:
    """The metadata by name; every field is a nonnegative number below 2**32."""
    b.check_shape("metadata", len(names), why="it holds " + ", ".join(names))
    fields = {name: int(v) for name, v in zip(names, b.host("metadata"), strict=True)}
    for name, v in fields.items():
        b.check(0 <= v < INDEX_LIMIT, "metadata", f"has {name} = {v}", "a value from 0 to 2**32 - 1")
    return fields


def _positive(b: Builder, fields: Mapping[str, int], *names: str) -> None:
    for name in names:
        b.check(fields[name] > 0, "metadata", f"has {name} = {fields[name]}", "a positive value")


def _backing(b: Builder, name: str) -> Slot:
    slot = b.need(name)
    b.check_shape(name, "elements")
    b.check(slot.size < INDEX_LIMIT, name, f"has {slot.size} elements", "fewer than 2**32")
    return slot


def _view(b: Builder, slot: Slot, what: str, start: int, *shape: int) -> None:
    """Refuse a view (first element, shape) that leaves its backing."""
    end = start + math.prod(shape)
    b.check(
        end <= slot.size,
        slot.name,
        f"has {slot.size} elements",
        f"at least {end} because {what} {list(shape)} starts at element {start}",
    )


def _destination(b: Builder, *others: str) -> Slot:
    """The output: the whole allocation of destination_backing, which nothing else may share."""
    backing = b.need("destination_backing")
    for other in others:
        b.check(
            not b.same_buffer(other, "destination_backing"),
            "destination_backing",
            f"shares its allocation with {other}",
            "an allocation of its own",
        )
    out = b.output("destination_out", backing.shape, backing.dtype)
    b.must_share("destination_out", "destination_backing")
    b.fence()
    return out


@register("GatedDeltaNetStateReplay")
@dataclass(frozen=True, kw_only=True)
class GatedDeltaNetStateReplay(Operator):
    """Applies the first kept_count captured transitions of one request to its state [Hv, Dv, Dk].

    All offsets of the metadata count elements of the rank-1 backings; the capsule's sections are
    decay [capacity, Hv], key [capacity, Hk, Dk] and delta [capacity, Hv, Dv].
    """

    def plan(self, b: Builder) -> None:
        source = _backing(b, "source_backing")
        capsule = _backing(b, "capsule_backing")
        destination = _backing(b, "destination_backing")
        m = _fields(
            b,
            (
                "source_offset",
                "destination_offset",
                "decay_offset",
                "key_offset",
                "delta_offset",
                "Hv",
                "Dv",
                "Dk",
                "Hk",
                "capacity",
                "kept_count",
            ),
        )
        _positive(b, m, "Hv", "Dv", "Dk", "Hk", "capacity")
        b.check(
            1 <= m["kept_count"] <= m["capacity"],
            "metadata",
            f"has kept_count = {m['kept_count']}",
            f"1 to capacity = {m['capacity']}",
        )
        hv, dv, dk, hk, capacity = m["Hv"], m["Dv"], m["Dk"], m["Hk"], m["capacity"]
        _view(b, source, "the state", m["source_offset"], hv, dv, dk)
        _view(b, destination, "the state", m["destination_offset"], hv, dv, dk)
        _view(b, capsule, "decay", m["decay_offset"], capacity, hv)
        _view(b, capsule, "key", m["key_offset"], capacity, hk, dk)
        _view(b, capsule, "delta", m["delta_offset"], capacity, hv, dv)
        b.check(
            hv * hk < INDEX_LIMIT,
            "metadata",
            f"has Hv * Hk = {hv * hk}",
            "less than 2**32",
        )
        b.check_rounds("metadata", f"has kept_count = {m['kept_count']}", m["kept_count"])
        out = _destination(b, "source_backing", "capsule_backing")
        b.dispatch(
            "recurrent/state_replay",
            reads={"source": source, "capsule": capsule},
            writes={"destination": out},
            uniforms={
                "size": hv * dv * dk,
                "source_at": m["source_offset"],
                "destination_at": m["destination_offset"],
                "decay_at": m["decay_offset"],
                "key_at": m["key_offset"],
                "delta_at": m["delta_offset"],
                "heads_v": hv,
                "heads_k": hk,
                "dv": dv,
                "dk": dk,
                "kept": m["kept_count"],
            },
            threads=hv * dv * dk,
        )


@register("ConvStateReplay")
@dataclass(frozen=True, kw_only=True)
class ConvStateReplay(Operator):
    """Shifts the first kept_count captured inputs into a convolution's history, bit for bit.

    Offsets of the metadata count bytes of the rank-1 backings; the states are [batch, channels,
    history_width], the capture is [batch, capacity, channels].
    """

    def plan(self, b: Builder) -> None:
        source = _backing(b, "source_backing")
        capture = _backing(b, "capture_backing")
        destination = _backing(b, "destination_backing")
        m = _fields(
            b,
            (
                "source_offset_bytes",
                "destination_offset_bytes",
                "capture_offset_bytes",
                "batch_size",
                "channels",
                "history_width",
                "capacity",
                "kept_count",
            ),
        )
        itemsize = source.dtype.itemsize
        for name in ("source_offset_bytes", "destination_offset_bytes", "capture_offset_bytes"):
            b.check(
                m[name] % itemsize == 0,
                "metadata",
                f"has {name} = {m[name]}",
                f"a multiple of {itemsize} because the elements are {source.dtype}",
            )
        _positive(b, m, "channels")
        b.check(
            m["kept_count"] <= m["capacity"],
            "metadata",
            f"has kept_count = {m['kept_count']}",
            f"0 to capacity = {m['capacity']}",
        )
        batch, channels, width, capacity = m["batch_size"], m["channels"], m["history_width"], m["capacity"]
        source_at = m["source_offset_bytes"] // itemsize
        destination_at = m["destination_offset_bytes"] // itemsize
        capture_at = m["capture_offset_bytes"] // itemsize
        _view(b, source, "the history", source_at, batch, channels, width)
        _view(b, destination, "the history", destination_at, batch, channels, width)
        _view(b, capture, "the capture", capture_at, batch, capacity, channels)
        out = _destination(b, "source_backing", "capture_backing")
        size = batch * channels * width
        first = destination_at // 4 * 4  # an invocation owns whole words of the backing
        b.dispatch(
            "recurrent/conv_state_replay",
            reads={"source": source.as_bits(), "capture": capture.as_bits()},
            writes={"destination": out.as_bits()},
            uniforms={
                "size": size,
                "first": first,
                "source_at": source_at,
                "destination_at": destination_at,
                "capture_at": capture_at,
                "channels": channels,
                "width": width,
                "capacity": capacity,
                "kept": m["kept_count"],
            },
            threads=-(-(destination_at - first + size) // 4) if size else 0,
        )
