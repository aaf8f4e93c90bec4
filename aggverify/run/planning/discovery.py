"""What must be known of a subject before anything is judged, asked of the ranks in one place."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from aggverify.checks.spaces import spread
from aggverify.errors import InputError, NotJudged
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import grid
from aggverify.oracles import MODES
from aggverify.run.planning.engine import engine_settled, possible_engines
from aggverify.run.planning.identify import distinguishing_cases, identify, precision_of
from aggverify.run.planning.unsupported_probe import settled

MOST_TRACED = 4


def prepared(subject: Subject, executor: Executor) -> Subject:
    """Return the subject with all that has to be known before its checks can be planned."""
    subject = identified(subject, executor)
    return discovered(engine_settled(subject, executor), executor)


def discovered(subject: Subject, executor: Executor) -> Subject:
    """Return the subject with all that its claim leaves open.

    Whether it refuses split prompt groups, returns logs, and in which precision it computes.
    """
    if subject.only_called:
        return subject
    with suppress(NotJudged):  # the checks run into it too, and report what they could not judge
        subject = settled(subject, executor)
    first = executor.run(subject, distinguishing_cases()[:1])[0]
    subject = compiling(subject.knowing(returns_logs=bool(first.logs), compiles=first.compiles))
    subject = subject.knowing(communicates=_communicates(subject, executor))
    if not subject.has_oracle:
        return subject
    _refuse_what_no_advantage_multiplies(subject, executor)
    return subject.knowing(computes_in=precision_of(subject, executor))


def _refuse_what_no_advantage_multiplies(subject: Subject, executor: Executor) -> None:
    """Raise InputError where a policy loss has a gradient although every advantage is 0.

    A weight is read as the gradient over the advantage: the term would make any mode's look wrong.
    """
    case = distinguishing_cases()[0]
    if subject.reports_instead(case) is None:
        return
    none = RunSpec(case.with_losses((0.0,) * len(case.losses)), zeros=True)
    weights = executor.run(subject, [none])[0].weights
    if weights is None or not np.isfinite(weights).all() or not weights.any():
        return
    raise InputError(
        f"{subject.claim.function} has a term that no advantage multiplies, such as a KL penalty: "
        f"its gradient is {float(weights[weights != 0][0]):.3g} a token where all advantages are "
        f"0. Compare its layouts with --mode nonlinear, or set that term's coefficient to 0"
    )


def _communicates(subject: Subject, executor: Executor) -> bool:
    """Whether ranks issue collectives of its own on a step of two, by their traces.

    Code that names nothing of other ranks is not run for it.
    """
    if "other ranks" not in subject.found.surroundings:
        return False
    space = spread(subject)
    cases = (c for c in grid(subject.max_world, space.cp_kinds) if c in space)
    wanted = [RunSpec(c, alone=True) for c in cases if c.layout.world_size == 2][:MOST_TRACED]
    try:
        ran = executor.run(subject, wanted)
    except NotJudged:  # the checks run into it too, and report what they could not judge
        return True
    return any(call.place for e in ran for trace in e.traces for call in trace)


def compiling(subject: Subject) -> Subject:
    """Return the subject with a note on how compiled code was run, if it has any."""
    if not subject.found.compiles:
        return subject
    if subject.claim.compiled:
        return subject.noting("what the reducer gives to torch.compile was compiled everywhere")
    return subject.noting(
        "what the reducer gives to torch.compile ran eagerly, but for a few steps that must agree "
        "(--compile: everything compiled)"
    )


def identified(subject: Subject, executor: Executor) -> Subject:
    """Return the subject with the mode that it is seen to have, where none was claimed.

    Where no option names an engine, every other one is tried after the convention's default.
    """
    if subject.has_oracle or subject.nonlinear or subject.only_called:
        return subject
    how, chosen = subject.convention, None
    for name in possible_engines(subject):
        modes = [m for m in MODES if how.why_not(m, name, subject.claimed) is None]
        tried = subject.under(name)
        found = identify(tried, executor, modes) if modes else None
        if found is None:
            continue
        if chosen is None:
            chosen = tried.claiming(mode=found[0], divisor=found[1]).knowing(identified=True)
        elif name == how.default_engine(found[0]):
            # A framework may call the same code in two places, where it is right as another mode.
            chosen = chosen.noting(f"with --engine {name} it implements {found[0]}")
    return chosen or subject
