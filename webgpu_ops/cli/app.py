"""The commands and their options. Each imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="webgpu-ops",
    help="ONNX Runtime's contrib operators as WGSL compute shaders on any local GPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
demos = typer.Typer(help="Something worth looking at.", no_args_is_help=True)
app.add_typer(demos, name="demo")

Portable = Annotated[
    bool, typer.Option("--portable", help="Use no optional adapter feature and WebGPU's smallest limits.")
]
OPERATOR_HELP = "BiasGelu, or Attention@ai.onnx for an operator of the standard domain."


@app.command()
def info(
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether there is an adapter; exit code 1 if not.")
    ] = False,
    portable: Portable = False,
) -> None:
    """Adapters, features, limits, and which path each element type takes."""
    from . import info as command

    command.check() if check else command.show(portable)


@app.command()
def ops(
    markdown: Annotated[bool, typer.Option("--markdown", help="The table of the README.")] = False,
) -> None:
    """The support table."""
    from . import ops as command

    command.markdown() if markdown else command.show()


@app.command()
def run(
    model: Annotated[Path, typer.Argument(help="An ONNX model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE", help="A .npy array or .pb tensor; repeat."),
    ] = None,
    output_dir: Annotated[Path, typer.Option(help="Where <output>.npy files go.")] = Path("outputs"),
    portable: Portable = False,
) -> None:
    """Run an ONNX model and write its outputs as .npy files."""
    from . import run as command

    command.run(model, inputs or [], output_dir, portable)


@app.command()
def verify(
    operators: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help=OPERATOR_HELP)] = None,
    cases: Annotated[
        Path | None, typer.Option(help="Stored cases; without them, random calls against NumPy.")
    ] = None,
    portable: Portable = False,
    samples: Annotated[int, typer.Option(min=1, help="Random calls for each operator.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the random calls.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write every result here.")] = None,
) -> None:
    """Check operators on this machine: one line each, exit code 1 if anything failed."""
    from . import verify as command

    raise typer.Exit(command.verify(operators or [], cases, portable, samples, seed, json))


@app.command()
def render(
    operator: Annotated[str, typer.Argument(metavar="OP", help=OPERATOR_HELP)],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="NAME=TYPE[SHAPE]", help="For example A=float16[2,64], or a .npy file."
        ),
    ] = None,
    attributes: Annotated[list[str] | None, typer.Option("--attribute", "-a", metavar="NAME=VALUE")] = None,
    opset: Annotated[int | None, typer.Option(help="Default: the newest.")] = None,
    portable: Portable = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the call drawn where no input is given.")] = 0,
) -> None:
    """Print the WGSL that a call uses: the call described, or a random one."""
    from . import render as command

    command.render(operator, inputs or [], attributes or [], opset, portable, seed)


@demos.command()
def embed(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="At least two; default: four built in.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The heat map.")] = Path("demo-output/embed.png"),
    portable: Portable = False,
) -> None:
    """How alike are sentences? A MiniLM model, fused into contrib operators, on this machine's GPU."""
    from ..demos import embed as demo

    demo.main(sentences or list(demo.SENTENCES), output, portable)
