"""A training loop on two ranks that share the model, not the data: ``parallel.py KIND WAY``.

``tensor``: both compute the losses of all tokens. ``pipeline``: the second computes them, the first
none. Each step has four samples of one to six tokens (LENGTHS), in two micro-batches.
"""

from __future__ import annotations

import sys
import time
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

import aggverify

LENGTHS = ((5, 5, 6, 2), (3, 4, 3, 1), (1, 2, 2, 1))
"""Tokens of each sample of each step: 18, 11 and 6."""
WIDTH, K = 6, 2


def summed(tokens: Tensor, logits: Tensor, step: int, first: int) -> Tensor:
    """The sum of losses of samples from that one on, probed."""
    mask = torch.tensor([[t < n for t in range(WIDTH)] for n in LENGTHS[step]])
    mask = mask[first : first + len(tokens)]
    losses = nn.functional.cross_entropy(logits.transpose(1, 2), tokens, reduction="none")
    ids = [step * 100 + first + n for n in range(len(tokens))]
    losses = aggverify.probe(losses, mask, sample_ids=ids)
    return torch.where(mask, losses, 0.0).sum()


def tensor(way: str) -> None:
    model = nn.Sequential(nn.Embedding(17, 8), nn.Linear(8, 16))
    whole = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"1": whole})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, lengths in enumerate(LENGTHS):
        tokens = torch.randint(0, 16, (len(lengths), WIDTH))
        for first in range(0, len(lengths), len(lengths) // K):
            mine = tokens[first : first + len(lengths) // K]
            loss = summed(mine, model(mine), step, first) / sum(lengths)
            # Wrong: as if each rank had tokens of its own.
            (loss * 2 if way == "times the ranks" else loss).backward()
        optimizer.step()
        optimizer.zero_grad()


def last(way: str, step: int, out: Tensor, target: Tensor) -> Tensor:
    """The loss of a micro-batch; its samples' numbers stand before their tokens."""
    found = summed(target[:, 1:], out, step, int(target[0, 0])) / sum(LENGTHS[step])
    return found * K if way == "times the micro-batches" else found


def pipeline(way: str) -> None:
    rank = dist.get_rank()
    part = nn.Embedding(17, 8) if rank == 0 else nn.Linear(8, 17)
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    for step, lengths in enumerate(LENGTHS):
        tokens = torch.randint(0, 17, (len(lengths), WIDTH))
        number = torch.arange(len(lengths))[:, None]
        # The schedule's own division by the micro-batches comes after backward.
        schedule = ScheduleGPipe(
            stage, K, loss_fn=partial(last, way, step), scale_grads=way == "divided"
        )
        if rank == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=torch.cat([number, tokens], 1))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    {"tensor": tensor, "pipeline": pipeline}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.2)
