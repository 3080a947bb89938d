"""Any head count, head size, length, mask and window against the NumPy reference, in both modes.

The draws are the same from run to run, and few, since almost each has kernels of its own to compile.
``WEBGPU_OPS_EXAMPLES=500 pytest tests/attention/test_properties.py`` draws that many others for each test.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webgpu_ops import Device
from webgpu_ops.conformance import check_sample
from webgpu_ops.reference.samples import Sample

Devices = dict[str, Device]

drawn = settings(max_examples=int(os.environ.get("WEBGPU_OPS_EXAMPLES", "0")) or 3)

# Multiplications of one call: a software adapter and the reference take moments.
WORK = 40_000_000
# What tiles like and what they do not; each kernel serves a range of sizes.
SIZES = (1, 3, 20, 32, 64, 65, 128)
LENGTHS = (1, 2, 8, 31, 64, 65, 257, 700)
MASKS = ("none", "bool", "additive", "-inf", "blind row")


@dataclass(frozen=True)
class Call:
    """What the attention operators have in common; each takes of it what its text knows."""

    mode: str = "native"
    dtype: str = "float32"
    batch: int = 1
    kv: int = 1
    group: int = 1
    size: int = 64
    value_size: int = 64
    rows: int = 1
    past: int = 0
    mask: str = "none"
    mask_broadcast: bool = False
    causal: bool = False
    window: int = -1
    softcap: float = 0.0
    scale: float = 0.0
    seed: int = 0

    @property
    def heads(self) -> int:
        return self.kv * self.group

    @property
    def total(self) -> int:
        return self.past + self.rows

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def bounded(self) -> Call:
        """The same call with fewer entries, heads and rows where it would be too much work."""
        call = self
        for change in ({"batch": 1}, {"kv": 1}, {"group": 1}, {"rows": 50}):
            if call.batch * call.heads * call.rows * call.total * (call.size + call.value_size) > WORK:
                call = replace(call, **change)  # type: ignore[arg-type]
        return call

    def normal(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(self.dtype)

    def mask_values(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """A mask as ``mask`` says: bool, or numbers to add."""
        shape = tuple(1 if self.mask_broadcast and d < 2 else n for d, n in enumerate(shape))
        shown = rng.random(shape) < 0.7
        if self.mask == "blind row":
            shown[..., int(rng.integers(shape[-2])), :] = False
        if self.mask == "bool":
            return shown
        values = rng.standard_normal(shape)
        return (values if self.mask == "additive" else np.where(shown, values, -np.inf)).astype(self.dtype)

    def scaled(self) -> dict[str, float]:
        return {"scale": self.scale} if self.scale else {}


def one_of(values: tuple[int, ...], most: int) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(values), st.integers(1, most))


calls = st.builds(
    Call,
    mode=st.sampled_from(("native", "portable")),
    dtype=st.sampled_from(("float32", "float16")),
    batch=st.integers(1, 3),
    kv=st.integers(1, 3),
    group=st.integers(1, 4),
    size=one_of(SIZES, 260),
    value_size=one_of(SIZES, 260),
    rows=one_of(LENGTHS, 700),
    past=st.one_of(st.just(0), one_of(LENGTHS, 700)),
    mask=st.sampled_from(MASKS),
    mask_broadcast=st.booleans(),
    causal=st.booleans(),
    window=st.one_of(st.just(-1), st.integers(1, 80)),
    softcap=st.sampled_from((0.0, 0.0, 1.5, 20.0)),
    scale=st.sampled_from((0.0, 0.0, 0.11)),
    seed=st.integers(0, 1 << 16),
).map(Call.bounded)


def check(op: str, device: Device, sample: Sample) -> None:
    outcome = check_sample(op, sample, device)
    assert outcome.passed, outcome.message


def edges(test: Callable[..., None]) -> Callable[..., None]:
    """Examples that every run includes: the smallest and largest sizes, and a row that sees nothing."""
    for call in (
        Call(size=1, value_size=1, mode="portable"),
        Call(size=65, value_size=3, past=700, group=4, mask="bool", causal=True, dtype="float16"),
        Call(size=257, value_size=260, past=65, kv=3, mask="additive", mode="portable"),
        Call(size=3, value_size=65, rows=57, causal=True, window=20, softcap=1.5, mask="blind row"),
    ):
        test = example(call=call)(test)
    return test


TALL = Call(size=32, value_size=32, rows=257, group=2, causal=True, window=100, mask="-inf", mode="portable")


@edges
@example(call=TALL)
@given(call=calls)
@drawn
def test_group_query_attention(devices: Devices, call: Call) -> None:
    # A chunk of tokens over a past takes one batch entry.
    c = call if call.rows == 1 or call.past == 0 else replace(call, batch=1)
    rng, d = c.rng, c.size
    inputs: dict[str, Any] = {
        "query": c.normal(rng, c.batch, c.rows, c.heads * d),
        "key": c.normal(rng, c.batch, c.rows, c.kv * d),
        "value": c.normal(rng, c.batch, c.rows, c.kv * d),
        "seqlens_k": np.full(c.batch, c.total - 1, np.int32),
        "total_sequence_length": np.array(c.total, np.int32),
    }
    if c.past:
        inputs |= {f"past_{name}": c.normal(rng, c.batch, c.kv, c.past, d) for name in ("key", "value")}
        if c.rows == 1 and c.batch > 1:
            inputs["seqlens_k"][1:] = rng.integers(0, c.total, c.batch - 1)
    if c.mask not in ("none", "bool"):
        inputs["attention_bias"] = c.mask_values(rng, (c.batch, c.heads, c.rows, c.total))
    attributes: dict[str, Any] = {"num_heads": c.heads, "kv_num_heads": c.kv, "softcap": c.softcap}
    attributes |= {"causal": int(c.causal), "smooth_softmax": int(c.seed % 4 == 0)} | c.scaled()
    if c.causal and c.window > 0:
        attributes["local_window_size"] = c.window
    check(
        "GroupQueryAttention",
        devices[c.mode],
        Sample(inputs, attributes, ("output", "present_key", "present_value")),
    )


@edges
@given(call=calls)
@drawn
def test_multi_head_attention(devices: Devices, call: Call) -> None:
    c, rng = replace(call, kv=call.heads, group=1), call.rng
    inputs: dict[str, Any] = {
        "query": c.normal(rng, c.batch, c.rows, c.heads * c.size),
        "key": c.normal(rng, c.batch, c.rows, c.heads * c.size),
        "value": c.normal(rng, c.batch, c.rows, c.heads * c.value_size),
    }
    if c.past:
        inputs["past_key"] = c.normal(rng, c.batch, c.heads, c.past, c.size)
        inputs["past_value"] = c.normal(rng, c.batch, c.heads, c.past, c.value_size)
    if c.mask == "bool":
        shape = (c.batch, c.total) if c.mask_broadcast else (c.batch, c.rows, c.total)
        inputs["key_padding_mask"] = (rng.random(shape) < 0.7).astype(np.int32)
    elif c.mask != "none":
        inputs["attention_bias"] = c.mask_values(rng, (c.batch, c.heads, c.rows, c.total))
    attributes = {"num_heads": c.heads, "unidirectional": int(c.causal)} | c.scaled()
    # A row may be masked whole; -10000 would leave float32 few digits of its scores.
    attributes["mask_filter_value"] = -12.0 if c.seed % 2 else float(-np.inf)
    outputs = ("output", "present_key", "present_value") if c.past else ("output",)
    check("MultiHeadAttention", devices[c.mode], Sample(inputs, attributes, outputs))


@edges
@given(call=calls)
@drawn
def test_onnx_attention(devices: Devices, call: Call) -> None:
    c, rng = call, call.rng
    inputs: dict[str, Any] = {
        "Q": c.normal(rng, c.batch, c.heads, c.rows, c.size),
        "K": c.normal(rng, c.batch, c.kv, c.rows, c.size),
        "V": c.normal(rng, c.batch, c.kv, c.rows, c.value_size),
    }
    if c.past:
        inputs["past_key"] = c.normal(rng, c.batch, c.kv, c.past, c.size)
        inputs["past_value"] = c.normal(rng, c.batch, c.kv, c.past, c.value_size)
    if c.mask != "none":
        inputs["attn_mask"] = c.mask_values(rng, (c.batch, c.heads, c.rows, c.total))
    attributes: dict[str, Any] = {"is_causal": int(c.causal), "softcap": c.softcap} | c.scaled()
    if c.window > 0:
        attributes[("left_window_size", "right_window_size")[c.seed % 2]] = c.window - 1
    outputs = ("Y", "present_key", "present_value") if c.past else ("Y",)
    check("Attention", devices[c.mode], Sample(inputs, attributes, outputs, domain="", opset=25))


@edges
@given(call=calls)
@drawn
def test_self_attention(devices: Devices, call: Call) -> None:
    same = call.past > 0 or call.value_size == call.size
    c, rng = (
        replace(call, kv=call.heads, group=1, value_size=call.size if same else call.value_size),
        call.rng,
    )
    channels = 12
    sizes = [c.heads * c.size, c.heads * c.size, c.heads * c.value_size]
    weights = rng.standard_normal((channels, sum(sizes))) / np.sqrt(channels)
    inputs: dict[str, Any] = {
        "input": c.normal(rng, c.batch, c.rows, channels),
        "weights": weights.astype(c.dtype),
        "bias": c.normal(rng, sum(sizes)),
    }
    if c.past:
        inputs["past"] = c.normal(rng, 2, c.batch, c.heads, c.past, c.size)
    if c.mask == "bool":
        forms: list[Callable[[], np.ndarray]] = [
            lambda: rng.integers(1, c.total + 1, c.batch),
            lambda: np.concatenate([rng.integers(1, c.total + 1, c.batch), np.zeros(c.batch, np.int64)]),
            lambda: rng.random((c.batch, c.total)) < 0.7,
            lambda: rng.random((c.batch, c.rows, c.total)) < 0.7,
            lambda: rng.random((c.batch, 1, c.total, c.total)) < 0.7,
        ]
        inputs["mask_index"] = forms[c.seed % len(forms)]().astype(np.int32)
    elif c.mask != "none":
        inputs["attention_bias"] = c.mask_values(rng, (c.batch, c.heads, c.rows, c.total))
    attributes: dict[str, Any] = {"num_heads": c.heads, "unidirectional": int(c.causal)} | c.scaled()
    attributes |= {"mask_filter_value": -12.0, "qkv_hidden_sizes": sizes}
    outputs = ("output", "present") if c.past else ("output",)
    check("Attention", devices[c.mode], Sample(inputs, attributes, outputs))


def test_draws_reach_every_size() -> None:
    """Bounding the work leaves long lengths with wide heads, and groups that share keys."""
    seen: list[Call] = []

    @settings(drawn, max_examples=200, derandomize=True)
    @given(call=calls)
    def collect(call: Call) -> None:
        seen.append(call)

    collect()
    assert {c.mask for c in seen} == set(MASKS)
    assert {c.dtype for c in seen} == {"float32", "float16"}
    assert max(c.total for c in seen) > 700 and max(c.size for c in seen) > 240
    assert sum(c.size % 4 != 0 for c in seen) > 40
    assert sum(c.group > 1 for c in seen) > 40
    assert sum(c.size > 128 and c.total > 256 for c in seen) > 10
    assert sum(c.rows > 256 for c in seen) > 10
