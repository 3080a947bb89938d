"""Which keys a query sees where a part of the cache is selected: one by one, or in blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import dtypes
from ...core.plan import Builder, Slot, i32
from .core import UNBOUNDED, Blocks, Pages, Picks, Span


@dataclass(frozen=True)
class Positions:
    """Entries are positions of the token's own sequence, at most ``ahead`` after its own.

    Where ``shown`` another source shows the token those from ``behind`` before its own on: they are left
    out, and so is what is picked twice. The rows may lie in ``pages``.
    """

    ahead: int
    behind: int = UNBOUNDED
    shown: bool = False
    pages: Pages | None = None


@dataclass(frozen=True)
class Others:
    """Entries are rows below ``capacity``, and below ``bounds[sequence]`` (int32), of other memory.

    Those of sequence b start at row ``b * rows`` of it.
    """

    capacity: int
    bounds: Slot | None = None
    rows: int = 0


def pick(
    b: Builder, indices: Slot, counts: Slot, span: Span, what: Positions | Others, *, share: int = 1
) -> Span:
    """Append the choice of ``indices [tokens, most]`` (int32), of which the first ``counts [tokens]`` are
    valid: the span whose entries are the tokens of ``span``, with ``share`` of them a batch entry."""
    tokens, most = indices.shape
    pages = what.pages if isinstance(what, Positions) else None
    slot = b.scratch("picks", (tokens, most + 1), dtypes.uint32)
    uniforms: dict[str, Any] = span.uniforms() | {
        "tokens": tokens,
        "most": most,
    }
    if isinstance(what, Positions):
        uniforms |= {"ahead": i32(what.ahead), "behind": i32(what.behind), "share_rows": 0}
    else:
        uniforms |= {"capacity": what.capacity, "share_rows": what.rows}
    if pages is not None:
        uniforms |= pages.uniforms()
    b.dispatch(
        "attention/pick",
        reads={
            "indices": indices,
            "counts": counts,
            "table": pages.table if pages is not None else None,
            "bounds": what.bounds if isinstance(what, Others) else None,
            **span.reads(),
        },
        writes={"chosen": slot},
        uniforms=uniforms,
        constants={
            "source": "main" if isinstance(what, Positions) else "auxiliary",
            "union": isinstance(what, Positions) and what.shown,
        },
        groups=tokens,
    )
    return Span(total=most, new=1, rows=1, picks=Picks(slot, share))


def mark(b: Builder, starts: Slot, columns: Slot, size: int) -> Blocks:
    """Append the bits of a block mask from its compressed rows: ``starts [layouts, rows + 1]`` and
    ``columns [layouts, most]``, both int32."""
    layouts, rows = starts.shape[0], starts.shape[1] - 1
    words = -(-rows // 32)
    bits = b.scratch("blocks", (layouts, rows, words), dtypes.uint32)
    b.dispatch(
        "attention/mark",
        reads={"starts": starts, "columns": columns},
        writes={"bits": bits},
        uniforms={"layouts": layouts, "rows": rows, "words": words, "most": columns.shape[1]},
        threads=layouts * rows,
    )
    return Blocks(bits, size)
