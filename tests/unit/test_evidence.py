"""What is said of a finding that does not come back, and of weights that no rule makes 0."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from aggverify.checks import CHECKS, Finding
from aggverify.diagnosis import Observation, diagnose
from aggverify.report.reading import facts
from aggverify.run.search import evidence
from aggverify.run.search.check_run import CheckRun
from aggverify.run.search.evidence import Evidence, gather
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from tests import verdicts
from tests.unit.test_checks import PLAIN


class _Run:
    """A check's run, of which nothing but the subject and the check may be asked."""

    subject, check = PLAIN, CHECKS[0]


def _found() -> Finding:
    return verdicts.report(PLAIN).finding


def test_what_does_not_come_back_is_state_whatever_it_looks_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "_again", lambda run, finding: None)
    found = Evidence()
    run: CheckRun = _Run()  # type: ignore[assignment]
    told: list[Finding] = []
    gather(run, replace(_found(), fault=None), found, told.append)
    assert found.confirmed is False and not told
    assert found.diagnosis is not None and found.diagnosis.bug is not None
    assert found.diagnosis.bug.name == "state-between-steps"


def test_state_is_said_before_any_other_cause() -> None:
    [verdict] = verdicts.written(verdicts.verdict()).verdicts
    [finding] = verdict.findings
    assert facts(replace(finding, confirmed=False))[0].startswith("seen once, not again in fresh")
    assert not any("seen once" in line for line in facts(finding))


def _weighing(text: str, weights: list[float]) -> Observation:
    step = parse_step(text)
    case = Case(step, Layout.trivial(len(step.samples)), (1.0,) * step.num_response_tokens)
    bits = [bit for sample in step.samples for bit in sample.loss_mask]
    right = tuple(Fraction(bit, step.num_unmasked) for bit in bits)
    return Observation(case, np.array(weights), right, None, (), None)


def test_an_end_left_out_is_no_moved_mask_unless_a_masked_token_has_a_weight() -> None:
    whole = _weighing("1/1111", [0.25, 0.25, 0.25, 0.0])
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [[whole]])
    assert told is not None and told.bug is not None
    assert told.bug.name == "edge-token-dropped"
    holed = _weighing("1/0111", [1 / 3, 1 / 3, 1 / 3, 0.0])
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [[whole, holed]])
    assert told is not None and told.bug is not None
    assert told.bug.name == "mask-shifted"


def test_no_bug_is_named_for_samples_of_weight_0_that_no_rule_foretells() -> None:
    def seen(text: str, gone: int) -> Observation:
        step = parse_step(text)
        case = Case(step, Layout.trivial(len(step.samples)), (1.0,) * step.num_response_tokens)
        right = (Fraction(1, step.num_unmasked),) * step.num_unmasked
        weights = np.array([float(w) for w in right])
        start = step.offsets[gone]
        weights[start : start + step.samples[gone].response_length] = 0.0
        return Observation(case, weights, right, None, (), None)

    observations = [seen("1/1; 1/11; 1/111", 1), seen("1/111; 1/11", 0), seen("1/11; 1/1; 1/1", 2)]
    told = diagnose(PLAIN, replace(_found(), fault=None, observed=None), [observations])
    assert told is not None
    assert told.sentence == "some samples have weight 0 and are silently left out"
    assert told.bug is None
