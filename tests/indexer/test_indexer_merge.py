"""Merged selections: order, duplicates, status codes, and sizes beyond one workgroup's turn."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, api, run
from webgpu_ops.core.device import Device
from webgpu_ops.reference.indexer import packed_sparse_attention_indexer_merge

MERGE = "PackedSparseAttentionIndexerMerge"
HIGHEST = 2**31 - 1


def merged(inputs: dict[str, Any], width: int, device: Device) -> list[np.ndarray]:
    """Selection, counts and status, after they were compared with the reference."""
    mode = "append_range" if "range_starts" in inputs else "append_indices"
    attributes = {"policy_mode": mode, "max_output_entries": width}
    arrays = {name: np.asarray(x, np.int32) for name, x in inputs.items()}
    downloads = device.stats.downloads
    results = run(
        MERGE, {k: Tensor.from_numpy(x, device) for k, x in arrays.items()}, attributes, device=device
    )
    assert device.stats.downloads == downloads
    got = [r.numpy() for r in results if r is not None]
    for g, w in zip(got, packed_sparse_attention_indexer_merge(**arrays, **attributes), strict=True):
        np.testing.assert_array_equal(g, w)
    return got


def test_first_occurrences_keep_their_order(device: Device) -> None:
    inputs = {
        "base_indices": [[7, 2, 7, 9, 2, 5]],
        "base_counts": [5],
        "base_row_indices": [0, 0],
        "additional_indices": [[4, 9, 4, 0], [7, 7, 7, 7]],
        "additional_counts": [4, 3],
    }
    selected, counts, status = merged(inputs, 6, device)
    assert selected.tolist() == [[7, 2, 9, 4, 0, -1], [7, 2, 9, -1, -1, -1]]
    assert counts.tolist() == [5, 3] and status.tolist() == [0, 0]


def test_status_codes(device: Device) -> None:
    """1 for what is invalid, wherever it stands; else 2 where the union is too wide, else 0."""
    calls = {
        "row -1": ([-1, 0, 1], 1),
        "row beyond": ([2, 0, 1], 1),
        "count beyond": ([1, 0, 1], 1),
        "start below 0": ([0, -1, 1], 1),
        "end below start": ([0, 5, 4], 1),
        "too wide": ([0, 10, 12], 2),
        "far too wide": ([0, 0, HIGHEST], 2),
        "invalid and too wide": ([1, 0, HIGHEST], 1),
        "fits": ([0, 1, 4], 0),
        "empty range": ([0, HIGHEST, HIGHEST], 0),
    }
    queries = np.array([c for c, _ in calls.values()])
    inputs = {
        "base_indices": [[3, 1, 3], [3, 1, 2]],
        "base_counts": [3, 4],
        "base_row_indices": queries[:, 0],
        "range_starts": queries[:, 1],
        "range_ends": queries[:, 2],
    }
    selected, counts, status = merged(inputs, 3, device)
    assert dict(zip(calls, status.tolist(), strict=True)) == {name: s for name, (_, s) in calls.items()}
    assert (selected[status != 0] == -1).all() and (counts[status != 0] == 0).all()
    assert selected[-2].tolist() == [3, 1, 2]


@pytest.mark.parametrize("where", ["base", "additional"])
def test_negative_indices_are_invalid_in_the_prefix_alone(device: Device, where: str) -> None:
    inputs: dict[str, Any] = {
        "base_indices": [[1, 2, 3, 4]],
        "base_counts": [3],
        "base_row_indices": [0],
        "additional_indices": [[5, 6, 7, 8]],
        "additional_counts": [3],
    }
    for at, expected in ((2, 1), (3, 0)):
        row = list(inputs[f"{where}_indices"][0])
        row[at] = -5
        changed = {**inputs, f"{where}_indices": [row]}
        assert merged(changed, 9, device)[2].tolist() == [expected]


@pytest.mark.parametrize(("columns", "width"), [(1, 1), (63, 200), (700, 2000), (4096, 12000)])
def test_sizes(any_device: Device, columns: int, width: int) -> None:
    rng = np.random.default_rng(columns)
    rows, queries = 3, 5
    base = {
        "base_indices": rng.integers(0, columns + 9, (rows, columns)),
        "base_counts": [columns, columns // 2, 0],
        "base_row_indices": rng.integers(0, rows, queries),
    }
    starts = rng.integers(0, columns + 9, queries)
    ranges = {"range_starts": starts, "range_ends": starts + rng.integers(0, columns + 1, queries)}
    merged({**base, **ranges}, width, any_device)
    more = {
        "additional_indices": rng.integers(0, columns + 9, (queries, columns)),
        "additional_counts": rng.integers(0, columns + 1, queries),
    }
    merged({**base, **more}, width, any_device)


def test_groups_of_queries(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    """Queries that do not fit the scratch together."""
    monkeypatch.setattr("webgpu_ops.families.indexer.core.SCRATCH_BYTES", 300)
    monkeypatch.setattr(api, "_NODES", OrderedDict())  # nodes keep their plans
    rng = np.random.default_rng(3)
    inputs = {
        "base_indices": rng.integers(0, 30, (4, 12)),
        "base_counts": [12, 3, 7, 0],
        "base_row_indices": rng.integers(0, 4, 10),
        "range_starts": rng.integers(0, 30, 10),
        "range_ends": rng.integers(30, 40, 10),
    }
    before = device.stats.dispatches
    merged(inputs, 40, device)
    assert device.stats.dispatches - before == 4


def test_nothing_to_do(device: Device) -> None:
    empty = {"base_indices": np.zeros((0, 3)), "base_counts": [], "base_row_indices": []}
    selected, *_ = merged({**empty, "range_starts": [], "range_ends": []}, 4, device)
    assert selected.shape == (0, 4)
    one = {**empty, "base_row_indices": [0], "range_starts": [0], "range_ends": [2]}
    selected, _, status = merged(one, 4, device)
    assert status.tolist() == [1] and (selected == -1).all()
