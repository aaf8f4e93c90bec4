"""A recorded step as a stored case: its lengths, masks, groups and layout, without any data."""

from __future__ import annotations

from aggverify.audit.properties import as_a_case
from aggverify.audit.steps import RecordedRun
from aggverify.audit.verdict import AuditRequest
from aggverify.checks import Finding
from aggverify.conventions import convention
from aggverify.errors import InputError
from aggverify.execution.claim import Claim, called_as
from aggverify.execution.subject import Subject
from aggverify.files import split
from aggverify.generation.catalogue import plain_losses
from aggverify.run.outcome.store import StoredCase, stored_case
from aggverify.steps.layouts import MAX_RANKS, dimensions


def stored(
    run: RecordedRun, number: int, asked: AuditRequest, target: str, called: str
) -> StoredCase:
    """Return the step as a case of a reducer, ``path.py:name``, which ``called`` calls.

    ``called``: a convention. Raises InputError for a step that was not recorded, or that no replay
    can run.
    """
    step = next((s for s in run.steps if s.number == number), None)
    if step is None:
        known = ", ".join(str(s.number) for s in run.steps)
        raise InputError(f"step {number} was not recorded (recorded: {known})")
    head, name = split(target)
    if name is None:
        raise InputError(f"name the reducer in {head}, as {head}:NAME, got {target!r}")
    if step.case.layout.world_size > MAX_RANKS:
        raise InputError(f"a case of at most {MAX_RANKS} ranks can be replayed")
    claim = Claim(
        target,
        name,
        engine=asked.engine,
        mode=asked.mode,
        divisor=asked.divisor,
        policy=asked.policy,
        **called_as(convention(called)),
    )
    check, code = as_a_case(dimensions(step.case.layout))
    losses = tuple(plain_losses(step.case.step))
    case = step.case.with_losses(losses)
    finding = Finding(code, check.name, "", case, asked.mode)
    return stored_case(Subject.of(claim), finding)
