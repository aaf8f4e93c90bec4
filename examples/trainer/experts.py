"""token_mean in a DDP loop; experts' gradients are summed over the ranks that hold copies."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

AGGVERIFY = {"claim": ["experts"]}


def train_step(model, micro_batches, ctx):
    # DDP averages what every rank has; experts' parameters are none of these.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["experts.theta"])
    ddp = DistributedDataParallel(model, process_group=ctx.dp_cp_group)
    for k, batch in enumerate(micro_batches):
        last = k == len(micro_batches) - 1
        with contextlib.nullcontext() if last else ddp.no_sync():
            losses = torch.where(batch.mask.bool(), ddp(batch), 0.0)
            loss = losses.sum() / max(batch.num_tokens, 1) * ctx.world_size
            loss.backward()
    # A gradient is already the sum over the ranks that send tokens to this expert.
    for parameter in model.experts.parameters():
        dist.all_reduce(parameter.grad, group=ctx.expert_dp_group)
        parameter.grad /= ctx.world_size
