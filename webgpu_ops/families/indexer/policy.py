"""What both indexers check: attributes, and the inputs that one of the policies alone knows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

from ...core.plan import Builder, Slot
from ...errors import SchemaError
from ..registry import Operator
from .core import LIMIT, Policy, Tokens


@dataclass(frozen=True, kw_only=True)
class Indexer(Operator):
    """Attributes that both indexers have."""

    policy_mode: str
    compress_ratio: int
    epsilon: float = 1e-6
    scale: float | None = None
    token_budget: int | None = None
    index_topk: int | None = None
    head_weight_scale: float | None = None

    # Inputs of one policy: needed there, refused elsewhere.
    csa_inputs: ClassVar[tuple[str, ...]] = ()
    qsa_inputs: ClassVar[tuple[str, ...]] = ()
    csa_outputs: ClassVar[tuple[str, ...]] = ()
    qsa_outputs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.require(self.policy_mode in ("qsa", "csa"), "policy_mode", self.policy_mode, "'qsa' or 'csa'")
        self.require(
            self.compress_ratio > 0 and 2 * self.compress_ratio - 1 < LIMIT,
            "compress_ratio",
            self.compress_ratio,
            f"1 to {LIMIT // 2}",
        )
        self.require(self.epsilon >= 0.0, "epsilon", self.epsilon, "a number that is not negative")
        own = {"qsa": ("token_budget",), "csa": ("index_topk", "head_weight_scale")}
        mine = own[self.policy][0]
        for name in own["csa" if self.policy == "qsa" else "qsa"]:
            self.require(getattr(self, name) is None, name, getattr(self, name), self._nothing)
        count = getattr(self, mine)
        self.require(
            count is not None and 0 < count < LIMIT,
            mine,
            count,
            f"a positive int32, which policy_mode = {self.policy_mode!r} needs",
        )
        if self.policy == "qsa":
            self.require(
                count % self.compress_ratio == 0 and count + self.compress_ratio - 1 < LIMIT,
                mine,
                count,
                f"a multiple of compress_ratio = {self.compress_ratio} that makes the width an int32",
            )

    @property
    def _nothing(self) -> str:
        return f"none because policy_mode is {self.policy_mode!r}"

    def require(self, ok: bool, name: str, value: object, expected: str) -> None:
        if not ok:
            came = "is missing" if value is None else f"is {value!r}"
            raise SchemaError(f"{self.op}: {name} {came}; expected {expected}")

    @property
    def policy(self) -> Policy:
        return cast(Policy, self.policy_mode)

    @property
    def top(self) -> int:
        """How many entries are kept for each query."""
        return self.index_topk or (self.token_budget or 0) // self.compress_ratio

    @property
    def selection_width(self) -> int:
        """Columns that a selection may fill."""
        return self.index_topk or (self.token_budget or 0) + self.compress_ratio - 1

    def score_scale(self, heads: int, size: int) -> float:
        """The factor of a score, with csa's factor of the head weights."""
        scale = 1.0 / math.sqrt(size) if self.scale is None else self.scale
        if self.policy == "qsa":
            return scale
        weights = 1.0 / math.sqrt(heads) if self.head_weight_scale is None else self.head_weight_scale
        return scale * weights

    def check_company(self, b: Builder) -> None:
        """Refuse inputs and outputs of the other policy, and missing ones of this."""
        mine, others = (self.csa_inputs, self.qsa_inputs)
        results = self.qsa_outputs
        if self.policy == "qsa":
            mine, others, results = (), self.csa_inputs, self.csa_outputs
        for name in mine:
            reason = f"it because policy_mode is {self.policy_mode!r}"
            b.check(b.get(name) is not None, name, "is missing", reason)
        for name in others:
            b.check(b.get(name) is None, name, "is given", self._nothing)
        for name in results:
            b.check(not b.wants(name), name, "is an output", self._nothing)

    def split_query(self, b: Builder, rank: int) -> tuple[int, int, Tokens, Tokens]:
        """Heads, channels of a head, and where queries and keys lie: side by side without ``key``.

        ``rank`` is that of the query, whose last dimension holds the heads.
        """
        query, key, weight = b.need("query"), b.get("key"), b.need("query_norm_weight")
        b.check_shape("query_norm_weight", "head_size")
        size = weight.size
        b.check(size > 0, "query_norm_weight", "is empty", "one element for each channel of a head")
        b.check_shape("key_norm_weight", size, why=f"query_norm_weight has {size} elements")
        b.check(query.rank == rank, "query", f"has shape {query.shape}", f"{rank} dimensions")
        width = query.shape[-1]
        packed = key is None
        why = f"query_norm_weight has {size} elements"
        if packed:
            b.check(self.policy == "qsa", "key", "is missing", "it because policy_mode is 'csa'")
            why += " and the last head is the key"
        heads = width // size - packed
        b.check(
            width % size == 0 and heads > 0,
            "query",
            f"has {width} columns",
            f"a multiple of {size}{', and more than that,' if packed else ''} because {why}",
        )
        if key is None:
            return heads, size, Tokens(query, width), Tokens(query, width, heads * size)
        columns = size if self.policy == "qsa" else 2 * size
        b.check_shape("key", *_free(rank - 1), columns, why=why)
        return heads, size, Tokens(query, width), Tokens(key, columns)

    def check_tables(self, b: Builder, batch: int, size: int) -> tuple[Slot, Slot]:
        """cos_cache and sin_cache: [rows, width], or one such table for each request."""
        cos, sin = b.need("cos_cache"), b.need("sin_cache")
        b.check(
            cos.rank == 2 or (cos.rank == 3 and cos.shape[0] == batch),
            "cos_cache",
            f"has shape {cos.shape}",
            f"(rows, width) or ({batch}, rows, width)",
        )
        rows, width = cos.shape[-2:]
        b.check(rows > 0, "cos_cache", f"has shape {cos.shape}", "at least one row")
        fits = width % 2 == 0 and width <= size if self.policy == "qsa" else 2 * width <= size
        what = f"an even width up to {size}" if self.policy == "qsa" else f"a width up to {size // 2}"
        b.check(fits, "cos_cache", f"has shape {cos.shape}", f"{what} because heads have {size} channels")
        b.check_shape("sin_cache", *cos.shape, why=f"cos_cache has shape {cos.shape}")
        return cos, sin

    def check_ids(self, b: Builder, rows: int) -> None:
        """Refuse positions outside the tables where the host knows them; shaders clamp the others."""
        known = b.host_if_known("position_ids")
        if known is None:
            return
        bad = known[(known < 0) | (known >= rows)]
        b.check(
            not bad.size,
            "position_ids",
            f"holds {bad.reshape(-1)[:1].tolist()}",
            f"positions in [0, {rows - 1}] because cos_cache has {rows} rows",
        )


def _free(count: int) -> tuple[str, ...]:
    return ("batch", "sequence")[:count] if count > 1 else ("tokens",)
