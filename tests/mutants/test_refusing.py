"""A right reducer that cannot be called in one of a check's ways is judged by the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks import check
from aggverify.codes.state import State
from aggverify.run.opening import loaded
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.world import Pool

REDUCER = """
import torch


def reduce(losses, batch):
    if {refuses}:
        raise ValueError("no loss of such a step")
    own = torch.where(torch.cat(batch.local_masks).bool(), losses, 0)
    return own.sum() / max(batch.num_tokens, 1)
"""
CASES = {
    "the_same_in_validation_and_autocast": ("not torch.is_grad_enabled()", State.OK),
    "infinities_are_seen": ("not losses.isfinite().all()", State.REFUSED),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_it_passes_or_is_refused(name: str, tmp_path: Path, shared_pool: Pool) -> None:
    refuses, state = CASES[name]
    (tmp_path / "r.py").write_text(REDUCER.format(refuses=refuses))
    request = Request(target=str(tmp_path / "r.py"), modes=("token_mean",), engine="sum")
    with loaded(request, shared_pool) as (found, executor):
        executor.begin()
        [entry] = plan(prepared(found[0], executor), [check(name)]).entries
        outcome = run_check(entry, executor)
    assert (outcome.summary.state, outcome.findings) == (state, ())
