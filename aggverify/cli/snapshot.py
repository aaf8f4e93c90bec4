"""``aggverify snapshot record TARGET`` and ``aggverify snapshot check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from aggverify.cli.completion import of_files
from aggverify.cli.options import given_options, options

FOLDER = "aggverify-snapshots"
_CLAIMS = ("mode", "convention", "adapter", "engine", "divisor", "claim", "without", "compile")
_MORE = ("world", "group_size", "policy", "terms")
_folder = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help=f"Where snapshots lie.  [default: {FOLDER} in the project]",
)


@click.group()
def snapshot() -> None:
    """Pin what a reducer gives, bit for bit, and see what moves.

    No oracle is needed: what is recorded is the reducer's own value, weights and logs on the hard
    cases of the corpus, in every layout it claims.
    """


@snapshot.command()
@click.argument("target", shell_complete=of_files)
@options(*_CLAIMS, *_MORE)
@_folder
@click.option("--force", is_flag=True, help="Record on CI, too.")
def record(target: str, folder: Path | None, force: bool, **given: Any) -> int:
    """Write down what TARGET gives now, to be committed.

    On CI (CI=true) nothing is recorded: a record is made where a person looks at it.
    """
    from aggverify.errors import InputError
    from aggverify.escape import line
    from aggverify.execution.limits import LIMITS
    from aggverify.run.planning import settings
    from aggverify.run.planning.request import requested
    from aggverify.snapshot import file, session
    from aggverify.world import Pool

    if not force and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise InputError("nothing is recorded on CI (CI is set): record it, look at it, commit it")
    mine = given_options(given)
    project = settings.find(Path.cwd(), named_options=mine)
    request = requested(target, mine, project.values, project.source)
    with Pool(LIMITS) as pool:
        made = session.record(request, pool=pool)
    path = file.write(made, _where(folder), session.file_name(made.target))
    modes = ", ".join(made.claims)
    click.echo(line(f"recorded {len(made.entries)} cases of {made.target} ({modes})"))
    click.echo(line(f"written: {path} ({path.stat().st_size // 1000} kB); commit it"))
    return 0


@snapshot.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@_folder
@click.option("--target", help="Another reducer than the one that was recorded.")
@click.option("--engine", help="Your own engine, when it was recorded under one.")
@click.option("--adapter", help="Your own convention's file, when it was recorded with one.")
@click.option(
    "--ulp", default=4, show_default=True, type=click.IntRange(0, 1 << 20), help="What is near."
)
def check(
    files: tuple[Path, ...],
    folder: Path | None,
    target: str | None,
    engine: str | None,
    adapter: str | None,
    ulp: int,
) -> int:
    """Show what changed since FILES were recorded; without any, every snapshot of the folder.

    Exit code 0 where every bit is the same; 1 where anything changed, is missing from the record or
    not run any more. What is no further than --ulp units in the last place, or than its rounding
    bound, is 1 too in the environment it was recorded in (torch, processor, threads), and a warning
    (0) in another. 2 where it cannot be judged.
    """
    from aggverify.errors import AggverifyError, InputError
    from aggverify.escape import indented
    from aggverify.execution.limits import LIMITS
    from aggverify.run.outcome.verdict import Exit
    from aggverify.snapshot import file, formatting, session
    from aggverify.world import Pool

    paths = files or tuple(sorted(_where(folder).glob("*.txt")))
    if not paths:
        raise InputError(f"no snapshot in {_where(folder)}: aggverify snapshot record TARGET")
    if target is not None and len(paths) > 1:
        raise InputError(f"--target is one reducer: say of which of {len(paths)} snapshots")
    codes = []
    with Pool(LIMITS) as pool:
        for path in paths:
            try:
                found = session.check(file.read(path), target, engine, adapter, ulps=ulp, pool=pool)
            except AggverifyError as error:
                click.echo(f"ERROR  {indented(f'{path}: {error}')}", err=True)
                codes.append(Exit.NO_JUDGEMENT)
                continue
            for text in formatting.format_changes(str(path), found):
                click.echo(text)
            codes.append(formatting.code(found))
    failed = Exit.FINDINGS in codes
    return int(Exit.FINDINGS if failed else max(codes))


def _where(folder: Path | None) -> Path:
    from aggverify.run.planning.project import root

    return root(Path.cwd()) / FOLDER if folder is None else folder
