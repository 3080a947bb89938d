"""WGSL from jinja2 templates. A template sees its Variant and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import jinja2

from ..errors import ShaderError

ENTRY = """\
@compute @workgroup_size({workgroup})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,{more}
) {{
    let group = workgroup_id.x + workgroup_id.y * num_workgroups.x;
    let thread = group * WG + lane;{also}
{body}
}}"""


def _load(name: str) -> str | None:
    entry = resources.files("webgpu_ops.shaders").joinpath(name)
    return entry.read_text(encoding="utf-8") if entry.is_file() else None


@cache
def environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_load),
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="#%",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, context: dict[str, Any]) -> str:
    """The text of ``shaders/<template>.wgsl`` for ``context``."""
    try:
        return environment().get_template(f"{template}.wgsl").render(context)
    except jinja2.TemplateNotFound as error:
        raise ShaderError(f"shader template {error.name!r} does not exist") from error
    except jinja2.TemplateError as error:
        where = f" (line {error.lineno})" if isinstance(error, jinja2.TemplateSyntaxError) else ""
        raise ShaderError(f"shader template {template!r}{where}: {error}") from error


def kernel(workgroup: int) -> Callable[..., str]:
    """The ``{% call kernel() %}`` block: the entry point around a template's body.

    ``kernel(quads=True)`` also defines ``quad_lane``, the place of an invocation among the four that
    ``quadBroadcast`` reaches; the plan has seen to it that the adapter has subgroups.
    """

    def wrap(quads: bool = False, *, caller: Callable[[], str]) -> str:
        return ENTRY.format(
            workgroup=workgroup,
            body=caller().rstrip(),
            more="\n    @builtin(subgroup_invocation_id) subgroup_lane: u32," if quads else "",
            also="\n    let quad_lane = subgroup_lane % 4u;" if quads else "",
        )

    return wrap


def numbered(source: str) -> str:
    """Source with line numbers, for error messages."""
    return "\n".join(f"{i:4} {line}" for i, line in enumerate(source.splitlines(), 1))
