"""Observations made to explain one finding: over all layouts, and cases that distinguish forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, islice

import numpy as np
from msgspec import structs

from aggverify.checks import Finding, clipping
from aggverify.checks.logs import OTHER_LOSS
from aggverify.checks.nonlinear import SELECTION
from aggverify.checks.spaces import spread
from aggverify.codes import Diagnosed
from aggverify.conventions import EXPERTS
from aggverify.diagnosis import (
    Diagnosis,
    Poison,
    WeightObservation,
    deviation,
    diagnose,
    diagnose_behind,
    diagnose_mask,
    diagnose_nonlinear,
    diagnose_not_finite,
    distinguishing_case,
    is_right,
    mask_leak,
    not_finite,
    poisoned,
    recognised,
)
from aggverify.diagnosis.explanation import Predicts
from aggverify.diagnosis.forms import ClosedForm
from aggverify.diagnosis.nonlinear import (
    OF_THE_MASKED,
    OF_THE_ROWS,
    at_rest,
    count_at_hand,
    count_of_a_part,
    is_at_hand,
    probes,
)
from aggverify.diagnosis.observation import close
from aggverify.diagnosis.wording import described
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import (
    fully_masked,
    grid,
    hard_cases,
    more_cases,
    plain_losses,
    unit_case,
)
from aggverify.oracles.objectives import at
from aggverify.run.search.explaining_logs import explain_log
from aggverify.run.search.explaining_terms import explain_term
from aggverify.run.search.failing import failure
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

_LARGE = 100_000
"""Response tokens of a step, at most, that forms are fitted to."""
_ROUNDS = 3
"""At most: first of a case that distinguishes the forms left, then of cases to try a form on."""
_TRIED = 8
"""Cases at most in each round that a form is tried on."""


def explain(
    subject: Subject,
    finding: Finding,
    executor: Executor,
    own: Sequence[Case],
    others: Callable[[], Iterable[Case]] = tuple,
) -> Diagnosis | None:
    """Diagnose a finding.

    ``own`` are the cases of the check that made it. ``others`` gives more like these, on which a
    formula may be tried; each is drawn only when it is asked for.
    """
    if finding.case.step.num_response_tokens > _LARGE:
        return None  # the finding's message has all that is known
    subject = subject.knowing(trust_formula=True)
    shown = finding.observed is not None
    how = finding.traits.diagnosed
    if finding.not_finite:
        return _not_finite(subject, finding, executor, own)
    if finding.code == clipping.CODE and len(finding.signs) > 1:
        finding = _with_one_sign(subject, finding, executor, own)
    if finding.code == SELECTION:  # by a statistic of the values, or among them
        return recognised(subject, finding, *_at_hand(subject, finding.case, executor))
    if finding.code == OTHER_LOSS:
        return recognised(subject, finding) or explain_log(subject, finding, executor)
    if how is Diagnosed.SYMPTOM or finding.term is not None:
        found = recognised(subject, finding)
        return found or explain_term(subject, finding, executor, own)
    if subject.objective is not None and shown and how is Diagnosed.WEIGHTS:
        resting = replace(finding, case=at_rest(finding.case))
        mine = list(map(at_rest, own))
        found = _weights(subject, resting, executor, mine, lambda: map(at_rest, others()))
        if found is not None:
            return _in_words(found, "with all inputs 0, divided by the slope there: ")
    if subject.nonlinear and shown:
        return _nonlinear(subject, finding, executor, own)
    if how is Diagnosed.BEHIND_THE_MASK:
        return _behind_the_mask(subject, finding, executor, own)
    if not shown and how is not Diagnosed.VALUE:
        return failure(subject, finding, executor)
    found = _weights(subject, finding, executor, own, others)
    if found is None and finding.signs:
        return recognised(subject, finding)
    if found is not None and subject.compares:
        return _in_words(found, "apart from the sign: ")
    return found


def _in_words(found: Diagnosis, scope: str) -> Diagnosis:
    """Replace a formula, as it holds of other numbers than the finding's, by words and scope."""
    if found.form is None:
        return found
    sentence = scope + found.sentence
    bug = found.bug
    formula = described(found.form) if isinstance(found.form, ClosedForm) else found.sentence
    if bug is not None and (bug.sentence == found.sentence or formula in bug.sentence):
        bug = structs.replace(bug, sentence=scope + bug.sentence)
    return replace(found, sentence=sentence, bug=bug, form=None)


