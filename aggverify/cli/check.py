"""``aggverify check TARGET``."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.argument("target")
@click.option("--mode", "modes", multiple=True, help="Mode it should implement; repeatable.")
@click.option("--oracle", help="Your own mode: a file with weights(step) or scalar(step, losses).")
@click.option("--against", help="Another path, old.py[:name], that must agree on every step.")
@click.option("--convention", help="How it is called; found out from the file by default.")
@click.option(
    "--engine",
    help="How local losses become the update, or a module:OBJECT; see the convention's default.",
)
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
@click.option("--world", type=int, help="Largest number of ranks.  [default: 8]")
@click.option("--profile", help="quick, ci or thorough.  [default: ci]")
@click.option("--max-examples", type=int, help="Drawn cases per check.")
@click.option("--max-time", type=float, help="Seconds for the search.")
@click.option("--seed", type=int, help="Seed of the search.  [default: 0]")
@click.option("--report", help="Also write: json, junit, md, html, text (comma-separated).")
@click.option(
    "--github",
    is_flag=True,
    help="In GitHub Actions: annotate the reducer's line, add to the step summary.",
)
@click.option(
    "--report-dir",
    type=click.Path(path_type=Path),
    help="Where cases and reports go.  [default: .aggverify]",
)
@click.option("--list", "listed", is_flag=True, help="Print what would be run, and run no check.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML file with [tool.aggverify]; the nearest pyproject.toml that has it by default.",
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
    world: int | None,
    profile: str | None,
    max_examples: int | None,
    max_time: float | None,
    seed: int | None,
    report: str | None,
    github: bool,
    report_dir: Path | None,
    listed: bool,
    config: Path | None,
) -> int:
    """Verify a reducer.

    TARGET is path.py, path.py:name or package.module:name. Without --mode the tool finds out which
    mode the reducer implements. A file may declare its claims in a module-level dict, for example
    AGGVERIFY = {"mode": "token_mean", "engine": "mean"}. Options go before the file's claims, and
    those before [tool.aggverify] of the project's pyproject.toml.
    """
    from hypothesis import configuration
    from rich.console import Console

    from aggverify.cli.options import policy_readings
    from aggverify.errors import AggverifyError
    from aggverify.execution.limits import LIMITS
    from aggverify.report.delivery import Delivery
    from aggverify.report.document import document, failed
    from aggverify.report.plan import plan_lines
    from aggverify.report.terminal import Terminal
    from aggverify.run.outcome import store
    from aggverify.run.outcome.verdict import exit_code
    from aggverify.run.planning import settings
    from aggverify.run.planning.request import Request
    from aggverify.run.planning.settings import texts
    from aggverify.run.session import plans, verify
    from aggverify.world import Pool

    said = settings.find(Path.cwd()) if config is None else settings.read(config)
    formats = report.split(",") if report is not None else texts(said.get("report", ()))
    report_dir = report_dir or Path(said.get("report_dir", ".aggverify"))
    delivery = Delivery.to(report_dir, formats, github=github)
    request = Request(
        target=target,
        modes=modes,
        oracle=oracle,
        against=against,
        convention=convention,
        engine=engine,
        divisor=divisor,
        claims=frozenset(claims),
        max_world=said.get("world", 8) if world is None else world,
        group_size=group_size,
        policy=policy_readings(readings),
        profile=profile or said.get("profile", "ci"),
        max_examples=said.get("max_examples") if max_examples is None else max_examples,
        max_time=said.get("max_time") if max_time is None else max_time,
        seed=said.get("seed", 0) if seed is None else seed,
        settings=said.values,
        settings_source=str(said.source) if said.source else None,
    )
    if listed:
        with Pool(LIMITS) as pool:
            for planned in plans(request, pool=pool):
                for line in plan_lines(planned):
                    click.echo(line)
        return 0
    # Hypothesis would leave a folder where the user stands: nothing of what it keeps is needed.
    configuration.set_hypothesis_home_dir(os.devnull)
    terminal = Terminal(Console())
    try:
        with Pool(LIMITS) as pool:
            verdicts = verify(request, terminal, pool=pool)
    except AggverifyError as error:
        terminal.close()
        delivery.deliver(failed(str(error)), target)
        raise
    finally:
        terminal.close()
    for verdict in verdicts:
        for found in verdict.reports:
            store.write(found.stored, report_dir)
    delivery.deliver(document(verdicts), target)
    return int(exit_code(verdicts))
