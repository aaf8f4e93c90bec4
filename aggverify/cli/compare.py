"""``aggverify compare BASE HEAD``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("base")
@click.argument("head")
@click.option("--strict", is_flag=True, help="A new hazard is a failure.")
@click.option("--format", "name", default="text", show_default=True, help="text, md, json or html.")
@click.option("--output", type=click.Path(path_type=Path), help="A file instead of the terminal.")
def compare(base: str, head: str, strict: bool, name: str, output: Path | None) -> int:
    """What becomes worse from BASE to HEAD, two verdict documents (check --report json).

    Either may be a folder: all documents below it. Nothing is run: what only one side has found is
    new or fixed if the other side's document says so of its case (check --replay-from).

    \b
    Exit codes: 1 a failure is new or changed, a waiver expired, or less is verified;
    2 could not compare, or a difference was not replayed; 0 anything else.
    """
    from aggverify.files import put
    from aggverify.regression.compare import compare as compared
    from aggverify.regression.documents import loaded
    from aggverify.regression.formats import rendered

    found = compared(loaded(Path(base)), loaded(Path(head)), strict=strict)
    text = rendered(found, name)
    if output is None:
        click.echo(text, nl=False)
    else:
        put(output, text)
    return found.exit
