"""com.microsoft SparsePagedAttention: an indexer picks the rows that each token attends to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...core.plan import Builder
from ..registry import register
from .core import UNBOUNDED, Attention, Heads, Rows, Stored, attend
from .packed import packed_rows
from .paged import Call, PagedOperator
from .selection import Others, Positions, pick

MODES = ("selected_only", "local_plus_selected")
SOURCES = ("main", "auxiliary")


def check_selection(b: Builder, tokens: int) -> None:
    """Inputs selected_indices and selected_counts of packed or batched ``tokens``."""
    why = f"query holds {tokens} tokens"
    b.check_shape("selected_indices", tokens, "max_selected_entries", why=why)
    b.check_shape("selected_counts", tokens, why=why)


@register("SparsePagedAttention")
@dataclass(frozen=True, kw_only=True)
class SparsePagedAttention(PagedOperator):
    """PagedAttention that sees selected rows of its own or of another cache, and a window if asked."""

    attention_mode: str = "selected_only"
    auxiliary_cache_layout: str = "contiguous"
    auxiliary_kv_shared: int = 0
    selected_kv_source: str = "main"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect(self.attention_mode in MODES, "attention_mode", " or ".join(MODES))
        self._expect(self.selected_kv_source in SOURCES, "selected_kv_source", " or ".join(SOURCES))
        self._expect(self.auxiliary_cache_layout == "contiguous", "auxiliary_cache_layout", "contiguous")
        self._expect(self.auxiliary_kv_shared in (0, 1), "auxiliary_kv_shared", "0 or 1")

    @property
    def local(self) -> bool:
        """Whether a window of the main cache is seen too."""
        return self.attention_mode == "local_plus_selected"

    @property
    def auxiliary(self) -> bool:
        """Whether the selection is of another cache."""
        return self.selected_kv_source == "auxiliary"

    def plan(self, b: Builder) -> None:
        call = self._call(b)
        check_selection(b, call.tokens)
        others = self._others(b, call)
        k = self._cache(b, "key_cache", call.size, "", self.k_quant_type)
        v = self._cache(b, "value_cache", call.size, "", self.v_quant_type)
        bounds = self._metadata(b, 5)
        y = b.output("output", (call.tokens, self.num_heads * call.size), b.need("query").dtype)
        if call.tokens == 0:
            return
        if call.batch == 0:
            b.zero(y)
            return
        q = self._prepare(b, call, k, v)
        ahead, behind = self._window()
        window = Attention(
            heads=Heads(call.batch, self.num_heads, self.kv_num_heads, call.tokens, call.size, call.size),
            span=call.span,
            q=q,
            k=k,
            v=v,
            y=packed_rows(y, call.size),
            scale=self.scale or 1 / math.sqrt(call.size),
            softcap=self.softcap,
            ahead=ahead,
            behind=behind,
            sink=b.get("head_sink"),
            pages=call.pages,
            longest=bounds[1],
        )
        what: Positions | Others = Positions(ahead, pages=call.pages)
        if others is not None:
            k, v, what = others
        elif self.local:
            what = Positions(ahead, behind, shown=True, pages=call.pages)
        picks = pick(b, b.need("selected_indices"), b.need("selected_counts"), call.span, what)
        chosen = replace(
            window,
            heads=replace(window.heads, batch=call.tokens, rows=1),
            span=picks,
            k=k,
            v=v,
            ahead=UNBOUNDED,
            behind=UNBOUNDED,
            pages=None,
            longest=bounds[2],
        )
        attend(b, *([window] if self.local else []), chosen)

    def _others(self, b: Builder, call: Call) -> tuple[Stored, Stored, Others] | None:
        """The auxiliary cache ``[batch, capacity, kv_num_heads or 1, head_size]``, if it is selected from."""
        key, value = b.get("auxiliary_key"), b.get("auxiliary_value")
        b.check_shape(
            "auxiliary_lengths", call.batch, why=f"cumulative_sequence_length has {call.batch} sequences"
        )
        if key is not None:
            heads = key.shape[2] if key.rank == 4 else 0
            kv = self.kv_num_heads
            b.check(
                heads in (1, kv) and key.shape[0] == call.batch and key.shape[3] == call.size,
                "auxiliary_key",
                f"has shape {key.shape}",
                f"({call.batch}, capacity, {kv} or 1, {call.size})",
            )
            b.check_shape("auxiliary_value", *key.shape, why=f"auxiliary_key has shape {key.shape}")
        if not self.auxiliary:
            return None
        b.check(key is not None, "auxiliary_key", "is missing", "it because selected_kv_source is auxiliary")
        if self.auxiliary_kv_shared:
            value = key
        b.check(value is not None, "auxiliary_value", "is missing", "it unless auxiliary_kv_shared is 1")
        assert key is not None and value is not None
        _, capacity, heads, size = key.shape
        row = heads * size
        k, v = (Stored(Rows(slot, 0, size if heads > 1 else 0, row)) for slot in (key, value))
        return k, v, Others(capacity, b.get("auxiliary_lengths"), rows=capacity)
