"""``aggverify render VERDICT.json``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("verdict", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "name",
    default="text",
    show_default=True,
    help="json, junit, md, html, sarif, pytest or text.",
)
@click.option("--output", type=click.Path(path_type=Path), help="A file instead of the terminal.")
def render(verdict: Path, name: str, output: Path | None) -> None:
    """Write a stored verdict document (check --report json) in any format.

    Nothing is run or imported for it: neither the reducer nor torch.
    """
    from aggverify import model
    from aggverify.files import put
    from aggverify.report.formats import one

    text = one(name).render(model.load(verdict))
    if output is None:
        click.echo(text, nl=False)
    else:
        put(output, text)
