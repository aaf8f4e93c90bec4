"""T13: every additive auxiliary term (KL, entropy, value) alone is the same in every layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from aggverify.checks.base import Check, Finding, failure_finding
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import spread, with_branches
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

NAME = "auxiliary_terms_stay"
CODE = "AGV207"
LEFT_OUT = "a term is left out of some tokens"
OTHER_COUNT = "a term is divided by another count"
_NEAR = Fraction(1, 2**16)
"""Two roundings of float32 are nearer; two counts of up to so many tokens are not."""


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
    return replace(found, term=name, message=message, signs=tuple(_signs(found)))


def _signs(found: Finding) -> Iterator[str]:
    """What is divided by another count changes alike in all of a sample that one rank has."""
    pairs = [*zip(found.observed or (), found.expected or (), strict=True)]
    if any(w == 0 != e for w, e in pairs):
        yield LEFT_OUT
    step, parts = found.case.step, defaultdict[object, list[Fraction]](list)
    owner = token_owner(step, found.case.layout)
    for i, (start, sample) in enumerate(zip(step.offsets, step.samples, strict=False)):
        for t, bit in enumerate(sample.loss_mask, start):
            weight, expected = pairs[t]
            if bit and not (math.isfinite(weight) and expected):
                return
            if bit:
                parts[i, owner[t]].append(Fraction(weight) / Fraction(expected))
    if all(max(own) - min(own) <= _NEAR * abs(own[0]) for own in parts.values()):
        yield OTHER_COUNT


CHECK = Check(
    name=NAME,
    title="each auxiliary term alone has the same weights in every layout",
    tests="T13",
    space=space,
    stored=partial(with_branches, space=space),
    variants=variants,
    judge=judge,
    nothing_to_say="the reducer takes no per-token inputs beside the losses",
    max_examples=40,
)
