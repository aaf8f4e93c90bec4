"""The plan: every check of a subject, with its space or the reason why not, as data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import ceil
from typing import NamedTuple

import pytest

from aggverify.checks import CHECKS, check, formula
from aggverify.codes.state import State
from aggverify.execution.budget import PROFILES, Budget
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.report.plan import layouts, plan_lines
from aggverify.run.opening import loaded
from aggverify.run.planning.amount import SURE, Amount, planned_steps
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.first_cases import first_cases
from aggverify.run.planning.plan import (
    Plan,
    PlannedCheck,
    looking_at_branches,
    plan,
)
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.world import Pool

CLAIM = Claim("r.py", "reduce", "native", "sum", "token_mean")


def planned(**changes: object) -> dict[str, PlannedCheck]:
    claim = Claim("r.py", "reduce", "native", "sum", **({"mode": "token_mean"} | changes))  # type: ignore[arg-type]
    return {entry.check.name: entry for entry in plan(Subject.of(claim)).entries}


def test_every_check_has_an_entry_in_order() -> None:
    entries = plan(Subject.of(CLAIM)).entries
    assert [e.check.name for e in entries] == [c.name for c in CHECKS if not c.of_calls]
    assert all((e.instead is None) == (e.space is not None) or e.instead for e in entries)


def test_reasons_come_from_the_claim() -> None:
    assert planned()["two_paths_agree"].why_not == "no --against TARGET"
    assert planned()["holds_on_every_small_step"].why_not == "only with --profile thorough"
    thorough = planned(budget=Budget("thorough"))["holds_on_every_small_step"]
    assert (thorough.instead, thorough.examples) == (None, 0)
    wide = replace(check("padding_changes_nothing"), space=lambda s: Space(min_units=2))
    assert plan(Subject.of(CLAIM), [wide]).entries[0].why_not == "no such layout on 8 ranks"
    curved = planned(mode=NONLINEAR)
    assert "has no meaning for a non-linear objective" in {e.why_not for e in curved.values()}


def test_what_has_no_layout_on_so_few_ranks_is_left_out_and_not_unclaimed() -> None:
    alone = planned(max_world=1)
    names = ("independent_of_data_parallel_size", "ranks_issue_the_same_collectives")
    for name in (*names, "independent_of_context_parallel_size", "copies_of_a_loss_agree"):
        said = alone[name].instead, alone[name].why_not
        assert said == (State.LEFT_OUT, "no such layout on 1 rank")
        assert planned(max_world=2)[name].instead is None
    assert alone["bad_arguments_raise"].instead is State.NOT_CLAIMED


def test_examples_are_the_budgets_or_the_checks() -> None:
    wanted = planned(budget=Budget("ci", max_examples=7))
    assert wanted["independent_of_data_parallel_size"].examples == 7
    most = [e for e in planned().values() if e.check.max_examples and e.check.only is None]
    assert most and all(e.examples == min(25, ceil((e.check.max_examples or 0) / 3)) for e in most)


def test_the_plan_is_data() -> None:
    made = plan(Subject.of(CLAIM))
    data = json.loads(json.dumps(made.to_json()))
    assert Claim.from_json(data["claim"]) == CLAIM
    assert data["found"]["computes_in"] == "float64"
    for entry, found in zip(data["entries"], made.entries, strict=True):
        assert entry["check"] == found.check.name
        assert (entry["space"] is None) == (found.space is None)
        assert entry["why_not"] == found.why_not


def test_the_table_has_a_line_for_every_check() -> None:
    made = plan(Subject.of(CLAIM).noting("a\x1bnote"))
    lines = list(plan_lines(made))
    assert lines[0].startswith("r.py · reduce · token_mean · native convention, engine sum")
    assert not any("\x1b" in line for line in lines)
    body = lines[2:-1]
    assert len(body) == sum(not c.of_calls for c in CHECKS)
    assert any("one rank, one micro-batch" in line for line in body)
    assert any("dp ≤ 8" in line and "ranks ≤ 8" in line for line in body)
    assert any(line.endswith("- not applicable: no --against TARGET") for line in body)
    ran = sum(e.instead is None for e in made.entries)
    assert lines[-1].startswith(
        f"{ran} of {len(body)} checks; the stream takes at most 75 s, seed 0;"
    )
    larger = next(line for line in body if "holds_in_larger_worlds" in line)
    assert larger.endswith(
        "dp ≤ 64, cp ≤ 64 (zigzag, contiguous), micro-batches ≤ 64, ranks ≤ 64"
    ), larger


def test_what_is_listed_of_larger_worlds_is_what_is_shown() -> None:
    subject = Subject.of(replace(CLAIM, budget=Budget("thorough")))
    [entry] = plan(subject, [check("holds_in_larger_worlds")]).entries
    assert entry.space is not None and entry.check.only is not None
    cases = [case.layout for case in entry.check.only(subject)]
    sizes = ((c.dp_size, c.cp_size, c.num_microbatches, c.world_size) for c in cases)
    found = dict(zip(("dp", "cp", "micro-batches", "ranks"), map(max, *sizes), strict=True))
    assert re.sub(r" \(.*?\)", "", layouts(entry.space)) == ", ".join(
        f"{name} ≤ {most}" for name, most in found.items()
    )


def test_a_limit_that_a_person_gives_is_of_all_cases() -> None:
    *_, last = plan_lines(plan(Subject.of(replace(CLAIM, budget=Budget(max_time=5)))))
    assert "checks; at most 5 s, seed 0;" in last


def test_steps_are_planned_of_what_is_listed_and_of_what_is_drawn() -> None:
    """A window takes four steps for each case; a control is run only where there is no oracle."""
    subject = Subject.of(CLAIM)
    [windows, formula_] = plan(subject, [check("partial_windows_are_whole"), formula.CHECK]).entries
    assert planned_steps(windows) == 4 * (2 + windows.examples)
    assert windows.space is not None and formula_.space is not None
    listed = first_cases(formula.CHECK, subject, formula_.space)
    assert planned_steps(formula_) == len(listed) + formula_.examples
    assert planned_steps(formula_.becoming(State.LEFT_OUT, None)) == 0
    for of, runs in ((subject, 1), (Subject.of(replace(CLAIM, mode=NONLINEAR)), 2)):
        [entry] = plan(of, [check("holds_where_code_branches")]).entries
        assert entry.space is not None
        listed = [c for c in first_cases(entry.check, of, entry.space) if c in entry.space]
        assert planned_steps(entry) == runs * (len(listed) + entry.examples)


def test_where_time_is_short_every_check_has_the_same_part() -> None:
    entries = plan(Subject.of(CLAIM), [c for c in CHECKS if c.only is None]).entries
    needed = sum(map(planned_steps, entries))
    amount = Amount(asked=True)
    assert amount.part(entries, 1.0) == (1.0, 0.5), "nothing is known yet"
    amount.add(2.0, 200)
    assert amount.part(entries, needed / 100)[0] == 1.0
    part, seconds = amount.part(entries, needed / 300)
    assert part == pytest.approx(1 / 3)
    assert seconds == needed / 300 / 2
    # It has nothing to leave time for.
    assert amount.part(entries[-1:], 6.0)[1] == 6.0
    assert amount.part(entries, -1.0)[0] == 0.0


def test_a_fast_reducer_is_not_asked_whether_its_time_is_enough() -> None:
    entries = plan(Subject.of(CLAIM), [formula.CHECK]).entries
    amount = Amount(asked=False)
    amount.add(SURE, 1)
    assert amount.part(entries, 1.0) == (1.0, 0.5)
    amount.add(SURE, 1)
    assert amount.part(entries, 1.0)[0] < 1.0


@pytest.mark.parametrize(
    ("most", "budget", "drawn"),
    [
        (None, Budget("quick"), 25),
        (None, Budget("quick", max_examples=100), 100),
        (75, Budget("quick"), 25),
        (20, Budget("quick"), 7),
        (20, Budget("ci"), 7),
        (None, Budget("ci"), 25),
        (20, Budget("ci", max_examples=10), 7),
        (75, Budget("ci", max_examples=500), 500),
        (20, Budget("ci", max_examples=500), 134),
        (75, Budget("thorough"), 1500),
    ],
)
def test_only_checks_that_draw_fewer_than_others_draw_a_part(
    most: int | None, budget: Budget, drawn: int
) -> None:
    check = replace(formula.CHECK, max_examples=most)
    [entry] = plan(Subject.of(replace(CLAIM, budget=budget)), [check]).entries
    assert entry.examples == drawn


@pytest.mark.parametrize(
    ("budget", "drawn"),
    [(Budget("quick"), 25), (Budget("ci"), 50), (Budget("ci", max_examples=10), 10)],
)
def test_the_check_that_alone_finds_the_most_draws_more(budget: Budget, drawn: int) -> None:
    around = check("holds_where_code_branches")
    [entry] = plan(Subject.of(replace(CLAIM, budget=budget)), [around]).entries
    assert entry.examples == drawn


def test_other_checks_can_be_planned() -> None:
    assert plan(Subject.of(CLAIM), []) == Plan(Subject.of(CLAIM), ())


class Cost(NamedTuple):
    """Cases of one check at most, listed, drawn, and for other checks on every branch."""

    check: str
    listed: int
    drawn: int
    branches: int


def costs(of: Plan) -> list[Cost]:
    """Of the checks that are run, in their order."""
    return [
        Cost(
            entry.check.name,
            sum(case in entry.space for case in first_cases(entry.check, of.subject, entry.space)),
            entry.examples,
            on_branches(of.subject) if entry.check.looks_at_branches else 0,
        )
        for entry in of.entries
        if entry.instead is None and entry.space is not None
    ]


def on_branches(subject: Subject) -> int:
    most = [entry.check.max_stored for entry in looking_at_branches(subject)]
    each = subject.claim.budget.branches
    return sum(each if own is None else min(each, own) for own in most)


@pytest.mark.thorough
def test_every_profile_has_fewer_cases_than_the_next() -> None:
    """Each with some of every kind; the default draws as many as quick, and lists more."""
    quick, ci, thorough = (
        costs(plan(Subject.of(replace(CLAIM, budget=Budget(profile))))) for profile in PROFILES
    )
    assert [item.check for item in quick] == [item.check for item in ci]
    assert sum(sum(item[1:]) for item in quick) * 1.2 < sum(sum(item[1:]) for item in ci)
    assert sum(sum(item[1:]) for item in ci) * 10 < sum(sum(item[1:]) for item in thorough)
    for few, many in zip(quick, ci, strict=True):
        assert few.listed and few.listed <= many.listed
        assert bool(few.drawn) == bool(many.drawn)
        assert few.drawn <= many.drawn


def test_what_is_run_is_what_the_bill_says(shared_pool: Pool) -> None:
    request = Request(
        target="examples/native/sum/token_mean.py", modes=("token_mean",), profile="quick"
    )
    names = ("ranks_issue_the_same_collectives", "split_groups_equal_or_refused")
    with loaded(request, shared_pool) as (found, executor):
        planned = plan(prepared(found[0], executor), [check(name) for name in names])
        outcomes = [run_check(entry, executor) for entry in planned.entries]
    assert [o.summary.cases for o in outcomes] == [sum(item[1:]) for item in costs(planned)]


def test_a_check_that_is_asked_for_alone_has_an_entry_even_where_it_says_nothing() -> None:
    calls = check("calls_are_answered_rightly")
    [entry] = plan(Subject.of(CLAIM), [calls]).entries
    assert (entry.instead, entry.why_not) == (State.LEFT_OUT, "the function reduces losses")
    assert calls not in [each.check for each in plan(Subject.of(CLAIM)).entries]


def test_a_check_that_is_skipped_does_not_look_at_branches() -> None:
    subject, skip = Subject.of(CLAIM), ["leaves_its_arguments_alone"]
    every, left = looking_at_branches(subject), looking_at_branches(subject, skip)
    assert [e.check.name for e in every if e not in left] == skip