def _weights(
    subject: Subject,
    finding: Finding,
    executor: Executor,
    own: Sequence[Case],
    same_layout: Callable[[], Iterable[Case]],
) -> Diagnosis | None:
    space = spread(subject, min_units=1)
    fitting = _stored(subject)
    mine = [finding.case, *own]
    if (usual := _right_usually(subject, executor, [*mine, *fitting])) is not None:
        return deviation(subject, usual)
    judged = subject.at_rest
    unit = [] if subject.compares else [unit_case()]
    found = _observe(subject, executor, [*unit, *mine, *fitting])
    others = [case for case in more_cases(subject.max_world, space.cp_kinds) if case in space]
    others = others if subject.objective is None else list(map(at_rest, others))
    for _ in range(_ROUNDS):
        case = distinguishing_case(list(found.values()), others)
        if case is None:
            break
        found |= _observe(subject, executor, [case])
    for _ in range(_ROUNDS):
        diagnosis = diagnose(judged, finding, _tiers(finding, found, mine))
        if diagnosis is None or diagnosis.form is None:
            return diagnosis
        tried = _foretold_wrong(judged, diagnosis.form, chain(same_layout(), others))
        new = list(islice((case for case in tried if _double(case) not in found), _TRIED))
        seen = _observe(subject, executor, new)
        if all(_is_as_foretold(diagnosis.form, o) for o in seen.values()):
            return diagnosis
        found |= seen
        mine += new
    return diagnose(judged, finding, _tiers(finding, found, mine))


def _stored(subject: Subject) -> list[Case]:
    """Hard cases and the grid, as far as the subject has such layouts."""
    space = spread(subject, min_units=1)
    stored = (*hard_cases(), *grid(subject.max_world, space.cp_kinds))
    stored = (*stored, *_of_groups(subject.group_size or 0))
    return [case for case in stored if case in space]


def _of_groups(size: int) -> Iterator[Case]:
    """Yield two and three prompt groups of one size.

    With one, a count of groups cannot be distinguished from another factor. Groups of stored cases
    are smaller.
    """
    for number in (2, 3) if size else ():
        groups = (
            " ".join(f"1/{'1' * (1 + (g + i) % 3)}" for i in range(size)) for g in range(number)
        )
        step = parse_step("; ".join(groups))
        yield Case(step, Layout.trivial(number * size), plain_losses(step))


def _nonlinear(
    subject: Subject, finding: Finding, executor: Executor, own: Sequence[Case]
) -> Diagnosis | None:
    """Diagnose a count, or a statistic of the values, that is of one rank or micro-batch."""
    if finding.traits.diagnosed is Diagnosed.BEHIND_THE_MASK:
        return recognised(subject, finding, *_reached(subject, finding, executor))
    if finding.case.layout.is_trivial:
        return recognised(subject, finding)
    rest = [at_rest(case) for case in (finding.case, *own, *_stored(subject))]
    count = count_at_hand(list(_observe(subject, executor, rest).values()))
    signs = [] if count is not None else _at_hand(subject, finding.case, executor)
    if count is not None or signs:
        return diagnose_nonlinear(subject, finding, count, *signs)
    several = _observe(subject, executor, _of_one_step(subject))
    count = count_of_a_part(list(several.values()))
    found = diagnose_nonlinear(subject, finding, count)
    if count is None or found is None or found.bug is None:
        return found
    bug = structs.replace(found.bug, sentence=f"of a part: {found.bug.sentence}")
    return replace(found, bug=bug)


