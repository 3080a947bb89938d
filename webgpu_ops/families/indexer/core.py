"""What the indexers plan with: entries pooled from tokens, their scores, and the best of them.

A *request* is a sequence with state of its own; its *rows* are query tokens, its *entries* are keys
pooled from ``ratio`` consecutive tokens. Two policies differ in where tokens come from and how they
are pooled and turned, and share everything behind that:

* ``qsa`` pools means, turns the leading channels as halves, and selects the tokens of the best
  blocks and those behind the last block.
* ``csa`` pools by gates over two windows, turns the trailing channels as neighbours, weighs the
  heads, and selects entries.

The entries that a row sees are always the first so many of its request's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ...core import dtypes
from ...core.plan import Builder, Constant, Slot, f32
from ...errors import LimitError

Policy = Literal["qsa", "csa"]

# Rows are scored and selected in groups whose scratch stays below this.
SCRATCH_BYTES = 32 << 20
LIMIT = 1 << 31  # sizes are int32 in the operators' outputs and metadata


def lanes(b: Builder, most: int = 64, rounds: int = 0) -> int:
    """Invocations that share a row or a request, and ``rounds`` of loops.

    A software adapter pays for each with every barrier and takes as few as the rounds allow.
    """
    if b.caps.device_class == "gpu":
        return min(most, b.caps.max_invocations)
    count = b.lanes(8, rounds)
    if count is None:
        raise LimitError(
            f"{b.op}: a row takes {rounds} rounds of loops; expected fewer or shorter entries, because "
            f"{b.caps.max_invocations} invocations of this device share a row"
        )
    return count


def sort_rounds(count: int) -> int:
    """Rounds of loops in which indexer/sort.wgsl sorts ``count`` items."""
    steps = count.bit_length()
    return steps * count * (steps + 1)


def row_groups(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """(first row, number of rows) of groups whose scratch is bounded."""
    step = max(1, SCRATCH_BYTES // max(1, row_bytes))
    for first in range(0, rows, step):
        yield first, min(step, rows - first)


@dataclass(frozen=True)
class Call:
    """One call of an indexer.

    Without ``requests`` (see shaders/indexer/request.wgsl) every request has ``sequence`` tokens,
    ``past`` entries (qsa: tokens) before the call, ``pending`` tokens and ``closed`` new entries.
    ``visible`` lists the tokens of ``total`` that a mask shows.
    """

    policy: Policy
    ratio: int
    batch: int
    heads: int
    size: int
    epsilon: float
    cos: Slot
    sin: Slot
    sequence: int = 0
    past: int = 0
    pending: int = 0
    closed: int = 0
    total: int = 0
    requests: Slot | None = None
    visible: Slot | None = None

    @property
    def reads(self) -> dict[str, Slot | None]:
        return {"requests": self.requests}

    @property
    def uniforms(self) -> dict[str, Any]:
        values = {"batch": self.batch, "ratio": self.ratio}
        if self.requests is None:
            values |= {
                "sequence": self.sequence,
                "past": self.past,
                "pending": self.pending,
                "closed": self.closed,
            }
        return values


@dataclass(frozen=True)
class Tokens:
    """New tokens' rows in a slot: ``stride`` elements apart, from column ``column`` on."""

    slot: Slot
    stride: int
    column: int = 0


@dataclass(frozen=True)
class Keys:
    """Entries to score: ``slot`` [batch, rows, size], and the new ones unrounded by slot number."""

    slot: Slot
    rows: int
    fresh: Slot | None = None


def tabulate(b: Builder, call: Call, tokens: int, ids: Slot | None) -> Slot:
    """Append the table of query rows; ``ids`` are csa's positions (int64)."""
    rows = b.scratch("rows", (tokens, 4), dtypes.uint32)
    b.dispatch(
        "indexer/rows",
        reads={**call.reads, "visible": call.visible, "ids": _as_words(ids)},
        writes={"rows": rows},
        uniforms=call.uniforms | {"tokens": tokens, "total": call.total},
        constants={"policy": call.policy},
        threads=tokens,
    )
    return rows


