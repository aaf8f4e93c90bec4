"""More mutants of the checks on behaviour: found on the default budget, on their smallest step."""

from __future__ import annotations

import pytest

from aggverify.checks import check
from aggverify.execution.budget import PROFILES
from aggverify.execution.executor import Executor
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.triage import confirm
from aggverify.steps.notation import parse_micro_batches
from tests.conftest import SEEDS
from tests.corpus.families import MUTANTS
from tests.mutants.conftest import subject_of

ONE_TOKEN = (1, 1)
SMALLEST = [
    # check, mutant, code, (samples, tokens), micro-batches, context-parallel size
    ("keeps_nothing_between_steps", "previous_denominator", "AGV408", ONE_TOKEN, "0", 1),
    ("keeps_nothing_between_steps", "reduced_once", "AGV408", ONE_TOKEN, "0", 2),
    ("linear_in_the_losses", "scaled_before_a_threshold", "AGV131", ONE_TOKEN, "0", 1),
    ("leaves_its_arguments_alone", "masks_in_place", "AGV502", ONE_TOKEN, "0", 1),
    ("logs_say_the_objective", "metric_summed_over_cp", "AGV511", ONE_TOKEN, "0", 2),
    ("logs_say_the_objective", "keys_in_another_order", "AGV512", (2, 2), "0 | 1", 1),
    ("bad_arguments_raise", "zip_without_strict", "AGV504", ONE_TOKEN, "0", 1),
]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("name", "function", "code", "size", "micro_batches", "cp"),
    SMALLEST,
    ids=[f"{row[0]}-{row[1]}" for row in SMALLEST],
)
def test_smallest_step(
    executor: Executor,
    name: str,
    function: str,
    code: str,
    size: tuple[int, int],
    micro_batches: str,
    cp: int,
    seed: int,
) -> None:
    [mutant] = [m for m in MUTANTS if m.function == function]
    subject, wanted = subject_of(mutant, executor).claiming(seed=seed), check(name)
    space = wanted.space(subject)
    assert space is not None
    check_run = CheckRun(wanted, subject, space, executor, RunStatistics(), lambda: None)
    examples = min(PROFILES["ci"].examples, wanted.max_examples or 10**9)
    finding = check_run.run(examples=examples)
    assert finding is not None
    case = finding.case
    found = (len(case.step.samples), case.step.num_response_tokens)
    assert (finding.code, found, case.layout.cp_size) == (code, size, cp)
    assert case.layout.micro_batches == parse_micro_batches(micro_batches)
    assert confirm(check_run, finding)
