"""Writes the support table into README.md."""

from __future__ import annotations

from pathlib import Path

from webgpu_ops.cli.ops import as_markdown

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- support table: make readme -->\n", "\n<!-- end of support table -->"

text = README.read_text(encoding="utf-8")
before, _, rest = text.partition(BEGIN)
_, _, after = rest.partition(END)
README.write_text(f"{before}{BEGIN}{as_markdown()}{END}{after}", encoding="utf-8")
