"""Broken: the engine divides by the number of micro-batches, and nobody multiplies by it."""

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel


def make_engine(model, ctx):
    return Engine(model, ctx)


class Engine:
    def __init__(self, model, ctx):
        self.ddp = DistributedDataParallel(model, process_group=ctx.dp_cp_group)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1.0)
        self.world_size = ctx.world_size

    def forward_backward(self, batch):
        last = batch.index == batch.num_microbatches - 1
        with contextlib.nullcontext() if last else self.ddp.no_sync():
            losses = torch.where(batch.mask.bool(), self.ddp(batch), 0.0)
            loss = losses.sum() / max(batch.num_tokens, 1)
            (loss * self.world_size / batch.num_microbatches).backward()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
