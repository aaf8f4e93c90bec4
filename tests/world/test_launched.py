"""Ranks that are started instead of forked: their own interpreters, and watched like any other."""

from __future__ import annotations

import pytest

from aggverify.world import Fault, Pool, Replies, Template
from tests.world.conftest import job, opened


@pytest.mark.thorough
def test_launched_ranks_are_interpreters_of_their_own_and_end_like_others(pool: Pool) -> None:
    forked = opened(pool, "Play")
    more = {"cpu_seconds": 60, "memory": 1 << 34, "silence": 600}
    launched = forked.sibling({}, more, launched=True)
    assert isinstance(launched, Template), launched

    def told(template: Template) -> list[dict[str, object]]:
        [outcome] = template.run([job("own_interpreter", world=2)])
        assert isinstance(outcome, Replies), outcome
        kept = ("hash", "collects", "environment")
        return [{key: reply.data[key] for key in kept} for reply in outcome.replies]

    one, two = told(forked)
    assert one["hash"] == two["hash"]
    first = told(launched)
    assert first[0]["hash"] != first[1]["hash"]
    for rank, data in enumerate(first):
        assert data["collects"]
        assert data["environment"] == {
            "RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_PORT": "29500",
            "OMP_NUM_THREADS": None,
        }
    launched.restart_worlds()
    assert told(launched) == first  # and the same tomorrow
    raised, left, fine = launched.run(
        [
            job("raise_error", world=2, value=3, on=[1]),
            job("leave", world=2, status=5, on=[1]),
            job("nothing", world=2),
        ]
    )
    assert isinstance(raised, Fault) and (raised.kind, raised.rank) == ("exception", 1)
    assert isinstance(left, Fault) and (left.kind, left.exit_status) == ("died", 5)
    assert isinstance(fine, Replies)
    forked.close()
    assert launched.closed
