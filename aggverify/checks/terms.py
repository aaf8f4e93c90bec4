"""T13: every additive auxiliary term alone is the same in every layout.

Terms such as KL, entropy, value; each is of one formula on all steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice, product
from math import prod

import numpy as np

from aggverify import oracles
from aggverify.checks.base import Check, Finding, as_it_is, failure_finding
from aggverify.checks.comparison import LOW, lowest_precision, worst_weight
from aggverify.checks.judging import is_finite, judge_spread
from aggverify.checks.spaces import SHORT, spread, with_branches
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.execution.term_readings import TERM_READINGS
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.constants import around
from aggverify.generation.shapes import long_and_sharded
from aggverify.generation.space import Space
from aggverify.oracles import MODES, Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, token_owner
from aggverify.steps.notation import parse_step
from aggverify.trainer.contract import NoGradient

NAME = "auxiliary_terms_stay"
CODE, QUESTION = "AGV207", "AGV209"
LEFT_OUT = "a term is left out of some tokens"
OTHER_COUNT = "a term is divided by another count"
DETACHED = "a term has no gradient"
_CUT_OFF = "the loss has no gradient with respect to {0}: {0} is detached, or never added"
SHARED_OUT = "a gathered term is divided by the number of ranks that have it"
_NEAR = Fraction(1, 2**16)
"""Two roundings of float32 are nearer; two counts of up to so many tokens are not."""


def space(subject: Subject) -> Space | None:
    """Every layout, fully masked units included.

    Only where the reducer takes terms, and its mode speaks of one rank too, with which they are
    compared.
    """
    if not subject.terms or subject.rows is not None:
        return None
    return spread(subject, dp=4, micro_batches=2, empty_samples=True)


_RAGGED = parse_step("1/11 2/1111 1/1; 3/111 1/11111; 2/1")
_REFERENCE = Case(_RAGGED, Layout.trivial(len(_RAGGED.samples)), plain_losses(_RAGGED))
"""Where modes differ, and code has no reason to branch: what a term's own one is seen on."""
_LONG_ONES = 6


def variants(case: Case) -> tuple[RunSpec, ...]:
    """One term, which the step's size picks, on one rank and as laid out; all others 0.

    Then on a step that shows its own mode.
    """
    term = case.step.num_response_tokens + len(case.step.samples)
    return (
        RunSpec(case.trivial, term=term),
        RunSpec(case, term=term),
        RunSpec(_REFERENCE, term=term),
    )


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """No oracle of the claim's: a term has its own coefficient, and may have its own mode."""
    alone, laid_out, reference = executions
    picked = variants(laid_out.case)[0].term
    assert picked is not None
    name = subject.terms[picked % len(subject.terms)]
    if _is_cut_off(alone) and _is_cut_off(reference):
        cut = Finding(CODE, NAME, _CUT_OFF.format(name), alone.case, subject.mode, term=name)
        return replace(cut, signs=(DETACHED,))
    if not is_finite(alone):
        return failure_finding(NAME, subject, alone)
    if (reading := subject.term_readings.get(name)) is not None:
        return _by_reading(subject, name, reading, executions)
    # Where one rank is wrong already, the layout may be right.
    if (found := _of_its_mode(subject, alone, reference)) is not None:
        return replace(found, term=name)
    bare = subject.knowing(trust_formula=False)
    found = judge_spread(NAME, CODE, bare, (alone, laid_out))
    if found is None or found.observed is None:
        return found
    if (question := _by_design(subject, name, executions)) is not None:
        return question
    message = f"the weights of {name}, with everything else 0"
    # Where it is wrong on one rank already, it is by no count of a layout's.
    usual = _has_its_modes(subject, alone, reference)
    signs = tuple(sign for sign in _signs(found) if usual or sign != OTHER_COUNT)
    return replace(found, term=name, message=message, signs=signs)


def _is_cut_off(execution: Execution) -> bool:
    """Whether the loss has no gradient at all where only the term could give it one.

    In training nothing raises: the objective has a gradient, and the term adds nothing to it.
    """
    error = execution.failure.error if execution.failure is not None else None
    return error is not None and error.breach == NoGradient.name


