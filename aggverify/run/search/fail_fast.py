"""A first look at weights, before any check is run.

What is wrong on a plain case is reported within a second, not when its check has its turn. That
check finds it again and names it, or one that comes before it does. Ranks that wait for each other
are reported here as well: each check that comes first would lose seconds by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from aggverify.checks import Check, Finding
from aggverify.codes.base import Effect
from aggverify.execution.deadline import Deadline
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec, as_run_spec
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.plan import PlannedCheck
from aggverify.run.search.batches import FIRST_BATCH, NextCases, ahead
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import confirm, is_steady
from aggverify.steps.case import Case


def first_failure(
    entries: Sequence[PlannedCheck],
    executor: Executor,
    statistics: RunStatistics,
    deadline: Deadline,
) -> Finding | None:
    """Return the first finding on the first cases of each entry, if it comes back in fresh ranks.

    None where nothing is found, and where ranks end, run away or report something else the next
    time, which the checks look into.
    """
    for (run, cases), following in ahead(_looks(entries, executor, statistics)):
        deadline.look()
        finding = run.first_failure(cases, following)
        fails = finding is not None and finding.traits.effect is Effect.FAILS
        if any(fault.kind != "exception" for fault in run.failures):
            seen = finding if finding is not None and fails and _is_there(run, finding) else None
            executor.calm()
            return seen
        if finding is not None and fails and finding.observed is not None:
            return finding if is_steady(run, finding) else None
    return None


def _is_there(run: CheckRun, finding: Finding) -> bool:
    """Whether ranks wait for each other or differ, and do so again in fresh ones.

    Other failures take longer to confirm, or may be another program's doing.
    """
    fault = finding.fault
    return fault is not None and fault.is_between_ranks and confirm(run, finding)


def _looks(
    entries: Sequence[PlannedCheck], executor: Executor, statistics: RunStatistics
) -> Iterator[NextCases]:
    """Yield each check that costs little with its first cases that ask for nothing else."""
    for entry in entries:
        if entry.instead is None and entry.space is not None and _is_of_weights(entry.check):
            run = CheckRun(entry.check, entry.subject, entry.space, executor, statistics)
            bare = (c for c in run.stored_cases() if all(map(_is_bare, entry.check.variants(c))))
            yield NextCases(run, list(islice(bare, FIRST_BATCH)))


def _is_of_weights(check: Check) -> bool:
    """Whether it compares weights on cases that it begins with, and costs little."""
    costly = check.last or check.thorough or check.compares_paths or check.waits_for
    return check.of_weights and check.only is None and not costly


def _is_bare(wanted: Case | RunSpec) -> bool:
    """Whether nothing but the case is asked for: mostly its result is kept for the check's turn."""
    return as_run_spec(wanted) == RunSpec(as_run_spec(wanted).case)
