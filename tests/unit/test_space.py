"""Whether a case from elsewhere lies in a space: each field narrows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aggverify.generation.space import Space
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

WIDE = Space(8, 8, 8, cp_kinds=("zigzag", "contiguous"), fan_out=True)


def case(text: str, cells: str = "0", cp: int = 1, kind: CpKind = "zigzag") -> Case:
    step = parse_step(text)
    layout = Layout(parse_micro_batches(cells), cp, kind)
    return Case(step, layout, (0.0,) * step.num_response_tokens)


PAIR = case("1/1 1/11", "0 1")
ROWS = "1/1 1/1; 1/1 1/1"
WITH_DUMMY = case("2/101+2/000", "0,1")


@pytest.mark.parametrize(
    ("narrowed", "inside", "outside"),
    [
        ({"max_dp": 2}, case("1/1; 1/1", "0 | 1"), case("1/1; 1/1; 1/1", "0 | 1 | 2")),
        ({"max_cp": 2}, case("1/1", cp=2), case("1/1", cp=3)),
        ({"max_microbatches": 1}, case("1/1; 1/1", "0 | 1"), PAIR),
        ({"min_world": 2}, case("1/1", cp=2), PAIR),
        ({"max_world": 2}, case("1/1; 1/1", "0 | 1"), case("1/1; 1/1", "0 | 1", cp=2)),
        ({"min_units": 2}, PAIR, case("1/1")),
        ({"cp_kinds": ("zigzag",)}, case("1/1", cp=2), case("1/1", cp=2, kind="contiguous")),
        ({"cp_kinds": ()}, case("1/1", kind="contiguous"), case("1/1", cp=2)),
        ({"lengths": (1, 3)}, case("1/1; 1/111", "0,1"), case("1/11")),
        ({"fan_out": False}, PAIR, case("1/1+1/1", "0,1")),
        ({"empty_samples": False}, case("1/10"), case("1/0")),
        ({"empty_steps": False}, case("1/0; 1/1", "0,1"), case("1/0; 1/00", "0,1")),
        ({"uniform": True}, case("1/1; 1/1", "0 1"), case("1/1; 1/1", "1 0")),
        ({"uniform": True}, case("1/1; 1/1", "0,1"), case("1/1; 1/1; 1/1", "0,1 2")),
        ({"rows": 2}, case("1/1; 1/1", "0,1"), case("1/1; 1/1", "0 1")),
        ({"group_size": 2}, case(ROWS, "0,1 | 2,3"), case(ROWS, "0 1 | 2 3")),
        ({"group_size": 2}, case(ROWS, "0,1,2,3"), case(ROWS, "0,2,1,3")),
        ({"group_size": 2}, case("1/1 1/1", "0,1"), case("1/1 1/1; 1/1", "0,1,2")),
        ({"group_size": 2}, case("1/1 1/1", "0,1"), case("1/1 1/1 1/1", "0,1,2")),
        ({"whole_groups": True}, case("1/1; 1/1", "0 1"), PAIR),
        ({"whole_shards": True}, case("1/1 1/1", "0 1"), case("1/1 1/1", "0 | 1")),
        ({"split_groups": True}, PAIR, case("1/1; 1/1", "0 1")),
        ({"blank_a_unit": True}, case("1/1; 1/00", "0,1"), case("1/1; 1/10", "0,1")),
        ({"needs_hole": True}, case("1/10"), PAIR),
        ({"padded": True, "dummies": True, "fan_out": False}, WITH_DUMMY, case("1/1+1/1", "0,1")),
        ({"padded": True, "fan_out": False}, case("2/1010"), WITH_DUMMY),
    ],
)
def test_a_field_narrows(narrowed: dict[str, object], inside: Case, outside: Case) -> None:
    space = replace(WIDE, **narrowed)  # type: ignore[arg-type]
    assert inside in space
    assert outside not in space


def test_what_is_rejected_lies_only_where_there_are_rejects() -> None:
    [sample] = parse_step("1/10").samples
    rejected = replace(case("1/10"), step=Step((replace(sample, original_mask=b"\1\1"),)))
    assert rejected not in WIDE
    assert rejected in replace(WIDE, rejects=True)
    blank = replace(sample, loss_mask=b"\0\0", original_mask=b"\1\1")
    all_rejected = replace(rejected, step=Step((blank,)))
    assert all_rejected in replace(WIDE, rejects=True, empty_samples=False)
