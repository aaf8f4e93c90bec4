"""What holds of any two documents: silence, mirrors, and what each kind of change is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from aggverify import model
from aggverify.codes.state import Again, Incomplete, Standing, State
from aggverify.errors import InputError
from aggverify.model import Document, FindingRecord, Verdict
from aggverify.regression.compare import compare
from aggverify.regression.documents import loaded, merged
from aggverify.regression.model import FAILURES, Change, Comparison, Kind
from tests.regression.documents import again, document, edited, pairs, verdict, waiver

GREEN, RED = verdict(), verdict(reports=1)
FINDING = RED.findings[0]
HOLDS = Standing.HOLDS
COUNTED = settings(max_examples=60)


def variant(n: int, code: str = "AGV201", factor: str | None = "1/cp_size") -> FindingRecord:
    """The n-th finding, all of one subject and each of a cause of its own."""
    identity = replace(FINDING.identity, code=code, factor=factor, dimensions=(f"size {n}",))
    return replace(FINDING, id=f"case{n}", code=code, factor=factor, identity=identity)


FINDINGS = st.lists(
    st.builds(variant, st.integers(0, 5), st.sampled_from(["AGV101", "AGV201", "AGV203"])),
    max_size=4,
    unique_by=lambda finding: finding.id,
).map(tuple)
EFFECTS = st.sampled_from(["fails", "hazard"])


def holding(findings: tuple[FindingRecord, ...]) -> Verdict:
    return replace(GREEN, findings=findings)


def kinds(comparison: Comparison) -> Counter[Kind]:
    """How many findings there are of each kind."""
    return Counter(c.kind for c in comparison.changes if c.finding for _ in (c, *c.also))


@COUNTED
@given(FINDINGS, EFFECTS, st.booleans())
def test_nothing_is_said_of_a_document_beside_itself(
    findings: tuple[FindingRecord, ...], effect: Any, two: bool
) -> None:
    mine = holding(tuple(replace(f, effect=effect) for f in findings))
    other = replace(mine, about=replace(mine.about, mode="another"))
    same = document(*([mine, other] if two else [mine]))
    found = compare(same, same, strict=True)
    assert found.exit == 0 and not found.banner
    assert {change.kind for change in found.changes} <= {Kind.KNOWN, Kind.UNCHANGED}


@COUNTED
@given(FINDINGS, FINDINGS, st.lists(st.sampled_from([Again.PASSES, Again.FAILS]), min_size=8))
def test_the_other_way_round_new_is_fixed(
    mine: tuple[FindingRecord, ...], theirs: tuple[FindingRecord, ...], outcomes: list[Again]
) -> None:
    # What a case shows on a reducer is one thing, whichever side asks.
    became = {f.id: outcomes[n % 8] for n, f in enumerate((*mine, *theirs))}
    on_base = [again(f, became[f.id]) for f in theirs]
    on_head = [again(f, became[f.id]) for f in mine]
    base = document(holding(mine), replays=on_base)
    head = document(holding(theirs), replays=on_head)
    forth, back = kinds(compare(base, head)), kinds(compare(head, base))
    mirrored = {Kind.NEW_FAILURE: Kind.FIXED, Kind.FIXED: Kind.NEW_FAILURE}
    assert back == Counter({mirrored.get(kind, kind): n for kind, n in forth.items()})


def test_a_subject_a_document_or_its_replays_that_go_missing_are_seen() -> None:
    other = replace(GREEN, about=replace(GREEN.about, mode="another"))
    found = compare(document(GREEN, other), document(GREEN))
    assert found.exit == 1 and found.changes[0].kind is Kind.COVERAGE_LOST
    assert found.changes[0].what == "mode another under engine sum"
    nothing, broken = document(), replace(document(GREEN), error="no such file")
    assert compare(document(GREEN), nothing).exit == 1 and compare(nothing, nothing).exit == 2
    assert Kind.ERROR in kinds_of(compare(document(GREEN), broken))
    assert compare(broken, broken).exit == 2
    nothing_judged = replace(nothing, error="it raises where it is imported")
    only_error = compare(document(GREEN), nothing_judged)
    assert only_error.exit == 2 and kinds_of(only_error) == {Kind.ERROR}
    some = replace(document(GREEN), error="the other raises where it is imported")
    assert Kind.COVERAGE_LOST in kinds_of(compare(document(GREEN, other), some))
    cut = replace(document(GREEN), incomplete=Incomplete.INTERRUPTED)
    assert compare(document(GREEN), cut).exit == compare(cut, document(GREEN)).exit == 2
    for base, head in (pairs()[Kind.NEW_FAILURE](), pairs()[Kind.FIXED]()):
        bare = [replace(side, replays=()) for side in (base, head)]
        assert compare(*bare).exit == 2 and kinds_of(compare(*bare)) == {Kind.ERROR}


def kinds_of(comparison: Comparison) -> set[Kind]:
    return {change.kind for change in comparison.changes}


def only(base: Document, head: Document, **options: Any) -> Change:
    [change] = compare(base, head, **options).changes
    return change


@pytest.mark.parametrize(
    ("outcome", "new", "fixed"),
    [
        (Again.PASSES, Kind.NEW_FAILURE, Kind.FIXED),
        (Again.FAILS, Kind.KNOWN, Kind.KNOWN),
        (Again.REFUSED, Kind.NEW_FAILURE, Kind.COVERAGE_LOST),
        (Again.NOT_RUN, Kind.ERROR, Kind.ERROR),
    ],
)
def test_what_only_one_side_has_is_as_the_other_sides_replay_says(
    outcome: Again, new: Kind, fixed: Kind
) -> None:
    replays = [again(FINDING, outcome)]
    assert only(document(GREEN, replays=replays), document(RED)).kind is new
    assert only(document(RED), document(GREEN, replays=replays)).kind is fixed
    shows = [replace(replays[0], code="AGV101")]
    if outcome is Again.FAILS:
        assert only(document(GREEN, replays=shows), document(RED)).kind is Kind.CHANGED_FAILURE
        assert only(document(RED), document(GREEN, replays=shows)).kind is Kind.CHANGED_FAILURE
    other = [replace(replays[0], identity=replace(FINDING.identity, factor="dp_size"))]
    assert only(document(GREEN, replays=other), document(RED)).kind is Kind.ERROR, "another's"


def test_what_a_finding_does_to_the_rest_is_no_loss_of_its_own() -> None:
    spoiled = [replace(c, state=State.NOT_JUDGED, spoiled=True) for c in RED.checks[:1]]
    red = replace(RED, checks=(*spoiled, *RED.checks[1:]), executed=2, worlds={"1": 2}, margins=())
    passes = [again(FINDING, Again.PASSES)]
    assert only(document(GREEN, replays=passes), document(red)).kind is Kind.NEW_FAILURE
    # Without a finding it is.
    green = replace(red, findings=())
    assert compare(document(GREEN), document(green)).changes[0].kind is Kind.COVERAGE_LOST


def test_what_is_accepted_is_accepted_by_both() -> None:
    waived = edited(RED, waived="for a reason")
    accepted = replace(waived, waivers=(waiver(FINDING, expired=False),))
    found = compare(document(RED), document(accepted))
    assert found.exit == 1 and found.changes[0].kind is Kind.COVERAGE_LOST
    assert found.changes[0].what == f"waiver AGV201:{FINDING.id}"
    assert only(document(accepted), document(RED)).kind is Kind.CHANGED_FAILURE
    assert only(document(accepted), document(accepted)).kind is Kind.KNOWN
    over = replace(RED, waivers=(waiver(FINDING, expired=True),))
    assert only(document(accepted), document(over)).kind is Kind.EXPIRED


def test_a_hazard_that_becomes_a_failure_is_new_and_the_other_way_round_is_known() -> None:
    hazard = edited(RED, effect="hazard")
    assert only(document(hazard), document(RED)).kind is Kind.NEW_FAILURE
    assert only(document(RED), document(hazard)).kind is Kind.KNOWN


def test_a_subject_that_is_new_is_judged_by_itself() -> None:
    red = replace(RED, about=replace(RED.about, mode="another"))
    found = compare(document(GREEN), document(GREEN, red))
    assert kinds_of(found) == {Kind.NEW_FAILURE, Kind.UNCHANGED} and found.exit == 1
    green = replace(GREEN, about=replace(GREEN.about, mode="another"))
    assert compare(document(GREEN), document(GREEN, green)).exit == 0


def test_the_same_reducer_may_be_judged_twice() -> None:
    other = replace(GREEN, divisor=16.0)
    same = document(GREEN, other)
    assert kinds_of(compare(same, same)) == {Kind.UNCHANGED}


def test_a_document_beyond_its_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts of strangers are read by the workflow that may write."""
    path = tmp_path / "base.json"
    path.write_text(model.render(document(GREEN)))
    assert loaded(path) == document(GREEN)
    monkeypatch.setattr("aggverify.model.document.MAX_BYTES", 100)
    with pytest.raises(InputError, match=r"larger than a verdict document can be \(100 bytes\)"):
        loaded(path)


