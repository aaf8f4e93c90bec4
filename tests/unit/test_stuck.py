"""Where ranks wait for each other in vain, no further step is run that would show only that."""

from __future__ import annotations

import pytest

from aggverify.checks import check
from aggverify.codes import CODES
from aggverify.generation.space import Space, sizes
from aggverify.run.session import _why_skipped, _without
from aggverify.steps.layouts import Layout

SPACE = Space(max_dp=4, max_cp=2, max_microbatches=2, min_units=2)


@pytest.mark.parametrize(
    ("stuck", "left"),
    [
        ([], (4, 2)),
        ([Layout(((((0,),)), ((1,),)))], (1, 2)),
        ([Layout((((0,),),), cp_size=2)], (4, 1)),
        ([Layout((((0,),),), cp_size=2), Layout((((0,),), ((1,),)))], (1, 1)),
        ([Layout((((0,),),))], (4, 2)),
    ],
)
def test_the_dimension_is_left_out(stuck: list[Layout], left: tuple[int, int]) -> None:
    space = _without(SPACE, stuck)
    assert space is not None
    assert (space.max_dp, space.max_cp) == left


def test_a_check_of_that_dimension_says_why_it_is_not_judged() -> None:
    wanted, codes = check("independent_of_data_parallel_size"), [CODES["AGV404"]]
    space = Space(max_dp=1, min_units=2)
    assert not sizes(space)
    assert "in vain" in str(_why_skipped(wanted, space, set(), codes))
    assert "on 8 ranks" in str(_why_skipped(wanted, space, set(), []))
    collectives = check("ranks_issue_the_same_collectives")
    assert "already" in str(_why_skipped(collectives, SPACE, codes[0].spoils, codes))
    assert _why_skipped(collectives, SPACE, set(), []) is None
