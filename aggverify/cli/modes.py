"""``aggverify modes``."""

from __future__ import annotations

import click

from aggverify.cli.completion import of_names


@click.command()
@click.argument("names", metavar="[MODE]...", nargs=-1, shell_complete=of_names("mode"))
def modes(names: tuple[str, ...]) -> None:
    """Formulas, sources, every framework's name for each mode, and a worked ragged example.

    Without MODE, all of them; a framework's name for a mode is one, too.
    """
    from aggverify.report.tables import modes_text

    for line in modes_text(names):
        click.echo(line)
