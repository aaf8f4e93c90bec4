"""Broken: without calculate_per_token_loss Megatron-core divides each micro-batch by its own tokens
and averages over micro-batches and ranks."""

import functools

import torch
import torch.distributed as dist
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.transformer import TransformerConfig


def train_step(model, micro_batches, ctx):
    config = TransformerConfig(num_layers=1, hidden_size=1, num_attention_heads=1)
    config.context_parallel_size = ctx.cp_size
    config.finalize_model_grads_func = finalize_model_grads
    model.model_type, model.set_input_tensor = ModelType.encoder_or_decoder, lambda given: None
    every, reduction = groups(ctx), DistributedDataParallelConfig()
    ddp = DistributedDataParallel(config, reduction, model, pg_collection=every)
    config.no_sync_func = ddp.no_sync
    forward_backward_no_pipelining(
        forward_step_func=forward_step,
        data_iterator=iter(micro_batches),
        model=ddp,
        num_microbatches=len(micro_batches),
        seq_length=1,
        micro_batch_size=1,
        pg_collection=every,
    )


def forward_step(micro_batches, model):
    batch = next(micro_batches)

    def loss_func(losses):
        loss = torch.where(batch.mask.bool(), losses, 0.0).sum()
        return loss, batch.mask.sum().int(), {}

    return model(batch), loss_func


def groups(ctx):
    found = ProcessGroupCollection()
    found.tp = found.pp = found.ep = found.expt_dp = alone()
    found.embd = found.pos_embd = None
    found.dp, found.cp, found.dp_cp = ctx.dp_group, ctx.cp_group, ctx.dp_cp_group
    return found


@functools.cache
def alone():
    """This rank's own group, for all parallelism that there is none of."""
    return dist.new_subgroups(1)[0]
