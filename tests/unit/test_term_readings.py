"""A term that is a mean per micro-batch by design, once that is said."""

from __future__ import annotations

from fractions import Fraction

import pytest

from aggverify.checks import terms
from aggverify.execution.claim import Claim
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.execution.term_readings import TERM_READINGS
from aggverify.run.opening import opened
from aggverify.run.search.explaining_terms import explain_term
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool
from tests.conftest import EXAMPLES, Cli

STEP = parse_step("1/11 1/1; 1/101 1/0111")


def case(cp: int, kind: CpKind = "zigzag") -> Case:
    layout = Layout(parse_micro_batches("0 1 | 2 3"), cp, kind)
    return Case(STEP, layout, (0.5,) * STEP.num_response_tokens)


def test_weights_of_a_micro_batch_and_rank() -> None:
    mine = TERM_READINGS["micro_batch_mean"].weights(case(1))
    half, third = Fraction(1, 8), Fraction(1, 12)
    assert mine == (half, half, Fraction(1, 4), half, 0, half, 0, third, third, third)
    assert TERM_READINGS["whole_micro_batch_mean"].weights(case(1)) == mine
    assert TERM_READINGS["micro_batch_mean"].weights(case(2, "gathered")) == tuple(
        w / 2 for w in mine
    )
    assert TERM_READINGS["whole_micro_batch_mean"].weights(case(2, "gathered")) == mine


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("balanced_by_micro_batch", ""),
        ("_balanced_without_k", "num_microbatches times too large"),
        ("_balanced_over_ranks_twice", "x 1/dp_size"),
        (
            "_balanced_with_masked_tokens",
            "sum of l / (response tokens within one dp rank and cp rank and micro-batch x dp_size "
            "x cp_size x num_microbatches), apart from its coefficient",
        ),
    ],
)
def test_a_declared_reading_is_judged_and_explained(
    name: str, told: str, shared_pool: Pool
) -> None:
    claim = Claim("r.py", name, "native", "mean", "token_mean", terms=("aux=micro_batch_mean",))
    subject = Subject.of(claim)
    assert subject.terms == ("aux",)
    with opened(shared_pool, {"module": "tests.corpus.term_readings"}) as template:
        ranks = Executor(template)
        for each in (case(1), case(2), case(2, "gathered")):
            found = terms.judge(subject, ranks.run(subject, terms.variants(each)))
            assert (found is None) is (not told), found
            if found is not None:
                assert (found.code, found.term) == (terms.CODE, "aux")
                diagnosis = explain_term(subject, found, ranks, ())
                assert diagnosis is not None and diagnosis.sentence == told


def test_what_is_no_term_or_reading_is_refused(cli: Cli) -> None:
    path = EXAMPLES / "native" / "sum" / "token_mean.py"
    refused = cli("check", path, "--mode", "token_mean", "--terms", "aux=micro_batch_mean")
    assert refused.code == 2
    assert "unknown auxiliary term 'aux'" in refused.err, refused
    assert "--terms takes TERM=READING" in cli("check", path, "--terms", "aux").err
