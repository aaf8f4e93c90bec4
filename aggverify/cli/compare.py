"""``aggverify compare BASE HEAD``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggverify.cli.completion import of_files
from aggverify.cli.options import options

if TYPE_CHECKING:
    from aggverify.regression.model import Comparison
    from aggverify.regression.plan import ComparisonPlan

_PLAN = (
    *("mode", "oracle", "convention", "adapter", "engine", "divisor", "claim", "without"),
    *("compile", "group_size", "policy", "terms", "world", "profile", "step"),
    *("max_examples", "max_time", "seed"),
)
"""Options of ``check`` that both revisions are checked with."""


@click.command()
@click.argument("base")
@click.argument("head")
@click.argument("targets", nargs=-1, shell_complete=of_files)
@click.option(
    "--revisions",
    is_flag=True,
    help="BASE and HEAD are git revisions, or folders (./old): TARGETS are checked in both.",
)
@click.option("--strict", is_flag=True, help="A new hazard is a failure.")
@click.option(
    "--format",
    "name",
    default="text",
    show_default=True,
    help="text, md, json, html or codequality.",
)
@click.option("--output", type=click.Path(path_type=Path), help="A file instead of the terminal.")
@click.option(
    "--documents",
    type=click.Path(path_type=Path),
    help="With --revisions: a folder for base.json and head.json, to be compared elsewhere.",
)
@click.option("--github", is_flag=True, help="Annotate the reducer's line, add to the summary.")
@options(*_PLAN, "baseline")
def compare(
    base: str,
    head: str,
    targets: tuple[str, ...],
    revisions: bool,
    strict: bool,
    name: str,
    output: Path | None,
    documents: Path | None,
    github: bool,
    **given: Any,
) -> int:
    """What becomes worse from BASE to HEAD, two verdict documents (check --report json).

    Either may be a folder: all documents below it. Nothing is run: what only one side has found is
    new or fixed if the other side's document has its case (check --replay-from).

    With --revisions both are checked out into temporary worktrees and checked with the same options
    (of `aggverify check`), each on the other's cases, too.

    \b
    Exit codes: 1 a failure is new or changed, a waiver expired, or less is verified;
    2 could not compare, or a difference was not replayed; 0 anything else.
    """
    from aggverify.errors import InputError
    from aggverify.files import put
    from aggverify.regression.compare import compare as compared
    from aggverify.regression.documents import loaded
    from aggverify.regression.formats import one, rendered
    from aggverify.regression.plan import ComparisonPlan

    one(name)
    baseline, plan = given.pop("baseline"), tuple(_written_options(given))
    if revisions:
        made = ComparisonPlan(targets, plan, baseline)
        found = _revisions(base, head, made, strict=strict, documents=documents)
    elif base.endswith(".py") and head.endswith(".py"):
        instead = f"aggverify check {head} --against {base}"
        raise InputError(f"{base} and {head} are code, no verdict documents: {instead}")
    elif targets or plan or baseline:
        what = targets[0] if targets else plan[0] if plan else "--baseline"
        raise InputError(f"{what}: two documents are compared as they are; or say --revisions")
    else:
        found = compared(loaded(Path(base)), loaded(Path(head)), strict=strict)
    text = rendered(found, name)
    if output is None:
        click.echo(text, nl=False)
    else:
        put(output, text)
    if github:
        _annotate(found)
    return found.exit


def _annotate(found: Comparison) -> None:
    from aggverify.files import append
    from aggverify.regression.annotations import commands
    from aggverify.regression.formats import rendered

    for line in commands(found, Path(os.environ.get("GITHUB_WORKSPACE") or ".")):
        click.echo(line)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        append(Path(summary), rendered(found, "md") + "\n")


def _revisions(
    base: str,
    head: str,
    plan: ComparisonPlan,
    *,
    strict: bool,
    documents: Path | None,
) -> Comparison:
    from aggverify.errors import InputError
    from aggverify.escape import line
    from aggverify.execution.options import default
    from aggverify.regression.revisions import compared

    if not plan.targets:
        raise InputError("say what to check: aggverify compare --revisions main HEAD TARGET")

    def progress(what: str) -> None:
        click.echo(line(what), err=True)

    keep = Path(default("report_dir"))
    return compared(
        base, head, plan, strict=strict, keep=keep, progress=progress, documents=documents
    )


def _written_options(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given options as words of a command line."""
    from aggverify.execution.options import BY_KEY

    for key in _PLAN:
        value, flag = given[key], BY_KEY[key].flag
        if value is True:
            yield flag
        elif value not in (None, False, ()):
            for each in value if isinstance(value, tuple) else (value,):
                yield from (flag, str(each))
