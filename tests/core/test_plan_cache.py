"""Which calls of a node share a plan."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from webgpu_ops import Device, ShapeError, Tensor
from webgpu_ops.api import PLANS_PER_NODE, Node
from webgpu_ops.core.program import ProgramCache


def embedding(rows: int) -> dict[str, np.ndarray]:
    table = np.ones((rows, 8), np.float32)
    return {"word": table, "position": table, "gamma": table[0], "beta": table[0]}


def test_values_on_the_host_are_checked_in_every_call(device: Device) -> None:
    """A plan made for ids on the device must not let bad ids on the host through."""
    t = embedding(4)
    present = [True, False, True, True, False, True, True]
    node = Node("EmbedLayerNormalization", present=present, wanted=[True])

    def call(ids: np.ndarray | Tensor) -> None:
        node.run(device, [ids, None, t["word"], t["position"], None, t["gamma"], t["beta"]])

    good, bad = np.array([[0, 3]], np.int32), np.array([[0, 4]], np.int32)
    call(Tensor.from_numpy(bad, device))  # contained on the device
    with pytest.raises(ShapeError, match="input_ids"):
        call(bad)
    call(good)
    with pytest.raises(ShapeError, match="input_ids"):
        call(bad)


def test_a_node_keeps_a_bounded_number_of_plans(device: Device) -> None:
    node = Node("BiasGelu", present=[True, True], wanted=[True])
    for rows in range(1, PLANS_PER_NODE + 20):
        node.run(device, [np.zeros((rows, 4), np.float32), np.zeros(4, np.float32)])
    assert len(node._plans) <= PLANS_PER_NODE
    assert len(node._host_reads) <= PLANS_PER_NODE


def test_large_host_values_are_known_again_but_not_kept(device: Device) -> None:
    node = Node("NGramRepeatBlock", attributes={"ngram_size": 2}, present=[True, True], wanted=[True])
    scores, ids = np.zeros((1, 9), np.float32), np.zeros((1, 5000), np.int64)
    before = device.stats.plans_made
    for _ in range(2):
        node.run(device, [ids, scores])
    other = ids.copy()
    other[0, 4999] = 9
    with pytest.raises(ShapeError, match=r"input_ids holds \[9\]"):
        node.run(device, [other, scores])
    assert device.stats.plans_made == before + 1
    assert len(pickle.dumps([host for _, host in node._plans])) < 1000


def test_repeated_calls_plan_once(device: Device) -> None:
    node = Node("BiasGelu", present=[True, True], wanted=[True])
    before = device.stats.plans_made
    for _ in range(3):
        node.run(device, [np.ones((3, 4), np.float32), np.ones(4, np.float32)])
    assert device.stats.plans_made == before + 1


def test_programs_unused_for_longest_go_first() -> None:
    device = Device()
    device.programs = ProgramCache(device, limit=3)
    a, bias = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    first = Node("BiasGelu", present=[True, True], wanted=[True])
    first.run(device, [a, bias])
    created = device.stats.pipelines_created
    for op in ("Neg", "Abs", "Exp", "Sqrt", "Floor"):
        Node(op, "", 21, present=[True], wanted=[True]).run(device, [a])
    assert len(device.programs) == 3
    assert device.stats.pipelines_created > created
    created = device.stats.pipelines_created
    first.run(device, [a, bias])  # its plan kept the program
    assert device.stats.pipelines_created == created
