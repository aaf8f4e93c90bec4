"""Reducers written blind: each wrong one is wrong on its witness, each right one on none."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest

from aggverify.checks import check, scalar, terms
from aggverify.codes import CODES
from aggverify.diagnosis.bugs import BUGS
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.run import session
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from reports import power
from tests.choosing import thorough_at_times, thorough_but
from tests.corpus import blind
from tests.corpus.judging import judged, request
from tests.corpus.table import BLIND, RIGHT, WAVES, WRONG, Blind
from tests.corpus.witness import Witness, run

COUNTS = {
    "untuned": (46, 34),
    "unread": (63, 67),
    "fresh": (54, 50),
    "latest": (58, 50),
    "later": (36, 28),
    "sixth": (45, 30),
    "seventh": (45, 30),
    "eighth": (45, 30),
    "ninth": (45, 30),
    "tenth": (45, 30),
    "eleventh": (40, 30),
    "twelfth": (40, 30),
    "thirteenth": (0, 40),
}
"""Wrong and right ones of each wave: no reducer is lost."""
QUICK = ("positions_in_a_byte",)
PLAIN = Witness("1")
"""One token: what every reducer here is right on."""
KINDS = ("zigzag", "contiguous", "gathered")
FIRST = "untuned"
"""The wave whose reducers have no witness, and are run as a whole instead."""
WITNESSED = [entry for entry in WRONG if entry.witness is not None]


def one_of_each_cause() -> set[str]:
    """For each cause the first reducer that has it and stands for no other cause; launched ranks
    take long, and come last."""
    chosen: set[str] = set()
    rows = sorted(WITNESSED, key=lambda e: e.witness is not None and bool(e.witness.where))
    for cause in sorted({cause for entry in WITNESSED for cause in entry.causes}):
        chosen.update([e.id for e in rows if cause in e.causes and e.id not in chosen][:1])
    return chosen


CHOSEN = one_of_each_cause()


def name(entry: Blind) -> str:
    return entry.id


def is_quick(entry: Blind) -> bool:
    return entry.id in QUICK


@contextmanager
def under_test(wanted: Request, pool: Pool) -> Iterator[tuple[Subject, Executor]]:
    """The reducer as its ranks have it."""
    with loaded(wanted, pool) as ((subject, *_), executor):
        yield subject, executor


def steps(seed: int, number: int) -> Iterator[Witness]:
    """Small random steps, on layouts of up to six ranks and any number of micro-batches."""
    chance = random.Random(seed)
    for _ in range(number):
        samples = chance.randint(1, 7)
        rest = list(range(samples))
        chance.shuffle(rest)
        cells = [[i] for i in rest[: chance.choice((1, samples, chance.randint(1, samples)))]]
        for i in rest[len(cells) :]:
            chance.choice(cells).append(i)
        ranks = chance.choice([d for d in (1, 2, 3) if len(cells) % d == 0])
        texts = [",".join(map(str, cell)) for cell in cells]
        per = len(texts) // ranks
        layout = " | ".join(" ".join(texts[d * per : (d + 1) * per]) for d in range(ranks))
        words = [
            f"{chance.randint(1, 9)}/{_mask(chance)}{joint}"
            for joint in chance.choices(("+", " ", "; "), k=samples)
        ]
        yield Witness(
            "".join(words).strip("+; "),
            layout,
            cp=chance.choice((1, 1, 2)),
            kind=chance.choice(KINDS),
            dtype=chance.choice(("float64", "float64", "float32", "bfloat16")),
            losses=tuple(chance.randint(-255, 255) / 64 for _ in range(11)),
        )


def _mask(chance: random.Random) -> str:
    density, length = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0)), chance.choice((1, 2, 3, 5, 9, 40))
    return "".join("1" if chance.random() < density else "0" for _ in range(length))


@pytest.mark.parametrize(
    "entry",
    thorough_but(
        WITNESSED,
        is_quick,
        ids=name,
        each=len(WITNESSED),
        always=lambda entry: entry.id in CHOSEN,
    ),
)
def test_a_wrong_one_is_wrong_on_its_witness_only(entry: Blind, shared_pool: Pool) -> None:
    assert entry.witness is not None
    with under_test(request(entry), shared_pool) as (subject, executor):
        assert run(subject, executor, [PLAIN]) == [""]
        # What is not waited for may have come by chance.
        races = entry.alone is not None and entry.alone.check == "waits_for_collectives"
        tries = range(1000 if races else 1)
        assert any(run(subject, executor, [entry.witness]) != [""] for _ in tries)


@pytest.mark.parametrize(
    "entry", thorough_at_times([e for e in RIGHT if e.wave != FIRST], 150, ids=name)
)
def test_a_right_one_is_right_on_every_witness(entry: Blind, shared_pool: Pool) -> None:
    tried = [*_known("kl" in entry.met.lower()), *steps(len(entry.id), 24)]
    with under_test(request(entry), shared_pool) as (subject, executor):
        found = run(subject, executor, tried)
    assert not _wrong(entry, tried, found)


# Whole runs: the golden sample has some of the same kind.
@pytest.mark.exhaustive
@pytest.mark.parametrize("entry", [e for e in WRONG if e.wave == FIRST], ids=name)
def test_a_wrong_one_of_the_first_wave_is_found(entry: Blind, shared_pool: Pool) -> None:
    exits, code, bug = judged(entry, 0, shared_pool)
    assert (exits == 1 and entry.is_cause(code, bug)) is not bool(entry.missed), (exits, code, bug)


@pytest.mark.exhaustive
@pytest.mark.parametrize("entry", [e for e in RIGHT if e.wave == FIRST], ids=name)
def test_a_right_one_of_the_first_wave_has_no_finding(entry: Blind, shared_pool: Pool) -> None:
    assert judged(entry, 0, shared_pool) == (0, "", "")


@pytest.mark.exhaustive
@pytest.mark.parametrize("entry", [e for e in WRONG if e.alone is not None], ids=name)
def test_one_check_alone_finds_it_and_names_nothing_else(entry: Blind, shared_pool: Pool) -> None:
    """A name of a bug that it is not is worse than none."""
    assert entry.alone is not None
    with under_test(request(entry), shared_pool) as (subject, executor):
        verdict = session.examine(subject, executor, checks=[check(entry.alone.check)])
    first = verdict.reports[0]
    known = first.diagnosis.bug if first.diagnosis is not None else None
    assert first.finding.code == entry.alone.code
    assert (known.name if known is not None else "") == entry.alone.bug


@pytest.mark.exhaustive
def test_a_right_loss_is_none_of_its_findings(shared_pool: Pool) -> None:
    """Its code branches as that of ``added_by_index`` does, whose loss is wrong there."""
    [entry] = (entry for entry in RIGHT if entry.id == "accumulated_by_index")
    with under_test(request(entry), shared_pool) as (subject, executor):
        assert not session.examine(subject, executor, checks=[scalar.CHECK]).reports


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("penalty_of_the_first_tokens", ["AGV207"]),
        ("penalty_in_two_parts", []),
        ("penalty_in_its_own_dtype", []),
        ("penalty_of_a_formula_of_its_own", []),
    ],
)
def test_a_term_keeps_its_mode_on_long_responses(
    name: str, codes: list[str], shared_pool: Pool
) -> None:
    """It has an oracle of its own where it has a mode's weights on a small step, and none where it
    has no mode's."""
    wanted = Request(f"tests.corpus.branches.penalties:{name}", modes=("token_mean",))
    with under_test(wanted, shared_pool) as (subject, executor):
        verdict = session.examine(subject, executor, checks=[terms.CHECK])
    assert [report.finding.code for report in verdict.reports] == codes
    assert all("token_mean's, times 0.25" in r.finding.message for r in verdict.reports)


