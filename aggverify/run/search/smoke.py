"""The simplest step there is.

A reducer that does not get through it gets a finding at once, and nothing else is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aggverify.checks.base import failure_finding
from aggverify.checks.formula import NAME
from aggverify.checks.refusal import refusal
from aggverify.codes import Diagnosed
from aggverify.diagnosis import recognised
from aggverify.errors import UnknownVersion
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.model import Call, Given
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import ReportedFinding
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

CHECK = NAME
"""The check that runs such steps first, under whose name a failure is stored and run again."""
WHY_NOT = "the reducer does not get through the simplest step"
"""Why no other check is run then."""
TOKENS = 3


def smoke_test(subject: Subject, executor: Executor) -> ReportedFinding | None:
    """How the reducer fails on the simplest step; None where it gets through it.

    One that refuses it is given others: it may be made for several ranks or micro-batches only.
    """
    failed: Execution | None = None
    for case in () if subject.only_called else simplest(subject):
        [execution] = executor.run(subject, [case])
        if execution.failure is None:
            return None
        if refusal(execution) is None:
            failed = execution
            break
        failed = execution if failed is None else failed
    return None if failed is None else _reported(subject, executor, failed.case)


def taken(subjects: Sequence[Subject], executor: Executor) -> tuple[Subject, ...]:
    """Those whose mode the reducer takes.

    Where none was asked for by name, one that it refuses on the simplest steps is not one of its
    modes: the other subjects note it.
    """
    if len(subjects) < 2 or any(s.found.mode_declared for s in subjects):
        return tuple(subjects)
    answers = [(s, _refused(s, executor)) for s in subjects]
    kept = [s for s, why in answers if why is None]
    if len(kept) in (0, len(subjects)):
        return tuple(subjects)
    offered = tuple(s.claim.mode for s in kept if s.claim.mode is not None)
    notes = [
        f"refuses {s.claim.mode}, which is not judged (--mode {s.claim.mode} asks for it): {why!r}"
        for s, why in answers
        if why is not None
    ]
    return tuple(s.claiming(offered=offered).noting(*notes) for s in kept)


def _refused(subject: Subject, executor: Executor) -> str | None:
    """Return the words with which it declines the first of the simplest steps, if it declines all.

    None where it takes one, or fails in another way.
    """
    why: list[str] = []
    for case in simplest(subject):
        try:
            [ran] = executor.run(subject, [case])
        except UnknownVersion:  # raised again in its first check, and reported
            return None
        words = refusal(ran)
        if words is None:
            return None
        why.append(words)
    return why[0]


def _reported(subject: Subject, executor: Executor, case: Case) -> ReportedFinding | None:
    """Return the failure seen again in fresh ranks, with what the reducer was given there."""
    executor.fresh()
    with executor.patient():
        [again] = executor.run(subject, [case])
    finding = failure_finding(CHECK, subject, again)
    if finding is None:
        return None  # not every time: the checks look into that
    known = recognised(subject, finding)
    if finding.traits.diagnosed is Diagnosed.SYMPTOM:  # a result that shows a mistake with a name
        return ReportedFinding(stored_case(subject, finding), finding, known, True)
    [shown] = executor.run(subject, [RunSpec(case, show=True)])
    call = Call(tuple(Given(*each) for each in shown.given), subject.convention.returns)
    # The call explains it: a cause is only added where an exception is known by its words.
    cause = known if known is not None and known.bug is not None and known.bug.error else None
    return ReportedFinding(stored_case(subject, finding), finding, cause, True, call=call)


def simplest(subject: Subject) -> Iterator[Case]:
    """Yield three tokens or more, all unmasked, on one rank; then in two parts of every kind."""
    size = subject.rows or subject.group_size or 1
    lengths = [1] * size
    lengths[0] += max(0, TOKENS - size)
    group = " ".join(f"1/{'1' * n}" for n in lengths)
    members = ",".join(map(str, range(size)))
    others = ",".join(map(str, range(size, 2 * size)))
    yield _case(group, members)
    yield _case(f"{group}; {group}", f"{members} {others}")
    if subject.max_world > 1:
        yield _case(f"{group}; {group}", f"{members} | {others}")
    if subject.max_world > 1 and "context-parallel" in subject.features:
        yield _case(group, members, 2)


def _case(text: str, cells: str, cp: int = 1) -> Case:
    step = parse_step(text)
    return Case(step, Layout(parse_micro_batches(cells), cp), plain_losses(step))
