"""What a handler does before its jobs is its own: no job pays for it, or is blamed for it."""

from __future__ import annotations

import pytest

from aggverify.world import Fault, Options, Pool, Replies
from tests.world.conftest import job, opened

LIMIT = 0.4


@pytest.mark.thorough
@pytest.mark.parametrize("fails", [False, True])
def test_first_use_costs_are_not_the_jobs(fails: bool) -> None:
    with Pool(Options(cpu_seconds=LIMIT, silence=60.0)) as pool:
        template = opened(pool, "Prepares", {"seconds": 2 * LIMIT, "fails": fails})
        first, second, away = template.run([job("nothing", 2), job("nothing", 2), job("loop", 2)])
    if fails:
        assert isinstance(first, Fault), first
        assert (first.kind, first.rank) == ("exception", 0)
        assert first.message == "rank 0: ValueError: cannot be prepared"
    else:
        assert isinstance(first, Replies), first
        # Neither what it left changed nor the collective it issued.
        assert [reply.changes for reply in first.replies] == [(), ()]
    assert isinstance(second, Replies), second
    # From then on the job's own limit holds.
    assert isinstance(away, Fault), away
    assert (away.kind, f"within {LIMIT} s" in away.message) == ("runaway", True)
