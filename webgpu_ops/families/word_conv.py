"""WordConvEmbedding: words as sequences of characters, convolved and pooled to one vector a word."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.plan import Builder
from .layout import View
from .matmul import matmul
from .registry import Operator, register


@register("WordConvEmbedding")
@dataclass(frozen=True, kw_only=True)
class WordConvEmbedding(Operator):
    """Y [..., filter]: the largest tanh(convolution + B) over the windows of each word.

    Sequence [..., character] holds character ids, W is [filter, 1, window, C's columns] and C
    [character, column]. A word ends at its first 0; one shorter than the window is padded with
    character 0, and an empty one gives 0. Ids outside C are refused where they are known here, and
    clamped on the device.
    """

    char_embedding_size: int | None = None
    conv_window_size: int | None = None
    embedding_size: int | None = None

    def plan(self, b: Builder) -> None:
        words, w, table = b.need("Sequence"), b.need("W"), b.need("C")
        b.check(words.rank > 0, "Sequence", "is a scalar", "at least one dimension")
        b.check(table.rank == 2, "C", f"has shape {table.shape}", "two dimensions")
        characters, width = table.shape
        b.check_shape("W", "filters", 1, "window", width, why=f"C has {width} columns")
        filters, _, window, _ = w.shape
        for name, given, size, what in (
            ("embedding_size", self.embedding_size, filters, "filters"),
            ("conv_window_size", self.conv_window_size, window, "rows a window"),
            ("char_embedding_size", self.char_embedding_size, width, "columns"),
        ):
            b.check(given in (None, size), name, f"is {given}", f"{size} because W has {size} {what}")
        b.check(window > 0, "W", f"has shape {w.shape}", "a window that is not empty")
        b.check_shape("B", filters, why=f"W has {filters} filters")
        b.check(characters > 0, "C", f"has shape {table.shape}", "at least character 0")
        ids = b.host_if_known("Sequence")
        if ids is not None and ids.size:
            low, high = int(ids.min()), int(ids.max())
            b.check(
                low >= 0 and high < characters,
                "Sequence",
                f"holds {low}..{high}",
                f"ids in [0, {characters - 1}] because C has {characters} rows",
            )
        # A window a character, each of them a row of products and the look for the word's end.
        rounds = words.shape[-1] * (window + 2)
        b.check_rounds("Sequence", f"has shape {words.shape} and W windows of {window}", rounds)
        y = b.output("Y", (*words.shape[:-1], filters), table.dtype)

        # A character adds the same wherever it stands in a window's row, so it is multiplied once.
        products = b.scratch("products", (window, characters, filters), table.dtype)
        kernel = View.of(w.reshape(filters, window, width)).permute((1, 2, 0))
        matmul(b, table, kernel, products)
        count = y.size // filters if filters else 0
        b.dispatch(
            "word_conv/words",
            reads={"words": words, "products": products, "bias": b.need("B")},
            writes={"y": y},
            uniforms={
                "count": count,
                "length": words.shape[-1],
                "window": window,
                "characters": characters,
                "filters": filters,
            },
            threads=count * -(-filters // 4),
        )
