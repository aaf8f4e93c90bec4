"""Traces of ranks side by side: what agrees, who is the odd one out, how it is worded."""

from __future__ import annotations

from aggverify.world.agreement import Disagreement, Trace, disagreement
from aggverify.world.collectives import Collective, read

ALL = "0|0,1,2|all_reduce|float32|4|SUM|"
INT = "0|0,1,2|all_reduce|int32|4|SUM|"
PAIR = "7|0,1|barrier||||"
OWN = "||send||||"
SUM = Collective("all_reduce", "0", (0, 1, 2), "float32", 4, "SUM")
INTS = Collective("all_reduce", "0", (0, 1, 2), "int32", 4, "SUM")


def done(*entries: str, **more: object) -> Trace:
    return Trace(entries, True, **more)  # type: ignore[arg-type]


def under_way(*entries: str) -> Trace:
    return Trace(entries, False)


def test_the_same_everywhere_agrees() -> None:
    assert disagreement({r: done(ALL, ALL) for r in range(3)}) is None


def test_groups_are_compared_on_their_members_only() -> None:
    assert disagreement({0: done(PAIR, ALL), 1: done(PAIR, ALL), 2: done(ALL)}) is None


def test_order_across_groups_is_not_compared() -> None:
    # Whether that deadlocks is for the backend to tell.
    assert disagreement({0: done(PAIR, ALL), 1: done(ALL, PAIR), 2: done(ALL)}) is None


def test_point_to_point_calls_are_not_compared() -> None:
    assert disagreement({0: done(OWN, ALL), 1: done(ALL), 2: done(ALL, OWN)}) is None


def test_the_minority_is_the_odd_one_out() -> None:
    assert disagreement({0: done(INT), 1: done(ALL), 2: done(ALL)}) == Disagreement(
        0,
        "ranks disagree on collective 1 of ranks 0,1,2: rank 0: all_reduce int32[4] SUM; "
        "ranks 1,2: all_reduce float32[4] SUM",
        {0: INTS, 1: SUM, 2: SUM},
    )


def test_of_two_that_differ_the_lowest_is_taken_for_right() -> None:
    found = disagreement({0: done(PAIR), 1: done()})
    assert found == Disagreement(
        1,
        "ranks disagree on collective 1 of ranks 0,1: rank 0: barrier; rank 1: none",
        {0: Collective("barrier", "7", (0, 1)), 1: None},
    )


def test_a_rank_under_way_may_still_follow() -> None:
    assert disagreement({0: done(ALL, ALL), 1: under_way(ALL), 2: under_way()}) is None


def test_a_rank_under_way_cannot_take_back() -> None:
    found = disagreement({0: done(ALL), 1: under_way(ALL, ALL), 2: done(ALL)})
    assert found is not None
    assert (found.rank, "collective 2" in found.message) == (1, True)


def test_members_that_issued_nothing_at_all_count() -> None:
    found = disagreement({0: done(PAIR, PAIR), 1: done(PAIR), 2: done()})
    assert found is not None
    assert (found.rank, "collective 2 of ranks 0,1" in found.message) == (1, True)


def test_what_is_beyond_the_entries_kept_is_compared_by_checksum() -> None:
    agreed = {r: done(ALL, checksums={"0": 5}) for r in range(3)}
    assert disagreement(agreed) is None
    found = disagreement({**agreed, 1: done(ALL, checksums={"0": 6})})
    assert found is not None
    assert (found.rank, "checksums" in found.message) == (1, True)


def test_counts_of_the_backend_show_what_no_trace_does() -> None:
    agreed = {r: done(ALL, sequences={"0": [9], "0/": [5, 9]}) for r in range(3)}
    assert disagreement(agreed) is None
    assert disagreement({**agreed, 2: done(ALL, sequences={"0": [10]})}) == Disagreement(
        2,
        "ranks disagree on the number of collectives of ranks 0,1,2 (group 0): "
        "ranks 0,1: 9 issued; rank 2: 10 issued",
    )
    assert disagreement({**agreed, 1: done(ALL, sequences={"0/": [5, 8]})}) == Disagreement(
        1,
        "ranks disagree on the number of collectives of ranks 0,1,2 (group 0/1): "
        "ranks 0,2: 9 issued; rank 1: 8 issued",
    )


def test_a_group_that_a_rank_has_let_go_of_is_compared_as_long_as_it_had_it() -> None:
    traces = {0: done(ALL, sequences={"7/": [1, 2, 3]}), 1: done(ALL, sequences={"7/": [1, 2]})}
    assert disagreement(traces) is None
    traces[2] = done(ALL, sequences={})
    assert disagreement(traces) is None


def test_when_something_is_waited_for_is_no_part_of_what_is_compared() -> None:
    wait = "||wait of an asynchronous collective||||r.py:3"
    assert disagreement({0: done(ALL, wait), 1: done(wait, ALL), 2: done(ALL)}) is None
    assert disagreement({0: done(ALL, wait), 1: done(wait), 2: done(ALL)}) is not None


def test_counts_of_ranks_under_way_prove_nothing() -> None:
    traces = {0: done(ALL, sequences={"0": [9]}), 1: under_way(ALL), 2: under_way(ALL)}
    assert disagreement(traces) is None


def test_a_trace_that_was_scribbled_over_is_no_reason_to_fail() -> None:
    assert disagreement({0: under_way("\ufffd\x00"), 1: under_way("a|b"), 2: done(ALL)}) is None
    assert read("\ufffd") == Collective("\ufffd")
    assert read("0|one|a||||") == Collective("0|one|a||||")


def test_entries_for_people() -> None:
    assert read(ALL) == SUM
    assert SUM.text == "all_reduce float32[4] SUM of ranks 0,1,2"
    assert read(OWN) == Collective("send")
    assert read(OWN).text == "send"


def test_the_same_from_another_line_is_the_same() -> None:
    here, there = f"{ALL}r.py:3", f"{ALL}r.py:9"
    assert disagreement({0: Trace((here,), True), 1: Trace((there,), True)}) is None
    other = f"{ALL.replace('SUM', 'MAX')}r.py:9"
    found = disagreement({0: Trace((here,), True), 1: Trace((other,), True)})
    assert found is not None
    assert found.message.endswith("SUM at r.py:3; rank 1: all_reduce float32[4] MAX at r.py:9")
    assert read(here).place == "r.py:3"
    assert read(here).text == SUM.text
