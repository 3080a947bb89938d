"""Embedding lookups."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import dtypes
from ..core.plan import Builder, Slot
from .norm import check_epsilon, normalize_rows
from .registry import Operator, register
from .standard.reduction import reduce


def check_ids(b: Builder, name: str, table: Slot) -> None:
    """Refuse ids outside ``table`` where they are known on the host; shaders clamp the others."""
    ids = b.host_if_known(name)
    if ids is None or not ids.size:
        return
    bad = ids[(ids < 0) | (ids >= table.shape[0])]
    if bad.size:
        raise b.refuse(
            name,
            f"holds {int(bad[0])}",
            f"ids in [0, {table.shape[0] - 1}] because {table.name} has {table.shape[0]} rows",
        )


@register("EmbedLayerNormalization")
@dataclass(frozen=True, kw_only=True)
class EmbedLayerNormalization(Operator):
    """LayerNorm(word + position + segment embeddings), and the length of each mask row.

    ``mask_index_type`` only tells shape inference whether mask_index exists; the node's own
    outputs say the same.
    """

    epsilon: float = 1e-12
    mask_index_type: int | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)

    def plan(self, b: Builder) -> None:
        ids, segment_ids, position_ids = b.need("input_ids"), b.get("segment_ids"), b.get("position_ids")
        word, position = b.need("word_embedding"), b.need("position_embedding")
        segment, mask = b.get("segment_embedding"), b.get("mask")
        b.check(ids.rank == 2, "input_ids", f"has shape {ids.shape}", "(batch, sequence)")
        batch, sequence = ids.shape
        b.check(word.rank == 2, "word_embedding", f"has shape {word.shape}", "(words, hidden)")
        hidden = word.shape[1]
        why = f"word_embedding has hidden size {hidden}"
        b.check_shape("position_embedding", "positions", hidden, why=why)
        b.check_shape("segment_embedding", "segments", hidden, why=why)
        b.check_shape("gamma", hidden, why=why)
        b.check_shape("beta", hidden, why=why)
        b.check_shape("segment_ids", batch, sequence, why=f"input_ids has shape {ids.shape}")
        b.check_shape("mask", batch, sequence, why=f"input_ids has shape {ids.shape}")
        if (segment_ids is None) != (segment is None):
            given, lacking = (
                ("segment_ids", "segment_embedding")
                if segment is None
                else ("segment_embedding", "segment_ids")
            )
            raise b.refuse(lacking, "is missing", f"it to come with {given}")
        if position_ids is None:
            b.check(
                sequence <= position.shape[0],
                "input_ids",
                f"has {sequence} positions",
                f"at most {position.shape[0]} because position_embedding has {position.shape[0]} rows",
            )
        else:
            b.check(
                position_ids.shape in {(batch, sequence), (1, sequence)},
                "position_ids",
                f"has shape {position_ids.shape}",
                f"({batch}, {sequence}) or (1, {sequence})",
            )
            check_ids(b, "position_ids", position)
        for table in (word, position, segment):
            if table is not None and ids.size:
                b.check(table.shape[0] > 0, table.name, f"has shape {table.shape}", "at least one row")
        check_ids(b, "input_ids", word)
        if segment is not None:
            check_ids(b, "segment_ids", segment)

        shape = (batch, sequence, hidden)
        normalize_rows(
            b,
            {
                "ids": ids,
                "segment_ids": segment_ids,
                "position_ids": position_ids,
                "word": word,
                "position": position,
                "segment": segment,
            },
            b.output("output", shape, word.dtype),
            rows=batch * sequence,
            width=hidden,
            epsilon=self.epsilon,
            gamma=b.need("gamma"),
            beta=b.need("beta"),
            total=b.output_if_wanted("embedding_sum", shape, word.dtype),
            source="embedding",
            uniforms={
                "sequence": sequence,
                "word_rows": word.shape[0],
                "position_rows": position.shape[0],
                "segment_rows": segment.shape[0] if segment is not None else 0,
                "position_id_count": position_ids.size if position_ids is not None else 0,
            },
        )
        mask_index = b.output_if_wanted("mask_index", (batch,), dtypes.int32)
        if mask_index is None:
            return
        if mask is None or not mask.size:
            b.zero(mask_index)
        else:
            reduce(b, mask, mask_index, axes=(1,), each="1 if x != 0 else 0", combine="a + b")
