"""``aggverify check TARGET``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aggverify.cli.completion import of_files
from aggverify.cli.options import Grouped, every_option, given_options

if TYPE_CHECKING:
    from aggverify.cli.joined import CommandRun
    from aggverify.execution.deadline import Deadline
    from aggverify.model import Replay
    from aggverify.report.imported_findings import ImportedFindings
    from aggverify.report.outputs import ReportOutputs
    from aggverify.report.terminal import Terminal
    from aggverify.run.outcome.verdict import RunVerdict
    from aggverify.run.planning.request import Request
    from aggverify.run.planning.settings import Settings
    from aggverify.world import Cluster, Pool
    from aggverify.world.launching import Launcher


@click.command(cls=Grouped)
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True, shell_complete=of_files)
@every_option
def check(targets: tuple[str, ...], **given: Any) -> int:
    """Verify a reducer, or several in one run.

    TARGET is path.py, path.py:name or package.module:name. Without --mode the tool finds out which
    mode the reducer implements. A file may declare its claims in a module-level dict, for example
    AGGVERIFY = {"mode": "token_mean", "engine": "mean"}. Options go before the file's claims, and
    those before [tool.aggverify] of the project's pyproject.toml.
    """
    from aggverify.cli import early

    mine = given_options(given)
    early.refuse(targets, mine)
    run: CommandRun = click.get_current_context().obj
    with _launcher(run, mine) as launcher:
        return _of_settings(targets, mine, run, launcher)


@contextmanager
def _launcher(run: CommandRun, mine: Mapping[str, Any]) -> Iterator[Launcher | None]:
    """Give what starts ranks, which imports torch while this process imports all else.

    None where they are launched already or in a sandbox. Why it cannot be had the pool finds again.
    """
    from aggverify.execution.limits import LIMITS
    from aggverify.world import LocalLauncher, PoolError, linux

    launcher = None
    if run.cluster is None and "sandbox" not in mine and linux.unsupported() is None:
        with suppress(PoolError):
            launcher = LocalLauncher(preload=LIMITS.preload)
    try:
        yield launcher
    finally:
        if launcher is not None:
            launcher.close()


def _of_settings(
    targets: tuple[str, ...], mine: Mapping[str, Any], run: CommandRun, launcher: Launcher | None
) -> int:
    """Complete the options by those of the project, and do what they ask for."""
    from aggverify.cli import screen
    from aggverify.errors import InputError
    from aggverify.execution.options import BY_KEY, default, texts
    from aggverify.report.outputs import ReportOutputs
    from aggverify.run.planning import settings
    from aggverify.run.planning.request import requested

    config = mine.get("config")
    trusted = "sandbox" not in mine
    project = (
        settings.find(Path.cwd(), trusted=trusted, named_options=mine)
        if config is None
        else settings.read(Path(config), trusted=trusted, named_options=mine)
    )
    formats = mine["report"].split(",") if "report" in mine else texts(project.get("report", ()))
    where = Path(mine.get("report_dir") or project.get("report_dir", default("report_dir")))
    delivery = ReportOutputs.to(where, formats, github="github" in mine)
    requests = [requested(target, mine, project.values, project.source) for target in targets]
    request = requests[0]
    alone = ("list", "replay_into", "sandbox", "baseline_write", "oracle", "against")
    if len(requests) > 1 and (one := next((key for key in alone if key in mine), None)):
        raise InputError(f"{BY_KEY[one].flag} is for one TARGET, got {len(requests)}")
    deadline = request.deadline(began=run.began)
    cluster = _cluster(run, request)
    with _pool(request, deadline, cluster or launcher) as pool:
        if "list" in mine:
            return _list(request, pool)
        others = _others(mine, project)
        if "replay_into" in mine:
            return _replay_into(Path(mine["replay_into"]), request, others, pool)
        terminal = screen.terminal(mine, where, shown=bool(delivery.shown))
        return _check(requests, where, delivery, deadline, others, cluster, pool, terminal)


def _cluster(run: CommandRun, request: Request) -> Cluster | None:
    """Return the processes that torchrun or srun has launched; None where this one runs alone.

    Their replay log has the steps of an earlier start, which are not run again.
    """
    from aggverify.cli.joined import replay_log
    from aggverify.errors import InputError

    if run.cluster is not None and request.sandbox:
        raise InputError("--sandbox is for ranks that are started here, not by torchrun or srun")
    if run.cluster is not None:
        run.cluster.replay_log = replay_log(run.cluster)
    return run.cluster


def _replay_into(
    path: Path,
    request: Request,
    others: ImportedFindings,
    pool: _Ranks,
) -> int:
    """Run the cases of others' findings only; add their outcomes to the document at ``path``."""
    from aggverify.files import put
    from aggverify.model import load, render
    from aggverify.report.document import with_replays
    from aggverify.run.again import again
    from aggverify.run.opening import in_time

    made = load(path)
    with in_time():
        reruns = again(others.findings, request, pool=pool())
    put(path, render(with_replays(made, reruns)))
    return made.exit


