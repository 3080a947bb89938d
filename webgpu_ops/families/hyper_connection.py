"""Hyper-connections: several residual streams, reduced before a block and extended after it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.plan import Builder, Shape, Slot
from ..errors import SchemaError
from .elementwise import elementwise
from .gating import GATES, branches_of, check_branches, check_epsilon, rms_rows, scaled_silu
from .matmul import matmul
from .registry import Operator, register


def check_mix(b: Builder, name: str, lead: Shape, branches: int, width: int, *, flat: bool) -> bool:
    """Refuse gates of another shape than a branch's or a feature's; whether they are a feature's."""
    whole = (*lead, branches, width)
    by_feature = [whole, (*lead, branches * width)] if flat else [whole]
    plain = [(*lead, branches), (*lead, branches, 1)]
    shape = b.need(name).shape
    b.check(
        shape in plain or shape in by_feature,
        name,
        f"has shape {shape}",
        f"{', '.join(map(str, plain + by_feature[:-1]))} or {by_feature[-1]} because there are {branches} "
        f"branches of {width}",
    )
    return shape not in plain


def check_branch_rounds(b: Builder, branches: int, width: int) -> None:
    """Refuse more branches than an invocation may sum; where rows are short it sums several."""
    rows = 1 if width % 4 == 0 else 4
    b.check_rounds("streams", f"has {branches} branches", rows * branches)


