"""T13: every additive auxiliary term (KL, entropy, value) alone is the same in every layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial
from aggverify.generation.space import Space
from aggverify.steps.case import Case

NAME = "auxiliary_terms_stay"
CODE = "AGV207"
LEFT_OUT = "a term is left out of some tokens"


def space(subject: Subject) -> Space | None:
    """Every layout, fully masked units included; only where the reducer takes terms, and its mode
    speaks of one rank too, with which they are compared."""
    if not subject.terms or subject.rows is not None:
        return None
    return spread(subject, dp=4, micro_batches=2, empty_samples=True)


def variants(case: Case) -> tuple[Trial, ...]:
    """One term, which the step's size picks, on one rank and as laid out; all others 0."""
    term = case.step.num_response_tokens + len(case.step.samples)
    return Trial(case.trivial, term=term), Trial(case, term=term)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """No oracle: a term has a coefficient, and may have a mode, of its own."""
    alone, laid_out = executions
    if not is_finite(alone):
        return failure_finding(NAME, subject, alone)
    bare = subject.knowing(trust_formula=False)
    found = judge_spread(NAME, CODE, bare, executions)
    if found is None or found.observed is None:
        return found
    picked = variants(laid_out.case)[0].term
    assert picked is not None
    name = subject.terms[picked % len(subject.terms)]
    message = f"the weights of {name}, with everything else 0"
    lost = any(w == 0 != e for w, e in zip(found.observed, found.expected or (), strict=False))
    return replace(found, term=name, message=message, signs=(LEFT_OUT,) if lost else ())


CHECK = Check(
    name=NAME,
    title="each auxiliary term alone has the same weights in every layout",
    tests="T13",
    space=space,
    variants=variants,
    judge=judge,
    nothing_to_say="the reducer takes no per-token inputs beside the losses",
    max_examples=40,
)
