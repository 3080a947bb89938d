"""Sparse matrices times dense ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.plan import MAX_ROUNDS, Builder
from ..errors import LimitError
from .layout import View
from .matmul import factor_of, product_views, transposed
from .registry import Operator, register


@register("SparseToDenseMatMul")
@dataclass(frozen=True, kw_only=True)
class SparseToDenseMatMul(Operator):
    """alpha * A' @ B' for a sparse matrix A and a dense B of any rank, as NumPy's matmul."""

    alpha: float = 1.0
    transA: int = 0
    transB: int = 0

    def plan(self, b: Builder) -> None:
        a, w = b.need("A"), b.need("B")
        b.check(a.rank == 2, "A", f"has shape {a.shape}", "two dimensions")
        b.check(a.dtype == w.dtype, "A", f"has values of type {a.dtype}", f"{w.dtype}, the type of B")
        alpha = factor_of(self.op, "alpha", self.alpha, w.dtype)
        right = transposed(w) if self.transB and w.rank > 1 else View.of(w)
        left, right, (*batch, m, n), shape = product_views(b, transposed(a) if self.transA else a, right)
        y = b.output("Y", shape, w.dtype)
        if not y.size:
            return
        values, positions, offsets = b.compressed("A", 1 if self.transA else 0)
        longest = b.longest("A", 1 if self.transA else 0)
        lanes = b.lanes(1, longest)
        if lanes is None:
            most = b.caps.max_invocations * MAX_ROUNDS
            raise LimitError(
                f"{self.op}: A has a row of some {longest} values; a kernel adds up at most {most}"
            )
        quads = math.prod(batch) * m * -(-n // 4)
        b.dispatch(
            "sparse/product",
            reads={"values": values, "positions": positions, "offsets": offsets, "w": w},
            writes={"y": y},
            uniforms={
                "m": m,
                "n": n,
                "batches": math.prod(batch),
                "stack": left.shape[1] * n,
                "steps": right.strides[-2:],
                **({} if self.alpha == 1 else {"alpha": alpha}),
            },
            constants={
                "consecutive": right.strides[-1] == 1,
                "epilogue": "x" if self.alpha == 1 else "u.alpha * x",
                "lanes": lanes,
            },
            groups=quads if lanes > 1 else -(-quads // 64),
            workgroup=lanes if lanes > 1 else 64,
        )
