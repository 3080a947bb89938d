"""The attention core: what every attention operator plans with.

An operator describes where things lie, in these words, and calls :func:`attend`:

* :class:`Rows` a ``[batch, head, row, channel]`` view of memory; nothing is transposed or repeated.
* :class:`Stored` keys or values: rows, and how their elements are encoded (scales, packed int4).
* :class:`Span` where each batch entry's keys start, end and line up with the queries; lengths may
  live on the device.
* :class:`Pages`, :class:`Picks` keys that lie in pages here and there, or are picked one by one;
  :class:`Blocks` blocks of keys that some queries see.
* :class:`Bias`, :class:`Mask` what is added to the scores, broadcast by strides.

Query heads share K and V by groups: rows of a tile are (query, head of the group) pairs, so a tile
reads each key once for the whole group. The streaming kernels keep a running maximum, sum and
output a row and never a matrix of scores; few rows split the keys among workgroups, and ``merge``
joins the parts. So it does where the keys of a query lie in several places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core import dtypes
from ...core.plan import MAX_ROUNDS, Builder, Constant, Shape, Slot, f32, i32

UNBOUNDED = 1 << 29

Stage = Literal["raw", "softcapped", "masked", "weights"]
# Two elements a byte, the even channel low: int4 as value + 8, float4e2m1 as its bits.
Nibbles = Literal["", "int4", "float4e2m1"]


@dataclass(frozen=True)
class Rows:
    """``[batch, head, row, channel]`` in a slot: strides and offset in elements.

    Channels are adjacent, or with ``pack`` that many of them (a multiple of 4): the same channels of the
    next row follow, and the next channels are ``plane`` elements away.
    """

    slot: Slot
    batch: int
    head: int
    row: int
    offset: int = 0
    pack: int = 0
    plane: int = 0

    @classmethod
    def heads_first(cls, slot: Slot, offset: int = 0) -> Rows:
        """Memory ``[..., B, H, L, D]``; ``offset`` skips leading elements."""
        heads, rows, width = slot.shape[-3:]
        return cls(slot, heads * rows * width, rows * width, width, offset)

    @classmethod
    def reordered(cls, slot: Slot, offset: int = 0) -> Rows:
        """Memory ``[..., B, H, D / x, L, x]`` in a slot of shape ``[..., B, H, L, D]``; x fills 16 bytes."""
        heads, rows, width = slot.shape[-3:]
        pack = 16 // slot.dtype.itemsize
        return cls(slot, heads * rows * width, rows * width, pack, offset, pack, rows * pack)

    @classmethod
    def tokens_first(cls, slot: Slot, head_size: int, channel: int = 0) -> Rows:
        """Memory ``[B, L, X]`` whose heads of ``head_size`` start at channel ``channel``."""
        rows, width = slot.shape[-2:]
        return cls(slot, rows * width, head_size, width, channel)

    def uniforms(self, name: str) -> dict[str, Any]:
        return {
            f"{name}_batch": self.batch,
            f"{name}_head": self.head,
            f"{name}_row": self.row,
            f"{name}_offset": self.offset,
            f"{name}_plane": self.plane,
        }


@dataclass(frozen=True)
class Stored:
    """Keys or values in memory.

    ``scale`` multiplies what is stored; ``scale_strides`` are its strides by batch, head, row and
    channel (0 where it broadcasts).
    """

    rows: Rows
    scale: Slot | None = None
    scale_strides: tuple[int, int, int, int] = (0, 0, 0, 0)
    nibbles: Nibbles = ""

    def reads(self, name: str) -> dict[str, Slot | None]:
        return {name: self.rows.slot, f"{name}_scale": self.scale}

    def uniforms(self, name: str) -> dict[str, Any]:
        values = self.rows.uniforms(name)
        if self.scale is not None:
            axes = ("batch", "head", "row", "channel")
            values |= {f"{name}_scale_{a}": s for a, s in zip(axes, self.scale_strides, strict=True)}
        return values


def broadcast_strides(shape: Shape, rank: int = 4) -> tuple[int, ...]:
    """Strides of a dense tensor aligned at the right with ``rank`` axes: 0 where it broadcasts."""
    strides = [0] * rank
    step = 1
    for axis in range(1, len(shape) + 1):
        if shape[-axis] != 1:
            strides[-axis] = step
        step *= shape[-axis]
    return tuple(strides)


@dataclass(frozen=True)
class Picks:
    """Memory rows that each token's keys are: uint32 ``[tokens, 1 + most]``, a count and the rows.

    A row may be NOWHERE (shaders/attention/span.wgsl). ``share`` tokens share a batch entry of the memory.
    """

    slot: Slot
    share: int = 1


@dataclass(frozen=True)
class Span:
    """Where each batch entry's keys lie.

    Without ``lengths`` all entries hold ``total`` tokens, of which the first ``past`` came before.
    With it (int32, or int64 read as pairs of int32 with ``stride`` 2) entry b holds
    ``lengths[b * stride] + add`` tokens, clamped to ``total``; its past is what the ``new`` ones leave,
    or ``past`` where ``fixed``. Query i of ``rows`` is level with new key i, counted from the end.
    Rows from ``shown`` on are hidden, whatever the length.
    A ``capacity`` says that memory holds only the most recent rows, as a window-sized cache keeps
    them, with the new ones behind.
    ``cumulative`` (int32) packs the entries one behind the other: the queries, new keys and results of
    entry b are the memory rows from ``cumulative[b]`` to ``cumulative[b + 1]`` of ``tokens``; ``rows`` and
    ``total`` then bound the longest. With ``lengths`` that many tokens came before in each entry, and an
    entry whose length is negative or leaves no room below ``total`` has no keys at all.
    With ``picks`` an entry is one token of those that all entries hold together.
    """

    total: int
    new: int
    rows: int
    past: int = 0
    lengths: Slot | None = None
    stride: int = 1
    add: int = 0
    fixed: bool = False
    shown: int = UNBOUNDED
    capacity: int = 0
    window: int = 0
    cumulative: Slot | None = None
    tokens: int = 0
    picks: Picks | None = None

    @property
    def entries(self) -> int:
        """How many entries are packed one behind the other."""
        return self.cumulative.size - 1 if self.cumulative is not None else 0

    def reads(self) -> dict[str, Slot | None]:
        picks = self.picks.slot if self.picks is not None else None
        return {"lengths": self.lengths, "cumulative": self.cumulative, "picks": picks}

    def uniforms(self) -> dict[str, Any]:
        picked: dict[str, Any] = {}
        if self.picks is not None:
            picked = {"picks_row": self.picks.slot.shape[1], "picks_share": self.picks.share}
        return picked | {
            "span_total": self.total,
            "span_new": self.new,
            "span_rows": self.rows,
            "span_past": i32(self.past),
            "span_stride": self.stride,
            "span_add": i32(self.add),
            "span_fixed": self.fixed,
            "span_shown": self.shown,
            "span_capacity": self.capacity,
            "span_window": self.window,
            "span_tokens": self.tokens,
            "span_entries": self.entries,
        }


@dataclass(frozen=True)
class Pages:
    """Row j of entry b lies in page ``table[b, j // rows]`` (int32) of ``count`` pages of ``rows`` rows.

    Rows of a page outside of them are not there: no query sees them.
    """

    table: Slot
    rows: int
    count: int

    def uniforms(self) -> dict[str, Any]:
        return {"table_row": self.table.shape[1], "page_rows": self.rows, "pages": self.count}


@dataclass(frozen=True)
class Blocks:
    """Which blocks of ``size`` keys the queries of a block see: bits, uint32 ``[layouts, rows, words]``.

    Head h has layout ``h % layouts``.
    """

    slot: Slot
    size: int

    def uniforms(self) -> dict[str, Any]:
        layouts, rows, words = self.slot.shape
        return {"block_size": self.size, "block_layouts": layouts, "block_rows": rows, "block_words": words}


@dataclass(frozen=True)
class Bias:
    """Added to the scores: strides by batch, head, query and key position."""

    slot: Slot
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Mask:
    """``filter`` is added to the score where the mask says no; -inf hides the key, whatever its score.

    ``values``: a tensor with strides by batch, head, query and key position, 0 or false meaning no, or
    yes where ``inverted``; its first column belongs to key position ``first``, and earlier keys stay.
    ``ends``: int32, no at and past key position ``mask[b]``, and before ``mask[starts + b]`` where
    ``starts`` is not 0.
    """

    slot: Slot
    filter: float
    kind: Literal["values", "ends"] = "values"
    strides: tuple[int, ...] = (0, 0, 0, 0)
    offset: int = 0
    starts: int = 0
    first: int = 0
    inverted: bool = False


@dataclass(frozen=True)
class Beams:
    """Which beam wrote a past key: int32 ``[batch, beams, length]``, where batch entries are
    (batch, beam) pairs."""

    slot: Slot


@dataclass(frozen=True)
class Heads:
    """The sizes of an attention: ``size`` channels in Q and K, ``value_size`` in V."""

    batch: int
    heads: int
    kv_heads: int
    rows: int
    size: int
    value_size: int

    @property
    def group(self) -> int:
        """Query heads that share one head of K and V."""
        return self.heads // self.kv_heads

    @property
    def group_rows(self) -> int:
        return self.rows * self.group

    @property
    def all_rows(self) -> int:
        return self.batch * self.heads * self.rows

    def uniforms(self) -> dict[str, Any]:
        return {
            "kv_heads": self.kv_heads,
            "group": self.group,
            "value_channels": self.value_size,
            "value_quads": -(-self.value_size // 4),
        }


@dataclass(frozen=True)
class Scores:
    """Scores as an output ``[B, H, rows, columns]``, at one of the stages of their making."""

    slot: Slot
    stage: Stage


@dataclass(frozen=True)
class Attention:
    """One attention: what is read, how scores become shares, what is written.

    Query i sees key rows from ``behind`` before its own to ``ahead`` after it. ``sink`` is an extra
    logit a head, ``smooth`` one of zero. A row that sees nothing is zeros. ``longest`` is the most keys of
    an entry where the caller knows; it shapes the launch and no more.
    """

    heads: Heads
    span: Span
    q: Rows
    k: Stored
    v: Stored
    y: Rows
    scale: float
    softcap: float = 0.0
    ahead: int = UNBOUNDED
    behind: int = UNBOUNDED
    bias: Bias | None = None
    mask: Mask | None = None
    beams: Beams | None = None
    sink: Slot | None = None
    smooth: bool = False
    scores: Scores | None = None
    pages: Pages | None = None
    blocks: Blocks | None = None
    longest: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of all entries together."""
        return self.span.tokens if self.span.cumulative is not None else self.heads.batch * self.heads.rows

    @property
    def rows(self) -> int:
        """The rows of all tokens and heads together."""
        return self.tokens * self.heads.heads

    @property
    def reach(self) -> int:
        """The most keys that a few neighbouring queries see."""
        total = min(self.span.total, self.span.shown, self.longest or UNBOUNDED)
        if self.ahead == UNBOUNDED or self.behind == UNBOUNDED:
            return total
        return min(total, self.behind + self.ahead + 1)


def channel_chunks(channels: int) -> tuple[int, int]:
    """How the eight invocations of a software adapter's group take output channels: one or two quads each
    at a time, and how often. Few sizes of the accumulator make few kernels."""
    quads = -(-channels // 4)
    lane_quads = 1 if quads <= 8 else 2
    chunks = -(-quads // (8 * lane_quads))
    return lane_quads, 1 << (chunks - 1).bit_length()


@dataclass(frozen=True)
class Tiling:
    """How rows and keys are dealt out: rows a tile, keys a step, and how many workers are wanted.

    A worker walks at most ``most`` keys.
    """

    template: str
    workgroup: int
    tile: int
    keys: int
    workers: int
    most: int

    @classmethod
    def of(cls, b: Builder, a: Attention) -> Tiling:
        rows = a.heads.group_rows
        if a.span.cumulative is not None:
            rows = -(-a.tokens // max(1, a.span.entries)) * a.heads.group
        if b.caps.device_class == "cpu":
            # Tall tiles take long to compile, and wide ones too; only many rows are worth that.
            lane_quads, chunks = channel_chunks(a.heads.value_size)
            tile = 1 if rows == 1 else 4 if rows <= 4 else 8 if rows < 256 else 16
            tile = min(tile, max(1, 128 // (lane_quads * chunks)))
            # What 32 keys take: their products, the tile's shares and their softmax, and sums of 64
            # channels at a time, which values that are no finite number make twice.
            h = a.heads
            rounds = -(-h.size // 4) + 5 * tile + 68 * -(-tile // 8) + 42 * -(-h.value_size // 64) + 8
            if a.blocks is not None:
                # A tile's queries and 32 keys touch two rows of three blocks in each layout of its heads.
                rounds += 9 * min(h.group, a.blocks.slot.shape[0])
            return cls("attention/stream_rows", 8, tile, 64, 16, max(1, MAX_ROUNDS // rounds) * 32)
        return cls("attention/stream_tile", 64, 8 if rows <= 8 else 32, 64, 256, UNBOUNDED)


@dataclass(frozen=True)
class Course:
    """How one source of keys is walked: ``tiles`` of rows, whose keys ``splits`` workers share."""

    tiling: Tiling
    tiles: int
    lines: int
    splits: int

    @classmethod
    def of(cls, b: Builder, a: Attention) -> Course:
        h, tiling = a.heads, Tiling.of(b, a)
        if a.span.cumulative is not None:
            # See packed_tile in shaders/attention/score.wgsl.
            tiles = a.tokens * h.group // tiling.tile + a.span.entries
            lines = h.kv_heads * tiles
        else:
            tiles = -(-h.group_rows // tiling.tile)
            lines = h.batch * h.kv_heads * tiles
        wanted = min(-(-tiling.workers // lines), -(-a.reach // tiling.keys))
        return cls(tiling, tiles, lines, max(1, wanted, -(-(a.reach + tiling.tile) // tiling.most)))

    @property
    def few(self) -> bool:
        """Whether there are too few rows to keep all workers busy."""
        return self.lines < self.tiling.workers


@dataclass(frozen=True)
class Parts:
    """Scratch that workers leave their shares of a row in: float32 ``[rows, count, row]``, each the
    values, the maximum and the sum. A source of keys fills those from ``first`` on."""

    slot: Slot
    first: int = 0

    @property
    def row(self) -> int:
        return self.slot.shape[2]

    def uniforms(self) -> dict[str, Any]:
        return {"parts": self.slot.shape[1], "part_first": self.first, "part_row": self.row}


def attend(b: Builder, a: Attention, *others: Attention) -> None:
    """Append the steps of one attention.

    ``others`` describe further keys of the same queries, which join the same softmax; output, sink and
    scores are those of ``a``. Whether the keys are split depends on the number of rows alone, up to many
    thousands of keys: a growing cache keeps its pipelines, and the number of splits is a uniform.
    """
    h = a.heads
    if a.rows == 0 or h.value_size == 0:
        return
    if a.span.cumulative is not None and not a.span.entries:
        b.zero(a.y.slot)  # tokens of no sequence
        return
    courses = [Course.of(b, x) for x in (a, *others)]
    split = bool(others) or courses[0].few or courses[0].splits > 1
    b.path = "split keys" if split else "streaming"
    quads = -(-h.value_size // 4)
    needs_stats = a.scores is not None and a.scores.stage == "weights"
    stats = b.scratch("stats", (a.rows, 2), dtypes.float32) if needs_stats else None
    if not split:
        if a.span.cumulative is not None:
            b.zero(a.y.slot)  # tokens behind the last entry belong to none
        _stream(b, a, courses[0], None, stats)
    else:
        count = sum(c.splits for c in courses)
        parts = Parts(b.scratch("parts", (a.rows, count, 4 * quads + 4), dtypes.float32))
        first = 0
        for x, course in zip((a, *others), courses, strict=True):
            _stream(b, x, course, replace(parts, first=first), None)
            first += course.splits
        flat = a.span.cumulative is not None or a.span.picks is not None
        b.dispatch(
            "attention/merge",
            reads={
                "parts": parts.slot,
                "sink": a.sink,
                "cumulative": a.span.cumulative,
                "lengths": None,
                "picks": None,
            },
            writes={"y": a.y.slot, "stats": stats},
            uniforms=a.y.uniforms("y")
            | a.span.uniforms()
            | {
                "heads": h.heads,
                "rows": a.tokens if flat else h.rows,
                "all_rows": a.rows,
                "value_channels": h.value_size,
                "value_quads": quads,
                "splits": count,
                "part_row": parts.row,
                "zero_sink": a.smooth,
            },
            threads=a.rows * quads,
        )
    if a.scores is not None:
        _write_scores(b, a, a.scores, stats)


def _stream(b: Builder, a: Attention, course: Course, parts: Parts | None, stats: Slot | None) -> None:
    """Append the walk over the keys of ``a``, into ``parts`` or to the end."""
    h, tiling = a.heads, course.tiling
    reads = _score_reads(a) | a.v.reads("v")
    uniforms = _score_uniforms(a) | a.v.uniforms("v") | h.uniforms() | {"tiles": course.tiles}
    constants = _score_constants(a) | {"v_nibbles": a.v.nibbles, "partial": parts is not None}
    writes: dict[str, Slot | None] = {"parts": None, "y": None, "stats": None}
    groups = course.lines
    if parts is not None:
        reads["sink"] = None
        writes["parts"] = parts.slot
        uniforms |= parts.uniforms() | {"splits": course.splits}
        groups *= course.splits
    else:
        uniforms |= a.y.uniforms("y")
        writes |= {"y": a.y.slot, "stats": stats}
    if b.caps.device_class == "cpu":
        lane_quads, chunks = channel_chunks(h.value_size)
        constants |= {
            "tile_rows": tiling.tile,
            "share": "subgroup" in b.caps.features,
            "lane_quads": lane_quads,
            "value_chunks": chunks,
        }
    else:
        chunks = -(-h.value_size // 32)
        slices = -(-chunks // 8)
        constants |= {"per": tiling.tile // 8, "chunks": -(-chunks // slices)}
        groups *= slices
        uniforms["slices"] = slices
    b.dispatch(
        tiling.template,
        reads=reads,
        writes=writes,
        uniforms=uniforms | {"groups": groups},
        constants=constants,
        groups=groups,
        workgroup=tiling.workgroup,
    )


def _write_scores(b: Builder, a: Attention, scores: Scores, stats: Slot | None) -> None:
    h = a.heads
    columns = scores.slot.shape[-1]
    b.path += ", scores written"
    b.dispatch(
        "attention/scores",
        reads=_score_reads(a) | {"sink": None, "stats": stats},
        writes={"scores": scores.slot},
        uniforms=_score_uniforms(a)
        | {
            "batch": h.batch,
            "heads": h.heads,
            "kv_heads": h.kv_heads,
            "group": h.group,
            "rows": h.rows,
            "columns": columns,
        },
        constants=_score_constants(a) | {"stage": scores.stage},
        threads=a.rows * -(-columns // 4),
    )


def _score_reads(a: Attention) -> dict[str, Slot | None]:
    return {
        "q": a.q.slot,
        **a.k.reads("k"),
        "bias": None if a.bias is None else a.bias.slot,
        "mask": None if a.mask is None else a.mask.slot,
        "beams": None if a.beams is None else a.beams.slot,
        "sink": a.sink,
        "table": None if a.pages is None else a.pages.table,
        "blocks": None if a.blocks is None else a.blocks.slot,
        **a.span.reads(),
    }


def _score_uniforms(a: Attention) -> dict[str, Any]:
    values = {
        **a.q.uniforms("q"),
        **a.k.uniforms("k"),
        **a.span.uniforms(),
        "channels": a.heads.size,
        "scale": f32(a.scale),
        "softcap": f32(a.softcap),
        "zero_sink": a.smooth,
        "ahead": i32(min(a.ahead, UNBOUNDED)),
        "behind": i32(min(a.behind, UNBOUNDED)),
    }
    axes = ("batch", "head", "row", "column")
    if a.bias is not None:
        values |= {f"bias_{n}": s for n, s in zip(axes, a.bias.strides, strict=True)}
    if a.mask is not None:
        values["mask_filter"] = f32(a.mask.filter)
        if a.mask.kind == "values":
            values |= {f"mask_{n}": s for n, s in zip(axes, a.mask.strides, strict=True)}
            values |= {"mask_offset": a.mask.offset, "mask_first": a.mask.first}
        else:
            values["mask_starts"] = a.mask.starts
    if a.pages is not None:
        values |= a.pages.uniforms()
    if a.blocks is not None:
        values |= a.blocks.uniforms()
    if a.beams is not None:
        _, values["beams_width"], values["beams_row"] = a.beams.slot.shape
    return values


def _score_constants(a: Attention) -> dict[str, Constant]:
    return {
        "mask_kind": None if a.mask is None else a.mask.kind,
        "mask_inverted": a.mask is not None and a.mask.inverted,
        "k_nibbles": a.k.nibbles,
        "k_pack": a.k.rows.pack,
        "ragged": a.heads.size % 4 != 0,
    }
