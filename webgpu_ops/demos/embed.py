"""How alike are sentences? The fused MiniLM model on the GPU, as a table and a heat map."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from ..errors import ModelError, UnsupportedError
from . import minilm

SENTENCES = (
    "A man is playing a guitar on stage.",
    "Someone performs music with a guitar.",
    "The stock market fell sharply today.",
    "GPU shaders compute matrix products in parallel.",
)
LATER_RUNS = 3


def main(sentences: Sequence[str], picture: Path, portable: bool) -> None:
    """Embed ``sentences``, print how similar they are and draw it into ``picture``."""
    from ..cli.common import device
    from ..session import InferenceSession

    if len(sentences) < 2:
        raise ModelError("demo embed: give at least two sentences to compare, each in quotes")
    console = Console(highlight=False, soft_wrap=True)
    with console.status("fetching the model (63 MB the first time) and its tokenizer"):
        minilm.model_path()
        feeds = minilm.tokenize(sentences)
    with console.status("fusing the graph (once)"):
        path = minilm.fused_path()
    used = device(portable)
    console.print(f"[bold]adapter[/bold]    {used.name}")
    console.print(f"[bold]model[/bold]      paraphrase-MiniLM-L3, fused: {_contrib_operators(path)}")
    with console.status("running on the GPU"):
        started = time.perf_counter()
        session = InferenceSession(str(path), device=used)
        loaded = time.perf_counter()
        (embeddings,) = session.run([minilm.EMBEDDING], feeds)
        first = time.perf_counter()
        later = [_seconds(session, feeds) for _ in range(LATER_RUNS)]
    console.print(
        f"[bold]time[/bold]       load {loaded - started:.2f} s, first run {first - loaded:.2f} s "
        f"(compiles the shaders), later runs {min(later) * 1e3:.1f} ms"
    )
    similarity = minilm.similarities(embeddings)
    console.print(_table(sentences, similarity))
    draw(sentences, similarity, used.name, picture)
    console.print(f"[bold]picture[/bold]    {picture}")


def _seconds(session: object, feeds: dict[str, np.ndarray]) -> float:
    started = time.perf_counter()
    session.run([minilm.EMBEDDING], feeds)  # type: ignore[attr-defined]
    return time.perf_counter() - started


def _contrib_operators(path: Path) -> str:
    """``3 Attention, 3 BiasGelu, ...`` of the graph at ``path``."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    counts = Counter(n.op_type for n in nodes if n.domain == "com.microsoft")
    return ", ".join(f"{n} {op}" for op, n in sorted(counts.items()))


def _table(sentences: Sequence[str], similarity: np.ndarray) -> Table:
    table = Table("", "sentence", *(str(i) for i in range(1, len(sentences) + 1)))
    for column in table.columns[2:]:
        column.justify = "right"
    for i, sentence in enumerate(sentences):
        table.add_row(str(i + 1), sentence, *(_cell(float(v), i == j) for j, v in enumerate(similarity[i])))
    return table


def _cell(value: float, itself: bool) -> str:
    if itself:
        return f"[dim]{value:.2f}[/dim]"
    return f"[bold green]{value:.2f}[/bold green]" if value >= 0.5 else f"{value:.2f}"


def draw(sentences: Sequence[str], similarity: np.ndarray, adapter: str, picture: Path) -> None:
    """Write the heat map: sentences beside their rows, the numbers in the cells."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise UnsupportedError(
            f"the demo needs its extra: pip install 'webgpu-ops[demo]' ({error})"
        ) from None

    count = len(sentences)
    ink, quiet = "#1b2430", "#66717f"
    side = max(3.6, 0.95 * count)
    figure, axes = pyplot.subplots(
        figsize=(side, side), dpi=110, gridspec_kw={"left": 0, "right": 1, "bottom": 0, "top": 1}
    )
    axes.imshow(similarity, cmap="YlGnBu", vmin=0, vmax=1)
    labels = [textwrap.fill(textwrap.shorten(f"{i}. {s}", 84), 30) for i, s in enumerate(sentences, 1)]
    axes.set_yticks(range(count), labels)
    axes.set_xticks(range(count), [str(i) for i in range(1, count + 1)])
    axes.tick_params(length=0, labelsize=11, colors=ink, pad=7)
    axes.xaxis.tick_top()
    # White lines between the cells instead of a frame around all of them.
    axes.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=3)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    for i, j in np.ndindex(count, count):
        value = similarity[i, j]
        axes.text(
            j,
            i,
            f"{value:.2f}",
            ha="center",
            va="center",
            fontsize=12,
            color="white" if value > 0.55 else ink,
        )
    axes.set_title("How alike are these sentences?", fontsize=15, color=ink, weight="bold", pad=16)
    note = f"cosine similarity of MiniLM embeddings, computed in WGSL\non {adapter}"
    axes.set_xlabel(note, fontsize=9, color=quiet, labelpad=12)
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(picture, bbox_inches="tight", pad_inches=0.25, facecolor="white")
    except (OSError, ValueError) as error:
        raise ModelError(f"--output {picture}: {error}") from error
    finally:
        pyplot.close(figure)
