"""Candidates that change torch's default device and dtype do not change tensors of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.execution.executor import Executor
from aggverify.generation.catalogue import hard_cases
from aggverify.run.opening import opened
from aggverify.run.planning.claims import subjects
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.world import Pool

DEFAULTS = """
import torch
torch.set_default_device("meta")
torch.set_default_dtype(torch.float16)
"""
NATIVE = """
def reduce(losses, batch):
    mask = torch.cat(batch.local_masks)
    return (losses * mask).sum(), mask.sum()
"""
SLIME = """
def get_pg_loss_reducer(total_lengths, response_lengths, loss_masks, calculate_per_token_loss):
    mask = torch.cat(loss_masks)
    return lambda x: (x * mask).sum()
"""
SKYRL = """
def apply_loss_reduction_to_advantages_minibatch(
    advantages, loss_mask, loss_reduction, micro_batch_size, max_seq_len
):
    return advantages / loss_mask.sum()
def reduce_loss(loss, loss_mask):
    return (loss * loss_mask).sum()
"""
SKYRL_REDUCE_LOSS = """
def reduce_loss(loss, loss_mask, loss_reduction, max_seq_len=None):
    return (loss * loss_mask).sum()
"""


@pytest.mark.parametrize(
    ("code", "engine"),
    [
        (NATIVE, "sum"),
        pytest.param(NATIVE, "megatron-token", marks=pytest.mark.thorough),
        pytest.param(SLIME, "megatron-token", marks=pytest.mark.thorough),
        (SKYRL, "skyrl-fsdp"),
        pytest.param(SKYRL_REDUCE_LOSS, "accumulated-mean", marks=pytest.mark.thorough),
    ],
)
def test_defaults_of_the_candidate(tmp_path: Path, code: str, engine: str) -> None:
    cases = [c for c in hard_cases() if c.layout.world_size <= 4]
    if code != NATIVE:
        cases = [c for c in cases if c.layout.world_size <= 2 and c.layout.cp_size == 1]
    else:
        assert any(c.layout.cp_kind == "gathered" and c.layout.cp_size > 1 for c in cases)
    assert cases
    found = []
    with Pool() as pool:
        for name, head in (("plain", "import torch\n"), ("altered", DEFAULTS)):
            path = tmp_path / f"{name}.py"
            path.write_text(head + code)
            target = parse_target(str(path))
            with opened(pool, target.setup()) as template:
                request = Request(str(path), modes=("token_mean",), engine=engine)
                subject = subjects(request, target, template.description)[0]
                found.append(Executor(template).run(subject, cases))
    for plain, altered in zip(*found, strict=True):
        assert plain.weights is not None, plain.failure
        assert altered.weights is not None, altered.failure
        assert plain.weights.tobytes() == altered.weights.tobytes()
        assert (plain.local_losses, plain.counts) == (altered.local_losses, altered.counts)
