"""prompt_mean with gradients that the step sums itself, as far as the optimizer's update."""

import torch
import torch.distributed as dist


def train_step(model, micro_batches, ctx):
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for batch in micro_batches:
        losses = torch.where(batch.mask.bool(), model(batch), 0.0)
        lengths = [len(mask) for mask in batch.local_masks]
        for own, tokens in zip(losses.split(lengths), batch.group_tokens, strict=True):
            (own.sum() / max(tokens, 1) / batch.num_groups).backward(retain_graph=True)
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad, group=ctx.dp_cp_group)
    optimizer.step()
    optimizer.zero_grad()
