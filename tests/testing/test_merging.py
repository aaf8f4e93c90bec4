"""What several tests of one subject say together."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs
from msgspec.structs import fields

from aggverify import model
from aggverify.conventions import convention
from aggverify.model import Tried
from aggverify.report.document import document
from aggverify.run.outcome.branch_coverage import BranchCoverage
from aggverify.run.outcome.coverage_observer import warned
from aggverify.steps.case_tags import ONE_RANK, SHARDED, encode
from aggverify.testing import merging
from aggverify.testing.merging import widest
from aggverify.trainer.conditions import Condition
from tests.verdicts import verdict


def test_the_largest_of_everything_is_that_of_any_test() -> None:
    numbers = [field.name for field in fields(Tried) if field.name != "dtypes"]
    least = Tried(**dict.fromkeys(numbers, 1), dtypes={"float64": ("one rank",)})
    parts = [structs.replace(least, **{name: n + 2}) for n, name in enumerate(numbers)]
    parts[0] = structs.replace(parts[0], dtypes={"float64": ("cp",), "bfloat16": ("one rank",)})
    found = widest(parts)
    assert [getattr(found, name) for name in numbers] == list(range(2, len(numbers) + 2))
    assert found.dtypes == {"bfloat16": ("one rank",), "float64": ("cp", "one rank")}


def test_lines_that_ran_in_another_test_are_not_told() -> None:
    def part(ran: tuple[int, ...], sharded: tuple[int, ...]) -> model.Verdict:
        made = verdict(reports=0)
        covered = BranchCoverage({n: encode([SHARDED if n in sharded else ONE_RANK]) for n in ran})
        made = replace(
            made,
            subject=made.subject.knowing(functions=lines, conditions=()),
            covered=covered,
        )
        warnings = [warned(*pair) for pair in covered.weaknesses(lines)]
        [told] = document([replace(made, weaknesses=tuple(warnings))]).verdicts
        return told

    lines = (model.Lines("reduce", (6, 7, 8, 10), 0, ()), model.Lines("unused", (30,), 0, ()))
    alone, spread = part((6, 7), ()), part((6, 8), (6,))
    [merged] = merging.document([alone, spread]).verdicts
    assert {w.code: w.detail for w in merged.warnings} == {
        "AGVW17": "line 10 of reduce",
        "AGVW18": "lines 7-8 of reduce",
    }
    assert merged.covered == model.Covered(lines[:1], {ONE_RANK: (6, 7, 8), SHARDED: (6,)}, ())
    [whole] = merging.document([alone, part((6, 8, 10), (6, 7, 8, 10))]).verdicts
    assert whole.warnings == ()


def test_a_parameter_with_one_value_in_training_is_expected_to_go_one_way() -> None:
    made = verdict(reports=0)
    condition = Condition("compute_loss", 6, "return_outputs", (), 7, 8)
    subject = made.subject.knowing(
        functions=(model.Lines("compute_loss", (6, 7, 8, 9), 0, ()),), conditions=(condition,)
    )
    ran = BranchCoverage({n: encode([ONE_RANK, SHARDED]) for n in (6, 8)}, {0: encode([ONE_RANK])})
    told = warned("AGVW17", "line 9 of compute_loss")
    for how, missing in (("hf-trainer", "line 9"), ("native", "lines 7, 9")):
        of = replace(subject, convention=convention(how))
        [whole] = document([replace(made, subject=of, covered=ran, weaknesses=(told,))]).verdicts
        [merged] = merging.document([whole]).verdicts
        assert {w.code: w.detail for w in merged.warnings} == {
            "AGVW17": f"{missing} of compute_loss"
        }
