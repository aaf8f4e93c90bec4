"""The verifier verified: every known bug is killed and named, no right reducer is blamed."""

from __future__ import annotations

from types import ModuleType

import pytest

from aggverify.checks import shapes
from aggverify.codes import CODES
from aggverify.conventions import convention
from aggverify.diagnosis.bugs import BUGS
from aggverify.engines import ENGINES
from aggverify.execution.claim import is_nonlinear
from aggverify.execution.executor import Executor
from aggverify.oracles import MODES, PAIRED
from aggverify.run.outcome.statistics import RunStatistics
from aggverify.run.search.runner import CheckRun
from tests.choosing import first_of_each, thorough_at_times, thorough_but
from tests.contradicted import contradicted
from tests.corpus.base import Correct, Mutant
from tests.corpus.families import CORRECT, FAMILIES, MUTANTS
from tests.golden.rows import SEEDS
from tests.golden.table import golden
from tests.mutants.conftest import every_finding, first_told, subject_of

LAST_NUMBER = 89
EXAMPLES = 12


def name(entry: Mutant | Correct) -> str:
    return entry.function


def role(entry: Mutant | Correct) -> tuple[str, str]:
    return entry.convention, entry.engine


def covering(entry: Mutant | Correct) -> list[pytest.MarkDecorator]:
    return [pytest.mark.covers(convention=entry.convention, engine=entry.engine)]


FIRST = first_of_each(MUTANTS, role)
QUICK = FIRST[1:7:2]
"""Some of them, as each takes seconds."""
NAMED_OTHERWISE = {
    "clips_each_micro_batch": "clipped-before-ranks",
    "detached": "",
    "own_means_logged": "",
    "whole_counts_logged": "",
}
"""Mutants of which a whole run names another bug first, or none; one check alone names theirs."""
ROWS = golden()


@pytest.mark.parametrize(
    "mutant",
    thorough_but(
        MUTANTS,
        QUICK.__contains__,
        ids=name,
        marks=covering,
        # The golden table's sample has every convention and engine of a mutant.
        each=29,
    ),
)
def test_a_mutant_is_killed_and_named(mutant: Mutant, executor: Executor) -> None:
    told = first_told(mutant, executor)
    found = [(f.code, d.bug.name if d and d.bug else None) for f, d in told]
    assert {code for code, _ in found} & set(mutant.codes), found
    # What is told first must be the cause, not a consequence of it.
    assert found[0][1] == mutant.bug, found
    assert not [f for f, d in told if contradicted(f, d, mutant.divisor)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__.rpartition(".")[2])
def test_every_mutant_is_killed_and_named_with_every_seed(family: ModuleType) -> None:
    """Whole runs, as the golden table has them."""
    for mutant in family.MUTANTS:
        for seed in SEEDS:
            row = ROWS[f"mutant {family.__name__.removeprefix('tests.')}:{mutant.function} {seed}"]
            first = row["findings"][0]
            if mutant.function in NAMED_OTHERWISE:
                assert first["code"] in mutant.codes, mutant
            assert first["bug"] == NAMED_OTHERWISE.get(mutant.function, mutant.bug), mutant


# Of each convention, a right one by default: tests/frameworks/test_shipped.py.
@pytest.mark.parametrize("entry", thorough_at_times(CORRECT, 31, ids=name, marks=covering))
def test_a_right_reducer_is_not_blamed(entry: Correct, executor: Executor) -> None:
    assert every_finding(entry, executor, EXAMPLES) == []


@pytest.mark.parametrize("entry", thorough_at_times(CORRECT, 37, ids=name))
def test_a_right_reducer_holds_where_others_branch(entry: Correct, executor: Executor) -> None:
    subject = subject_of(entry, executor)
    run = CheckRun(shapes.CHECK, subject, shapes.space(subject), executor, RunStatistics())
    assert run.run(examples=EXAMPLES) is None


def test_the_table_is_sound() -> None:
    assert len({m.function for m in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        assert 1 <= mutant.number <= LAST_NUMBER
        assert mutant.mode in (*MODES, *PAIRED) or is_nonlinear(mutant.mode)
        assert mutant.engine in ENGINES
        assert set(mutant.codes) <= set(CODES)
        mode = None if is_nonlinear(mutant.mode) else mutant.mode
        refusal = convention(mutant.convention).why_not(mode, mutant.engine, frozenset())
        assert refusal is None


def test_every_bug_of_the_corpus_has_an_entry_and_every_entry_is_used_once() -> None:
    assert {m.bug for m in MUTANTS} <= {bug.name for bug in BUGS}
    assert all(bug.seen and bug.fix and bug.sentence for bug in BUGS)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__.rpartition(".")[2])
def test_every_reducer_of_a_family_is_in_its_table(family: ModuleType) -> None:
    mutants = {m.function for m in family.MUTANTS}
    right = {c.function for c in getattr(family, "CORRECT", ())}
    public = {n for n, v in vars(family).items() if callable(v) and _is_reducer(family, n, v)}
    assert public == mutants | right


def _is_reducer(family: ModuleType, attribute: str, value: object) -> bool:
    here = getattr(value, "__module__", None) == family.__name__
    return here and not attribute.startswith("_") and attribute not in ("reduce_loss", "Hook")
