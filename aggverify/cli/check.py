"""``aggverify check TARGET``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("target")
@click.option("--mode", "modes", multiple=True, help="Mode it should implement; repeatable.")
@click.option("--oracle", help="Your own mode: a file with weights(step) or scalar(step, losses).")
@click.option("--against", help="Another path, old.py[:name], that must agree on every step.")
@click.option("--convention", help="How it is called; found out from the file by default.")
@click.option("--engine", help="How local losses become the update; see the convention's default.")
@click.option("--divisor", type=float, help="L of --mode constant.")
@click.option("--claim", "claims", multiple=True, help="Also test what is not claimed by default.")
@click.option("--group-size", type=int, help="Promise whole prompt groups of this many rollouts.")
@click.option(
    "--policy",
    "readings",
    multiple=True,
    metavar="QUESTION=READING",
    help="Reading of an open question, for example empty_units=exclude; repeatable.",
)
@click.option("--world", default=8, show_default=True, help="Largest number of ranks.")
@click.option("--profile", default="ci", show_default=True, help="quick, ci or thorough.")
@click.option("--max-examples", type=int, help="Drawn cases per check.")
@click.option("--max-time", type=float, help="Seconds for the search.")
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option("--report", default="", help="Also write: json (comma-separated).")
@click.option(
    "--report-dir",
    default=".aggverify",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where cases and reports go.",
)
def check(
    target: str,
    modes: tuple[str, ...],
    oracle: str | None,
    against: str | None,
    convention: str | None,
    engine: str | None,
    divisor: float | None,
    claims: tuple[str, ...],
    group_size: int | None,
    readings: tuple[str, ...],
    world: int,
    profile: str,
    max_examples: int | None,
    max_time: float | None,
    seed: int,
    report: str,
    report_dir: Path,
) -> int:
    """Verify a reducer.

    TARGET is path.py, path.py:name or package.module:name. Without --mode the tool finds out which
    mode the reducer implements. A file may declare its claims in a module-level dict, for example
    AGGVERIFY = {"mode": "token_mean", "engine": "mean"}.
    """
    from rich.console import Console

    from aggverify.cli.options import policy_readings
    from aggverify.errors import unknown
    from aggverify.report import document
    from aggverify.report.terminal import Terminal
    from aggverify.run import store
    from aggverify.run.request import Request
    from aggverify.run.session import verify
    from aggverify.run.verdict import exit_code

    formats = [name for name in report.split(",") if name]
    for name in formats:
        if name != "json":
            raise unknown("report format", name, ("json",))
    request = Request(
        target=target,
        modes=modes,
        oracle=oracle,
        against=against,
        convention=convention,
        engine=engine,
        divisor=divisor,
        claims=frozenset(claims),
        max_world=world,
        group_size=group_size,
        policy=policy_readings(readings),
        profile=profile,
        max_examples=max_examples,
        max_time=max_time,
        seed=seed,
    )
    terminal = Terminal(Console())
    try:
        verdicts = verify(request, terminal)
    finally:
        terminal.close()
    for verdict in verdicts:
        for found in verdict.reports:
            store.write(found.stored, report_dir)
    if "json" in formats:
        click.echo(f"verdict document: {document.write(verdicts, report_dir)}")
    return int(exit_code(verdicts))
