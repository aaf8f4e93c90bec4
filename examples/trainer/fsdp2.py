"""sample_mean under FSDP2, whose gradients are averages over all ranks."""

import torch
from torch.distributed.fsdp import fully_shard


def train_step(model, micro_batches, ctx):
    model = fully_shard(model, mesh=ctx.mesh["dp"]) if ctx.cp_size == 1 else fully_shard(model)
    for batch in micro_batches:
        last = batch.index == len(micro_batches) - 1
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        losses = torch.where(batch.mask.bool(), model(batch), 0.0)
        lengths = [len(mask) for mask in batch.local_masks]
        sums = [own.sum() for own in losses.split(lengths)]
        means = [s / max(n, 1) for s, n in zip(sums, batch.rollout_tokens, strict=True)]
        loss = sum(means, start=losses.sum() * 0)
        (loss / batch.num_rollouts * ctx.world_size).backward()