def _as_words(x: Slot | None) -> Slot | None:
    """int64 as pairs of int32: what is compared with small numbers needs no 64-bit arithmetic."""
    return None if x is None else x.reshape(x.size).as_type(dtypes.int32)


def show(b: Builder, mask: Slot) -> Slot:
    """Append the list of the tokens that ``mask`` [batch, total] (int64) shows."""
    batch, total = mask.shape
    visible = b.scratch("visible", (batch, total + 1), dtypes.uint32)
    b.dispatch(
        "indexer/visible",
        reads={"mask": _as_words(mask)},
        writes={"visible": visible},
        uniforms={"batch": batch, "total": total},
        groups=batch,
        workgroup=lanes(b, rounds=2 * total),
    )
    return visible


def prepare(
    b: Builder,
    call: Call,
    source: Literal["queries", "blocks", "entries"],
    weight: Slot,
    *,
    count: int,
    reads: dict[str, Slot | None],
    writes: dict[str, Slot | None],
    uniforms: dict[str, Any],
) -> None:
    """Append ``count`` vectors of ``source`` (shaders/indexer/prepare.wgsl): normalized and turned."""
    quads = -(-call.size // 4)
    workgroup = min(lanes(b), max(8, 1 << (quads - 1).bit_length()))
    room = -(-call.size // 64) * 64
    needed = 4 * (room + workgroup)
    if needed > b.caps.max_workgroup_bytes:
        raise LimitError(
            f"{b.op}: heads of {call.size} channels need {needed} bytes of workgroup memory; "
            f"the adapter has {b.caps.max_workgroup_bytes}"
        )
    *_, table_rows, width = call.cos.shape
    values = call.uniforms | {
        "size": call.size,
        "epsilon": f32(call.epsilon),
        "rotary": width if call.policy == "qsa" else 2 * width,
        "table_rows": table_rows,
        "table_width": width,
        "table_step": table_rows * width if call.cos.rank == 3 else 0,
        "count": count,
        "groups": max(1, count),
    }
    b.dispatch(
        "indexer/prepare",
        reads={"weight": weight, "cos": call.cos, "sin": call.sin, **reads},
        writes=writes,
        uniforms=values | uniforms,
        constants={"source": source, "policy": call.policy, "room": room},
        groups=count,
        workgroup=workgroup,
    )


def pool_blocks(b: Builder, call: Call, keys: Slot, weight: Slot) -> Keys:
    """Append the blocks of all visible tokens; ``keys`` [batch, rows, size] are the tokens' own."""
    blocks = call.total // call.ratio
    if blocks:
        b.check_rounds("compress_ratio", f"is {call.ratio}", call.ratio)
    y = b.scratch("block_keys", (call.batch, blocks, call.size), dtypes.float32)
    prepare(
        b,
        call,
        "blocks",
        weight,
        count=call.batch * blocks,
        reads={"x": keys, "visible": call.visible},
        writes={"y": y},
        uniforms={"blocks": blocks, "total": call.total, "key_rows": keys.shape[1]},
    )
    return Keys(y, blocks)


def pool_entries(
    b: Builder,
    call: Call,
    new: Tokens,
    kv: Slot,
    state: Slot,
    weight: Slot,
    *,
    slots: int,
    kv_rows: int,
    gate: Slot | None = None,
    gates: Slot | None = None,
    plane: int = 0,
    bias: Slot | None = None,
) -> Keys:
    """Append the entries that new tokens complete to ``state`` [batch, rows, size].

    ``slots`` is how many there are, at most. Pending tokens lie in ``kv``, ``kv_rows`` a request,
    and for csa their gates in ``gates`` or ``plane`` elements behind; ``gate`` are the new tokens'.
    """
    b.check_rounds("compress_ratio", f"is {call.ratio}", 4 * call.ratio)
    narrow = state.dtype != dtypes.float32
    fresh = b.scratch("fresh", (slots, call.size), dtypes.float32) if narrow and slots else None
    places = {"slots": slots, "size": call.size, "state_rows": state.shape[1]}
    b.dispatch(
        "indexer/pool",
        reads={**call.reads, "x": new.slot, "kv": kv, "gate": gate, "gates": gates, "bias": bias},
        writes={"state": state, "fresh": fresh},
        uniforms=call.uniforms
        | places
        | {"stride": new.stride, "column": new.column, "kv_rows": kv_rows, "plane": plane},
        constants={"policy": call.policy},
        threads=slots * -(-call.size // 4),
    )
    prepare(
        b,
        call,
        "entries",
        weight,
        count=slots,
        reads=call.reads,
        writes={"state": state, "fresh": fresh},
        uniforms=places,
    )
    return Keys(state, state.shape[1], fresh)


def keep_pending(
    b: Builder,
    call: Call,
    new: Tokens,
    kv: Slot,
    kept: Slot,
    *,
    width: int,
    kv_rows: int,
    kept_rows: int,
    kv_at: int = 0,
    kept_at: int = 0,
) -> None:
    """Append the move of the tokens that stay pending, ``width`` channels each, bit for bit."""
    b.dispatch(
        "indexer/pending",
        reads={**call.reads, "x": new.slot.as_bits(), "kv": kv.as_bits()},
        writes={"kept": kept.as_bits()},
        uniforms=call.uniforms
        | {
            "stride": new.stride,
            "column": new.column,
            "width": width,
            "kv_rows": kv_rows,
            "kept_rows": kept_rows,
            "kv_at": kv_at,
            "kept_at": kept_at,
        },
        constants={"policy": call.policy},
        threads=call.batch * -(-width // 4) if kept.size else 0,
    )


def select(
    b: Builder,
    call: Call,
    queries: Tokens,
    weight: Slot,
    rows: Slot,
    keys: Keys,
    selected: Slot,
    *,
    entries: int,
    top: int,
    scale: float,
    head_weights: Slot | None = None,
    counts: Slot | None = None,
) -> None:
    """Append the selection of the ``top`` best of at most ``entries`` entries for every row."""
    tokens, width = rows.shape[0], selected.shape[-1]
    top = min(top, entries)
    room, columns = max(1, top), max(1, entries)
    constants: dict[str, Constant] = {
        "policy": call.policy,
        "tile": 4 if call.heads > 2 else call.heads,
        "whole": call.size % 4 == 0,
    }
    sizes = (call.heads * call.size, columns, 2 * room)
    step = max((n for _, n in row_groups(tokens, 4 * sum(sizes))), default=0)
    prepared = b.scratch("queries", (step, call.heads * call.size), dtypes.float32)
    scores = b.scratch("scores", (step, columns), dtypes.float32)
    order = b.scratch("order", (step, 2 * room), dtypes.uint32)
    shared = {"columns": columns, "heads": call.heads, "size": call.size}
    for first, count in row_groups(tokens, 4 * sum(sizes)):
        part = {"first": first, "rows": count}
        if top:
            prepare(
                b,
                call,
                "queries",
                weight,
                count=count * call.heads,
                reads={"x": queries.slot, "rows": rows},
                writes={"y": prepared},
                uniforms={"first": first, "heads": call.heads, "stride": queries.stride},
            )
            fresh = keys.fresh
            b.dispatch(
                "indexer/scores",
                reads={
                    "queries": prepared,
                    "rows": rows,
                    "keys": keys.slot,
                    "fresh": fresh,
                    "requests": call.requests if fresh else None,
                    "head_weights": head_weights,
                },
                writes={"scores": scores},
                uniforms=call.uniforms
                | shared
                | part
                | {
                    "scale": f32(scale),
                    "key_rows": keys.rows,
                    "slots": fresh.shape[0] if fresh else 0,
                },
                constants=constants,
                threads=count * -(-columns // 4),
            )
        b.dispatch(
            "indexer/select",
            reads={"rows": rows, "scores": scores, "visible": call.visible},
            writes={"order": order, "selected": selected, "counts": counts},
            uniforms=part
            | {
                "columns": columns,
                "room": room,
                "top": top,
                "width": width,
                "ratio": call.ratio,
                "total": call.total,
            },
            constants={"policy": call.policy},
            groups=count,
            workgroup=lanes(b, 256, 10 * columns + sort_rounds(min(columns, top)) + width),
        )
