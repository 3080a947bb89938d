"""Every operator that has random calls: against its reference, into poisoned memory, and its shaders."""

from __future__ import annotations

import numpy as np
import pytest

from webgpu_ops import Device, Tensor, reference, run, schema, supported_ops
from webgpu_ops import plan as make_plan
from webgpu_ops.conformance import check_sample, qualified, split_qualified
from webgpu_ops.core.plan import PORTABLE
from webgpu_ops.core.program import Placement, Variant, variant_of
from webgpu_ops.reference import samples
from webgpu_ops.reference.samples import Sample

pytestmark = pytest.mark.quick(1)
DRAWS = 6
SAMPLED = sorted(
    qualified(op, domain)
    for domain, op in supported_ops()
    if samples.draw_of(op, domain) is not None and reference.find(op, domain) is not None
)


def by_operator(names: list[str]) -> list:
    return [pytest.param(name, id=name, marks=pytest.mark.xdist_group(name)) for name in names]


def draws(name: str, seed: int, count: int = DRAWS) -> list[Sample]:
    op, domain = split_qualified(name)
    draw = samples.draw_of(op, domain)
    assert draw is not None
    return [draw(np.random.default_rng((seed, i))) for i in range(count)]


def wanted(op: str, sample: Sample) -> tuple[str, ...]:
    return sample.outputs or schema.find(op, sample.domain, sample.opset).required_outputs


@pytest.mark.parametrize("name", by_operator(SAMPLED))
def test_reference(any_device: Device, name: str) -> None:
    for i, sample in enumerate(draws(name, 1)):
        outcome = check_sample(split_qualified(name)[0], sample, any_device)
        assert outcome.passed, f"draw {i}: {outcome.message}"


@pytest.mark.parametrize("name", by_operator(SAMPLED))
def test_poisoned_outputs_and_their_neighbours(device: Device, name: str) -> None:
    """An output bound into the middle of a buffer of set bits: same result, same neighbours."""
    op, _ = split_qualified(name)
    for sample in draws(name, 2, 3):
        if sample.aliases:
            continue
        names = wanted(op, sample)
        inputs = {k: v for k, v in sample.inputs.items() if v is not None}
        call = {"domain": sample.domain, "opset": sample.opset, "device": device}
        free = [t for t in run(op, inputs, sample.attributes, outputs=names, **call) if t is not None]
        order = [p.name for p in schema.find(op, sample.domain, sample.opset).outputs if p.name in names]
        backings = {}
        bound = {}
        for k, (out, tensor) in enumerate(zip(order, free, strict=True)):
            before = np.full((tensor.size + 16) * tensor.dtype.itemsize, 0xFF, np.uint8)
            backings[out] = Tensor.from_numpy(before.view(tensor.dtype.numpy), device)
            bound[out] = backings[out].view(tensor.shape, 3 + 2 * k)
        run(op, inputs, sample.attributes, outputs=bound, **call)
        for k, (out, tensor) in enumerate(zip(order, free, strict=True)):
            item = tensor.dtype.itemsize
            start = (3 + 2 * k) * item
            got = backings[out].numpy().reshape(-1).view(np.uint8)
            assert (got[:start] == 0xFF).all(), f"{out}: bytes before it were written"
            assert (got[start + tensor.nbytes :] == 0xFF).all(), f"{out}: bytes after it were written"
            specified = ~sample.unspecified.get(out, np.zeros(tensor.shape, bool))
            inside = got[start : start + tensor.nbytes].view(tensor.dtype.numpy).reshape(tensor.shape)
            want = tensor.numpy()
            assert inside[specified].tobytes() == want[specified].tobytes(), f"{out} differs when bound"


@pytest.mark.parametrize("name", by_operator(SAMPLED))
def test_one_variant_has_one_source(name: str) -> None:
    """A value baked into WGSL without being in the Variant would give one key two sources."""
    op, domain = split_qualified(name)
    sources: dict[Variant, str] = {}
    for sample in draws(name, 3, 12):
        inputs = {k: v for k, v in sample.inputs.items() if v is not None}
        outputs = wanted(op, sample)
        plan = make_plan(op, inputs, sample.attributes, domain=domain, opset=sample.opset, outputs=outputs)
        for dispatch in plan.dispatches:
            present = [n for n, s in (*dispatch.reads, *dispatch.writes) if s is not None]
            variant = variant_of(dispatch, [Placement(f"{n}_data", False) for n in present], PORTABLE)
            source = variant.render()
            assert sources.setdefault(variant, source) == source
