"""How fast models of one operator run here beside ONNX Runtime's WebGPU provider, on one adapter.

    python scripts/compare_speed.py [name ...]

Both run in this process, on the adapter that the Vulkan loader finds, taking turns; arrays go in and
come out. A ratio of medians above 1 says that this package is faster: in elapsed time, and in the
processor time of all threads, which on a software adapter is the work itself, whatever else the
machine does meanwhile.

Needs onnxruntime and onnxruntime-ep-webgpu, and an adapter the provider takes (lavapipe from 23 on,
SwiftShader).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

# Read by the provider when it is loaded.
os.environ.setdefault("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")

import numpy as np
import onnxruntime
import onnxruntime_ep_webgpu
from onnx import TensorProto, helper, numpy_helper

import webgpu_ops

Run = Callable[[], np.ndarray]
random = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """An operator on ``arrays``, in the order of its inputs; those named ``weights`` belong to the model."""

    op: str
    arrays: Mapping[str, np.ndarray | None]
    attributes: Mapping[str, int | str] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    domain: str = "com.microsoft"
    outputs: int = 1
    rounds: int = 20

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {k: x for k, x in self.arrays.items() if x is not None and k not in self.weights}

    def model(self) -> bytes:
        kinds = {k: helper.np_dtype_to_tensor_dtype(x.dtype) for k, x in self.feeds.items()}
        inputs = [helper.make_tensor_value_info(k, kinds[k], x.shape) for k, x in self.feeds.items()]
        names = [f"Y{i}" for i in range(self.outputs)]
        outputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in names]
        weights = [numpy_helper.from_array(self.arrays[k], k) for k in self.weights]
        places = ["" if x is None else k for k, x in self.arrays.items()]
        node = helper.make_node(self.op, places, names, domain=self.domain, **self.attributes)
        graph = helper.make_graph([node], self.op, inputs, outputs, weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def matmul(m: int, k: int, n: int) -> Case:
    return Case("MatMul", {"A": normal(m, k), "B": normal(k, n)}, weights=("B",), domain="", rounds=8)


def matmul_nbits(m: int, k: int, n: int, bits: int = 4, block_size: int = 32) -> Case:
    blocks = k // block_size
    codes = random.integers(0, 256, (n, blocks, block_size * bits // 8), np.uint8)
    return Case(
        "MatMulNBits",
        {"A": normal(m, k), "B": codes, "scales": random.random((n, blocks), np.float32)},
        {"K": k, "N": n, "bits": bits, "block_size": block_size},
        weights=("B", "scales"),
        rounds=30 if m == 1 else 8,
    )


def group_query_attention(tokens: int, past: int, heads: int = 16, kv_heads: int = 4, size: int = 64) -> Case:
    return Case(
        "GroupQueryAttention",
        {
            "query": normal(1, tokens, heads * size),
            "key": normal(1, tokens, kv_heads * size),
            "value": normal(1, tokens, kv_heads * size),
            "past_key": normal(1, kv_heads, past, size),
            "past_value": normal(1, kv_heads, past, size),
            "seqlens_k": np.array([past + tokens - 1], np.int32),
            "total_sequence_length": np.array([past + tokens], np.int32),
        },
        {"num_heads": heads, "kv_num_heads": kv_heads},
        weights=("seqlens_k", "total_sequence_length"),
        outputs=3,
    )


def multi_head_attention(tokens: int, heads: int = 8, size: int = 64) -> Case:
    arrays = {name: normal(1, tokens, heads * size) for name in ("query", "key", "value")}
    return Case("MultiHeadAttention", arrays, {"num_heads": heads})


def rotary_embedding(tokens: int, heads: int, size: int) -> Case:
    arrays = {
        "input": normal(1, tokens, heads * size),
        "position_ids": np.arange(tokens, dtype=np.int64)[None],
        "cos_cache": normal(tokens, size // 2),
        "sin_cache": normal(tokens, size // 2),
    }
    return Case("RotaryEmbedding", arrays, weights=("cos_cache", "sin_cache"))


def skip_layer_normalization(rows: int, width: int) -> Case:
    arrays = {"input": normal(1, rows, width), "skip": normal(1, rows, width)}
    arrays |= {"gamma": normal(width), "beta": normal(width)}
    return Case("SkipLayerNormalization", arrays, weights=("gamma", "beta"))


def linear_attention(tokens: int, heads: int = 4, size: int = 64) -> Case:
    arrays = {name: normal(1, tokens, heads * size) for name in ("query", "key", "value")}
    arrays |= {"past_state": normal(1, heads, size, size)}
    arrays |= {"decay": -random.random((1, tokens, heads), np.float32)}
    arrays |= {"beta": random.random((1, tokens, heads), np.float32)}
    arrays["key"] /= 8
    attributes = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "gated_delta"}
    return Case("LinearAttention", arrays, attributes, outputs=2)


def causal_conv(tokens: int, channels: int) -> Case:
    arrays = {
        "input": normal(1, channels, tokens),
        "weight": normal(channels, 1, 4),
        "bias": normal(channels),
        "past_state": normal(1, channels, 3),
    }
    return Case("CausalConvWithState", arrays, {"activation": "silu"}, weights=("weight", "bias"), outputs=2)


def gather_block_quantized(rows: int, width: int, picked: int) -> Case:
    arrays = {
        "data": random.integers(0, 256, (rows, width // 2), np.uint8),
        "indices": random.integers(0, rows, (picked,), np.int64),
        "scales": random.random((rows, width // 32), np.float32),
    }
    return Case("GatherBlockQuantized", arrays, {"bits": 4, "block_size": 32}, weights=("data", "scales"))


def qmoe(tokens: int, hidden: int, experts: int) -> Case:
    arrays = {
        "input": normal(tokens, hidden),
        "router_probs": normal(tokens, experts),
        "fc1_experts_weights": random.integers(0, 256, (experts, 2 * hidden, hidden // 2), np.uint8),
        "fc1_scales": random.random((experts, 2 * hidden), np.float32) / 100,
        "fc1_experts_bias": None,
        "fc2_experts_weights": random.integers(0, 256, (experts, hidden, hidden // 2), np.uint8),
        "fc2_scales": random.random((experts, hidden), np.float32) / 100,
    }
    attributes = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": 4}
    attributes |= {"normalize_routing_weights": 1}  # the provider always does
    weights = tuple(name for name in arrays if name.startswith("fc") and arrays[name] is not None)
    return Case("QMoE", arrays, attributes, weights=weights, rounds=8)


CASES = {
    "MatMulNBits 1x2048x2048, 4 bits": lambda: matmul_nbits(1, 2048, 2048),
    "MatMulNBits 128x2048x2048, 4 bits": lambda: matmul_nbits(128, 2048, 2048),
    "MatMul 512x512x512": lambda: matmul(512, 512, 512),
    "MatMul 1024x1024x1024": lambda: matmul(1024, 1024, 1024),
    "GroupQueryAttention 1 after 1023": lambda: group_query_attention(1, 1023),
    "GroupQueryAttention 256 after 0": lambda: group_query_attention(256, 0),
    "MultiHeadAttention 512": lambda: multi_head_attention(512),
    "RotaryEmbedding 512x16x64": lambda: rotary_embedding(512, 16, 64),
    "SkipLayerNormalization 512x2048": lambda: skip_layer_normalization(512, 2048),
    "LinearAttention 64 tokens": lambda: linear_attention(64),
    "CausalConvWithState 64x512": lambda: causal_conv(64, 512),
    "GatherBlockQuantized 64 of 4096x512": lambda: gather_block_quantized(4096, 512, 64),
    "QMoE 16x256, 8 experts": lambda: qmoe(16, 256, 8),
}


def ours(case: Case) -> Run:
    session = webgpu_ops.InferenceSession(case.model())
    return lambda: session.run(None, case.feeds)[0]


def theirs(case: Case) -> Run:
    options = onnxruntime.SessionOptions()
    devices = [d for d in onnxruntime.get_ep_devices() if "webgpu" in d.ep_name.lower()]
    options.add_provider_for_devices(devices[:1], {})
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(case.model(), options)
    return lambda: session.run(None, case.feeds)[0]


def clocked(run: Run) -> tuple[float, float]:
    """Elapsed and processor time of one run, in milliseconds."""
    elapsed, processor = time.perf_counter(), time.process_time()
    run()
    return (time.perf_counter() - elapsed) * 1e3, (time.process_time() - processor) * 1e3


def main(words: list[str]) -> None:
    library = onnxruntime_ep_webgpu.get_library_path()
    onnxruntime.register_execution_provider_library("webgpu", library)
    print(webgpu_ops.Device.default())
    print(f"{'':36}{'elapsed ms: here, provider':>28}{'ratio':>7}{'CPU ms: here, provider':>26}{'ratio':>7}")
    for name, make in CASES.items():
        if words and not any(word.lower() in name.lower() for word in words):
            continue
        case = make()
        sides = ours(case), theirs(case)
        results = [run() for run in sides]
        scale = np.abs(results[1]).max()
        same = np.abs(results[0] - results[1]).max() <= 1e-4 * scale
        times = np.array([[clocked(run) for run in sides] for _ in range(case.rounds)])
        (here, cpu_here), (there, cpu_there) = [[median(t) for t in side.T] for side in times.swapaxes(0, 1)]
        line = f"{name:36}{here:14.2f}{there:14.2f}{there / here:7.2f}"
        line += f"{cpu_here:13.2f}{cpu_there:13.2f}{cpu_there / cpu_here:7.2f}"
        print(line if same else f"{line}  results differ", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
