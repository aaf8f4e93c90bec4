"""What was refused goes with a dimension, or is the finding that it always was."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from aggverify.checks import check
from aggverify.checks.spaces import spread
from aggverify.codes.state import State
from aggverify.conventions import FEATURES
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Refused, Subject
from aggverify.generation.catalogue import grid, hard_cases
from aggverify.generation.space import Space, sizes
from aggverify.run.planning.plan import PlannedCheck, plan
from aggverify.run.planning.unsupported_probe import asked_first, refused
from aggverify.steps.case import Case
from aggverify.steps.dimensions import DIMENSIONS
from aggverify.world import Fault, Frame, Raised

KINDS = ("zigzag", "contiguous", "gathered")
STORED = tuple(
    {c: None for m in (*asked_first(), *hard_cases(), *grid(8, KINDS)) for c in (m, m.trivial)}
)
SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
ONLY_ONE = "only supports one"


def run(declines: Callable[[Case], bool], words: str = ONLY_ONE) -> dict[Case, Execution]:
    """What a reducer does that declines these cases on every rank."""
    return {
        case: Execution(case, failure=fault(case, words) if declines(case) else None)
        for case in STORED
    }


def fault(case: Case, words: str, ranks: int | None = None) -> Fault:
    frame = Frame("/home/me/reducer.py", 3, "reduce", "candidate", "assert size == 1")
    error = Raised("AssertionError", words, (frame,), stated=True)
    size = case.layout.world_size
    return Fault("exception", 0, "", size, dict.fromkeys(range(ranks or size), error))


def told(known: Mapping[Case, Execution]) -> list[str]:
    return [f"{r.what}: {r.words}" for r in refused(known)]


def side_by_side(case: Case) -> bool:
    """Whether one micro-batch has several samples of a rollout: what a reducer can see of them."""
    rollout = [sample.rollout for sample in case.step.samples]
    cells = ([rollout[i] for i in cell] for _, _, cell in case.layout.cells())
    return any(len(set(cell)) < len(cell) for cell in cells)


@pytest.mark.parametrize(
    ("declines", "what"),
    [
        (lambda c: c.layout.cp_size > 1, ["context parallelism"]),
        (lambda c: c.layout.cp_size > 2, ["context parallelism beyond 2"]),
        (lambda c: c.layout.dp_size > 1, ["data parallelism"]),
        (lambda c: c.layout.num_microbatches > 1, ["several micro-batches"]),
        (
            lambda c: c.layout.cp_size > 1 and c.layout.cp_kind == "gathered",
            ["losses gathered over context parallelism"],
        ),
        (lambda c: len(c.step.samples) > c.step.num_rollouts, ["rollouts of several samples"]),
        (side_by_side, ["rollouts of several samples"]),
        (
            lambda c: c.layout.cp_size > 1 or c.layout.num_microbatches > 1,
            ["context parallelism", "several micro-batches"],
        ),
        (lambda c: c.layout.world_size > 1, ["context parallelism", "data parallelism"]),
        (lambda c: False, []),
    ],
)
def test_what_is_refused_is_a_dimension(declines: Callable[[Case], bool], what: list[str]) -> None:
    assert told(run(declines)) == [f"{one}: {ONLY_ONE}" for one in what]


@pytest.mark.parametrize(
    "declines",
    [
        lambda c: c.layout.cp_size > 1 and c.step.num_response_tokens % 2 == 1,
        lambda c: len(c.step.samples) > 1,
        lambda c: c.layout.cp_size > 1 or c.step.num_response_tokens > 12,
        lambda c: len({s.response_length for s in c.step.samples}) > 1,
        lambda c: True,
    ],
)
def test_a_broken_reducer_refuses_nothing(declines: Callable[[Case], bool]) -> None:
    assert told(run(declines)) == []


@pytest.mark.parametrize(
    "words",
    ["tokens do not match", "shape [3] against [2]", "len(masks) == len(losses)", "size mismatch"],
)
def test_a_message_about_shapes_is_no_refusal(words: str) -> None:
    assert told(run(lambda case: case.layout.cp_size > 1, words)) == []


def test_a_bare_assertion_is_told_by_its_source() -> None:
    known = run(lambda case: case.layout.cp_size > 1, "")
    assert told(known) == ["context parallelism: size == 1"]


def test_on_some_ranks_only_it_is_none() -> None:
    wide = {c: Execution(c, failure=fault(c, ONLY_ONE, 1)) for c in STORED if c.layout.cp_size > 1}
    assert told(run(lambda case: False) | wide) == []


def test_every_dimension_is_a_feature_and_is_asked_about() -> None:
    assert {dimension.feature for dimension in DIMENSIONS} <= set(FEATURES)
    for dimension in DIMENSIONS:
        assert any(dimension.size(case) > 1 for case in asked_first()), dimension.feature


def entries(subject: Subject) -> dict[str, PlannedCheck]:
    return {entry.check.name: entry for entry in plan(subject).entries}


CP, DP = "independent_of_context_parallel_size", "independent_of_data_parallel_size"


def test_the_rest_is_planned_without_it() -> None:
    found = entries(declining("context-parallel"))
    assert (found[CP].instead, found[CP].why_not) == (
        State.REFUSED,
        f"context parallelism: '{ONLY_ONE}'",
    )
    spaces = [entry.space for entry in found.values() if entry.instead is None]
    assert len(spaces) > 15
    assert all(space is not None and space.max_cp == 1 for space in spaces)
    beyond = entries(declining("context-parallel", 2))
    assert beyond[CP].instead is None and beyond[CP].space is not None
    assert beyond[CP].space.max_cp == 2


def test_dummies_are_copies_within_a_rollout() -> None:
    name = "padding_changes_nothing"
    usual, mine = (entries(s)[name].space for s in (SUBJECT, declining("fan-out")))
    assert usual is not None and usual.dummies
    assert mine is not None and mine.padded and not mine.dummies


def declining(feature: str, beyond: int = 1) -> Subject:
    return SUBJECT.knowing(refused=(Refused(feature, ONLY_ONE, beyond),))


def test_what_is_claimed_and_refused_is_a_check_of_its_own() -> None:
    name = "claims_are_not_refused"
    mine = declining("context-parallel")
    assert entries(mine)[name].instead is State.LEFT_OUT
    claimed = mine.claiming(claimed=frozenset({"context-parallel"}))
    assert entries(claimed)[name].instead is None
    only = check(name).only
    assert only is not None
    assert {case.layout.cp_size > 1 for case in only(claimed)} == {True}


def without(*features: str) -> Subject:
    return SUBJECT.claiming(without=frozenset(features))


@pytest.mark.parametrize(
    ("feature", "left"),
    [
        ("context-parallel", lambda s: s.max_cp == 1),
        ("data-parallel", lambda s: s.max_dp == 1),
        ("micro-batches", lambda s: s.max_microbatches == 1),
        ("contiguous", lambda s: s.cp_kinds == ("zigzag", "gathered")),
        ("gathered", lambda s: s.cp_kinds == ("zigzag", "contiguous")),
        ("fan-out", lambda s: not s.fan_out),
        ("straddling-groups", lambda s: s.whole_groups),
        ("straddling-shards", lambda s: s.whole_shards),
        ("ragged-micro-batches", lambda s: s.uniform),
    ],
)
def test_what_is_disclaimed_is_never_generated(feature: str, left: Callable[[Space], bool]) -> None:
    usual, mine = spread(SUBJECT, min_units=1), spread(without(feature), min_units=1)
    assert not left(usual) and left(mine)
    assert sizes(mine)
    assert without(feature).not_claimed[feature] == "disclaimed by --without"


def test_its_checks_say_so() -> None:
    found = entries(without("data-parallel", "poison", "dummy-samples"))
    said = State.NOT_CLAIMED, "disclaimed by --without"
    assert (found[DP].instead, found[DP].why_not) == said
    nans = found["masked_nans_never_matter"]
    assert (nans.instead, nans.why_not) == said
    assert found["masked_values_never_matter"].instead is None
