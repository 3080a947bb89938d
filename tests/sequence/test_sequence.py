"""Repeated n-grams, suffix matches and warping paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webgpu_ops import Tensor, plan, run
from webgpu_ops.conformance import check_sample
from webgpu_ops.core import dtypes
from webgpu_ops.core.device import Device
from webgpu_ops.core.plan import Capabilities, TensorSpec
from webgpu_ops.errors import LimitError, SchemaError, ShapeError
from webgpu_ops.reference.samples import draw_of
from webgpu_ops.reference.sequence import dynamic_time_warping, ngram_repeat_block


def one(results: list[Tensor | None]) -> np.ndarray:
    (result,) = results
    assert result is not None
    return result.numpy()


@pytest.mark.parametrize("op", ["BifurcationDetector", "DynamicTimeWarping"])
def test_one_workgroup_of_many_lanes(gpu_tiles: Device, op: str) -> None:
    for seed in range(12):
        draw = draw_of(op)
        assert draw is not None
        outcome = check_sample(op, draw(np.random.default_rng((1, seed))), gpu_tiles)
        assert outcome.passed, f"seed {seed}: {outcome.message}"


# NGramRepeatBlock


def test_repeat_block_refusals() -> None:
    ids, scores = TensorSpec((2, 5), dtypes.int64), TensorSpec((2, 7), dtypes.float32)
    with pytest.raises(SchemaError, match="NGramRepeatBlock: ngram_size is 0"):
        plan("NGramRepeatBlock", [ids, scores], {"ngram_size": 0})
    with pytest.raises(ShapeError, match=r"scores has shape \(3, 7\); expected \(2, vocabulary\)"):
        plan("NGramRepeatBlock", [ids, TensorSpec((3, 7), dtypes.float32)], {"ngram_size": 2})
    with pytest.raises(ShapeError, match=r"input_ids holds \[7\]; expected ids in \[0, 6\]"):
        plan("NGramRepeatBlock", [np.array([[1, 7], [0, 0]]), scores], {"ngram_size": 2})


def test_ids_outside_of_the_vocabulary_are_contained_on_the_device(device: Device) -> None:
    """They take part in matches, but there is no score to set, in this row or in its neighbours."""
    high = 1 << 32  # its low word alone is token 0
    ids = np.array([[5, 1, 5], [9, 2, 9], [-1, 3, -1], [4, -7, 4], [4, 100, 4], [4, high, 4]])
    scores = np.arange(24, dtype=np.float32).reshape(6, 4)
    feeds = [Tensor.from_numpy(ids, device), scores]
    got = one(run("NGramRepeatBlock", feeds, {"ngram_size": 2}, device=device))
    np.testing.assert_array_equal(got, ngram_repeat_block(ids, scores, ngram_size=2)[0])
    assert np.isinf(got[[0, 1, 2], [1, 2, 3]]).all() and np.isfinite(got[3:]).all()


def test_scores_keep_their_bits(device: Device) -> None:
    bits = np.array([[0x7FC12345, 0xFF800001, 0x80000000, 0x00000001, 0x7F800000]], np.uint32)
    ids = np.array([[4, 4]])
    got = one(run("NGramRepeatBlock", [ids, bits.view(np.float32)], {"ngram_size": 1}, device=device))
    want = bits.copy()
    want[0, 4] = 0xFF800000
    np.testing.assert_array_equal(got.view(np.uint32), want)


def test_scores_in_place_are_not_copied(device: Device) -> None:
    scores = Tensor.from_numpy(np.zeros((1, 6), np.float32), device)
    for step in range(1, 4):
        ids = np.arange(step)[None]
        run(
            "NGramRepeatBlock",
            [ids, scores],
            {"ngram_size": 1},
            outputs={"scores_out": scores},
            device=device,
        )
    assert np.isinf(scores.numpy()).tolist() == [[True, True, True, False, False, False]]


# BifurcationDetector


def detector(**changes: Any) -> dict[str, np.ndarray]:
    return {
        "src_tokens": np.array([1, 5, 3, 4]),
        "cur_tokens": np.array([2]),
        "prev_suffix_match_idx": np.array([0]),
        "pred_tokens": np.array([1, 5, 9, 4, 8]),
    } | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"prev_suffix_match_idx": np.array([5])},
            r"prev_suffix_match_idx is 5; expected an index in \[0, 4\]",
        ),
        ({"prev_suffix_match_idx": np.array([-1])}, "prev_suffix_match_idx is -1"),
        ({"prev_suffix_match_idx": np.array([0, 1])}, "prev_suffix_match_idx has shape"),
        ({"prev_suffix_match_idx": np.array([1])}, r"pred_tokens has shape \(5,\); expected \(4,\)"),
        ({"cur_tokens": np.array([[2]])}, "cur_tokens has shape"),
    ],
)
def test_bifurcation_refusals(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(ShapeError, match=f"BifurcationDetector: {message}"):
        plan("BifurcationDetector", detector(**changes))


@pytest.mark.parametrize(("least", "most"), [(0, 3), (3, 2)])
def test_bifurcation_sizes(least: int, most: int) -> None:
    with pytest.raises(SchemaError, match=f"min_ngram_size is {least} and max_ngram_size is {most}"):
        plan("BifurcationDetector", detector(), {"min_ngram_size": least, "max_ngram_size": most})


def test_bifurcation_of_tensors_on_the_device(device: Device) -> None:
    feeds = {k: Tensor.from_numpy(v, device) for k, v in detector().items()}
    tokens, match = run("BifurcationDetector", feeds, device=device)
    assert tokens is not None and match is not None
    assert tokens.numpy().tolist() == [2, 1, 5, 9] and match.numpy().tolist() == [-1]


@pytest.mark.parametrize(
    ("source", "current", "least", "most", "want"),
    [
        ([1, 2, 1, 2, 3], [1, 2], 1, 2, -1),  # both lengths occur twice
        ([7, 1, 2, 9, 1, 2, 3], [7, 1, 2], 1, 3, 3),  # three tokens tell what two cannot
        ([7, 1, 2, 9, 1, 2, 3], [7, 1, 2], 1, 2, -1),
        ([4, 5], [9, 4, 5], 3, 3, -1),  # longer than the source
        ([4, 5], [5], 2, 4, -1),  # longer than the tokens
        ([], [5], 1, 3, -1),
        ([5, 5, 5], [5, 5, 5], 3, 3, 3),
        ([5 + (1 << 32), 5], [5], 1, 1, 2),  # all 64 bits count
    ],
)
def test_suffix_match(
    device: Device, source: list[int], current: list[int], least: int, most: int, want: int
) -> None:
    feeds = {
        "src_tokens": np.array(source, np.int64),
        "cur_tokens": np.array(current),
        "prev_suffix_match_idx": np.array([0]),
    }
    sizes = {"min_ngram_size": least, "max_ngram_size": most}
    tokens, match = run("BifurcationDetector", feeds, sizes, device=device)
    assert tokens is not None and match is not None
    assert tokens.numpy().tolist() == current and match.numpy().tolist() == [want]


def test_a_long_source_of_equal_tokens(device: Device) -> None:
    source = np.full(200_000, 7)
    source[199_990] = 5
    feeds = {
        "src_tokens": source,
        "cur_tokens": np.array([1, 5, 7, 7]),
        "prev_suffix_match_idx": np.array([0]),
    }
    _, match = run("BifurcationDetector", feeds, {"max_ngram_size": 3}, device=device)
    assert match is not None and match.numpy().tolist() == [199_993]


def test_windows_beyond_the_rounds_of_a_software_adapter_are_refused() -> None:
    software = Capabilities(device_class="cpu")
    ids, scores = TensorSpec((1, 70_000), dtypes.int64), TensorSpec((1, 7), dtypes.float32)
    with pytest.raises(LimitError, match="NGramRepeatBlock: ngram_size is 40000; expected less"):
        plan("NGramRepeatBlock", [ids, scores], {"ngram_size": 40_000}, capabilities=software)
    feeds = detector(src_tokens=np.zeros(40_000, np.int64), cur_tokens=np.zeros(40_000, np.int64))
    del feeds["pred_tokens"]
    with pytest.raises(LimitError, match="BifurcationDetector: max_ngram_size is 40000; expected less"):
        plan("BifurcationDetector", feeds, {"max_ngram_size": 40_000}, capabilities=software)


# DynamicTimeWarping


@pytest.mark.parametrize("shape", [(4,), (2, 3, 3), (0, 3), (3, 0), (1, 1, 3, 3)])
def test_warping_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"DynamicTimeWarping: input has shape .*; expected \(M, N\) or"):
        plan("DynamicTimeWarping", [TensorSpec(shape, dtypes.float32)])


def test_the_path_is_as_long_as_it_is(device: Device) -> None:
    straight, around = np.ones((5, 5), np.float32), np.full((5, 5), 9, np.float32)
    around[0], around[:, 4] = 0, 0
    around[0, 4] = -1
    for cost, length in ((straight, 5), (around, 9)):
        path = one(run("DynamicTimeWarping", [cost], device=device))
        assert path.shape == (2, length) and path.dtype == np.int32
        assert path[:, 0].tolist() == [0, 0] and path[:, -1].tolist() == [4, 4]
        assert (np.abs(np.diff(path)).max(axis=0) == 1).all()


def cheapest(cost: np.ndarray) -> float:
    """The cost of the best path."""
    best = {(0, 0): float(cost[0, 0])}
    for r, c in np.ndindex(cost.shape):
        ways = [best[w] for w in ((r - 1, c), (r, c - 1), (r - 1, c - 1)) if w in best]
        if ways:
            best[r, c] = min(ways) + float(cost[r, c])
    return best[cost.shape[0] - 1, cost.shape[1] - 1]


def test_a_path_is_cheapest_however_many_are(device: Device) -> None:
    """Ties everywhere, among them two good ways beside a bad one."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        cost = rng.integers(0, 3, rng.integers(1, 7, 2)).astype(np.float32)
        path = one(run("DynamicTimeWarping", [cost], device=device))
        assert float(cost[path[0], path[1]].sum()) == cheapest(cost)


