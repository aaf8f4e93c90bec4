"""What every check is: its space, and what its failing makes worthless for others."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from aggverify.checks import CHECKS, Check, check, register, registered
from aggverify.checks.spaces import cp_kinds
from aggverify.codes import CODES, Code
from aggverify.errors import InputError
from aggverify.execution.budget import Budget
from aggverify.execution.claim import NONLINEAR, Claim
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Refused, Subject
from aggverify.generation.catalogue import hard_cases
from aggverify.generation.space import Space

STORED = Path(__file__).with_name("spaces.json")
EXPECTED = json.loads(STORED.read_text(encoding="utf-8"))
"""``spaces``: fields that are not the default's; ``checks``: which of them each subject has.

``python -m tests.unit.test_checks`` writes it."""
ALL = frozenset(
    {"fan-out", "context-parallel", "straddling-groups", "ragged-micro-batches", "rejection"}
    | {"poison", "dummy-samples", "contiguous", "gathered", "validates-arguments"}
)
OFFERED = ("token_mean", "sample_mean")


def subject(how: str, under: str, mode: str, **more: Any) -> Subject:
    return Subject.of(Claim("r.py", "reduce", how, under, mode, **more))


PLAIN = subject("native", "sum", "token_mean")
SKYRL = subject("skyrl", "skyrl-fsdp", "token_mean")
SUBJECTS = (
    PLAIN,
    PLAIN.claiming(claimed=ALL).knowing(returns_logs=False),
    PLAIN.claiming(max_world=1),
    PLAIN.claiming(max_world=2, claimed=frozenset({"gathered"})),
    PLAIN.claiming(mode=None),
    PLAIN.knowing(trust_formula=False),
    PLAIN.claiming(mode=NONLINEAR, claimed=ALL),
    PLAIN.claiming(group_size=4),
    PLAIN.claiming(terms=("kl", "entropy")).knowing(refused=(Refused("straddling-groups", "no"),)),
    PLAIN.compared_with(SKYRL),
    SKYRL.claiming(mode="sequence_sum", engine="sum", claimed=ALL),
    SKYRL.claiming(mode="sample_mean", max_world=4),
    subject("slime", "megatron-sample", "prompt_mean"),
    subject("slime", "megatron-token", "token_mean", claimed=ALL, offered=OFFERED),
    subject(
        "skyrl-reduce-loss",
        "skyrl-fsdp",
        "token_mean",
        offered=OFFERED,
        claimed=frozenset({"validates-arguments"}),
    ),
)


@pytest.mark.parametrize("about", CHECKS, ids=lambda c: c.name)
def test_a_check_draws_from_the_space_it_always_had(about: Check) -> None:
    wanted = [None if n is None else EXPECTED["spaces"][n] for n in EXPECTED["checks"][about.name]]
    assert [_told(about.space(s)) for s in SUBJECTS] == wanted


def test_the_file_of_spaces_is_what_is_written() -> None:
    assert STORED.read_text(encoding="utf-8") == written()


def written() -> str:
    """Return the spaces of every check as the text of the file."""
    spaces: list[str] = []
    checks: list[str] = []
    for about in CHECKS:
        numbers: list[int | None] = []
        for each in SUBJECTS:
            told = _told(about.space(each))
            text = json.dumps(told)
            if told is not None and text not in spaces:
                spaces.append(text)
            numbers.append(None if told is None else spaces.index(text))
        checks.append(f"{json.dumps(about.name)}: {json.dumps(numbers)}")
    tables = (",\n".join(f"  {line}" for line in lines) for lines in (spaces, checks))
    return '{{\n "spaces": [\n{}\n ],\n "checks": {{\n{}\n }}\n}}\n'.format(*tables)


def _told(space: Space | None) -> dict[str, Any] | None:
    if space is None:
        return None
    values = {f.name: getattr(space, f.name) for f in fields(Space)}
    usual = Space()
    told = {name: value for name, value in values.items() if value != getattr(usual, name)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in told.items()}


def test_losses_are_only_sliced_where_trainers_slice_them() -> None:
    sliced = subject("native", "mean", "token_mean", claimed=frozenset({"gathered"}))
    assert cp_kinds(sliced) == ("zigzag", "contiguous", "gathered")
    for name in ("skyrl-fsdp", "skyrl-megatron", "areal"):
        assert cp_kinds(sliced.claiming(engine=name)) == ("gathered",)
        assert {"zigzag", "contiguous"} <= sliced.claiming(engine=name).not_claimed.keys()
    assert cp_kinds(SKYRL) == ()


def test_a_run_under_a_formula_ends_under_the_library_s_engine() -> None:
    last = check("holds_under_the_real_engine")
    mean = subject("native", "mean", "token_mean", claimed=frozenset({"gathered"}))
    assert last.only is not None
    for profile, ranks, wide in (("ci", 2, 0), ("thorough", 8, 6)):
        of = mean.claiming(budget=Budget(profile))
        space = last.space(of)
        assert space is not None
        assert (space.max_world, space.cp_kinds) == (ranks, ("zigzag", "contiguous", "gathered"))
        cases = list(last.only(of))
        assert len(cases) == 20
        assert sum(case.layout.world_size > 2 for case in cases) == wide
        assert {case.layout.world_size for case in cases} >= {2}
        assert {case.layout.cp_kind for case in cases} == {"zigzag", "contiguous", "gathered"}
        assert {case.dtype for case in cases} >= {"float32", "float64"}
    for other in ("sum", "ddp", "megatron-token"):
        assert last.space(mean.claiming(engine=other)) is None
    assert last.space(mean.claiming(budget=Budget("quick"))) is None


def test_every_aspect_that_is_asked_for_can_turn_out_wrong() -> None:
    wrong = {c.aspect for c in CHECKS}.union(*(code.spoils for code in CODES.values()))
    needed = {need.aspect for c in CHECKS for need in c.needs}
    assert needed | {aspect for c in CHECKS for aspect in c.alone_after} <= wrong - {""}


def test_a_step_is_repeated_after_another_with_the_same_lengths_and_counts() -> None:
    case = check("keeps_nothing_between_steps").project(hard_cases()[2])
    [sample] = case.step.samples
    _, after, *_ = check("keeps_nothing_between_steps").variants(case)
    assert isinstance(after, RunSpec)
    others = [other.step.samples[0] for other in after.before]
    assert any(
        other.loss_mask != sample.loss_mask
        and (other.response_length, other.num_unmasked)
        == (sample.response_length, sample.num_unmasked)
        for other in others
    )


def test_what_is_last_stays_last() -> None:
    mine = replace(CHECKS[0], name="mine", codes=(Code("AGV901", "Mine"),))
    with registered(mine):
        assert [c.last for c in CHECKS] == sorted(c.last for c in CHECKS)
        assert check("mine") is mine
        assert "AGV901" in CODES
        register(mine)
        assert sum(c.name == "mine" for c in CHECKS) == 1
    assert mine not in CHECKS
    assert "AGV901" not in CODES


def test_a_name_in_use_is_refused_and_leaves_nothing_behind() -> None:
    before = tuple(CHECKS)
    mine = replace(CHECKS[0], title="another", codes=(Code("AGV901", "Mine"),))
    with pytest.raises(InputError, match=f"'{CHECKS[0].name}' is in use"), registered(mine):
        pass
    assert tuple(CHECKS) == before
    assert "AGV901" not in CODES


@pytest.mark.parametrize("rows", [2, 5])
def test_what_lists_its_cases_has_one_for_micro_batches_of_every_size(rows: int) -> None:
    claim = Claim("m:f", "f", "skyrl", "skyrl-fsdp", f"token_mean_legacy({rows})")
    subject = Subject.of(claim)
    for found in CHECKS:
        space = found.space(subject) if found.only is not None else None
        if space is not None:
            assert found.only is not None
            assert any(case in space for case in found.only(subject)), found.name


if __name__ == "__main__":
    STORED.write_text(written(), encoding="utf-8")
