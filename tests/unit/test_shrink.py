"""The smallest cases in order, and the first of them that shows a finding."""

from __future__ import annotations

from aggverify.checks import Finding
from aggverify.generation.catalogue import hard_cases
from aggverify.generation.space import Space
from aggverify.run.search.shrink import (
    FEW,
    MOST,
    plain_cases,
    shrink,
    shrink_by_listing,
    smallest_cases,
)
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import format_step, parse_micro_batches, parse_step

WIDE = Space(
    max_dp=4, max_cp=4, max_microbatches=3, fan_out=True, cp_kinds=("zigzag", "contiguous")
)
LARGE = max(hard_cases(), key=lambda case: case.size)


def finding(case: Case, code: str = "AGV101") -> Finding:
    return Finding(code, "a check", "", case, None)


def test_they_start_with_one_token_and_grow() -> None:
    cases = smallest_cases(WIDE)
    assert [format_step(case.step) for case in cases[:4]] == ["1/1", "1/0", "1/11", "1/10"]
    assert len(set(cases)) == len(cases)
    assert [case.size for case in cases] == sorted(case.size for case in cases)
    assert all(case in WIDE for case in cases)


def test_plain_ones_mask_nothing_and_share_nothing() -> None:
    steps = [format_step(case.step) for case in plain_cases(Space())]
    assert steps == ["1/1", "1/11", "1/111", "1/1; 1/1", "1/1; 1/11", "1/1; 1/1; 1/1"]
    assert all(not case.masked_tokens() for case in plain_cases(WIDE))


def test_a_space_leaves_out_what_it_does_not_generate() -> None:
    assert all(
        s.num_unmasked for c in smallest_cases(Space(empty_samples=False)) for s in c.step.samples
    )
    assert all(c.masked_tokens() for c in smallest_cases(Space(needs_hole=True)))
    assert {c.layout.world_size for c in smallest_cases(Space(max_dp=2, min_world=2))} == {2}
    rejected = [c for c in smallest_cases(Space(rejects=True)) if c.step.samples[0].original_mask]
    assert rejected
    turned = Space(shuffled=True, fan_out=True)
    assert any(c.layout.micro_batches == (((1, 0),),) for c in smallest_cases(turned))


def test_the_first_that_shows_it_is_found_whatever_it_is_found_on_before() -> None:
    wanted = parse_step("1/1; 1/11"), Layout(parse_micro_batches("0 1"))

    def judge(batch: list[Case]) -> list[Finding | None]:
        shows = [c.layout.num_microbatches > 1 and c.step.num_unmasked > 2 for c in batch]
        return [finding(c) if s else None for c, s in zip(batch, shows, strict=True)]

    for start in hard_cases():
        if start.size > (2, 2, 3):
            found = shrink_by_listing(finding(start), judge, WIDE)
            assert found is not None
            assert (found.case.step, found.case.layout) == wanted


def test_what_is_found_on_one_rank_is_made_small_there_whatever_layouts_are_drawn() -> None:
    step = parse_step("2/101 1/11")
    start = Case(step, Layout(parse_micro_batches("0,1")), (1.0,) * 5)
    apart = Space(max_dp=2, min_units=2)

    def judge(batch: list[Case]) -> list[Finding | None]:  # the step on one rank, as it was drawn
        return [finding(case.trivial) for case in batch]

    assert start not in apart
    assert shrink(finding(start), judge, apart).case.step == parse_step("1/1")


def test_what_costs_a_world_is_tried_twice_and_another_code_does_not_count() -> None:
    tried: list[int] = []

    def judge(batch: list[Case]) -> list[Finding | None]:
        tried.append(len(batch))
        return [finding(c, "AGV203") for c in batch]

    assert shrink_by_listing(finding(LARGE, "AGV402"), judge, WIDE) is None
    assert tried == [1] * 2 * FEW
    tried.clear()
    assert shrink_by_listing(finding(LARGE), judge, WIDE) is None
    assert MOST <= sum(tried) <= 2 * MOST
