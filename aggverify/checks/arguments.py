"""What a reducer does with its arguments: leaves them alone, heeds the mode, refuses nonsense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from aggverify.checks.base import Check, Finding, as_it_is
from aggverify.checks.spaces import SHORT, alone, of_a_loss, with_branches
from aggverify.execution.assigned import DIVISOR
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.constants import around
from aggverify.generation.shapes import long_and_sharded
from aggverify.generation.space import Space
from aggverify.oracles.coincidence import distinguishes
from aggverify.steps.case import Case

CHANGED, IGNORED, ACCEPTED = "AGV502", "AGV503", "AGV504"
INPUTS = "leaves_its_arguments_alone"
"""Name of the check for changes in place."""
SWITCHED = "switching_the_mode_changes_the_weights"


def _space(subject: Subject) -> Space | None:
    """Small layouts, fully masked samples and holes included."""
    return of_a_loss(subject, empty_samples=True, needs_hole=True)


def _watched(case: Case) -> tuple[RunSpec]:
    """Return the case without losses of 0: masking one in place would not show."""
    losses = tuple((3 * t + 1) / 16 for t in range(len(case.losses)))
    return (RunSpec(case.with_losses(losses), watch=True),)


def _judge_inputs(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    [watched] = executions
    if not watched.changed:
        return None
    message = "\n".join(watched.changed[:4])
    return Finding(CHANGED, INPUTS, message, watched.case, subject.mode)


_LONG_ONES = 6


def _stored(subject: Subject) -> Iterator[Case]:
    """Yield the usual cases, those where code branches, and some that are long in float32.

    Of float32 losses a cast to float32 is no copy, so that a change in place after it shows.
    """
    yield from with_branches(subject, _space, usual=20)
    if (own := _space(subject)) is not None and not subject.nonlinear:
        listed = filter(None, chain(around(own, subject.found.constants), long_and_sharded(own)))
        long = (case for case in listed if case.step.num_response_tokens > SHORT)
        yield from (replace(case, dtype="float32") for case in islice(long, _LONG_ONES))


LEFT_ALONE = Check(
    name=INPUTS,
    title="losses, masks and lists handed over are the same after the step",
    space=_space,
    variants=_watched,
    judge=_judge_inputs,
    stored=_stored,
    max_examples=20,
    on_branches=as_it_is,
    of_weights=False,
)


def _switchable(subject: Subject) -> Space | None:
    if not subject.convention.mode_is_argument or len(subject.offered) < 2:
        return None
    return alone(subject)


def _judge_switched(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    mine, *others = executions
    if mine.weights is None or subject.mode is None:
        return None
    for other, mode in zip(others, SWITCHES, strict=True):
        both = (subject.mode, mode)
        if other.weights is None or mode not in subject.offered or mode == subject.mode:
            continue
        if subject.convention.why_not(mode, subject.engine.name, subject.claim.claimed):
            continue  # never asked for under this engine
        divisor = DIVISOR if subject.divisor is None else subject.divisor
        if not distinguishes(mine.case.step, both, divisor=divisor, policy=subject.policy):
            continue
        if np.array_equal(mine.weights, other.weights):
            message = f"{subject.mode} and {mode} give the same weights, bit for bit"
            return Finding(IGNORED, SWITCHED, message, mine.case, subject.mode)
    return None


SWITCHES = ("token_mean", "sample_mean", "prompt_mean", "constant")
"""Modes that conventions pass to their candidates by name."""

SWITCH = Check(
    name=SWITCHED,
    title="every two modes on offer give different weights where they should",
    tests="T16",
    space=_switchable,
    variants=lambda case: (case, *(RunSpec(case, mode=mode) for mode in SWITCHES)),
    judge=_judge_switched,
    one_will_do=True,
    project=lambda case: case.trivial,
    max_examples=6,
    max_stored=6,
    not_applicable="the mode is no argument, or one mode is claimed",
    of_weights=False,
)


BAD = "bad_arguments_raise"


def _validating(subject: Subject) -> Space | None:
    claimed = "validates-arguments" in subject.features and subject.convention.misuses
    return alone(subject) if claimed else None


def _judge_bad(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Return the misuses that came to anything but an exception, while the good call went well."""
    good, bad = executions
    if good.weights is None:
        return None
    sentences = {m.name: m.sentence for m in subject.convention.misuses}
    accepted = [name for name, refusal in bad.refusals if refusal is None]
    if not accepted:
        return None
    message = "accepted: " + "; ".join(sentences[name] for name in accepted)
    signs = tuple(f"accepts {name}" for name in accepted)
    return Finding(ACCEPTED, BAD, message, good.case, subject.mode, signs=signs)


REFUSES = Check(
    name=BAD,
    title="missing, contradictory, non-positive and NaN arguments raise",
    tests="T16",
    space=_validating,
    variants=lambda case: (case, RunSpec(case, misuse=True)),
    judge=_judge_bad,
    project=lambda case: case.trivial,
    max_examples=6,
    max_stored=8,
    of_weights=False,
)
