"""The cause of a wrong auxiliary term or log is named where observations show it, only there."""

from __future__ import annotations

import pytest

from aggverify.checks import check
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.run.opening import loaded
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.planning.request import Request
from aggverify.run.search.explaining import explain
from aggverify.run.search.runner import CheckRun
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool

TERMS, LOGS = "auxiliary_terms_stay", "logs_say_the_objective"
LONG = "1/0" + "1" * 40
MAIN_PROCESS = "corpus.blind.worlds.main_process:logged_by_the_main_process"


@pytest.mark.parametrize(
    ("reducer", "judged", "step", "cells", "cause"),
    [
        (
            "corpus.blind.masks.behind:token_mean_of_what_is_stored",
            TERMS,
            "1/100",
            "0",
            "not-linear",
        ),
        ("corpus.blind.kernels.wrappers:penalty_in_chunks", TERMS, LONG, "0", None),
        ("corpus.blind.kernels.wrappers:chunk_means_logged", LOGS, LONG, "0", "wrong-normaliser"),
        (MAIN_PROCESS, LOGS, "1/1; 1/1", "0 | 1", "logged-in-part"),
        ("mutants.logged:last_token_not_logged", LOGS, "1/11; 1/1", "0,1", None),
        ("mutants.logged:largest_logged", LOGS, "1/11; 1/1", "0,1", None),
        ("mutants.logged:half_of_it_logged_in_float16", LOGS, "1/11; 1/1", "0,1", None),
    ],
)
def test_the_cause_is_named_or_left_open(
    reducer: str, judged: str, step: str, cells: str, cause: str | None, shared_pool: Pool
) -> None:
    request = Request(target=f"tests.{reducer}", modes=("token_mean",))
    given = parse_step(step)
    dtype = "float16" if "float16" in reducer else "float64"
    case = Case(given, Layout(parse_micro_batches(cells)), plain_losses(given), dtype)
    with loaded(request, shared_pool) as ([subject], executor):
        run = CheckRun(check(judged), subject, Space(), executor, RunStatistics())
        found = run.judge(case)
        assert found is not None, "nothing found"
        diagnosis = explain(subject, found, executor, [case])
    bug = None if diagnosis is None else diagnosis.bug
    assert (None if bug is None else bug.name) == cause
