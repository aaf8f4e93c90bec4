"""Waivers: what they cover, what they leave, and that every report shows them with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from aggverify.codes import Code, Effect, registered
from aggverify.codes.state import State
from aggverify.diagnosis import Diagnosis
from aggverify.errors import InputError
from aggverify.report import github, html_page, junit, markdown, text, view_model
from aggverify.report.document import document
from aggverify.run.outcome.verdict import Exit, RunVerdict, exit_code
from aggverify.run.planning.request import Request, requested
from aggverify.run.planning.settings import KEYS, validated
from aggverify.run.planning.waiver import accepting, waiver
from tests import verdicts

REASON = "prompt groups are never split here"
TWO = verdicts.verdict(reports=2)
FIRST, SECOND = TWO.reports


def under(*texts: str, of: RunVerdict = TWO) -> RunVerdict:
    return of.accepting(map(waiver, texts))


@pytest.mark.parametrize("text", ["AGV201", "AGV201=", "AGV201: =x", "=x", "AGV201:=x", ":a=b"])
def test_what_is_no_waiver_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--accept takes CODE\[:CASE\]=REASON|unknown code"):
        waiver(text)


def test_codes_are_known_and_can_fail() -> None:
    with pytest.raises(InputError, match="unknown code 'AGV2011'; did you mean"):
        waiver("AGV2011=x")
    with pytest.raises(InputError, match="AGVW04: a warning fails nothing"):
        waiver("AGVW04=x")
    assert waiver("AGV201:abc= x = y ") == accepting("AGV201:abc", "x = y")


def test_a_case_its_signature_or_all_of_a_code() -> None:
    assert FIRST.signature == SECOND.signature != FIRST.stored.id != SECOND.stored.id
    by_id = under(f"AGV201:{FIRST.stored.id}={REASON}")
    assert [r.fails for r in by_id.reports] == [False, True]
    for name in ("", f":{FIRST.signature}"):
        assert not any(r.fails for r in under(f"AGV201{name}={REASON}").reports)
    other = replace(FIRST, relevance=replace(FIRST.relevance, matters=("dp_size",)))
    assert other.signature != FIRST.signature
    assert not any(r.waived for r in under(f"AGV101:{FIRST.stored.id}={REASON}").reports)


def test_mistakes_without_a_factor_are_told_apart_by_what_they_compute() -> None:
    plain = replace(FIRST, diagnosis=None)
    unknown = replace(plain, finding=replace(plain.finding, observed=(0.0, 0.5)))
    named = replace(plain, diagnosis=Diagnosis("the mask is inverted"))
    forms = [None, "x 1/2", "x 0", "the mask is inverted; x 1/2"]
    assert [r.identity.form for r in (FIRST, plain, unknown, named)] == forms
    assert len({r.signature for r in (FIRST, plain, unknown, named)}) == 4


def test_a_waiver_of_an_older_version_holds_where_it_is_not_ambiguous() -> None:
    plain = replace(FIRST, diagnosis=None)
    other = replace(SECOND, diagnosis=Diagnosis("the mask is inverted"))
    old = accepting(f"AGV201:{plain.stored.id}", REASON, structs.replace(plain.identity, form=None))
    alone = replace(TWO, reports=(plain,)).accepting([old])
    assert [r.fails for r in alone.reports] == [False]
    both = replace(TWO, reports=(plain, other)).accepting([old])
    assert [r.fails for r in both.reports] == [True, True]
    (told,) = verdicts.written(both).verdicts[0].waivers
    assert told.ambiguous == (f"AGV201:{plain.signature}", f"AGV201:{other.signature}")
    new = structs.replace(old, identity=plain.identity)
    assert [r.fails for r in both.accepting([new]).reports] == [False, True]


def test_the_exit_code() -> None:
    assert TWO.exit is Exit.FINDINGS
    assert exit_code([under(f"AGV201={REASON}")]) is Exit.CONFORMS
    assert exit_code([under(f"AGV201:{FIRST.stored.id}={REASON}")]) is Exit.FINDINGS
    nothing = f"AGV206={REASON}"
    assert exit_code([under(f"AGV201={REASON}", nothing)]) is Exit.NO_JUDGEMENT
    assert exit_code([under(nothing)]) is Exit.FINDINGS
    # It is enough that one mode has the finding.
    green = under(nothing, of=verdicts.verdict(reports=0))
    split = under(nothing, of=verdicts.verdict(reports=1, code="AGV206"))
    assert exit_code([green]) is Exit.NO_JUDGEMENT
    assert exit_code([green, split]) is Exit.CONFORMS


def test_what_the_finding_spoils_is_not_held_against_the_rest() -> None:
    checks = (*TWO.checks, structs.replace(TWO.checks[0], state=State.NOT_JUDGED, spoiled=True))
    assert exit_code([under(f"AGV201={REASON}", of=replace(TWO, checks=checks))]) is Exit.CONFORMS
    checks = (*TWO.checks, structs.replace(TWO.checks[0], state=State.NOT_JUDGED))
    left = under(f"AGV201={REASON}", of=replace(TWO, checks=checks))
    assert exit_code([left]) is Exit.NO_JUDGEMENT


def test_a_hazard_needs_one_only_under_strict() -> None:
    with registered(Code("AGV901", "A hazard", effect=Effect.HAZARD)):
        hazard = verdicts.verdict(code="AGV901")
        assert exit_code([hazard]) is Exit.CONFORMS
        claim = replace(hazard.reports[0].stored.claim, strict=True)
        stored = replace(hazard.reports[0].stored, claim=claim)
        strict = replace(hazard, reports=(replace(hazard.reports[0], stored=stored),))
        assert exit_code([strict]) is Exit.FINDINGS
        assert exit_code([under(f"AGV901={REASON}", of=strict)]) is Exit.CONFORMS
        assert exit_code([under(f"AGV901={REASON}", of=hazard)]) is Exit.CONFORMS


def test_every_report_shows_it_with_the_reason() -> None:
    made = document([under(f"AGV201={REASON}")])
    assert made.exit == 0
    title = "AGV201 Result depends on context-parallel size"
    assert view_model.headline(made).startswith("Conforms: token_mean, 2 checks passed")
    assert f"2 waived findings ({title})" in view_model.headline(made)
    told = text.render(made)
    assert "WAIVED  AGV201  Result depends on context-parallel size\n" in told
    assert f"  waived       {REASON}\n" in told
    assert f"  waived       AGV201 waives 2 findings: {REASON}" in told
    for render in (markdown.render, html_page.render, junit.render):
        assert REASON in render(made), render
    assert "### ✅" in markdown.render(made)
    assert 'failures="0"' in junit.render(made)
    assert all(line.startswith("::notice ") for line in github.commands(made, Path()))
    assert {c.state for c in made.verdicts[0].checks} >= {State.WAIVED}


def test_one_that_is_for_nothing_is_the_headline() -> None:
    made = document([under(f"AGV206:abc={REASON}", of=verdicts.verdict(reports=0))])
    assert made.exit == 2
    assert view_model.headline(made) == "Nothing was found that --accept AGV206:abc is for"
    assert f"AGV206:abc waives 0 findings: {REASON}" in text.render(made)


def test_a_finding_says_how_it_is_accepted() -> None:
    told = text.render(document([TWO]))
    assert f"  accept       --accept AGV201:{FIRST.signature}=REASON" in told


def test_the_project_may_say_so_too() -> None:
    said = validated("here", {"accept": "AGV206=so it is"}, KEYS)
    given = {"accept": ("AGV201=known",)}
    assert {w.what for w in requested("r.py", given, said).waivers} == {"AGV201", "AGV206"}
    assert requested("r.py", {}, said).waivers == (accepting("AGV206", "so it is"),)
    assert Request("r.py").waivers == ()
    with pytest.raises(InputError, match="here: --accept takes"):
        validated("here", {"accept": ["AGV206"]}, KEYS)