def _by_reading(
    subject: Subject, name: str, reading: str, executions: Sequence[Execution]
) -> Finding | None:
    """Compare with the reading's weights, times the coefficient seen on the reference step."""
    *judged, reference = executions
    for ran in executions:
        if (failed := failure_finding(NAME, subject, ran)) is not None:
            return replace(failed, term=name)
    assert reference.weights is not None
    first = float(reference.weights[0])
    coefficient = Fraction(first) * _RAGGED.num_unmasked if math.isfinite(first) else Fraction(0)
    if not coefficient:
        cut = Finding(CODE, NAME, _CUT_OFF.format(name), reference.case, subject.mode, term=name)
        return replace(cut, signs=(DETACHED,))
    for ran in judged:
        assert ran.weights is not None
        exact = TERM_READINGS[reading].weights(ran.case)
        wanted = tuple(coefficient * weight for weight in exact)
        precision = lowest_precision(subject, ran.case)
        roundings = 2 * subject.roundings_on(ran.case.step)
        off = worst_weight(ran.weights, wanted, roundings, precision)
        if off is not None:
            message = f"the weights of {name} alone, next to {reading} times {float(coefficient):g}"
            seen = tuple(ran.weights.tolist())
            found = Finding(CODE, NAME, message, ran.case, subject.mode, wanted, seen, reading)
            return replace(found, term=name, token=off.token, error=off.error, bound=off.bound)
    return None


def _by_design(subject: Subject, name: str, executions: Sequence[Execution]) -> Finding | None:
    """Ask whether it is by design that a term of such a name has exactly a reading's weights."""
    if not any(part in name.lower() for part in _NAMES_OF_MEANS):
        return None
    for reading, what in TERM_READINGS.items():
        if _by_reading(subject, name, reading, executions) is None:
            message = (
                f"{name} is {what.sentence}, and no mean over the step: if that is by design, "
                f"--terms {name}={reading} declares it"
            )
            case = executions[1].case
            return Finding(QUESTION, NAME, message, case, subject.mode, term=name)
    return None


_NAMES_OF_MEANS = ("aux", "balanc", "z_loss", "zloss", "router", "moe", "expert")
"""In names of losses that frameworks average over micro-batches."""


def _of_its_mode(subject: Subject, alone: Execution, reference: Execution) -> Finding | None:
    """Find a term with no mode's weights on one rank, times one coefficient.

    A coefficient that it has on the reference step; nothing where it has none there either, where
    readings of a mode differ, or in 16 bits, where a weight is not known that well.
    """
    step, weights = alone.case.step, alone.weights
    plain = len(step.samples) == step.num_rollouts and all(
        s.num_unmasked and s.original_mask is None for s in step.samples
    )
    if not plain or weights is None or not is_finite(reference) or alone.case.dtype in LOW:
        return None
    observed, found = tuple(weights.tolist()), []
    for mode in sorted(MODES, key=lambda name: name != subject.mode):
        if not (coefficient := _coefficient(subject, mode, reference)):
            continue
        wanted = [coefficient * float(w) for w in _exact(subject, mode, step)]
        off = np.flatnonzero(np.abs(weights - wanted) > float(_NEAR) * np.abs(wanted))
        if not off.size:
            return None
        token, expected = int(off[0]), tuple(map(Fraction, wanted))
        message = (
            f"its weights alone are {mode}'s, times {coefficient:.6g}, on a step of six samples"
        )
        other = Finding(CODE, NAME, message, alone.case, subject.mode, expected, observed)
        error = abs(Fraction(observed[token]) - expected[token])
        found.append(replace(other, reference=f"{mode}'s", token=token, error=error))
    return found[0] if found else None


def _has_its_modes(subject: Subject, alone: Execution, reference: Execution) -> bool:
    """Whether on one rank it has the claimed mode's weights, as far as it has them at all."""
    if subject.mode not in MODES or not is_finite(reference):
        return True
    coefficient = _coefficient(subject, subject.mode, reference)
    if not coefficient:
        return True
    wanted = np.array(
        [coefficient * float(w) for w in _exact(subject, subject.mode, alone.case.step)]
    )
    return bool((np.abs(alone.weights - wanted) <= float(_NEAR) * np.abs(wanted)).all())


def _coefficient(subject: Subject, mode: str, reference: Execution) -> float:
    """Return its weights over the mode's, if that is one number for all tokens, else 0.0."""
    assert reference.weights is not None
    if MODES[mode].needs_divisor and subject.divisor is None:
        return 0.0
    wanted = np.array([float(w) for w in _exact(subject, mode, _RAGGED)])
    ratios = reference.weights / wanted
    middle = float(ratios[0])
    return middle if (np.abs(ratios - middle) <= float(_NEAR) * abs(middle)).all() else 0.0