def _others(mine: Mapping[str, Any], project: Settings) -> ImportedFindings:
    """Return the findings of other documents and of the baseline, whose cases are run again.

    Raises InputError for a file that is neither.
    """
    from aggverify.errors import InputError
    from aggverify.model import load
    from aggverify.report.document import known_findings
    from aggverify.report.imported_findings import ImportedFindings

    documents = (load(Path(path)) for path in mine.get("replay_from", ()))
    findings = tuple(chain.from_iterable(map(known_findings, documents)))
    path, write = mine.get("baseline", project.get("baseline")), "baseline_write" in mine
    if path is None and write:
        raise InputError("--baseline-write needs --baseline FILE")
    return ImportedFindings.of(findings, None if path is None else Path(path), write=write)


def _list(request: Request, pool: _Ranks) -> int:
    """Print what would be run."""
    from aggverify.report.plan import plan_lines
    from aggverify.run.session import plans

    for planned in plans(request, pool=pool()):
        for line in plan_lines(planned):
            click.echo(line)
    return 0


@contextmanager
def _pool(request: Request, deadline: Deadline, launcher: Launcher | None) -> Iterator[_Ranks]:
    """Give the pool of ranks: with the command's deadline, in its sandbox or cluster.

    Why there is none is raised where it is asked for, so that a document can have it.
    """
    from aggverify.errors import AggverifyError
    from aggverify.execution.limits import LIMITS
    from aggverify.run.planning.enclosed import sandbox
    from aggverify.world import Pool

    try:
        whole = (request.target, request.against, request.adapter)
        inside = sandbox(*whole) if request.sandbox else None
        pool = Pool(replace(LIMITS, turn=deadline.check, sandbox=inside), launcher=launcher)
    except AggverifyError as error:
        reason = error

        def refused() -> Pool:
            raise reason

        yield refused
        return
    with pool:
        yield lambda: pool


_Ranks = Callable[[], "Pool"]
"""The pool of ranks, or the reason why there is none, raised."""


@dataclass(slots=True)
class _Known:
    """What is known so far, whatever stops the command."""

    verdicts: list[RunVerdict] = field(default_factory=list)
    reruns: tuple[Replay, ...] = ()


def _check(
    requests: Sequence[Request],
    where: Path,
    delivery: ReportOutputs,
    deadline: Deadline,
    others: ImportedFindings,
    cluster: Cluster | None,
    pool: _Ranks,
    terminal: Terminal,
) -> int:
    """Verify, show, store the cases under ``where``, deliver reports; return the exit code.

    Whatever stops it, what is known by then is stored and delivered as well.
    """
    from aggverify.cli import streams, ways_out
    from aggverify.errors import AggverifyError
    from aggverify.report.view_model import headline

    known, error = _verified(requests, deadline, others, cluster, pool, terminal)
    made = others.documented(known.verdicts, error, where, known.reruns)
    unwritten = _stored(known.verdicts, where)
    if others.write and error is None:
        try:
            made = others.written(made, known.verdicts, requests[0].waivers, known.reruns, where)
        except AggverifyError as refused:
            unwritten.append(("baseline", refused))
    terminal.total(made)
    unwritten += delivery.deliver(made, requests[0].target)
    for what, reason in unwritten:
        ways_out.unwritten(what, reason, where)
    if (made.unmatched or made.stale) and not made.error:
        ways_out.complain(headline(made))
    if streams.lost() is not None:
        ways_out.complain(headline(made))
    if error is not None:
        ways_out.explained(error, where)
    return made.exit or (ways_out.NO_JUDGEMENT if unwritten else made.exit)


def _verified(
    requests: Sequence[Request],
    deadline: Deadline,
    others: ImportedFindings,
    cluster: Cluster | None,
    pool: _Ranks,
    terminal: Terminal,
) -> tuple[_Known, BaseException | None]:
    """Run others' cases again, then verify; return what is known by then, and what stopped it.

    Each verdict is shown as soon as it is there.
    """
    from hypothesis import configuration

    from aggverify.report.formatting import counted
    from aggverify.run.again import again
    from aggverify.run.opening import in_time
    from aggverify.run.outcome.events import Event, Finished, Waiting
    from aggverify.run.outcome.verdict import Exit
    from aggverify.run.session import verify

    # Nothing that Hypothesis keeps is needed: without this it makes a folder where the user stands.
    configuration.set_hypothesis_home_dir(os.devnull)
    known = _Known()

    def listen(event: Event) -> None:
        if isinstance(event, Finished):
            known.verdicts.append(event.verdict)  # first: showing it may fail
        terminal(event)

    try:
        log = None if cluster is None else cluster.replay_log
        if log is not None and log.known:
            steps = counted(log.known, "step")
            terminal(Waiting(f"all were started again: {steps} of before are not run again"))
        with pool() as running:
            if others.findings:
                findings = counted(len(others.findings), "known finding")
                terminal(Waiting(f"the cases of {findings} are run again"))
                with in_time():
                    known.reruns = again(others.findings, requests[0], pool=running)
            for request in requests:
                found = verify(
                    request, listen, pool=running, deadline=deadline, known=others.waivers
                )
                if request.exit_first and any(verdict.exit is Exit.FINDINGS for verdict in found):
                    break
    except BaseException as error:
        return known, error
    finally:
        terminal.close()
    return known, None


def _stored(verdicts: Iterable[RunVerdict], where: Path) -> list[tuple[str, Exception]]:
    """Write every case, up to the first that cannot be written; return that with its error."""
    from aggverify.run.outcome import store

    try:
        for verdict in verdicts:
            for found in verdict.reports:
                store.write(found.stored, where)
    except Exception as error:
        return [("cases", error)]
    return []
