"""``aggverify replay CASE [TARGET]``."""

from __future__ import annotations

from pathlib import Path

import click


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
def replay(
    case: str,
    target: str | None,
    oracle: str | None,
    against: str | None,
    engine: str | None,
    report_dir: Path,
) -> int:
    """Run one stored counterexample again.

    CASE is its id or a path to its JSON file; TARGET is the reducer it was found on by default.
    Prints FIXED (exit 0), FAILED (exit 1) or ERROR (exit 2).
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
        with Pool(LIMITS) as pool:
            result = run(stored, target, oracle, against, engine, pool=pool)
    except (AggverifyError, OracleError) as error:
        click.echo(escape.indented(f"ERROR   case {case}: {error}"), err=True)
        return int(Exit.NO_JUDGEMENT)
    before = result.stored.code
    before += f" {CODES[before].title}" if before in CODES else ""
    found = None if result.finding is None else harmless(judged(result.finding, result.subject))
    for line in text.replay_lines(result.stored.id, escape.line(before), found):
        click.echo(line)
    return int(Exit.CONFORMS if found is None else Exit.FINDINGS)