def test_another_processor_is_a_banner() -> None:
    other = replace(GREEN, ranks=model.Ranks("AVX2", "4"))
    found = compare(document(replace(GREEN, ranks=model.Ranks("AVX512", "1"))), document(other))
    assert found.exit == 0 and found.banner == (
        "processor AVX512 in the base, AVX2 in the head",
        "threads 1 in the base, 4 in the head",
    )


def test_other_tools_are_a_banner() -> None:
    newer = replace(document(GREEN).environment, torch="2.9.0")
    head = replace(document(GREEN), environment=newer, aggverify="0.2.0")
    found = compare(document(GREEN), head)
    assert found.exit == 0 and found.banner == (
        "aggverify 0.1.0 in the base, 0.2.0 in the head",
        "torch 2.6.0 in the base, 2.9.0 in the head",
    )


@pytest.mark.parametrize(
    ("changed", "what", "kind"),
    [
        ({"computes_in": "float32"}, "precision it computes in", Kind.COVERAGE_LOST),
        ({"against": None}, "against", Kind.COVERAGE_LOST),
        ({"divisor": 16.0}, "divisor", Kind.COVERAGE_LOST),
        ({"linear": False}, "oracle", Kind.COVERAGE_LOST),
        ({"identified": True}, "mode", Kind.COVERAGE_LOST),
        ({"without": ("gathered",)}, "gathered", Kind.COVERAGE_LOST),
        ({"not_claimed": {"gathered": "no"}}, "gathered", Kind.COVERAGE_LOST),
        ({"narrowed": ("gathered",)}, "gathered", Kind.COVERAGE_LOST),
        ({"cuts": (model.Cut("a check", 3, 25),)}, "a check", Kind.COVERAGE_LOST),
        (
            {"refused": (model.Refusal("gathered", "gathered losses", "no such", False),)},
            "gathered losses",
            Kind.COVERAGE_LOST,
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_policy_a_bound_or_a_claim_that_changes_is_told(
    changed: dict[str, Any], what: str, kind: Kind
) -> None:
    base = replace(GREEN, against="old.py", not_claimed={})
    change = only(document(base), document(replace(base, **changed)))
    assert (change.kind, change.what) == (kind, what)


def test_a_base_without_time_for_all_cases_is_nothing_to_compare_with() -> None:
    cut = replace(GREEN, cuts=(model.Cut("a check", 3, 25),))
    for head in (GREEN, cut):
        found = compare(document(cut), document(head))
        assert (found.exit, found.changes[0].kind) == (2, Kind.ERROR)
        assert "cut by the clock" in found.changes[0].what


def test_a_world_that_hardly_runs_is_coverage_lost() -> None:
    thin, thick = (replace(GREEN, worlds={1: 500, 2: steps}) for steps in (3, 500))
    change = only(document(thick), document(thin))
    assert (change.kind, change.what) == (Kind.COVERAGE_LOST, "world of 2")
    assert only(document(thin), document(thick)).kind is Kind.UNCHANGED


def test_steps_that_a_counterexample_took_are_not_missed_when_it_is_gone() -> None:
    """A failing run makes its case smaller, mostly on one rank; a world of which nothing is left
    is told all the same."""
    wrong = replace(RED, executed=300, worlds={1: 250, 2: 50})
    for worlds, what in (({1: 30, 2: 50}, "fixed"), ({1: 80}, "world of 2")):
        right = replace(GREEN, checks=RED.checks, executed=80, worlds=worlds)
        right = replace(right, checks=tuple(replace(c, state=State.OK) for c in right.checks))
        found = compare(document(wrong), document(right)).changes
        told = {change.what for change in found if "world" in change.what or "step" in change.what}
        assert told == ({what} if what.startswith("world") else set()), found
    assert {"steps", "world of 1"} <= {
        change.what
        for change in compare(
            document(replace(GREEN, executed=300, worlds={1: 300})),
            document(replace(GREEN, executed=80, worlds={1: 80})),
        ).changes
    }


def test_an_entry_of_the_baseline_that_has_to_go_is_told_once() -> None:
    entry = model.Accepted("AGV201:abc", FINDING.identity, "why", "them", None, HOLDS, None)
    known, fixed = (
        replace(document(GREEN), baseline=(replace(entry, state=state),))
        for state in (HOLDS, Standing.FIXED)
    )
    change = only(known, fixed)
    assert change.kind is Kind.NEW_WARNING and "AGV201:abc is fixed; prune it" in change.sentence
    assert only(known, known).kind is only(fixed, fixed).kind is Kind.UNCHANGED


def test_a_waiver_is_known_by_what_it_accepts() -> None:
    """Under whatever id its case lies."""
    one, other = (
        replace(GREEN, waivers=(replace(waiver(FINDING, expired=False), what=what),))
        for what in ("AGV201:abcdef", "AGV201:ghijkl")
    )
    assert only(document(one), document(other)).kind is Kind.UNCHANGED


@pytest.mark.parametrize("later", ["2026-02-01", None])
def test_what_is_accepted_for_longer_is_told(later: str | None) -> None:
    one = waiver(FINDING, expired=False)
    waived, longer = (replace(GREEN, waivers=(w,)) for w in (one, replace(one, expires=later)))
    change = only(document(waived), document(longer))
    assert change.kind is Kind.COVERAGE_LOST and "before until 2026-01-31" in change.sentence
    assert only(document(longer), document(waived)).kind is Kind.UNCHANGED


@pytest.mark.parametrize("code", [1, 2, 130])
def test_an_exit_that_nothing_explains_is_an_error(code: int) -> None:
    """Whatever a document was robbed of."""
    green = document(GREEN)
    for pair in ((green, replace(green, exit=code)), (replace(green, exit=code), green)):
        found = compare(*pair)
        assert found.exit == 2 and f"ended with exit code {code}" in found.changes[0].what
    left = replace(
        GREEN, checks=(*GREEN.checks[1:], replace(GREEN.checks[0], state=State.NOT_JUDGED))
    )
    found = compare(document(left), replace(document(left), exit=2))
    assert not any("ended with exit code" in change.what for change in found.changes)


def test_a_question_that_only_the_head_answers_is_told() -> None:
    answered = replace(GREEN, policy=(*GREEN.policy, model.Reading("q", "yes", False, "which?")))
    assert only(document(GREEN), document(answered)).kind is Kind.NEW_WARNING


def test_a_wider_bound_of_the_reported_loss_is_told() -> None:
    (margin,) = GREEN.margins
    loss = margin.reported_loss
    wide = replace(loss, smallest_caught_alone=10 * loss.smallest_caught_alone)
    wider = replace(GREEN, margins=(replace(margin, reported_loss=wide),))
    change = only(document(GREEN), document(wider))
    what = f"bound of the reported loss in {margin.dtype}, one loss alone"
    assert (change.kind, change.what) == (Kind.COVERAGE_LOST, what)
    assert only(document(wider), document(GREEN)).kind is Kind.UNCHANGED


def test_a_stored_command_that_is_none_of_ours_is_refused() -> None:
    """It is shown in comments as what to type."""
    with pytest.raises(InputError, match="aggverify replay"):
        replace(FINDING, replay=("sh", "-c", "curl"))


def test_a_wider_bound_is_told() -> None:
    (margin,) = GREEN.margins
    wide = replace(margin, smallest_caught=10 * margin.smallest_caught)
    change = only(document(GREEN), document(replace(GREEN, margins=(wide,))))
    assert (change.kind, change.what) == (Kind.COVERAGE_LOST, "bound in float64")
    assert only(document(replace(GREEN, margins=(wide,))), document(GREEN)).kind is Kind.UNCHANGED


def test_a_size_that_is_judged_in_another_dtype_is_told_and_no_loss() -> None:
    (margin,) = GREEN.margins
    small, large = model.SizeMargin(64, 0.1), model.SizeMargin(4096, 0.1)

    def judged(*sizes: model.SizeMargin) -> Document:
        half = replace(margin, dtype="float16", by_size=sizes)
        return document(replace(GREEN, margins=(replace(margin, by_size=(small, large)), half)))

    change = only(judged(small, large), judged(small))
    what = "steps of about 4096 tokens in float16"
    assert (change.kind, change.what) == (Kind.NEW_WARNING, what)
    change = only(judged(replace(large, tokens=1 << 16)), judged(large))
    assert (change.kind, change.base) == (Kind.COVERAGE_LOST, "judged")


def test_the_worst_comes_first() -> None:
    order = list(Kind)
    found = compare(*map(merged, zip(*(pairs()[kind]() for kind in Kind), strict=True)))
    ranks = [order.index(change.kind) for change in found.changes]
    assert ranks == sorted(ranks) and found.exit == 1
    assert {*FAILURES, Kind.COVERAGE_LOST} <= {change.kind for change in found.changes}


def test_code_that_runs_less_on_several_ranks_is_a_figure() -> None:
    """A little less is told, less than half as much is lost."""

    def with_lines(*sharded: int) -> Verdict:
        function = model.Lines("reduce", tuple(range(1, 11)), 1, ())
        lines = {"one rank": tuple(range(1, 11)), "several ranks": sharded}
        return replace(GREEN, covered=model.Covered((function,), lines, ()))

    base = document(with_lines(*range(1, 11)))
    for sharded, kind in ((9, Kind.NEW_WARNING), (4, Kind.COVERAGE_LOST)):
        [change] = compare(base, document(with_lines(*range(1, sharded + 1)))).changes
        assert (change.kind, change.base, change.head) == (kind, "10 of 10", f"{sharded} of 10")
        assert change.what == "lines and branches on several ranks"
