"""One cause is one finding: a formula that gives the weights of several cases is told once."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis, WeightObservation, diagnose, merge_diagnoses
from aggverify.diagnosis.bugs import BUGS
from aggverify.diagnosis.forms import ClosedForm
from aggverify.diagnosis.terms import TOKENS, Term
from aggverify.diagnosis.wording import fix
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import hard_cases, plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

CELL = ("dp rank", "micro-batch")
HERE = ("dp rank", "cp rank", "micro-batch")
ROW_MEANS = ClosedForm(
    Term(TOKENS, "sample", ("cp rank",)), (Term("samples", "", CELL),), (-1, -1, -1)
)
OWN_TOKENS = ClosedForm(Term(TOKENS, "", HERE), (), (-1, -1, 0))
WIDTH = ClosedForm(
    Term("the longest piece of a response", "", HERE), (Term("rollouts"),), (0, 0, 0)
)
CASES = hard_cases()
LETTERS = " (D data-parallel ranks, C context-parallel ranks, K micro-batches, N rollouts)"


def subject(mode: str, engine: str) -> Subject:
    divisor = 16.0 if mode == "constant" else None
    return Subject.of(Claim("t.py", "f", "native", engine, mode, divisor))


def observed(about: Subject, case: Case, form: ClosedForm) -> WeightObservation:
    """A case as a reducer of this form has it."""
    mask = np.frombuffer(b"".join(s.loss_mask for s in case.step.samples), dtype=np.uint8)
    weights = np.zeros(len(mask))
    weights[mask == 1] = form.predict([case])
    return WeightObservation(case, weights, about.expected(case.step))


def finding(code: str, about: Subject, seen: WeightObservation) -> Finding:
    assert seen.expected is not None
    off = [abs(Fraction(w) - e) for w, e in zip(seen.observed.tolist(), seen.expected, strict=True)]
    worst = max(range(len(off)), key=off.__getitem__)
    weights = tuple(seen.observed.tolist())
    return Finding(
        code, "a check", "", seen.case, about.mode, seen.expected, weights,
        token=worst, error=off[worst], bound=Fraction(1, 10**14),
    )  # fmt: skip


def case(step: str, cells: str, cp: int = 1) -> Case:
    parsed = parse_step(step)
    return Case(parsed, Layout(parse_micro_batches(cells), cp), plain_losses(parsed))


SMALL = case("1/1+1/11", "0,1"), case("1/1; 1/1", "0 1"), case("1/1; 1/1", "0 | 1")


@pytest.mark.parametrize(
    ("mode", "engine", "form", "bug", "says", "fix"),
    [
        (
            "sample_mean", "mean", ROW_MEANS, "mean-of-sample-means",
            "the token mean of each sample within one context-parallel rank, averaged over the "
            "samples within one dp rank and micro-batch, then over data-parallel ranks, "
            "context-parallel ranks and micro-batches",
            "return D*C * sum(w*l) over its own tokens, with w = 1 / (unmasked tokens of the "
            "rollout x rollouts of the step), counted once for the whole step" + LETTERS,
        ),
        (
            "token_mean", "mean", OWN_TOKENS, "counted-where-it-stands",
            "the token mean of each data-parallel rank, context-parallel rank and micro-batch, "
            "averaged over data-parallel ranks and context-parallel ranks, added up over "
            "micro-batches",
            "return D*C * sum(w*l) over its own tokens, with w = 1 / (unmasked tokens of the "
            "step), counted once for the whole step" + LETTERS,
        ),
        (
            "constant", "sum", WIDTH, "padded-width",
            "the padded width of the batch at hand for the constant divisor",
            "pass the divisor as a number that no batch changes",
        ),
    ],
    ids=["TRL grpo", "prime-rl", "verl"],
)  # fmt: skip
def test_a_formula_of_several_mistakes_has_one_sentence_and_one_fix(
    mode: str, engine: str, form: ClosedForm, bug: str, says: str, fix: str
) -> None:
    about = subject(mode, engine)
    seen = [observed(about, c, form) for c in (*CASES, *SMALL)]
    told = diagnose(about, finding("AGV202", about, seen[-1]), [seen])
    assert told is not None and told.bug is not None
    assert (told.bug.name, told.bug.sentence, told.bug.fix) == (bug, says, fix)


def test_a_formula_takes_in_every_finding_whose_weights_it_gives() -> None:
    about = subject("sample_mean", "mean")
    found = [
        finding(code, about, observed(about, c, ROW_MEANS))
        for code, c in zip(("AGV101", "AGV202", "AGV203"), SMALL, strict=True)
    ]
    general = Diagnosis("rows", root="rows", form=ROW_MEANS)
    # Two ranks alone look like a mean over ranks; that is no formula of the others.
    narrow_form = ClosedForm(Term(TOKENS, "", ("dp rank",)), (), (-1, 0, 0))
    narrow = Diagnosis("ranks", root="ranks", form=narrow_form)
    assert (
        merge_diagnoses([(found[0], general), (found[1], None), (found[2], narrow)])
        == [general] * 3
    )


def test_a_finding_keeps_its_own_where_the_formula_gives_other_weights() -> None:
    about = subject("sample_mean", "mean")
    seen = observed(about, SMALL[0], ROW_MEANS)
    other = replace(finding("AGV112", about, seen), observed=(0.7, 0.1, 0.1))
    general = Diagnosis("rows", root="rows", form=ROW_MEANS)
    assert merge_diagnoses([(finding("AGV101", about, seen), general), (other, None)]) == [
        general,
        None,
    ]


def test_what_is_not_finite_or_told_by_a_sign_is_left_alone() -> None:
    about = subject("sample_mean", "mean")
    seen = observed(about, SMALL[0], ROW_MEANS)
    first = finding("AGV101", about, seen)
    nan = replace(first, code="AGV111", observed=(float("nan"),) * 3)
    sign = Diagnosis("a sign", root="a sign")
    general = Diagnosis("rows", root="rows", form=ROW_MEANS)
    assert merge_diagnoses([(first, general), (nan, None), (first, sign)]) == [general, None, sign]


def test_a_formula_heads_no_case_whose_weights_it_misses_by_more_than_the_bound() -> None:
    """All weights fit to a millionth; the finding itself is smaller than that."""
    about = subject("token_mean", "sum")
    form = ClosedForm(Term(TOKENS, "", HERE), (), (0, 0, 0))
    seen = [observed(about, c, form) for c in CASES]
    alone = observed(about, case("1/1 1/11", "0,1"), form)
    shifted = replace(alone, observed=alone.observed * (1 + 1e-8))
    told = diagnose(about, finding("AGV101", about, shifted), [[*seen, shifted]])
    assert told is None or told.form is None


def test_a_factor_heads_no_case_whose_weights_it_misses_by_more_than_the_bound() -> None:
    """Twice the weights to a millionth, and still something else besides."""
    about = subject("token_mean", "sum")
    mode = ClosedForm(Term(TOKENS), (), (0, 0, 0))
    twice = [observed(about, c, mode) for c in (*CASES, *SMALL)]
    twice = [replace(seen, observed=seen.observed * 2) for seen in twice]
    told = diagnose(about, finding("AGV101", about, twice[-1]), [twice])
    assert told is not None and told.factor == "2"
    shifted = replace(twice[-1], observed=twice[-1].observed * (1 + 1e-8))
    about_it = finding("AGV101", about, shifted)
    far = replace(about_it, error=Fraction(1, 10**9))
    assert diagnose(about, far, [[*twice[:-1], shifted]]) is None


def test_weights_that_depend_on_the_losses_explain_wrong_ones_that_nothing_else_does() -> None:
    about = subject("token_mean", "sum")
    seen = observed(about, SMALL[0], OWN_TOKENS)
    wrong = finding("AGV101", about, seen)
    cause = replace(wrong, code="AGV131", observed=None)
    known = Diagnosis("not linear", None, None, "not linear")
    assert merge_diagnoses([(wrong, None), (cause, known)]) == [known, known]
    assert merge_diagnoses([(wrong, None), (cause, None)]) == [None, None]
    own = Diagnosis("another", None, None, "another")
    assert merge_diagnoses([(wrong, own), (cause, known)]) == [own, known]


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ("sum", ""),
        ("mean", ", times D*C (D data-parallel ranks, C context-parallel ranks)"),
        ("megatron-sample", ", times N (N rollouts)"),
        ("megatron-token", ", times (tokens of the step)"),
    ],
)
def test_a_fix_is_the_whole_of_what_the_engine_asks_for(engine: str, told: str) -> None:
    about = subject("token_mean", engine)
    [divides] = (bug for bug in BUGS if bug.name == "mean-over-cells")
    [other] = (bug for bug in BUGS if bug.name == "padded-width")
    assert fix(divides, about) == divides.fix + told
    assert fix(other, about) == other.fix
