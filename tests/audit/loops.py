"""A training loop of plain torch on two ranks, right or wrong in one way: ``loops.py ENGINE WAY``.

Each step has eight samples of one to six tokens (LENGTHS), in two micro-batches a rank.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import aggverify

LENGTHS = (
    ((5, 5), (6, 6), (2, 2), (1, 5)),  # 32 tokens
    ((3, 4), (3, 1), (3, 4), (3, 2)),  # 23
    ((1, 2), (2, 1), (6, 6), (6, 5)),  # 29
)
"""Of each step, the tokens of both samples in each micro-batch, those of rank 0 first."""
WIDTH, WORLD, K = 6, 2, 2


class Model(nn.Module):
    """Per-token losses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(17, 8), nn.Linear(8, 17)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.embedding(tokens)).transpose(1, 2)
        return nn.functional.cross_entropy(logits, tokens, reduction="none")


def wrapped(engine: str) -> tuple[nn.Module, Any]:
    """The model, and what says whether a backward pass is the step's last."""
    model = Model()
    if engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        sharded = fully_shard(model, mesh=init_device_mesh("cpu", (WORLD,)))
        return model, lambda last: contextlib.nullcontext(sharded.set_requires_gradient_sync(last))
    if engine == "sum":
        return model, lambda last: contextlib.nullcontext()
    ddp = DistributedDataParallel(model)
    return ddp, lambda last: contextlib.nullcontext() if last else ddp.no_sync()


def summed(losses: Tensor, mask: Tensor, ids: list[int], padding: bool) -> Tensor:
    """Of the tokens that the mask keeps, or of all."""
    losses = aggverify.probe(losses, mask, sample_ids=ids)
    return torch.where(mask | padding, losses, 0.0).sum()


def train(engine: str, way: str) -> None:
    rank = dist.get_rank()
    model, accumulating = wrapped(engine)
    total = summed
    if way == "compiled":
        model.compile(backend="aot_eager")
        total = torch.compile(summed, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    by = 1 if engine == "sum" else WORLD
    for step, lengths in enumerate(LENGTHS):
        tokens = sum(map(sum, lengths))
        if way == "counts of the step before" and step:
            tokens = sum(map(sum, LENGTHS[step - 1]))
        for k in range(K):
            cell = rank * K + k
            mask = torch.tensor([[t < n for t in range(WIDTH)] for n in lengths[cell]])
            if way == "a rank without tokens":
                mask = mask & (rank == 0)
                tokens = sum(map(sum, lengths[:K]))
            with accumulating(k == K - 1):
                losses = model(torch.randint(0, 17, (2, WIDTH)))
                ids = [step * 100 + cell * 2 + n for n in range(2)]
                loss = total(losses, mask, ids, way == "padding") / tokens * by
                if way == "micro-batch means":
                    loss = loss * tokens / by / mask.sum() / K
                if way == "scaled twice":
                    loss = loss * 2
                if way == "a bin dropped" and (rank, k) == (1, 0):
                    continue
                loss.backward()
            if way == "accumulation off by one" and k == 0:
                optimizer.step()
        if engine == "sum":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    train(sys.argv[1], sys.argv[2])
    dist.destroy_process_group()
    # A thread of gloo that frees the last all-reduce's tensor needs the GIL, and aborts the process
    # where Python has ended (torch 2.13).
    time.sleep(0.2)
