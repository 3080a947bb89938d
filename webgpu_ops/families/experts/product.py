"""The steps of a mixture of experts: routing, grouping, products with the experts' weights, mixing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import dtypes
from ...core.plan import MAX_ROUNDS, Builder, Constant, Slot
from ...errors import LimitError
from ..elementwise import elementwise
from ..matmul import parts_of
from .weights import ExpertWeights

MOST_PAIRS = 1 << 15  # that one workgroup of 256 orders within MAX_ROUNDS


@dataclass(frozen=True)
class Routing:
    """Pairs of a token and one of its ``k`` experts; pair p is choice p % k of token ``start`` + p / k.

    ``picks`` are their experts and ``weights`` (float32) their shares. ``order`` holds the pairs by
    expert, then ``tiles`` tiles of at most ``rows`` pairs of one expert, which starts at ``tiles_at``
    (shaders/experts/group.wgsl). There are at most as many tiles as whole ones fill, and one more for
    each expert that has pairs, whatever the number of experts.
    """

    pairs: int
    k: int
    start: int
    picks: Slot
    weights: Slot
    order: Slot
    kernel: str
    rows: int
    tiles: int

    @property
    def tiles_at(self) -> int:
        return 2 * self.pairs


def _grouping_rounds(pairs: int) -> int:
    """How often shaders/experts/group.wgsl goes round its loops: it merges ever longer runs, searching
    them for the place of each pair, and twice searches the order for the bounds of each pair's expert."""
    depth = pairs.bit_length()
    return pairs * (depth * (depth + 1) // 2 + depth + 4 * (depth + 1) + 3)


@dataclass
class Room:
    """Scratch that all chunks of tokens use one after the other; the first chunk is the largest."""

    b: Builder
    slots: dict[str, Slot]

    def take(self, name: str, rows: int, width: int, dtype: dtypes.DType = dtypes.float32) -> Slot:
        if name not in self.slots:
            self.slots[name] = self.b.scratch(name, (rows, width), dtype)
        whole = self.slots[name]
        return whole if whole.shape[0] == rows else whole.rows(0, rows)


def tiling(b: Builder, pairs: int, experts: int) -> tuple[str, int, int]:
    """The product kernel for so many pairs, the rows of its tiles, and how many tiles there can be."""
    used = min(pairs, experts)
    each = -(-pairs // used)
    if b.caps.device_class == "cpu":
        kernel, sizes = "tile", [1, 2, 4, 8]
    else:
        kernel, sizes = ("shared", [16, 32, 64]) if each >= 8 else ("vector", [1, 2, 4])
    rows = next((size for size in sizes if size >= each), sizes[-1])
    return kernel, rows, (pairs - used) // rows + used


def route(
    b: Builder,
    router: Slot,
    k: int,
    *,
    mix: Slot | None,
    sparse: bool,
    normalize: bool,
    room: Room,
    start: int = 0,
) -> Routing:
    """Append the choice of ``k`` experts for each row of ``router`` and their grouping by expert.

    Shares are the softmax over all experts at those chosen, or with ``sparse`` those of the sparse mixer,
    or the numbers that ``mix`` has there; ``normalize`` scales a token's to a sum of 1. ``start`` is the
    number of the first token.
    """
    tokens, experts = router.shape
    pairs = tokens * k
    kernel, rows, tiles = tiling(b, pairs, experts)
    cpu = b.caps.device_class == "cpu"
    picks = room.take("picks", pairs, 1, dtypes.uint32)
    weights = room.take("weights", pairs, 1)
    # Fewer pairs may make more tiles, which are lower, but never more than there are pairs.
    order = room.take("order", 5 * pairs, 1, dtypes.uint32)
    choosing, grouping = (2 * k + 1) * experts, _grouping_rounds(pairs)
    routers = max(b.lanes(1, choosing) or b.caps.max_invocations, 1 if cpu else 64)
    groupers = max(b.lanes(16, grouping) or b.caps.max_invocations, 16 if cpu else 128)
    rounds = max(-(-choosing // routers), -(-grouping // groupers), 4 * k)  # the last ones add up k results
    b.check_rounds("router_probs", f"has {experts} experts, of which k={k} are chosen", rounds)
    b.dispatch(
        "experts/route",
        reads={"router": router, "mix": mix},
        writes={"picks": picks, "weights": weights},
        uniforms={"tokens": tokens, "experts": experts, "k": k},
        constants={"sparse": sparse, "normalize": normalize},
        groups=tokens,
        workgroup=routers,
    )
    b.dispatch(
        "experts/group",
        reads={"picks": picks},
        writes={"order": order},
        uniforms={"room": pairs, "rows": rows, "tiles": tiles},
        groups=1,
        workgroup=groupers,
    )
    return Routing(pairs, k, start, picks, weights, order, kernel, rows, tiles)


def project(
    b: Builder,
    routing: Routing,
    a: Slot,
    w: ExpertWeights,
    out: Slot,
    *,
    share: int,
    bias: Slot | None,
    other: Slot | None = None,
    epilogue: str = "x",
    uniforms: Mapping[str, Any] | None = None,
) -> None:
    """Append ``out[pair] = epilogue(a[pair / share] @ weights of the pair's expert)``.

    ``out`` is float32 [pairs, lines]. The epilogue is made of expressions of ``x``, ``bias`` (of the
    expert) and ``other`` (shaped as ``out``), as in :func:`~webgpu_ops.families.matmul.matmul`.
    """
    constants: dict[str, Constant] = {
        "rows": routing.rows,
        "tail": w.length % (16 if routing.kernel == "shared" else 8) > 0,
        "epilogue": parts_of(epilogue),
        **w.constants,
    }
    if routing.kernel == "tile":
        workgroup = 8
        columns = 4 if routing.rows == 1 or w.lines < 16 * workgroup else 8
        across = -(-w.lines // (columns * workgroup))
        # On a software adapter a load costs much more than passing its value on.
        constants |= {"columns": columns, "hoisted": w.by_block, "share": "subgroup" in b.caps.features}
        if w.rounds(columns) > MAX_ROUNDS:
            raise LimitError(
                f"{b.op}: {w.codes.name} has rows of {w.length} weights, more than a kernel adds up"
            )
    elif routing.kernel == "vector":
        workgroup, across = 64, -(-w.lines // 4)
    else:
        workgroup, across = 256, -(-w.lines // 64)
    for first, lines, part in w.parts(b):
        b.dispatch(
            f"experts/{routing.kernel}",
            reads={"order": routing.order, "a": a, **part.reads, "bias": bias, "other": other},
            writes={"y": out},
            uniforms={
                **part.uniforms,
                "first": first,
                "lines": lines,
                "share": share,
                "tiles": routing.tiles,
                "tiles_at": routing.tiles_at,
                **(uniforms or {}),
            },
            constants=constants,
            groups=routing.tiles * across,
            workgroup=workgroup,
        )


def unpacked(b: Builder, a: Slot, room: Room) -> Slot:
    """``a`` as the products read it: a software adapter would unpack 16-bit rows once for every tile."""
    if b.caps.device_class != "cpu" or "subgroup" in b.caps.features or a.dtype.bits == 32:
        return a
    whole = room.take("tokens", a.shape[0], a.shape[1])
    elementwise(b, "a", whole, {"a": a})
    return whole


def mix(b: Builder, routing: Routing, parts: Slot, out: Slot) -> None:
    """Append ``out[token] = sum of weights[pair] * parts[pair]`` over the token's pairs, in their order."""
    b.dispatch(
        "experts/mix",
        reads={"weights": routing.weights, "parts": parts},
        writes={"y": out},
        uniforms={"size": out.size, "width": out.shape[-1], "k": routing.k},
        threads=-(-out.size // 4),
    )
