"""``aggverify replay CASE [TARGET]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from aggverify.run.replay import Replayed


@click.command()
@click.argument("case")
@click.argument("target", required=False)
@click.option("--oracle", help="Your own mode, when the case was found with one.")
@click.option("--against", help="The other path, when the case was found with one.")
@click.option("--engine", help="Your own engine, when the case was found under one.")
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
def replay(
    case: str,
    target: str | None,
    oracle: str | None,
    against: str | None,
    engine: str | None,
    report_dir: Path,
    trust_target: bool,
) -> int:
    """Run one stored counterexample again.

    CASE is its id or a path to its JSON file; TARGET is the reducer it was found on by default,
    which is run unasked only if it lies in the project, and the case in the report directory.
    Prints FIXED (exit 0) where the reducer gets through the case's steps and all is well, HAZARD
    (exit 0) where it is one as before, FAILED (exit 1), REFUSED or ERROR (exit 2) where nothing can
    be said, as when it does not run.
    """
    from aggverify.codes import CODES
    from aggverify.errors import AggverifyError
    from aggverify.execution.limits import LIMITS
    from aggverify.oracles import OracleError
    from aggverify.report import escape, text
    from aggverify.report.document import judged
    from aggverify.report.model import harmless
    from aggverify.run.outcome import store
    from aggverify.run.outcome.verdict import Exit
    from aggverify.run.replay import replay as run
    from aggverify.world import Pool

    try:
        stored = store.read(case, report_dir)
        if target is None and not trust_target:
            store.check_trusted(stored, case, report_dir)
        with Pool(LIMITS) as pool:
            result = run(stored, target, oracle, against, engine, pool=pool)
    except (AggverifyError, OracleError) as error:
        click.echo(escape.indented(f"ERROR   case {case}: {error}"), err=True)
        return int(Exit.NO_JUDGEMENT)
    found = None if result.finding is None else harmless(judged(result.finding, result.subject))
    before = result.stored.code
    before += f" {CODES[before].title}" if before in CODES else ""
    if result.fixed and result.refused:
        before += f" (the reducer refuses the step: {result.refused})"
    no = result.declined
    declined = None if no is None else f"{no.what}: '{no.words}'"
    unrun = None if no is not None else _unrun(result)
    lines = text.replay_lines(result.stored.id, escape.line(before), found, unrun, declined)
    for line in lines:
        click.echo(line)
    if found is not None:
        return int(Exit.FINDINGS if found.fails else Exit.CONFORMS)
    return int(Exit.CONFORMS if result.fixed else Exit.NO_JUDGEMENT)


def _unrun(result: Replayed) -> str | None:
    """Why there is neither a finding nor a result."""
    from aggverify.world import evidence

    if result.finding is not None or result.fixed:
        return None
    if result.failure is None:
        return "no step of it was run"
    told = f"the reducer does not get through its step: {result.failure.message}"
    return "\n".join(filter(None, (told, evidence(result.failure))))
