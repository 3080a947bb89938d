"""PackedSparseAttentionIndexerMerge: selections joined without repetition."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import dtypes
from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..registry import Operator, register
from .core import lanes, row_groups, sort_rounds

WIDEST = 1 << 30
MODES = {
    "append_range": ("range_starts", "range_ends"),
    "append_indices": ("additional_indices", "additional_counts"),
}


@register("PackedSparseAttentionIndexerMerge")
@dataclass(frozen=True, kw_only=True)
class PackedSparseAttentionIndexerMerge(Operator):
    """A cached selection, and a range or another selection, in order of first occurrence."""

    policy_mode: str
    max_output_entries: int

    def __post_init__(self) -> None:
        if self.policy_mode not in MODES:
            wanted = " or ".join(map(repr, MODES))
            raise SchemaError(f"{self.op}: policy_mode is {self.policy_mode!r}; expected {wanted}")
        if not 1 <= self.max_output_entries <= WIDEST:
            raise SchemaError(
                f"{self.op}: max_output_entries is {self.max_output_entries}; expected 1 to 2**30"
            )

    def plan(self, b: Builder) -> None:
        b.path = self.policy_mode
        for mode, names in MODES.items():
            for name in names:
                given, wanted = b.get(name) is not None, mode == self.policy_mode
                expected = f"{'it' if wanted else 'none'} because policy_mode is {self.policy_mode!r}"
                b.check(given == wanted, name, "is given" if given else "is missing", expected)
        b.check_shape("base_indices", "rows", "columns")
        base = b.need("base_indices")
        rows, columns = base.shape
        b.check_shape("base_counts", rows, why=f"base_indices has {rows} rows")
        b.check_shape("base_row_indices", "queries")
        queries = b.need("base_row_indices").size
        why = f"base_row_indices has {queries} elements"
        for name in ("range_starts", "range_ends", "additional_counts"):
            b.check_shape(name, queries, why=why)
        b.check_shape("additional_indices", queries, "columns", why=why)
        more = b.get("additional_indices")
        width = self.max_output_entries
        selected = b.output("selected_indices", (queries, width), base.dtype)
        counts = b.output("selected_counts", (queries,), base.dtype)
        status = b.output("status", (queries,), base.dtype)
        items = max(1, columns + (more.shape[1] if more else 0))
        groups = list(row_groups(queries, 8 * items))
        order = b.scratch("order", (max((n for _, n in groups), default=0), 2 * items), dtypes.uint32)
        # One slot for both, which leaves the kernel within the bindings that every adapter has.
        cached = b.scratch("cached", (queries + rows,), base.dtype)
        b.copy(b.need("base_row_indices"), cached)
        b.copy(b.need("base_counts"), cached, target_offset=queries)
        reads: dict[str, Slot | None] = {
            "base": base,
            "cached": cached,
            "starts": b.get("range_starts"),
            "ends": b.get("range_ends"),
            "more": more,
            "more_counts": b.get("additional_counts"),
        }
        rounds = sort_rounds(items) + 8 * items + (2 * items.bit_length() + 4) * width
        for first, count in groups:
            b.dispatch(
                "indexer/merge",
                reads=reads,
                writes={"order": order, "selected": selected, "counts": counts, "status": status},
                uniforms={
                    "first": first,
                    "rows": count,
                    "queries": queries,
                    "base_rows": rows,
                    "columns": columns,
                    "more_columns": more.shape[1] if more else 0,
                    "width": width,
                    "room": items,
                },
                groups=count,
                workgroup=lanes(b, 256, rounds),
            )
