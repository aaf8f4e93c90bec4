"""``aggverify new TARGET``."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggverify.cli.completion import of_files
from aggverify.errors import InputError

if TYPE_CHECKING:
    from aggverify.scaffold.questions import Question


SECONDS = 50.0
"""Seconds after which nothing more is called if no person is asked: the command ends within 60."""


@click.command()
@click.argument("target", shell_complete=of_files)
@click.option("--mode", metavar="MODE", help="The mode it implements.")
@click.option("--engine", metavar="ENGINE", help="What the trainer does with its losses.")
@click.option("--divisor", type=float, metavar="L", help="Of --mode constant.")
@click.option(
    "--set",
    "arguments",
    multiple=True,
    metavar="PARAMETER=EXPRESSION",
    help="What is passed for a parameter, in Python: --set n=batch.num_tokens. Repeatable.",
)
def new(
    target: str,
    mode: str | None,
    engine: str | None,
    divisor: float | None,
    arguments: tuple[str, ...],
) -> int:
    """Write what verifies a reducer: an adapter, a test, a CI workflow.

    TARGET is path.py, path.py:name or package.module:name. What its parameters stand for is read
    off their names and found out by calling it; what is left is asked, or on no terminal marked by
    one line that fails. Nothing is overwritten. Exit code 2 where something is left to fill in.
    """
    from aggverify.cli import ways_out
    from aggverify.engines import usable
    from aggverify.execution.deadline import Deadline, OutOfTime, TooLate
    from aggverify.execution.limits import LIMITS
    from aggverify.scaffold.beginning import ScaffoldRequest, begin
    from aggverify.scaffold.questions import no_answers
    from aggverify.world import Pool

    if engine is not None:
        usable(engine)
    wanted = ScaffoldRequest(target, mode, engine, divisor, dict(map(_argument, arguments)))
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    deadline = Deadline(math.inf if asks else SECONDS)
    try:
        with Pool(replace(LIMITS, turn=deadline.check)) as pool:
            found = begin(wanted, pool, _ask if asks else no_answers)
    except OutOfTime:
        raise TooLate(f"{target} was not imported within {SECONDS:g} s") from None
    found.files.write()
    for line in found.inferred:
        click.echo(line)
    click.echo("")
    for path in found.files.texts:
        click.echo(f"written: {_shown(path)}")
    for name in found.left:
        click.echo(f"left to you: {name}")
    if found.left:
        first = next(iter(found.files.texts))
        click.echo(f"  marked in {_shown(first)}, which fails until then")
    click.echo(f"\nnext: {found.files.command}" + _where(found.files.root))
    return ways_out.NO_JUDGEMENT if found.left else ways_out.CONFORMS


def _argument(text: str) -> tuple[str, str]:
    from aggverify.scaffold.questions import expression

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError(f"--set takes PARAMETER=EXPRESSION, got {text!r:.200}")
    return name, expression(name, value)


def _ask(question: Question) -> str | None:
    """On a terminal; an empty answer is left to fill in."""
    from aggverify.escape import clean

    click.echo(clean(question.text))
    choice = click.Choice(["", *question.choices]) if question.choices else str
    answer: str = click.prompt(
        question.what, default="", show_default=False, show_choices=False, type=choice
    )
    return answer.strip() or None


def _shown(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _where(root: Path) -> str:
    return "" if root == Path.cwd() else f"   (in {root})"
