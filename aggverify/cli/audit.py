"""``aggverify audit [FOLDER] [-- COMMAND...]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggverify.cli.options import given_options, options

if TYPE_CHECKING:
    from aggverify.audit.steps import RecordedRun
    from aggverify.audit.verdict import AuditRequest


@click.command()
@click.argument("what", nargs=-1, type=click.UNPROCESSED)
@options("mode", "engine", "divisor", "policy", "accept")
@click.option("--at", metavar="NAME", help="A probe point, of a framework or of pyproject.toml.")
@click.option(
    "--steps",
    help="Optimizer steps that are recorded.  [default: first 3, every 500th, at most 20]",
)
@click.option(
    "--probe-dir",
    default="probe",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the command's ranks record.",
)
@click.option("--cp", type=click.IntRange(1), help="Context-parallel ranks that share a sample.")
@click.option("--tp", type=click.IntRange(1), help="Tensor-parallel ranks that have copies.")
@click.option("--pp", type=click.IntRange(1), help="Pipeline stages, of which one has the losses.")
@click.option(
    "--verify-engine",
    is_flag=True,
    help="Also compare a parameter's gradient before and after the reduction.",
)
@click.option("--case", type=int, metavar="STEP", help="Store this step as a case of --reducer.")
@click.option("--reducer", metavar="TARGET", help="With --case: path.py:name.")
@click.option("--convention", default="native", show_default=True, help="With --case: its own.")
@options("report", "report_dir", "github", "verbose", "quiet", "color")
def audit(what: tuple[str, ...], **given: Any) -> int:
    """Verify a training run by the weights that its own backward passes gave.

    Runs COMMAND with a recorder in every rank (aggverify audit ... -- torchrun train.py), or reads
    the FOLDER that a run with AGGVERIFY_PROBE=FOLDER has recorded. The training code calls
    aggverify.probe where it has per-token losses, or --at names where a framework has them. The
    docs' page "Audit my training run" has the five minutes that it takes.
    """
    from aggverify.audit.records import read_folder
    from aggverify.audit.steps import merged
    from aggverify.cli import early, ways_out
    from aggverify.errors import InputError

    mine = given_options({key: value for key, value in given.items() if key != "case"})
    early.refuse((), mine)
    if given["case"] is not None and "reducer" not in mine:
        raise InputError("--case needs --reducer TARGET: whose case it is, as path.py:name")
    at = _point(mine)
    asked = _asked(" ".join(what), at, mine)  # before a job that may take hours
    folder, ended = _recorded(what, at, mine)
    if ended and folder.is_dir() and not any(folder.iterdir()):
        raise InputError(f"the command ended with {ended}, and none of its ranks recorded anything")
    run = merged(read_folder(folder), *map(mine.get, ("cp", "tp", "pp")))
    if given["case"] is not None:
        return _store(run, given["case"], asked, mine)
    code = _judged(run, asked, folder, mine)
    if ended:
        ways_out.complain(f"the command ended with {ended}; what it recorded by then is judged")
    return code or (ways_out.NO_JUDGEMENT if ended else code)


def _point(mine: Mapping[str, Any]) -> Mapping[str, str] | None:
    from aggverify.audit.launching import named

    return named(mine["at"], Path.cwd()) if "at" in mine else None


def _recorded(
    what: tuple[str, ...], at: Mapping[str, str] | None, mine: Mapping[str, Any]
) -> tuple[Path, int]:
    """Return the folder of the records, and what the command that made them ended with."""
    from aggverify.audit import launching
    from aggverify.errors import InputError

    if not what:
        raise InputError("name a folder of records, or a command after --")
    if len(what) == 1 and Path(what[0]).is_dir():
        return Path(what[0]), 0
    folder = mine["probe_dir"]
    steps, verify = mine.get("steps", ""), "verify_engine" in mine
    return folder, launching.run(what, folder, at, steps, verify_engine=verify)


def _asked(target: str, at: Mapping[str, str] | None, mine: Mapping[str, Any]) -> AuditRequest:
    from aggverify.audit.factor import formula
    from aggverify.audit.verdict import AuditRequest
    from aggverify.engines import engine
    from aggverify.errors import InputError
    from aggverify.oracles import Policy
    from aggverify.run.planning.naming import canonical
    from aggverify.run.planning.waiver import waiver

    name = mine.get("engine") or (at or {}).get("engine")
    if name is None:
        raise InputError(
            "say with --engine how gradients become the update, for example ddp, fsdp2, "
            "deepspeed or megatron-token (aggverify engines has all)"
        )
    modes = mine.get("mode", ())
    if len(modes) > 1:
        raise InputError(f"a run has one mode, got {', '.join(modes)}")
    formula(engine(name))  # refuses one that is none
    return AuditRequest(
        target,
        engine(name).name,
        canonical(modes[0])[0] if modes else None,
        mine.get("divisor"),
        Policy.from_text(mine.get("policy", {})),
        tuple(map(waiver, mine.get("accept", ()))),
        "verify_engine" in mine,
    )


def _store(run: RecordedRun, number: int, asked: AuditRequest, mine: Mapping[str, Any]) -> int:
    """Write a step as a case, and print how it is replayed."""
    from aggverify.audit.case_export import stored
    from aggverify.run.outcome import store

    where = Path(mine.get("report_dir", ".aggverify"))
    case = stored(run, number, asked, mine["reducer"], mine["convention"])
    path = store.write(case, where)
    click.echo(f"step {number}: {path}\nReplay:  aggverify replay {path} {mine['reducer']}")
    return 0


def _again(mine: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options, other than mode and engine, that give the same verdict again."""
    for name in ("divisor", "cp", "tp", "pp"):
        if name in mine:
            yield from (f"--{name}", f"{mine[name]:g}")
    if "verify_engine" in mine:
        yield "--verify-engine"


def _judged(run: RecordedRun, asked: AuditRequest, folder: Path, mine: Mapping[str, Any]) -> int:
    """Audit, show, deliver the reports; return the exit code."""
    from aggverify.audit.verdict import audited, documented
    from aggverify.cli import screen, ways_out
    from aggverify.report.outputs import ReportOutputs

    where = Path(mine.get("report_dir", ".aggverify"))
    wanted = mine["report"].split(",") if "report" in mine else ()
    delivery = ReportOutputs.to(where, wanted, github="github" in mine)
    made = documented(audited(run, asked), folder, *_again(mine))
    screen.terminal(mine, where, shown=bool(delivery.shown)).document(made)
    unwritten = delivery.deliver(made, asked.target)
    for part, reason in unwritten:
        ways_out.unwritten(part, reason, where)
    return made.exit or (ways_out.NO_JUDGEMENT if unwritten else made.exit)
