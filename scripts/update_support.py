"""Writes what is supported where it is told: the table in README.md, and tests/conformance/unsupported.txt.

The second may only get shorter; a diff that makes it longer is a lost operator.
"""

from __future__ import annotations

from pathlib import Path

from webgpu_ops import schema, supported_ops
from webgpu_ops.cli.ops import as_markdown

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
UNSUPPORTED = ROOT / "tests" / "conformance" / "unsupported.txt"
BEGIN, END = "<!-- support table: make support -->\n", "\n<!-- end of support table -->"

text = README.read_text(encoding="utf-8")
before, _, rest = text.partition(BEGIN)
_, _, after = rest.partition(END)
README.write_text(f"{before}{BEGIN}{as_markdown()}{END}{after}", encoding="utf-8")

missing = [op for op in schema.contrib_names() if ("com.microsoft", op) not in supported_ops()]
if ("", "Attention") not in supported_ops():
    missing.append("Attention@ai.onnx")
UNSUPPORTED.write_text("".join(f"{op}\n" for op in sorted(missing)), encoding="utf-8")
