"""Logs merged by an adapter's own function, in the ranks: per-key normalisers, in a form of the
framework's."""

from __future__ import annotations

from pathlib import Path

import pytest

from aggverify.checks import logs
from aggverify.checks.base import Finding
from aggverify.conventions import convention
from aggverify.errors import InputError
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.run.opening import loaded
from aggverify.run.planning.request import Request
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step
from aggverify.world import Pool

REDUCER = """
import torch

def loss_function(losses, mask, rows, num_tokens):
    kept = torch.where(mask.bool(), losses, 0)
    means = [torch.where(m.bool(), x, 0).sum() / m.sum().clamp(min=1) for x, m in rows]
    sums = torch.stack([kept.sum(), torch.stack(means).sum()]).detach().float()
    counts = torch.tensor([float(mask.sum()), float(len(rows))])
    log = {"keys": ["loss", "kl"], "values": sums, "normalizers": counts}
    return kept.sum() / max(num_tokens, 1), None, log
"""
ADAPTER = """
import torch
import torch.distributed as dist

ADAPTER = {{
    "engine": "sum",
    "logs": "merge_logs",
    "not_claimed": {{"context-parallel": "samples are whole"}},
}}

def call(loss_function, losses, batch):
    lengths = [len(m) for m in batch.local_masks]
    rows = list(zip(losses.split(lengths), batch.local_masks, strict=True))
    loss, _, log = loss_function(losses, batch.mask, rows, batch.num_tokens)
    return loss, log

def merge_logs(logs, ctx):
    both = sum(torch.stack([log["values"].double(), log["normalizers"].double()]) for log in logs)
    {merge}
    return {{f"train/{{key}}": v for key, v in zip(logs[0]["keys"], values.tolist(), strict=True)}}
"""
MERGES = {
    "whole": "dist.all_reduce(both); values = both[0] / both[1].clamp(min=1)",
    "means of ranks": "values = both[0] / both[1].clamp(min=1); dist.all_reduce(values); "
    "values /= ctx.world_size",
    "one count": "dist.all_reduce(both); values = both[0] / both[1][1]",
    "kl by ranks": "kl = both[0, 1] / both[1, 1]; dist.all_reduce(both); dist.all_reduce(kl); "
    "values = torch.stack([both[0, 0] / both[1, 0].clamp(min=1), kl])",
    "no number": "values = both",
}
FOUND = {
    "whole": None,
    "means of ranks": ("AGV511", "log['train/loss']"),
    "one count": ("AGV511", "log['train/loss']"),
    "kl by ranks": ("AGV513", "log['train/kl']"),
    "no number": ("AGV512", "log['train/loss'] is a pair"),
}
STEP = parse_step("2/1 3/101; 5/11 1/1011")
CASE = Case(STEP, Layout(parse_micro_batches("0 1 | 3 2")), plain_losses(STEP))


@pytest.mark.parametrize(
    "name",
    ["whole", "kl by ranks"]
    + [pytest.param(n, marks=pytest.mark.thorough) for n in ("means of ranks", "one count")]
    + [pytest.param("no number", marks=pytest.mark.thorough)],
)
def test_what_the_adapter_merges_is_what_is_judged(
    name: str, shared_pool: Pool, tmp_path: Path
) -> None:
    (tmp_path / "r.py").write_text(REDUCER)
    adapter = tmp_path / "ours.py"
    adapter.write_text(ADAPTER.format(merge=MERGES[name]))
    target = f"{tmp_path / 'r.py'}:loss_function"
    wanted = Request(target, modes=("token_mean",), adapter=str(adapter))
    with loaded(wanted, shared_pool) as ([subject], executor):
        assert subject.mode == "token_mean"
        found = judged(subject, executor)
    if FOUND[name] is None:
        assert found is None
        return
    assert found is not None
    code, said = FOUND[name] or ("", "")
    assert found.code == code and said in found.message, found.message


def judged(subject: Subject, executor: Executor) -> Finding | None:
    done = executor.run(subject, logs.CHECK.variants(CASE))
    return logs.CHECK.judge(subject, done)


def test_the_function_is_there(tmp_path: Path) -> None:
    path = tmp_path / "ours.py"
    path.write_text("ADAPTER = {'logs': 'merge_logs'}\n\n\ndef call(f, losses, batch): ...\n")
    with pytest.raises(InputError, match=r"has no def merge_logs\(logs, ctx\)"):
        convention(str(path))
