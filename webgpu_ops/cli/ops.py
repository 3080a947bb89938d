"""``ops``: which operators run here, and on which types."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from .. import schema
from ..core import dtypes
from ..families import registry


@dataclass(frozen=True)
class Row:
    """An operator of com.microsoft: its family and element types, both empty without a handler."""

    operator: str
    family: str
    types: str


def rows() -> list[Row]:
    """One row for each operator of com.microsoft."""
    return [_row(op) for op in schema.contrib_names()]


def standard() -> list[str]:
    """Operators of the standard domain that run inside graphs."""
    return sorted(op for domain, op in registry.supported() if domain == "")


def _row(op: str) -> Row:
    handler = registry.handler("com.microsoft", op)
    if handler is None:
        return Row(op, "", "")
    # webgpu_ops.families.attention.gqa -> attention
    family = handler.__module__.split(".families.")[-1].split(".")[0]
    declared = schema.find(op)
    names = {t for p in (*declared.inputs, *declared.outputs) for t in declared.allowed_types(p)}
    return Row(op, family, ", ".join(t.name for t in dtypes.ALL if t.type_string in names))


def show() -> None:
    """Print the table for people."""
    table = Table("operator", "family", "element types")
    for row in rows():
        table.add_row(row.operator, row.family or "-", row.types or "[dim]not yet[/dim]")
    console = Console()
    console.print(table)
    console.print(_summary())


def markdown() -> None:
    """Print the table of the README."""
    print(as_markdown())


def as_markdown() -> str:
    """The support table in Markdown: operators that run, then what is missing."""
    supported = [row for row in rows() if row.types]
    missing = [row.operator for row in rows() if not row.types]
    lines = [_summary(), "", "| Operator | Family | Element types |", "| --- | --- | --- |"]
    lines += [f"| {row.operator} | {row.family} | {row.types} |" for row in supported]
    if missing:
        lines += ["", f"Not yet: {', '.join(missing)}."]
    lines += ["", f"Standard operators, alone or inside graphs: {', '.join(standard())}."]
    return "\n".join(lines)


def _summary() -> str:
    everything = rows()
    return (
        f"{sum(1 for row in everything if row.types)} of the {len(everything)} operators of com.microsoft, "
        f"and {len(standard())} operators of ai.onnx."
    )