def reduce_streams(
    b: Builder,
    streams: Slot,
    mix: Slot,
    out: Slot,
    *,
    branches: int,
    per_feature: bool,
    scale: float,
    activate: bool = False,
) -> None:
    """Append ``out[r, h] = scale * sum_c(streams[r, c, h] * mix[r, c, h])``.

    ``mix`` has a gate for each feature, or for each branch only. With ``activate`` it holds the
    gates' logits; their sigmoids are rounded to its type.
    """
    check_branch_rounds(b, branches, out.shape[-1])
    b.dispatch(
        "hyper_connection/reduce",
        reads={"streams": streams, "mix": mix},
        writes={"y": out},
        uniforms={
            "size": out.size,
            "width": out.shape[-1],
            "branches": branches,
            "scale": scale,
        },
        constants={"per_feature": per_feature, "activate": activate},
        threads=-(-out.size // 4),
    )


def extend_streams(
    b: Builder,
    streams: Slot,
    block: Slot,
    gate: Slot,
    mix: Slot | None,
    out: Slot,
    *,
    branches: int,
    width: int,
    per_feature: bool,
) -> None:
    """Append ``out[r, k, h] = sum_c(mix[r, c, k] * streams[r, c, h]) + gate[r, k, h] * block[r, h]``.

    Without ``mix`` stream k stays as it is, and ``out`` may be the memory of ``streams``.
    """
    if mix is not None:
        check_branch_rounds(b, branches, width)
    b.dispatch(
        "hyper_connection/extend",
        reads={"streams": streams, "block": block, "gate": gate, "mix": mix},
        writes={"y": out},
        uniforms={"size": out.size, "width": width, "branches": branches},
        constants={"per_feature": per_feature},
        threads=-(-out.size // 4),
    )


@register("HyperConnectionPreMix")
@dataclass(frozen=True, kw_only=True)
class HyperConnectionPreMix(Operator):
    """The streams' gated sum."""

    num_branches: int = 0
    reduction_scale: float = 1.0

    def __post_init__(self) -> None:
        check_branches(self.op, self.num_branches)

    def plan(self, b: Builder) -> None:
        streams, mix = b.need("streams"), b.need("pre_mix")
        lead, branches, width = branches_of(b, "streams", self.num_branches)
        per_feature = check_mix(b, "pre_mix", lead, branches, width, flat=self.num_branches > 0)
        out = b.output("output", (*lead, width), streams.dtype)
        reduce_streams(
            b, streams, mix, out, branches=branches, per_feature=per_feature, scale=self.reduction_scale
        )


@register("HyperConnectionPostMix")
@dataclass(frozen=True, kw_only=True)
class HyperConnectionPostMix(Operator):
    """The streams mixed among each other, plus a gated share of the block's output for each."""

    num_branches: int = 0

    def __post_init__(self) -> None:
        check_branches(self.op, self.num_branches)

    def plan(self, b: Builder) -> None:
        streams, block, mix = b.need("streams"), b.need("block_output"), b.get("stream_mix")
        lead, branches, width = branches_of(b, "streams", self.num_branches)
        why = f"streams has {branches} branches of {width} and shape {streams.shape}"
        b.check_shape("block_output", *lead, width, why=why)
        b.check_shape("stream_mix", *lead, branches, branches, why=why)
        per_feature = check_mix(b, "post_mix", lead, branches, width, flat=False)
        if mix is None:
            b.shares("output", "streams")
        extend_streams(
            b,
            streams,
            block,
            b.need("post_mix"),
            mix,
            b.output("output", streams.shape, streams.dtype),
            branches=branches,
            width=width,
            per_feature=per_feature,
        )


@register("HyperConnectionLowRankMix")
@dataclass(frozen=True, kw_only=True)
class HyperConnectionLowRankMix(Operator):
    """Post-mix of the previous block, norm, low-rank gates and pre-mix of the next block.

    The text rounds the result of every step to the streams' type, so every step is a dispatch of
    its own that stores it.
    """

    num_branches: int
    epsilon: float = 1e-5
    gate_div: float = 1.0
    gate_mul: float = 1.0
    reduction_scale: float = 1.0
    silu_alpha: float = 1.0

    def __post_init__(self) -> None:
        check_epsilon(self.op, self.epsilon)
        check_branches(self.op, self.num_branches, least=1)
        if self.gate_div == 0.0:
            raise SchemaError(f"{self.op}: gate_div is 0; expected another number, it divides")

    def plan(self, b: Builder) -> None:
        streams, down, up = b.need("streams"), b.need("down_weight"), b.need("up_weight")
        lead, branches, width = branches_of(b, "streams", self.num_branches)
        total, dtype = branches * width, streams.dtype
        why = f"streams has {branches} branches of {width}"
        b.check_shape("norm_scale", total, why=why)
        b.check_shape("down_weight", total, "rank", why=why)
        rank = down.shape[1]
        b.check_shape("up_weight", rank, total, why=f"{why} and down_weight has {rank} columns")
        b.check_shape("inject_weight", total, branches, why=why)
        mixed = self._prologue(b, streams, lead, branches, width)
        pre_output = b.output("pre_output", (*lead, width), dtype)
        post_gate = b.output("post_gate", (*lead, branches), dtype)

        rows = math.prod(lead)
        normed = b.scratch("normed", (rows, total), dtype)
        rms_rows(b, mixed, normed, width=width, epsilon=self.epsilon, scale=b.need("norm_scale"))
        low, hidden = (b.scratch(name, (rows, rank), dtype) for name in ("down", "hidden"))
        matmul(b, normed, down, low)
        scaled_silu(b, low, hidden, self.silu_alpha)
        logits = b.scratch("up", (rows, total), dtype)
        matmul(b, hidden, up, logits)
        reduce_streams(
            b,
            normed,
            logits,
            pre_output,
            branches=branches,
            per_feature=True,
            scale=self.reduction_scale,
            activate=True,
        )
        inject = b.scratch("inject", (rows, branches), dtype)
        matmul(b, normed, b.need("inject_weight"), inject)
        elementwise(
            b,
            "scaled_sigmoid(x, u.divisor, u.factor)",
            post_gate.reshape(rows, branches),
            {"x": inject},
            uniforms={"divisor": self.gate_div, "factor": self.gate_mul},
            library=GATES,
        )

    @staticmethod
    def _prologue(b: Builder, streams: Slot, lead: Shape, branches: int, width: int) -> Slot:
        """The streams after the previous block's post-mix, if its inputs are given."""
        block, gate = b.get("prev_block_output"), b.get("prev_post_gate")
        if block is None or gate is None:
            lone = "prev_block_output" if gate is None else "prev_post_gate"
            other = "prev_post_gate" if gate is None else "prev_block_output"
            b.check(block is gate, other, "is missing", f"it together with {lone}")
            out = b.output_if_wanted("streams_out", streams.shape, streams.dtype)
            if out is not None:
                b.shares("streams_out", "streams")
                b.copy(streams, out)
            return streams
        why = f"streams has shape {streams.shape} and {branches} branches"
        b.check_shape("prev_block_output", *lead, width, why=why)
        b.check_shape("prev_post_gate", *lead, branches, why=why)
        b.shares("streams_out", "streams")
        out = b.output("streams_out", streams.shape, streams.dtype)
        extend_streams(b, streams, block, gate, None, out, branches=branches, width=width, per_feature=False)
        return out
