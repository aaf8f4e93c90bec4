"""``aggverify oracle CASE|STEP``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from aggverify.cli.completion import of_files

if TYPE_CHECKING:
    from aggverify.oracles import Step

MAX_BYTES = 1 << 26
"""Largest file of a step: more masks and losses than a person would want printed."""


@click.command()
@click.argument("step", shell_complete=of_files)
@click.option("--losses", help="Losses, comma-separated, one per response token.")
@click.option("--mode", "modes", multiple=True, help="Only this mode; repeatable.")
@click.option("--divisor", type=float, default=16.0, show_default=True, help="L of constant.")
@click.option(
    "--policy",
    "readings",
    multiple=True,
    metavar="QUESTION=READING",
    help="Reading of an open question (see aggverify modes); repeatable.",
)
@click.option(
    "--digits",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Digits of the decimals.",
)
def oracle(
    step: str,
    losses: str | None,
    modes: tuple[str, ...],
    divisor: float,
    readings: tuple[str, ...],
    digits: int,
) -> None:
    """Print exact weights and scalars of every mode for one step.

    STEP is a JSON file (a step, a case or a stored case), or typed on the line:
    '2/110 3/1; 1/11+4/1' means two prompts; 2/110 is a sample with two prompt tokens and a response
    masked 110; + joins the samples of one rollout.
    """
    from aggverify.cli.options import readings as policy_readings
    from aggverify.errors import InputError
    from aggverify.execution.installed import installed_modes
    from aggverify.oracles import MODES, OracleError, Policy, objective, translated
    from aggverify.report.tables import objective_table, scalars_table, weights_table

    installed_modes()
    found, stored = read_step(step)
    values = _numbers(losses) if losses else stored
    try:
        policy = Policy.from_text(policy_readings(readings))
        known = [each for each in map(objective, modes) if each is not None]
        for each in known:
            if values is None:
                raise InputError(f"{each.name} has weights at inputs only: give --losses")
            for line in objective_table(each, found, values, policy, min(digits, 50)):
                click.echo(line)
        left = [name for name in modes if objective(name) is None]
        if known and not left:
            return
        names = tuple(translated(name).mode for name in left) or tuple(MODES)
        for line in weights_table(found, divisor, policy, names):
            click.echo(line)
        if values is not None:
            click.echo()
            for line in scalars_table(found, values, divisor, digits, policy, names):
                click.echo(line)
    except OracleError as error:
        raise InputError(str(error)) from None


def read_step(text: str) -> tuple[Step, list[float] | None]:
    """Return the step that STEP names or writes out, and the losses where the file has them."""
    from aggverify.errors import InputError
    from aggverify.files import read_json
    from aggverify.oracles import OracleError, Step
    from aggverify.steps.case import Case
    from aggverify.steps.notation import parse_step

    if not text.endswith(".json"):
        return parse_step(text), None
    try:
        data = read_json(Path(text), "a step", MAX_BYTES)
    except FileNotFoundError:
        raise InputError(f"cannot read a step from {text}: there is no such file") from None
    if isinstance(data, dict) and isinstance(data.get("case"), dict):
        data = data["case"]
    if isinstance(data, dict) and "layout" in data:
        case = Case.from_json(data)
        return case.step, list(case.losses)
    try:
        return Step.from_json(data), None
    except OracleError as error:
        raise InputError(f"cannot read a step from {text}: {error}") from None


def _numbers(text: str) -> list[float]:
    from aggverify.errors import InputError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--losses takes numbers separated by commas, got {text!r}") from None
