"""The text of a snapshot: exact, and refused line by line where it is none of ours."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.generation.corpus import VERSION, corpus
from aggverify.oracles import Policy
from aggverify.snapshot.comparing import Allowed, Level, Moved, _level
from aggverify.snapshot.file import NumericEnvironment, Snapshot, read, write
from aggverify.snapshot.pinned import EntryKey, Pinned, PinnedEntry, hexadecimal
from aggverify.snapshot.session import Compared

KEY = EntryKey("token_mean", "a_case", "dp2.cp1.mb1", "float64")
WEIGHTS = Pinned.of([0.25, 0.25])
ENTRY = PinnedEntry(
    {
        "value": Pinned.of([0.1]),
        "losses": Pinned.of([0.1]),
        "weights": Pinned.of([-0.0, math.inf, math.nan]),
    }
)
POLICY = Policy(denominators="original")
CLAIM = Claim("r.py", "reduce", "native", "sum", "token_mean", policy=POLICY)
SNAPSHOT = Snapshot(
    "r.py:reduce",
    NumericEnvironment("2.6.0+cpu", "AVX512", "1"),
    {"token_mean": CLAIM},
    {KEY: ENTRY},
)


@example([0.0] * 7 + [2.3e307, -2.0e307])
@example([0.0] * 7 + [1.7e308 / 8, 1.7e308 / 9])
@given(st.lists(st.floats()))
def test_numbers_are_read_as_they_were_written(numbers: list[float]) -> None:
    pinned = Pinned.of(numbers)
    assert str(Pinned.read(str(pinned))) == str(pinned)
    if len(numbers) <= 8:
        read_again = Pinned.read(str(pinned)).numbers
        assert read_again is not None
        assert [x.hex() for x in read_again] == [float(x).hex() for x in numbers]


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_two_numbers_have_two_texts(one: float, other: float) -> None:
    same = one.hex() == other.hex()
    assert (hexadecimal(one) == hexadecimal(other)) == same


def test_of_many_a_small_one_that_changes_is_seen_with_its_size() -> None:
    row = [1.0, *[0.001] * 20]
    before, after = Pinned.of(row), Pinned.of([*row[:-1], 0.002])
    assert before.numbers is None and before.largest == after.largest == 1.0
    assert before.digest != after.digest
    assert 0.001 < after.projection - before.projection < 0.002


def test_of_many_what_moves_between_places_is_seen_with_its_size() -> None:
    """Whatever sums of them it leaves as they were."""
    row = [0.1] * 9 + [0.5]
    for moved in ([0.03, 0.0, -0.01], [0.02, -0.04, 0.02], [0.0, 0.05, -0.05]):
        other = [x + y for x, y in zip(row, [*moved, *[0.0] * 7], strict=True)]
        allowed = Allowed(4, "float64", [Fraction(1, 10**12)] * 10, Fraction(1, 10**12))
        before, now = Pinned.of(row), Pinned.of(other)
        assert before.largest == now.largest
        assert _level(before, now, allowed)[0] is Level.CHANGED


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write(SNAPSHOT, tmp_path, "s.txt")
    text = path.read_text()
    assert str(read(path).entries) == str(SNAPSHOT.entries)
    assert read(path).claims["token_mean"].policy == CLAIM.policy
    assert text.endswith("dp2.cp1.mb1 float64 value=0x1.999999999999ap-4 weights=-0x0p+0,inf,nan\n")
    assert write(read(path), tmp_path, "t.txt").read_text() == text


def test_what_is_as_usual_is_left_out_and_read_again(tmp_path: Path) -> None:
    alone = PinnedEntry({"value": Pinned.of([0.5]), "losses": Pinned.of([0.5]), "weights": WEIGHTS})
    laid_out = PinnedEntry({**alone.values, "losses": Pinned.of([0.25, 0.25, 0.0], 2, bare=True)})
    other = PinnedEntry({**alone.values, "weights": Pinned.of([0.5, 0.25])})
    failed = PinnedEntry(fault="exception:ValueError")
    places = ("dp1.cp1.mb1", "dp1.cp1.mb2", "dp2.cp1.mb1", "dp4.cp1.mb1")
    given = zip(places, (alone, laid_out, other, failed), strict=True)
    entries = {replace(KEY, layout=place): entry for place, entry in given}
    path = write(replace(SNAPSHOT, entries=entries), tmp_path, "s.txt")
    told = [line.split(" float64 ")[1] for line in path.read_text().split("\n")[-5:-1]]
    assert told == [
        "value=0x1p-1 weights=0x1p-2*2",
        f"value=0x1p-1 losses={laid_out.values['losses']}",
        "value=0x1p-1 weights=0x1p-1,0x1p-2",
        "fault=exception%3AValueError",
    ]
    assert str(read(path).entries) == str(entries)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("value=", "value=x", "line 8: not a line of a snapshot: 'token_mean a_case "),
        ("token_mean a_case", "<<< HEAD\ntoken_mean a_case", "a snapshot: '<<< HEAD'; record"),
        ("# corpus 2\n", "", "is no snapshot: a line '# corpus 2' is missing"),
        ("# corpus 2", "# corpus 77", "was recorded with corpus '77', this is corpus 2"),
        ("# torch 2.6.0+cpu\n", "", "its header lacks torch"),
        ('"native"', '"natve"', "claim token_mean: unknown convention 'natve'"),
        ('{"conv', '{{"conv', "claim token_mean cannot be read"),
        ("float64 value", "float64 value=0x1p+0\ntoken_mean a_case dp2.cp1.mb1 float64 value",
         "line 9: a second entry for token_mean a_case dp2.cp1.mb1 float64"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = write(SNAPSHOT, tmp_path, "s.txt")
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        read(path)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("before", "now", "level"),
    [
        (1.0, 1.0, Level.IDENTICAL),
        (math.nan, math.nan, Level.IDENTICAL),
        (0.0, -0.0, Level.ULPS),
        (1.0, 1.0 + 4 * 2**-52, Level.ULPS),
        (1.0, 1.0 + 5 * 2**-52, Level.BOUND),
        (1.0, 1.0 + 2**-40, Level.CHANGED),
        (0.0, 5e-324, Level.CHANGED),
        (1.0, math.inf, Level.CHANGED),
    ],
)
def test_how_far_a_number_moved(before: float, now: float, level: Level) -> None:
    bound = abs(float(before)) * 2**-48
    given = Fraction(bound) if math.isfinite(bound) else Fraction(0)
    assert Allowed(4, "float64", (), Fraction(0)).level(before, now, given) is level


def test_the_corpus_has_names_and_reasons() -> None:
    assert VERSION == 2
    for hard in corpus():
        assert hard.name.isidentifier() and hard.why and hard.bug and hard.shows
    assert len({hard.case for hard in corpus()}) == len(corpus())


@pytest.mark.parametrize("level", list(Level))
def test_what_fails_where(level: Level) -> None:
    other = NumericEnvironment("2.7.0+cpu", "AVX2", "1")
    here, elsewhere = (
        Compared(SNAPSHOT, "r.py", where, (Moved(KEY, level),))
        for where in (SNAPSHOT.environment, other)
    )
    assert here.fails == (level is not Level.IDENTICAL)
    assert elsewhere.fails == (level > Level.BOUND)
    words = ("torch 2.7.0+cpu instead of 2.6.0+cpu", "processor AVX2 instead of AVX512")
    assert (here.elsewhere, elsewhere.elsewhere) == ((), words)


def test_a_changed_corpus_is_another_version() -> None:
    """Whoever changes a case that snapshots name raises VERSION, and this digest with it."""
    named = [(hard.name, hard.case.to_json()) for hard in corpus()]
    digest = sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    assert (VERSION, digest[:12]) == (2, "82c67876a346")
