"""T6 beyond the losses: values behind the mask change no logged number, those of a term nothing.

A key that is another one when the clean step is run again (a time, a random number) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aggverify.checks.base import MASK, Check, Finding, Need, as_it_is
from aggverify.checks.judging import is_finite
from aggverify.checks.logged_keys import numbers_text
from aggverify.checks.poison import huge, judge, poisoned, space
from aggverify.checks.refusal import refusal
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case

LOGGED, TERMS = "masked_values_reach_no_log", "masked_terms_never_matter"
IN_LOG, NAN_IN_LOG = "AGV514", "AGV515"
REACHED = "a masked value is logged"


def _logged_space(subject: Subject) -> Space | None:
    return space(subject) if subject.returns_logs else None


def _term_space(subject: Subject) -> Space | None:
    return space(subject) if subject.terms else None


def _variants(case: Case) -> tuple[RunSpec, ...]:
    """Return the clean step twice, then huge values behind the mask, then NaN and infinities."""
    return RunSpec(case), RunSpec(case, alone=True), RunSpec(huge(case)), RunSpec(poisoned(case))


def _of_a_term(case: Case) -> tuple[RunSpec, ...]:
    """Return the same runs of one term, which the step's size picks, with everything else 0."""
    return tuple(replace(spec, term=_picked(case)) for spec in _variants(case))


def _picked(case: Case) -> int:
    return case.step.num_response_tokens + len(case.step.samples)


def _judge_logged(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge logs where the update itself is unchanged; other checks report it where it is not."""
    clean, again, *dirty = executions
    if not is_finite(clean):
        return None
    for code, ran in zip((IN_LOG, NAN_IN_LOG), dirty, strict=True):
        if ran.failure is None and ran.value == clean.value:
            found = _in_a_log(LOGGED, code, subject, (clean, again, ran))
            if found is not None:
                return found
    return None


def _judge_terms(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    clean, again, *dirty = executions
    name = subject.terms[_picked(clean.case) % len(subject.terms)]
    kinds = (("AGV121", "AGV122", IN_LOG), ("AGV123", "AGV124", NAN_IN_LOG))
    for (in_loss, in_gradient, in_log), ran in zip(kinds, dirty, strict=True):
        overflows = subject.nonlinear and not is_finite(ran) and ran.failure is None
        if overflows or (ran is dirty[-1] and refusal(ran) is not None):
            continue
        found = judge(TERMS, (in_loss, in_gradient), subject, (clean, ran))
        if found is None and is_finite(clean) and ran.failure is None:
            found = _in_a_log(TERMS, in_log, subject, (clean, again, ran))
        if found is not None:
            return replace(found, term=name, message=f"{found.message}; of {name}")
    return None


def _in_a_log(
    check: str, code: str, subject: Subject, ran: tuple[Execution, Execution, Execution]
) -> Finding | None:
    """Find the first key that is another one than in the clean run, run twice with one result."""
    clean, again, dirty = map(_numbers, ran)
    poison = ran[2].case
    values = sorted({str(poison.losses[t]) for t in poison.masked_tokens()})
    for (rank, k, key), was in clean.items():
        now = dirty.get((rank, k, key))
        if not _same(again.get((rank, k, key)), was) or _same(now, was):
            continue
        message = (
            f"with {', '.join(values)} behind the mask log[{key!r}] on rank {rank}, micro-batch "
            f"{k}, becomes {numbers_text(now)} (clean run: {numbers_text(was)})"
        )
        return Finding(code, check, message, ran[0].case, subject.mode, signs=(REACHED,))
    return None


def _numbers(ran: Execution) -> dict[tuple[int, int, str], tuple[float, ...]]:
    """Of every rank, micro-batch and key; a log with a fault is another check's to find."""
    return {
        (rank, k, key): numbers
        for rank, logs in enumerate(ran.logs)
        for k, log in enumerate(logs)
        if isinstance(log, tuple)
        for key, numbers in log
    }


def _same(one: tuple[float, ...] | None, two: tuple[float, ...]) -> bool:
    return (
        one is not None
        and len(one) == len(two)
        and all(a == b or (a != a and b != b) for a, b in zip(one, two, strict=True))
    )


def _check(name: str, title: str, **own: Any) -> Check:
    return Check(
        name=name,
        title=title,
        tests="T6",
        needs=(Need(MASK, "values behind the mask reach the update already"),),
        on_branches=as_it_is,
        of_weights=False,
        max_examples=20,
        **own,
    )


LOGS = _check(
    LOGGED,
    "values behind the mask change no logged number",
    space=_logged_space,
    variants=_variants,
    judge=_judge_logged,
    not_applicable="returns no log",
)
OF_TERMS = _check(
    TERMS,
    "an auxiliary term's values behind the mask change nothing",
    space=_term_space,
    variants=_of_a_term,
    judge=_judge_terms,
    not_applicable="the reducer takes no per-token inputs except the losses",
)
