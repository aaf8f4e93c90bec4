"""``aggverify replay CASE [TARGET]``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from aggverify.cli.completion import of_files


@click.command()
@click.argument("case", shell_complete=of_files)
@click.argument("target", required=False, shell_complete=of_files)
@click.option("--oracle", help="Your own mode, when the case was found with one.")
@click.option("--against", help="The other path, when the case was found with one.")
@click.option("--engine", help="Your own engine, when the case was found under one.")
@click.option("--adapter", help="Your own convention's file, when the case was found with one.")
@click.option(
    "--report-dir",
    default=".aggverify",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where cases are stored.",
)
@click.option(
    "--trust-target", is_flag=True, help="Run the target that the case names, wherever it lies."
)
@click.option(
    "--export",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also write the case and the reducer into a new folder, to be run with torch alone.",
)
@click.option("--sandbox", is_flag=True, help="As of aggverify check.")
def replay(
    case: str,
    target: str | None,
    oracle: str | None,
    against: str | None,
    engine: str | None,
    adapter: str | None,
    report_dir: Path,
    trust_target: bool,
    folder: Path | None,
    sandbox: bool,
) -> int:
    """Run one stored counterexample again.

    CASE is its id or a path to its JSON file; TARGET is the reducer it was found on by default,
    which is run unasked only if it lies in the project, and the case in the report directory.
    Prints FIXED (exit 0) where the reducer gets through the case's steps and all is well, HAZARD
    (exit 0) where it is one as before, FAILED (exit 1), REFUSED or ERROR (exit 2) where nothing can
    be judged, as when it does not run.

    --export writes DIR/run.py, which needs torch alone and prints every weight with the expected
    one. It exits with 2 where a case cannot be run so, as one of a whole training step.
    """
    from aggverify import escape
    from aggverify.errors import AggverifyError, InputError
    from aggverify.execution.limits import LIMITS
    from aggverify.oracles import OracleError
    from aggverify.report import case_export, replay_text
    from aggverify.run.outcome import store
    from aggverify.run.outcome.verdict import Exit
    from aggverify.run.planning import enclosed
    from aggverify.run.planning.request import is_own_code
    from aggverify.run.replay import replay as run
    from aggverify.world import Pool

    try:
        if folder is not None:
            case_export.check_empty(folder)
        stored = store.read(case, report_dir)
        if target is None and not trust_target:
            store.check_trusted(stored, case, report_dir)
        given_target = target or store.found_again(stored)
        options = replace(
            LIMITS, sandbox=enclosed.sandbox(given_target, against, adapter) if sandbox else None
        )
        if sandbox and any(map(is_own_code, (oracle, engine))):
            raise InputError("--sandbox: --oracle and --engine are run outside of it")
        with Pool(options) as pool:
            result = run(
                stored,
                target,
                oracle,
                against,
                engine,
                adapter,
                pool=pool,
                exports=folder is not None,
            )
    except (AggverifyError, OracleError) as error:
        click.echo(escape.indented(f"ERROR   case {case}: {error}"), err=True)
        return int(Exit.NO_JUDGEMENT)
    for line in replay_text.lines(result):
        click.echo(line)
    if folder is not None:
        try:
            if result.exported is None:
                why = result.not_exported or "it was not judged"
                raise InputError(f"it cannot be exported: {why}")
            for line in case_export.write(result.exported, folder):
                click.echo(line)
        except InputError as error:
            click.echo(escape.indented(f"ERROR   case {case}: {error}"), err=True)
            return int(Exit.NO_JUDGEMENT)
    found = replay_text.finding(result)
    if found is not None:
        return int(Exit.FINDINGS if found.fails else Exit.CONFORMS)
    return int(Exit.CONFORMS if result.fixed else Exit.NO_JUDGEMENT)