def _exact(subject: Subject, mode: str, step: Step) -> tuple[Fraction, ...]:
    divisor = subject.divisor if MODES[mode].needs_divisor else None
    return oracles.weights(mode, step, divisor=divisor, policy=subject.policy)


def _stored(subject: Subject) -> Iterator[Case]:
    """Those where code branches, and some that are long."""
    yield from with_branches(subject, space)
    if (own := space(subject)) is not None:
        listed = filter(None, around(own, subject.found.constants))
        long = (case for case in listed if case.step.num_response_tokens > SHORT)
        yield from islice(long, _LONG_ONES)
        yield from islice(filter(None, long_and_sharded(own)), _LONG_ONES)


def _signs(found: Finding) -> Iterator[str]:
    """Yield signs of another count: all of a sample on one rank changes by the same factor."""
    pairs = [*zip(found.observed or (), found.expected or (), strict=True)]
    if any(weight == 0 and expected != 0 for weight, expected in pairs):
        yield LEFT_OUT
    step, owner = found.case.step, token_owner(found.case.step, found.case.layout)
    kept: list[tuple[Sample, tuple[int, int, int]]] = []
    ratios: list[Fraction] = []
    for start, sample in zip(step.offsets, step.samples, strict=False):
        for t, bit in enumerate(sample.loss_mask, start):
            weight, expected = pairs[t]
            if bit and not (math.isfinite(weight) and expected):
                return
            if bit:
                kept.append((sample, owner[t]))
                ratios.append(Fraction(weight) / Fraction(expected))
    if _is_shared_out(ratios, found.case.layout):
        yield SHARED_OUT
    elif any(_match(ratios, foretold) for foretold in _by_local_counts(kept, found.case.layout)):
        yield OTHER_COUNT


def _is_shared_out(ratios: Sequence[Fraction], layout: Layout) -> bool:
    """Whether every weight is cp_size times too small where each of these ranks has all of it.

    And no other size of the layout is as large.
    """
    size, dp, k = layout.cp_size, layout.dp_size, layout.num_microbatches
    alone = layout.cp_kind == "gathered" and size not in (1, dp, k, dp * k)
    return alone and bool(ratios) and _match(ratios, [Fraction(1, size)] * len(ratios))


def _match(ratios: Sequence[Fraction], foretold: Sequence[Fraction]) -> bool:
    pairs = zip(ratios, foretold, strict=True)
    return all(abs(ratio - wanted) <= _NEAR * abs(wanted) for ratio, wanted in pairs)


def _by_local_counts(
    kept: Sequence[tuple[Sample, tuple[int, int, int]]], layout: Layout
) -> Iterator[list[Fraction]]:
    """Yield by what each token's weight changes if counts are taken where tokens stand.

    Counts of its unit's tokens, or of the step's samples: in a micro-batch, on a data-parallel or
    context-parallel rank; alone, or as a mean over these.
    """
    places = (
        lambda d, c, k: (d, k),
        lambda d, c, k: d,
        lambda d, c, k: (d, c, k),
        lambda d, c, k: (d, c),
        lambda d, c, k: c,
    )
    units = (lambda s: 0, lambda s: s.group, lambda s: s.rollout)
    sizes = (layout.num_microbatches, layout.dp_size, layout.cp_size)
    over = {prod(some) for n in range(4) for some in combinations(sizes, n)}
    for unit, place in product(units, places):
        whole = Counter(unit(sample) for sample, _ in kept)
        here = Counter((unit(sample), place(*owner)) for sample, owner in kept)
        for size in over:
            yield [
                Fraction(whole[unit(s)], here[unit(s), place(*owner)] * size) for s, owner in kept
            ]
    for place, size in product(places, over):
        rows = {(id(sample), place(*owner)) for sample, owner in kept}
        samples, mine = len({row for row, _ in rows}), Counter(where for _, where in rows)
        yield [Fraction(samples, mine[place(*owner)] * size) for _, owner in kept]


CHECK = Check(
    name=NAME,
    title="each auxiliary term alone has the same weights in every layout, of one mode",
    tests="T13",
    space=space,
    stored=_stored,
    variants=variants,
    on_branches=as_it_is,
    judge=judge,
    not_applicable="the reducer takes no per-token inputs except the losses",
    max_examples=40,
)
