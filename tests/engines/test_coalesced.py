"""What a coalescing manager issues at its end is waited for there: no handle is dropped."""

from __future__ import annotations

from pathlib import Path

from aggverify.checks import check
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.world import Pool

REDUCER = """
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager
AGGVERIFY = {"mode": "token_mean", "engine": "sum"}

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    counts = [mask.sum(), mask.sum()]
    with _coalescing_manager(batch.cp_group):
        for count in counts:
            dist.all_reduce(count, group=batch.cp_group)
    assert counts[0] == counts[1] == sum(int(whole.sum()) for whole in batch.loss_masks)
    return torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
"""


def test_collectives_that_are_coalesced_are_waited_for(shared_pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(REDUCER)
    case = Case(parse_step("1/11"), Layout((((0,),),), cp_size=2), (1.0, 2.0))
    judges = check("waits_for_collectives")
    with loaded(Request(str(tmp_path / "r.py")), shared_pool) as ([subject], executor):
        executor.begin()
        done = executor.run(subject, list(judges.variants(case)))
        assert [one.failure for one in done] == [None] * len(done)
        assert judges.judge(subject, done) is None