def test_a_bound_path_has_to_have_the_length_found(device: Device) -> None:
    cost = np.ones((3, 3), np.float32)
    good = Tensor.from_numpy(np.full((2, 3), -1, np.int32), device)
    assert run("DynamicTimeWarping", [cost], outputs={"output": good}, device=device)[0] is good
    assert good.numpy().tolist() == [[0, 1, 2], [0, 1, 2]]
    long = Tensor.from_numpy(np.full((2, 5), -1, np.int32), device)
    with pytest.raises(ShapeError, match=r"output is bound to int32 \(2, 5\); expected int32 \(2, 3\)"):
        run("DynamicTimeWarping", [cost], outputs={"output": long}, device=device)
    assert (long.numpy() == -1).all()


@pytest.mark.parametrize("strange", [np.inf, -np.inf, np.nan, 3e38])
def test_strange_costs_keep_the_path_inside(device: Device, strange: float) -> None:
    cost = np.random.default_rng(0).random((9, 14)).astype(np.float32)
    cost[np.random.default_rng(1).random(cost.shape) < 0.4] = strange
    path = one(run("DynamicTimeWarping", [cost], device=device))
    assert path[:, 0].tolist() == [0, 0] and path[:, -1].tolist() == [8, 13]
    steps = np.diff(path)
    assert ((steps >= 0) & (steps <= 1)).all() and (steps.sum(axis=0) >= 1).all()


def test_more_cells_than_lanes(gpu_tiles: Device) -> None:
    """And more diagonals than one dispatch may walk on a software adapter."""
    cost = np.random.default_rng(2).random((400, 900)).astype(np.float32)
    path = one(run("DynamicTimeWarping", [cost], device=gpu_tiles))
    np.testing.assert_array_equal(path, dynamic_time_warping(cost)[0])
