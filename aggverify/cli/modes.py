"""``aggverify modes``."""

from __future__ import annotations

import click


@click.command()
def modes() -> None:
    """Formulas, sources, every framework's name for each mode, and a worked ragged example."""
    from aggverify.report.tables import modes_text

    for line in modes_text():
        click.echo(line)
