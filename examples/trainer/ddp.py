"""token_mean in a DDP loop: global denominators, times the ranks that DDP averages over."""

import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel


def train_step(model, micro_batches, ctx):
    ddp = DistributedDataParallel(model, process_group=ctx.dp_cp_group)
    for k, batch in enumerate(micro_batches):
        last = k == len(micro_batches) - 1
        with contextlib.nullcontext() if last else ddp.no_sync():
            losses = torch.where(batch.mask.bool(), ddp(batch), 0.0)
            loss = losses.sum() / max(batch.num_tokens, 1) * ctx.world_size
            loss.backward()
