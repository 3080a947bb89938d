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
from onnx import helper, numpy_helper

import webgpu_ops

Run = Callable[[], np.ndarray]
random = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """An operator on ``inputs``, with ``weights`` that belong to the model."""

    op: str
    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    attributes: Mapping[str, int] = field(default_factory=dict)
    domain: str = ""
    rounds: int = 20

    def model(self) -> bytes:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in self.inputs.items()
        ]
        output = helper.make_tensor_value_info("Y", inputs[0].type.tensor_type.elem_type, None)
        weights = [numpy_helper.from_array(x, name) for name, x in self.weights.items()]
        names = [*self.inputs, *self.weights]
        node = helper.make_node(self.op, names, ["Y"], domain=self.domain, **self.attributes)
        graph = helper.make_graph([node], self.op, inputs, [output], weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def matmul(m: int, k: int, n: int) -> Case:
    return Case("MatMul", {"A": normal(m, k)}, {"B": normal(k, n)}, rounds=8)


def matmul_nbits(m: int, k: int, n: int, bits: int = 4, block_size: int = 32) -> Case:
    blocks = k // block_size
    codes = random.integers(0, 256, (n, blocks, block_size * bits // 8), np.uint8)
    weights = {"B": codes, "scales": random.random((n, blocks), np.float32)}
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block_size}
    return Case("MatMulNBits", {"A": normal(m, k)}, weights, attributes, "com.microsoft", 30 if m == 1 else 8)


CASES = {
    "MatMulNBits 1x2048x2048, 4 bits": lambda: matmul_nbits(1, 2048, 2048),
    "MatMulNBits 128x2048x2048, 4 bits": lambda: matmul_nbits(128, 2048, 2048),
    "MatMul 512x512x512": lambda: matmul(512, 512, 512),
    "MatMul 1024x1024x1024": lambda: matmul(1024, 1024, 1024),
}


def ours(case: Case) -> Run:
    session = webgpu_ops.InferenceSession(case.model())
    return lambda: session.run(None, dict(case.inputs))[0]


def theirs(case: Case) -> Run:
    options = onnxruntime.SessionOptions()
    devices = [d for d in onnxruntime.get_ep_devices() if "webgpu" in d.ep_name.lower()]
    options.add_provider_for_devices(devices[:1], {})
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(case.model(), options)
    return lambda: session.run(None, dict(case.inputs))[0]


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