def _of_one_step(subject: Subject) -> list[Case]:
    """Return cases of two steps, each laid out in several ways."""
    space = spread(subject, min_units=1)
    kind = space.cp_kinds[0] if space.cp_kinds else "zigzag"
    found = []
    for text in ("1/11; 1/1; 2/111; 1/11", "1/111; 3/1101; 1/1; 2/11111"):
        step = parse_step(text)
        for dp, cp, k in ((1, 1, 2), (1, 1, 4), (2, 1, 1), (4, 1, 1), (2, 1, 2), (1, 2, 1)):
            cells = tuple(
                tuple(range(n * 4 // (dp * k), (n + 1) * 4 // (dp * k))) for n in range(dp * k)
            )
            dealt = tuple(cells[d * k : d * k + k] for d in range(dp))
            found.append(Case(step, Layout(dealt, cp, kind), plain_losses(step)))
    return [case for case in found if case in space]


def _with_one_sign(
    subject: Subject, finding: Finding, executor: Executor, own: Sequence[Case]
) -> Finding:
    """Return the finding with that one of its signs which another case shows alone, if any does."""
    for case in own:
        found = clipping.CHECK.judge(subject, executor.run(subject, clipping.CHECK.variants(case)))
        if found is not None and len(found.signs) == 1 and found.signs[0] in finding.signs:
            return replace(finding, signs=found.signs)
    return finding


def _reached(subject: Subject, finding: Finding, executor: Executor) -> list[str]:
    """Return the sign of values behind the mask that change what an unmasked token weighs."""
    clean = executor.run(subject, [finding.case])[0].weights
    if clean is None:
        return []
    changed = np.flatnonzero(~(clean == np.array(finding.observed))).tolist()
    return [OF_THE_MASKED] if set(changed).difference(finding.case.masked_tokens()) else []


def _at_hand(subject: Subject, case: Case, executor: Executor) -> list[str]:
    """Return the first kind of values whose part in the weights ends at a micro-batch or rank.

    Seen on the case, or on two larger ones, on which more is changed.
    """
    found: list[str] = []
    cp_size = case.layout.cp_size
    same_layout = [c for c in _of_one_step(subject) if (c.layout.cp_size > 1) == (cp_size > 1)]
    for each in (case, *same_layout[-2:]):
        tried = list(probes(_double(each)))
        seen = _observe(subject, executor, [each, *(probe.case for probe in tried)])
        before = seen.get(_double(each))
        if before is not None:
            pairs = ((p.sign, is_at_hand(p, before, seen[p.case])) for p in tried if p.case in seen)
            found += [sign for sign, is_it in pairs if is_it]
        if OF_THE_ROWS in found:
            return [OF_THE_ROWS]
    return found[:1]


def _foretold_wrong(subject: Subject, form: Predicts, cases: Iterable[Case]) -> Iterator[Case]:
    """Yield those for which a formula foretells other weights than the mode's.

    There it shows whether it is what is computed: many other formulas foretell the right ones too.
    """
    for case in cases:
        expected = subject.expected(case.step)
        if expected is not None and case.step.num_unmasked:
            mask = b"".join(sample.loss_mask for sample in case.step.samples)
            right = np.array([float(w) for w, bit in zip(expected, mask, strict=True) if bit])
            if not close(form.predict([case]), right):
                yield case


def _is_as_foretold(form: Predicts, seen: WeightObservation) -> bool:
    return not seen.mask.any() or close(seen.observed[seen.mask], form.predict([seen.case]))


def _right_usually(subject: Subject, executor: Executor, cases: Sequence[Case]) -> str | None:
    """Where the engine deviates: the usual one that the reducer is right under, if there is one."""
    deviates = subject.engine.deviates
    for name in () if deviates is None else deviates.usual:
        other = subject.under(name)
        found = _observe(other, executor, cases)
        if len(found) == len(_wanted(other, cases)) and all(is_right(o) for o in found.values()):
            return name
    return None


def _tiers(
    finding: Finding, found: dict[Case, WeightObservation], own: Sequence[Case]
) -> list[list[WeightObservation]]:
    """Return all observations; those of its kind of shards; of the check's own cases; of both."""
    kind = finding.case.layout.cp_kind
    everything = list(found.values())
    wanted = {_double(case) for case in own} | {_double(case.trivial) for case in own}

    def of_its_kind(observations: list[WeightObservation]) -> list[WeightObservation]:
        layouts = ((o, o.case.layout) for o in observations)
        return [o for o, layout in layouts if layout.cp_size == 1 or layout.cp_kind == kind]

    mine = [o for o in everything if o.case in wanted]
    return [everything, of_its_kind(everything), mine, of_its_kind(mine)]


def _wanted(subject: Subject, cases: Iterable[Case]) -> list[Case]:
    """Return what is run of these cases, each once; an objective is observed at rest."""
    rest = subject.objective is not None
    wanted = [_double(at_rest(case) if rest else case) for case in cases]
    return list(dict.fromkeys([*(case.trivial for case in wanted), *wanted]))


def _observe(
    subject: Subject, executor: Executor, cases: Iterable[Case]
) -> dict[Case, WeightObservation]:
    """Run the cases and their trivial layouts in float64; what does not finish is left out."""
    distinct = _wanted(subject, cases)
    done = dict(zip(distinct, executor.diagnosed(subject, distinct), strict=True))
    found = {}
    for case, execution in done.items():
        seen = _observed(subject, execution, done[case.trivial])
        if seen is not None:
            found[case] = seen
    return found


def _observed(
    subject: Subject, execution: Execution, control: Execution | None = None
) -> WeightObservation | None:
    if execution.weights is None:
        return None
    found = WeightObservation(
        execution.case,
        execution.weights,
        subject.at_rest.expected(execution.case.step),
        execution.value,
        execution.local_losses,
        control.weights if control is not None else None,
        EXPERTS in subject.features,
    )
    if subject.objective is not None:
        return found.upright(float(at(subject.objective.slope, Fraction(0))))
    return found.upright(1.0) if subject.compares else found


def _double(case: Case) -> Case:
    return replace(case, dtype="float64")


def _not_finite(
    subject: Subject, finding: Finding, executor: Executor, own: Sequence[Case]
) -> Diagnosis | None:
    """Where something is not finite, with and without units that are empty.

    In float64 first, then as it was found.
    """
    space = spread(subject, min_units=1, empty_samples=True)
    stored = (*hard_cases(), *grid(subject.max_world, space.cp_kinds))
    cases = [finding.case, *own, *(c for case in stored for c in (case, *fully_masked(case)))]
    fitting = [case for case in cases if case in space or case is finding.case]
    found = list(_observe(subject, executor, fitting).values())
    if not_finite(found) is None:
        ran = executor.run(subject, [finding.case, *own])
        found = [o for o in (_observed(subject, e) for e in ran) if o is not None]
    return diagnose_not_finite(subject, finding, found)


def _behind_the_mask(
    subject: Subject, finding: Finding, executor: Executor, own: Sequence[Case]
) -> Diagnosis | None:
    """Weights at masked tokens explain it; failing that, what each kind of value does there."""
    plain = diagnose_mask(subject, finding, list(_observe(subject, executor, own).values()))
    if plain is not None:
        return plain
    # Where nothing else is in the sum, what is added and subtracted again leaves no trace.
    unmasked_once = parse_step("1/100")
    clean = [
        _double(finding.case),
        Case(unmasked_once, Layout.trivial(1), plain_losses(unmasked_once)),
    ]
    wanted = [case for plain in clean for case in (plain, *(poisoned(plain, p) for p in Poison))]
    ran = iter([_observed(subject, execution) for execution in executor.run(subject, wanted)])
    runs = [(next(ran), dict(zip(Poison, ran, strict=False))) for _ in clean]
    return diagnose_behind(subject, finding, mask_leak(runs))
