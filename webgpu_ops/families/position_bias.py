"""Attention biases that depend on the distance between two positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..core import dtypes
from ..core.plan import Builder
from ..errors import LimitError, SchemaError
from .elementwise import elementwise
from .layout import View
from .padding import places_of
from .registry import Operator, register
from .standard.copying import move
from .standard.indexing import gather
from .standard.reduction import reduce


@register("RelativePositionBias")
@dataclass(frozen=True, kw_only=True)
class RelativePositionBias(Operator):
    """T5's bias: each head looks up the bucket of the distance from query to key.

    The lengths make the output's shape, so buckets are assigned while planning. A head has one bias
    for each distance; a row of the output is a window into these.
    """

    max_distance: int
    is_bidirectional: int = 0

    def __post_init__(self) -> None:
        if self.is_bidirectional not in (0, 1):
            raise SchemaError(f"{self.op}: is_bidirectional is {self.is_bidirectional}; expected 0 or 1")
        if self.max_distance <= 0:
            raise SchemaError(f"{self.op}: max_distance is {self.max_distance}; expected a positive number")

    def plan(self, b: Builder) -> None:
        table = b.need("bias_table")
        b.check(table.rank == 2, "bias_table", f"has shape {table.shape}", "(buckets, heads)")
        buckets, heads = table.shape
        length, keys = (self._length(b, name) for name in ("query_length", "key_length"))
        b.check(length == keys, "key_length", f"is {keys}", f"{length} because query_length is {length}")
        if heads * length * length >= 1 << 32:
            raise LimitError(
                f"{self.op}: query_length is {length}, which makes {heads * length * length} elements; "
                f"expected fewer than {1 << 32}"
            )
        out = b.output("output", (1, heads, length, length), table.dtype)
        bucket = self._buckets(b, buckets, length)
        if not out.size:
            return
        # The table's memory is head-major.
        line = b.scratch("line", (heads, bucket.size), table.dtype)
        indices = b.constant("buckets", bucket.astype(np.int32))
        gather(b, table, indices, line, length=buckets, inner=1)
        window = View(line, out.shape, (0, bucket.size, -1, 1), length - 1)
        move(b, window, out)

    def _length(self, b: Builder, name: str) -> int:
        slot = b.need(name)
        b.check(slot.size == 1, name, f"has shape {slot.shape}", "one number")
        value = int(b.host(name).item())
        b.check(value >= 0, name, f"is {value}", "a length")
        return value

    def _buckets(self, b: Builder, buckets: int, length: int) -> np.ndarray:
        """The bucket of every relative position, from 1 - length to length - 1."""
        why = "bidirectional " if self.is_bidirectional else ""
        one_way = buckets // 2 if self.is_bidirectional else buckets
        exact = one_way // 2
        b.check(exact > 0, "bias_table", f"has {buckets} {why}buckets", "at least 2 a direction")
        b.check(
            self.max_distance > exact,
            "max_distance",
            f"is {self.max_distance}",
            f"more than {exact}, the distances that have a bucket of their own among {buckets} {why}buckets",
        )
        relative = np.arange(1 - length, length)
        distance = np.abs(relative) if self.is_bidirectional else np.maximum(-relative, 0)
        growth = np.log(np.maximum(distance, exact) / exact) / math.log(self.max_distance / exact)
        far = exact + (growth * (one_way - exact)).astype(np.int64)
        bucket = np.where(distance < exact, distance, np.minimum(far, one_way - 1))
        return bucket + np.where(relative > 0, one_way, 0) if self.is_bidirectional else bucket


@register("GatedRelativePositionBias")
@dataclass(frozen=True, kw_only=True)
class GatedRelativePositionBias(Operator):
    """A relative position bias scaled by a gate of each query and head.

    Both halves of the gates' product are only ever summed, so a head's row is multiplied and summed
    in one pass and the product itself is never stored.
    """

    num_heads: int

    def __post_init__(self) -> None:
        if self.num_heads <= 0:
            raise SchemaError(f"{self.op}: num_heads is {self.num_heads}; expected a positive number")

    def plan(self, b: Builder) -> None:
        query, weight, offset = b.need("query_layer"), b.need("weight"), b.get("token_offset")
        heads = self.num_heads
        b.check(
            query.rank in (2, 3),
            "query_layer",
            f"has shape {query.shape}",
            "(batch, sequence, hidden) or (tokens, hidden)",
        )
        hidden = query.shape[-1]
        b.check(
            hidden % heads == 0,
            "query_layer",
            f"has shape {query.shape}",
            f"a hidden size divisible by num_heads={heads}",
        )
        b.check_shape("query_bias", hidden, why=f"query_layer has shape {query.shape}")
        size = hidden // heads
        b.check_shape("weight", size, "columns", why=f"query_layer has {heads} heads of size {size}")
        columns = weight.shape[1]
        b.check(
            columns > 0 and columns % 2 == 0, "weight", f"has {columns} columns", "a positive even number"
        )
        b.check_shape("bias", columns, why=f"weight has {columns} columns")
        b.check_shape("eco_a", 1, heads, 1, 1, why=f"num_heads={heads}")
        if query.rank == 3:
            batch, sequence = query.shape[:2]
            b.check_shape("token_offset", batch, sequence, why=f"query_layer has shape {query.shape}")
            token_at = None
        else:
            if offset is None:
                raise b.refuse("token_offset", "is missing", "it to come with a 2-D query_layer")
            token_at = places_of(b, offset, query.shape[0], "query_layer")
            batch, sequence = offset.shape
        b.check_shape("rel_pos", 1, heads, sequence, sequence, why=f"{heads} heads and {sequence} queries")

        # Each half of the product's columns is only ever summed, and so may be the weight's.
        sums = b.scratch("sums", (size + 1, 2), dtypes.float32)
        for rows, source in ((sums.rows(0, size), weight), (sums.rows(size, 1), b.need("bias"))):
            halves = source.reshape(*rows.shape, columns // 2)
            reduce(b, halves, rows, axes=(2,), combine="a + b")
        gate = b.scratch("gate", (batch, heads, sequence, 1), dtypes.float32)
        b.dispatch(
            "position_bias/gate",
            reads={
                "query": query,
                "query_bias": b.need("query_bias"),
                "sums": sums,
                "eco_a": b.need("eco_a"),
                "token_at": token_at,
            },
            writes={"gate": gate},
            uniforms={
                "rows": gate.size,
                "heads": heads,
                "sequence": sequence,
                "channels": size,
            },
            threads=gate.size,
        )
        out = b.output("output", (batch, heads, sequence, sequence), query.dtype)
        elementwise(b, "gate * rel_pos", out, {"gate": gate, "rel_pos": b.need("rel_pos")})
