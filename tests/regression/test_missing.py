"""Whatever goes missing from a verdict is coverage that is lost, or nothing was lost by it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify import codec, model
from aggverify.codes.state import Again
from aggverify.model import Verdict
from aggverify.regression.compare import compare
from aggverify.regression.model import Kind
from tests.regression.documents import again, document, verdict, waiver

GREEN = verdict()
FINDING = verdict(reports=1).findings[0]
FULL = replace(
    GREEN,
    claim={**GREEN.claim, "terms": ["kl"], "offered": ["token_mean", "sample_mean"]},
    claimed=("rejection",),
    worlds={"1": 5, "4": 2},
    tried=replace(GREEN.tried, dtypes={"float64": ("cp", "dp")}, response=9, cp_size=2, dp_size=2),
    policy=(model.Reading("empty_units", "exclude", True, "which?"),),
    margins=tuple(
        replace(m, by_size=(model.SizeMargin(16, 0.1), model.SizeMargin(64, 0.1)))
        for m in GREEN.margins
    ),
    other_engines=(model.OtherEngine("mean", "averages", ()),),
    without=("context-parallel",),
    refused=(model.Refusal("context-parallel", "context parallelism", "cp_size == 1", True),),
    not_claimed={"replicas": "never seen"},
    never_claimed=("replicas",),
    notes=("one",),
    narrowed=("fan-out",),
    warnings=(*GREEN.warnings, replace(GREEN.warnings[0], code="AGVW12", quiet=True)),
    waivers=(waiver(FINDING, expired=False),),
)
PLAIN = codec.plain(FULL)
NO_COVERAGE = {
    "claim.schema": "the form of what is stored",
    "claim.max_world": "compared as what is asked for",
    "other_engines.0": "engines that nobody asked for",
    "narrowed.0": "with less that is assumed away, more is tested",
    "without.0": "with less that is withdrawn, more is tested",
    "refused.0": "with less that is refused, more is judged",
    "not_claimed*": "with less that is not claimed, more is tested",
    "never_claimed.0": "a remark on what is not claimed",
    "waivers.0": "with less that is accepted, more fails",
    "waivers.0.findings": "how many are accepted",
    "warnings.[01]": "what is seen no more is mended, and said to be where it is not quiet",
    "notes.0": "remarks on how it was called",
    "covered.functions.0.lines.1": "it never ran",
    "covered.functions.0.source.3": "the code, of which that line is gone",
    "covered.conditions.0.then": "where the code goes on",
    "covered.conditions.0.otherwise": "where the code goes on",
}
"""Parts of a verdict that can go missing without less being verified, and why."""


def places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every number, every entry and every list of a verdict: all that can be less."""
    keys = list(data) if isinstance(data, dict) else range(len(data))
    for key in keys:
        inner, here = data[key], (*place, key)
        mapping = place in MAPPINGS or isinstance(data, list)
        number = isinstance(inner, int) and not isinstance(inner, bool)
        if mapping or (number and inner):
            yield here
        if isinstance(inner, dict | list):
            yield from places(inner, here)


MAPPINGS = {("worlds",), ("not_claimed",), ("tried", "dtypes"), ("covered", "lines")}
PLACES = list(places(PLAIN))


def excused(place: tuple[Any, ...]) -> set[str]:
    """The entries of NO_COVERAGE that it is a part of."""
    path = ".".join(map(str, place))
    return {entry for entry in NO_COVERAGE if fnmatchcase(path, entry)}


def test_every_excuse_is_needed() -> None:
    assert {entry for place in PLACES for entry in excused(place)} == {*NO_COVERAGE}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_whatever_goes_missing_is_coverage_that_is_lost(place: tuple[Any, ...]) -> None:
    data = copy.deepcopy(PLAIN)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if isinstance(inner[place[-1]], int) and isinstance(inner, dict) and place[0] != "worlds":
        inner[place[-1]] //= 5
    else:
        del inner[place[-1]]
    less = codec.read(Verdict, data, "a verdict")
    found = compare(document(FULL), document(less))
    state = PLAIN["checks"][place[1]]["state"] if place[0] == "checks" else "ok"
    if excused(place) or state in ("left out", "failed"):
        assert found.exit == 0, "nothing was there to lose"
        return
    first = found.changes[0].kind
    if place[:2] in (("covered", "lines"), ("covered", "conditions")) and found.exit == 0:
        # Reached on other kinds of steps all the same: which ones follows what is drawn.
        assert first is Kind.NEW_WARNING
        return
    assert found.exit == 1 and first is Kind.COVERAGE_LOST
    # A new hazard, which fails nothing, hides nothing that is gone.
    hazard = replace(FINDING, effect="hazard")
    beside = document(replace(less, findings=(*less.findings, hazard)))
    told = compare(document(FULL, replays=[again(hazard, Again.PASSES)]), beside)
    assert told.exit == (place != ("executed",)), [change.kind for change in told.changes]
    if (
        place[-1] not in ("first", "line", "tokens")
        and "source" not in place
        and place[0] not in ("policy", "waivers")
    ):
        # And more than there was is no loss, unless it is rather another.
        assert compare(document(less), document(FULL)).exit == 0


@pytest.mark.parametrize(("findings", "code"), [((), 1), ((FINDING,), 0)])
def test_a_line_that_only_a_counterexample_reached_is_no_loss(
    findings: tuple[model.FindingRecord, ...], code: int
) -> None:
    """A mended reducer may have no case any more that comes by; without a finding it is one."""
    base = replace(FULL, findings=findings)
    ran = {kind: tuple(n for n in lines if n != 6) for kind, lines in base.covered.lines.items()}
    head = replace(FULL, covered=replace(FULL.covered, lines=ran))
    passes = [again(FINDING, Again.PASSES)]
    found = compare(document(base), document(head, replays=passes))
    told = [change for change in found.changes if "return a" in change.what]
    assert [change.kind for change in told] == [(Kind.NEW_WARNING, Kind.COVERAGE_LOST)[code]]
    assert found.exit == code
