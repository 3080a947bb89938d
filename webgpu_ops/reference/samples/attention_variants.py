"""Random calls of ONNX Attention and of the multi-head, decoder, packed and quantized attentions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attention_variants import reordered
from . import Sample, sample
from .attention import FLOATS, WORK, _bias, _chance, _head_size, _length, _normal

Array = np.ndarray
Rng = np.random.Generator
HALVES = (np.float32, np.float32, np.float16)


def _number(rng: Rng, low: float, high: float) -> float:
    """A number as an attribute holds it, in float32."""
    return float(np.float32(rng.uniform(low, high)))


def _scale(rng: Rng) -> dict[str, float]:
    return {"scale": _number(rng, 0.02, 0.5)} if _chance(rng, 0.3) else {}


def _filter(rng: Rng, often: bool) -> dict[str, float]:
    """A mask_filter_value near the scores, ``often`` where rows may see nothing but masked keys: there
    -10000 would leave float32 no digits to tell them apart."""
    return {"mask_filter_value": _number(rng, -20, -1)} if often or _chance(rng, 0.3) else {}


def _shown(rng: Rng, *shape: int) -> Array:
    """A mask of 0 and 1 whose first column is 1."""
    mask = rng.random(shape) < 0.8
    mask[..., 0] = True
    return mask.astype(np.int32)


def _beams(rng: Rng, batch: int, width: int, length: int) -> Array:
    return rng.integers(0, width, (batch, width, length)).astype(np.int32)


# ONNX


@sample("Attention", domain="")
def onnx_attention(rng: Rng) -> Sample:
    wide = _chance(rng, 0.15)
    dtype: Any = np.float64 if wide else FLOATS[rng.integers(len(FLOATS))]
    kv = int(rng.integers(1, 4))
    heads = kv * int(rng.choice([1, 1, 2, 3]))
    size = int(rng.integers(1, 17)) if wide else _head_size(rng)
    value_size = size if _chance(rng, 0.6) else int(rng.integers(1, 17)) if wide else _head_size(rng)
    batch = int(rng.integers(1, 4))
    most = 12 if wide else max(4, min(700, int((WORK / (batch * heads * size)) ** 0.5)))
    rows, new = _length(rng, most), _length(rng, most)
    opset = int(rng.choice([23, 24, 25]))
    attributes: dict[str, Any] = _scale(rng)
    inputs: dict[str, Any] = {}
    outputs = ["Y"]
    had = 0
    if opset > 23 and _chance(rng, 0.3):
        inputs["nonpad_kv_seqlen"] = rng.integers(0, new + 1, batch)
    else:
        if _chance(rng, 0.4):
            had = int(rng.integers(0, 3)) if _chance(rng, 0.3) else _length(rng, most)
            inputs["past_key"] = _normal(rng, (batch, kv, had, size), dtype)
            inputs["past_value"] = _normal(rng, (batch, kv, had, value_size), dtype)
        outputs += [name for name in ("present_key", "present_value") if _chance(rng, 0.5)]
    total = had + new

    shapes = {"Q": (heads, rows, size), "K": (kv, new, size), "V": (kv, new, value_size)}
    for name, (n, length, width) in shapes.items():
        inputs[name] = _normal(rng, (batch, n, length, width), dtype)
    if _chance(rng, 0.5):
        for name, (n, length, width) in shapes.items():
            inputs[name] = inputs[name].transpose(0, 2, 1, 3).reshape(batch, length, n * width)
        attributes |= {"q_num_heads": heads, "kv_num_heads": kv}

    if _chance(rng, 0.5):
        columns = total
        valid = inputs.get("nonpad_kv_seqlen")
        if opset > 23 and total > 2 and _chance(rng, 0.4):
            columns = max(2, int(rng.integers(1 if valid is None else valid.max(), total)))
        full = (batch, heads, rows, columns)[int(rng.integers(0, 4)) :]
        shape = tuple(
            1 if _chance(rng, 0.3) and (d < len(full) - 1 or opset == 23) else n for d, n in enumerate(full)
        )
        if _chance(rng, 0.5):
            inputs["attn_mask"] = rng.random(shape) < 0.7
        else:
            mask = rng.standard_normal(shape)
            inputs["attn_mask"] = np.where(rng.random(shape) < 0.1, -np.inf, mask).astype(dtype)
    attributes["is_causal"] = int(_chance(rng, 0.4))
    if opset > 24 and _chance(rng, 0.5):
        attributes["left_window_size"] = int(rng.integers(-1, total + 1))
        attributes["right_window_size"] = int(rng.integers(-1, total + 1))
    if _chance(rng, 0.3):
        attributes["softcap"] = _number(rng, 1, 30)
    if not wide and _chance(rng, 0.2):
        attributes["softmax_precision"] = int(rng.choice([1, 10, 16]))
    if _chance(rng, 0.4):
        outputs.append("qk_matmul_output")
        attributes["qk_matmul_output_mode"] = int(rng.integers(4))
    return Sample(inputs, attributes, tuple(outputs), domain="", opset=opset)


# Projected by the caller


@sample("MultiHeadAttention")
def multi_head_attention(rng: Rng) -> Sample:
    dtype = FLOATS[rng.integers(len(FLOATS))]
    heads, size, width = int(rng.integers(1, 5)), _head_size(rng), int(rng.integers(1, 4))
    form = str(rng.choice(["separate", "separate", "ready", "packed_kv", "packed_qkv"]))
    value_size = _head_size(rng) if form in ("separate", "ready") and _chance(rng, 0.4) else size
    past = str(rng.choice(["none", "none", "concat", "share", "beams"]))
    batch = int(rng.integers(1, 3)) * (width if past == "beams" else 1)
    most = max(4, min(700, int((WORK / (batch * heads * max(size, value_size))) ** 0.5)))
    rows = _length(rng, most)
    new = rows if form == "packed_qkv" or _chance(rng, 0.5) else _length(rng, most)
    attributes: dict[str, Any] = {"num_heads": heads, "unidirectional": int(_chance(rng, 0.4)), **_scale(rng)}
    inputs: dict[str, Any] = {}
    if form == "packed_qkv":
        inputs["query"] = _normal(rng, (batch, rows, heads, 3, size), dtype)
    else:
        inputs["query"] = _normal(rng, (batch, rows, heads * size), dtype)
    if form == "packed_kv":
        inputs["key"] = _normal(rng, (batch, new, heads, 2, size), dtype)
    elif form == "ready":
        inputs["key"] = _normal(rng, (batch, heads, new, size), dtype)
        inputs["value"] = _normal(rng, (batch, heads, new, value_size), dtype)
    elif form == "separate":
        inputs["key"] = _normal(rng, (batch, new, heads * size), dtype)
        inputs["value"] = _normal(rng, (batch, new, heads * value_size), dtype)
    if _chance(rng, 0.5):
        inputs["bias"] = _normal(rng, (heads * (2 * size + value_size),), dtype)

    had, aliases = 0, {}
    if past != "none":
        had = _length(rng, most)
        room = had
        if past != "concat":
            room = had + new + int(rng.integers(0, 5))
            inputs["past_sequence_length"] = np.array([had], np.int32)
            if _chance(rng, 0.5):
                aliases = {"present_key": "past_key", "present_value": "past_value"}
        inputs["past_key"] = _normal(rng, (batch, heads, room, size), dtype)
        inputs["past_value"] = _normal(rng, (batch, heads, room, value_size), dtype)
        if past == "beams":
            inputs["cache_indirection"] = _beams(rng, batch // width, width, room)
    total = had + new
    if _chance(rng, 0.5):
        ends = rng.integers(1, total + 1, batch).astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(ends)]).astype(np.int32)
        inputs["key_padding_mask"] = [
            lambda: ends,
            lambda: np.concatenate([ends, starts, starts]),
            lambda: _shown(rng, batch, new),
            lambda: _shown(rng, batch, total),
            lambda: _shown(rng, batch, rows, total),
        ][rng.integers(5)]()
    if _chance(rng, 0.3):
        inputs["attention_bias"] = _bias(rng, (batch, heads, rows, total), dtype)
    attributes |= _filter(rng, "attention_bias" in inputs)
    outputs = ["output"]
    if aliases or _chance(rng, 0.5):
        outputs += ["present_key", "present_value"]
    if _chance(rng, 0.3):
        outputs.append("qk")
    return Sample(inputs, attributes, tuple(outputs), aliases=aliases)


@sample("DecoderMaskedMultiHeadAttention")
def decoder_masked_multi_head_attention(rng: Rng) -> Sample:
    dtype: Any = HALVES[rng.integers(len(HALVES))]
    form = str(rng.choice(["cross", "self", "self", "packed"]))
    share = form != "cross" and _chance(rng, 0.6)
    heads, size = int(rng.integers(1, 5)), _head_size(rng)
    if share:
        size = -(-size // 8) * 8
    value_size = _head_size(rng) if _chance(rng, 0.4) else size
    width = int(rng.integers(1, 4)) if form != "cross" and _chance(rng, 0.4) else 1
    batch = int(rng.integers(1, 3)) * width
    hidden, value_hidden = heads * size, heads * value_size
    had = int(rng.integers(0, 3)) if _chance(rng, 0.2) else _length(rng, 300)
    attributes: dict[str, Any] = {"num_heads": heads, **_scale(rng)}
    inputs: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    outputs = ["output"]
    total = had + 1
    if form == "cross":
        total = had = had + 1
        inputs = {
            "query": _normal(rng, (batch, 1, hidden), dtype),
            "key": _normal(rng, (batch, heads, had, size), dtype),
            "value": _normal(rng, (batch, heads, had, value_size), dtype),
        }
    else:
        parts = [_normal(rng, (batch, 1, n), dtype) for n in (hidden, hidden, value_hidden)]
        if form == "packed":
            inputs["query"] = np.concatenate(parts, axis=-1)
        else:
            inputs = dict(zip(("query", "key", "value"), parts, strict=True))
        room = had + 1 + int(rng.integers(0, 6)) if share else had
        key = _normal(rng, (batch, heads, room, size), dtype)
        inputs["past_key"] = reordered(key) if share else key
        inputs["past_value"] = _normal(rng, (batch, heads, room, value_size), dtype)
        outputs += ["present_key", "present_value"]
        if share:
            attributes["past_present_share_buffer"] = 1
            inputs["past_sequence_length"] = np.array([had], np.int32)
            if _chance(rng, 0.5):
                aliases = {"present_key": "past_key", "present_value": "past_value"}
        if width > 1:
            inputs["beam_width"] = np.array([width], np.int32)
            inputs["cache_indirection"] = _beams(rng, batch // width, width, max(room, 1))
    if _chance(rng, 0.4):
        inputs["mask_index"] = _shown(rng, batch, total)
    if _chance(rng, 0.3):
        inputs["attention_bias"] = _bias(rng, (batch, heads, 1, total), dtype)
    attributes |= _filter(rng, "attention_bias" in inputs)
    if _chance(rng, 0.4):
        inputs["bias"] = _normal(rng, (2 * hidden + value_hidden,), dtype)
    if _chance(rng, 0.4):
        attributes["output_qk"] = 1
        outputs.append("qk")
    return Sample(inputs, attributes, tuple(outputs), aliases=aliases)


# Projected by the operator


def _projection(rng: Rng, inputs: int, outputs: int, dtype: Any) -> Array:
    return (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(dtype)


@sample("DecoderMaskedSelfAttention")
def decoder_masked_self_attention(rng: Rng) -> Sample:
    dtype: Any = HALVES[rng.integers(len(HALVES))]
    share = _chance(rng, 0.6)
    heads, size = int(rng.integers(1, 5)), _head_size(rng)
    if share:
        size = -(-size // 8) * 8
    width = int(rng.integers(1, 4)) if _chance(rng, 0.4) else 1
    batch = int(rng.integers(1, 3)) * width
    channels, hidden = int(rng.integers(1, 65)), heads * size
    had = int(rng.integers(0, 3)) if _chance(rng, 0.2) else _length(rng, 300)
    room = had + 1 + int(rng.integers(0, 6)) if share else had
    past = _normal(rng, (2, batch, heads, room, size), dtype)
    if share:
        past[0] = reordered(past[0])
    attributes: dict[str, Any] = {"num_heads": heads, "past_present_share_buffer": int(share), **_scale(rng)}
    inputs: dict[str, Any] = {
        "input": _normal(rng, (batch, 1, channels), dtype),
        "weights": _projection(rng, channels, 3 * hidden, dtype),
        "bias": _normal(rng, (3 * hidden,), dtype),
        "past": past,
        "past_sequence_length": np.array([had], np.int32),
    }
    if size % 2 == 0 and _chance(rng, 0.4):
        attributes["do_rotary"] = 1
    if width > 1:
        inputs["beam_width"] = np.array([width], np.int32)
        inputs["cache_indirection"] = _beams(rng, batch // width, width, max(room, 1))
    if _chance(rng, 0.4):
        inputs["mask_index"] = _shown(rng, batch, had + 1)
    if _chance(rng, 0.3):
        inputs["attention_bias"] = _bias(rng, (batch, heads, 1, had + 1), dtype)
    attributes |= _filter(rng, "attention_bias" in inputs)
    aliases = {"present": "past"} if share and _chance(rng, 0.5) else {}
    return Sample(inputs, attributes, ("output", "present"), aliases=aliases)


@sample("DecoderAttention")
def decoder_attention(rng: Rng) -> Sample:
    dtype: Any = HALVES[rng.integers(len(HALVES))]
    heads = int(rng.integers(1, 5))
    size = int(rng.integers(1, 65))
    batch, hidden = int(rng.integers(1, 4)), heads * size
    rows, length, had = (_length(rng, 150) for _ in range(3))
    cross, past, state = (bool(_chance(rng, p)) for p in (0.5, 0.5, 0.8))
    inputs: dict[str, Any] = {
        "query": _normal(rng, (rows, batch, hidden), dtype),
        "key": _normal(rng, (length, batch, hidden), dtype),
        "q_weight": _projection(rng, hidden, hidden, dtype),
        "kv_weight": _projection(rng, hidden, 2 * hidden, dtype),
        "bias": _normal(rng, (3 * hidden,), dtype),
    }
    cached = past and state
    if cached or _chance(rng, 0.2):
        inputs["key_cache"] = _normal(rng, (batch, heads, had, size), dtype)
        inputs["value_cache"] = _normal(rng, (batch, heads, had, size), dtype)
    total = (had if cached else length) if cross else rows + (had if cached else 0)
    masked = _chance(rng, 0.4)
    if masked:
        inputs["key_padding_mask"] = rng.random((batch, total)) < 0.3
    flags = {
        "static_kv": cross,
        "use_past": past,
        "has_layer_state": state,
        "has_key_padding_mask": masked,
    }
    inputs |= {name: np.full((1,) if _chance(rng, 0.5) else (), flag) for name, flag in flags.items()}
    outputs = ("output", "new_key_cache", "new_value_cache") if state else ("output",)
    return Sample(inputs, {"num_heads": heads}, outputs)


@sample("QAttention")
def q_attention(rng: Rng) -> Sample:
    t: Any = HALVES[rng.integers(len(HALVES))]
    x_type, w_type = ((np.int8, np.uint8)[rng.integers(2)] for _ in range(2))
    heads, size = int(rng.integers(1, 4)), int(rng.integers(1, 65))
    batch, channels, width = int(rng.integers(1, 4)), int(rng.integers(1, 300)), 3 * heads * size
    rows = _length(rng, 120)

    def integers(dtype: Any, *shape: int) -> Array:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)

    # Around the zero point, as quantized numbers lie, so that scores stay within a few units.
    x, w = integers(x_type, batch, rows, channels), integers(w_type, channels, width)
    columns = (width,) if _chance(rng, 0.4) else ()
    weight_scale = rng.uniform(0.8, 1.2, columns) / (127 * np.sqrt(channels))
    inputs: dict[str, Any] = {
        "input": x,
        "weight": w,
        "bias": _normal(rng, (width,), t),
        "input_scale": np.array(1 / 127, t),
        "weight_scale": np.asarray(weight_scale, np.float32).astype(t),
    }
    middles = {np.int8: 0, np.uint8: 128}
    if x_type == np.uint8 or _chance(rng, 0.7):
        inputs["input_zero_point"] = np.array(middles[x_type] + int(rng.integers(-9, 10)), x_type)
    if w_type == np.uint8 or _chance(rng, 0.7):
        zeros = middles[w_type] + rng.integers(-9, 10, columns if _chance(rng, 0.5) else ())
        inputs["weight_zero_point"] = np.asarray(zeros).astype(w_type)
    attributes: dict[str, Any] = {"num_heads": heads, "unidirectional": int(_chance(rng, 0.5)), **_scale(rng)}
    if size % 2 == 0 and _chance(rng, 0.3):
        attributes["do_rotary"] = 1
    outputs, had = ["output"], 0
    if _chance(rng, 0.4):
        had = _length(rng, 120)
        inputs["past"] = _normal(rng, (2, batch, heads, had, size), t)
    if "past" in inputs or _chance(rng, 0.3):
        outputs.append("present")
    if _chance(rng, 0.4):
        inputs["mask_index"] = rng.integers(1, had + rows + 1, batch).astype(np.int32)
        attributes |= _filter(rng, False)
    return Sample(inputs, attributes, tuple(outputs))


# Packed


def _sequences(rng: Rng, heads: int, dtype: Any) -> tuple[int, dict[str, Any]]:
    """The number of tokens, and what describes how they are packed."""
    batch = int(rng.integers(1, 5))
    lengths = np.array([0 if _chance(rng, 0.1) else _length(rng, 150) for _ in range(batch)])
    lengths[rng.integers(batch)] += 1
    longest = int(lengths.max()) + int(rng.integers(0, 3))
    real = np.arange(longest) < lengths[:, None]
    order = np.argsort(~real.reshape(-1), kind="stable").reshape(batch, longest)
    inputs: dict[str, Any] = {
        "token_offset": order.astype(np.int32),
        "cumulative_sequence_length": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    }
    if _chance(rng, 0.4):
        inputs["attention_bias"] = _bias(rng, (batch, heads, longest, longest), dtype)
    return int(lengths.sum()), inputs


@sample("PackedAttention")
def packed_attention(rng: Rng) -> Sample:
    dtype: Any = HALVES[rng.integers(len(HALVES))]
    heads, size = int(rng.integers(1, 5)), _head_size(rng)
    value_size = _head_size(rng) if _chance(rng, 0.4) else size
    tokens, inputs = _sequences(rng, heads, dtype)
    channels, sizes = int(rng.integers(1, 65)), [heads * size, heads * size, heads * value_size]
    inputs |= {
        "input": _normal(rng, (tokens, channels), dtype),
        "weights": _projection(rng, channels, sum(sizes), dtype),
        "bias": _normal(rng, (sum(sizes),), dtype),
    }
    attributes: dict[str, Any] = {"num_heads": heads, **_scale(rng)}
    if value_size != size or _chance(rng, 0.3):
        attributes["qkv_hidden_sizes"] = sizes
    return Sample(inputs, attributes)


@sample("PackedMultiHeadAttention")
def packed_multi_head_attention(rng: Rng) -> Sample:
    dtype: Any = HALVES[rng.integers(len(HALVES))]
    heads, size = int(rng.integers(1, 5)), _head_size(rng)
    tokens, inputs = _sequences(rng, heads, dtype)
    value_size = size
    if _chance(rng, 0.4):
        inputs["query"] = _normal(rng, (tokens, heads, 3, size), dtype)
    else:
        value_size = _head_size(rng) if _chance(rng, 0.4) else size
        for name, n in (("query", size), ("key", size), ("value", value_size)):
            inputs[name] = _normal(rng, (tokens, heads * n), dtype)
    if _chance(rng, 0.5):
        inputs["bias"] = _normal(rng, (heads * (2 * size + value_size),), dtype)
    return Sample(inputs, {"num_heads": heads, **_scale(rng)})