def _known(terms: bool) -> list[Witness]:
    """Witnesses of the wrong ones, launched ranks apart; those of terms for reducers with terms;
    none with rejected tokens, of which this convention promises nothing."""
    found = [entry.witness for entry in WITNESSED if entry.witness is not None]
    usual = [w for w in found if not w.where and (terms or w.term is None)]
    return [w for w in usual if all(s.original_mask is None for s in w.case.step.samples)]


def _wrong(entry: Blind, tried: Sequence[Witness], found: Sequence[str]) -> list[str]:
    """What was wrong, but for a refusal of the reducer's own."""
    pairs = zip(tried, found, strict=True)
    refuses = "refuses" in entry.id
    return [
        f"{witness}: {text}"
        for witness, text in pairs
        if text and not (refuses and witness.kind == "gathered" and "not supported" in text)
    ]


def test_no_reducer_is_lost() -> None:
    counted = Counter((entry.wave, entry.verdict) for entry in BLIND)
    assert {w: (counted[w, "wrong"], counted[w, "right"]) for w in WAVES} == COUNTS
    assert len({entry.id for entry in BLIND}) == len(BLIND) == 1041


def test_every_function_has_a_line_and_every_line_a_function() -> None:
    folder = Path(blind.__path__[0])
    modules = {str(p.relative_to(folder).with_suffix("")) for p in folder.glob("*/*.py")}
    defined = {
        value
        for module in (m.replace("/", ".") for m in modules if not m.endswith("__init__"))
        for value in _reducers(f"{blind.__name__}.{module}")
    }
    assert defined == {entry.target for entry in BLIND}


def _reducers(module: str) -> list[str]:
    """The functions of a module that are no helpers."""
    found = vars(import_module(module)).items()
    mine = [n for n, value in found if isfunction(value) and value.__module__ == module]
    return [f"{module}:{n}" for n in mine if not n.startswith("_")]


def test_each_wrong_one_has_a_known_cause_and_no_other_counts() -> None:
    known = {*CODES, *(bug.name for bug in BUGS), "samples-dropped", "another-formula"}
    assert all(entry.causes and entry.causes | entry.also <= known for entry in WRONG)
    assert not any(entry.causes or entry.witness for entry in RIGHT)
    assert all((entry.witness is None) is (entry.wave == FIRST) for entry in WRONG)
    [one] = (entry for entry in WRONG if entry.id == "grid_rounded")
    assert one.is_cause("AGV101", "") and one.is_cause("AGV101", "another-formula")
    assert not one.is_cause("AGV301", "") and not one.is_cause("AGV101", "mask-shifted")


def test_each_wrong_one_has_its_mistaken_lines() -> None:
    for entry in WRONG:
        assert entry.mistake and {*entry.mistake} <= {*entry.source}, entry.id
    assert not any(entry.mistake for entry in RIGHT)


def test_the_first_runs_are_of_every_wrong_one_and_the_page_is_of_the_table() -> None:
    assert all(entry.first and "0" in entry.first for entry in WRONG)
    assert all(WAVES[entry.wave]["by"] and entry.met for entry in BLIND)
    assert power.page() == power.PAGE.read_text("utf-8"), "python reports/power.py"
    for path, picture in power.pictures().items():
        assert picture == path.read_text("utf-8")


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.3084971078187608),
        (10, 10, 0.6915028921812392, 1.0),
        (9, 10, 0.5549839, 0.9974714),
    ],
)
def test_intervals_are_clopper_and_pearsons(count: int, of: int, low: float, high: float) -> None:
    """None and all of n have closed forms; 9 of 10 stands in tables."""
    assert power.Share(count, of).interval == pytest.approx((low, high), abs=1e-7)
