"""megatron-core's own schedule, DDP and ``finalize_model_grads`` on processors, with Megatron-LM's
loss function of three outputs: ``megatron_core.py per-token|default``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.engines.megatron_on_processors import on_processors
from tests.audit.loops import LENGTHS, WIDTH, K, Model

torch.set_num_threads(1)
torch.manual_seed(0)
warnings.simplefilter("ignore")  # that there is no Apex
dist.init_process_group("gloo")
RANK = dist.get_rank()


def loss_func(loss_mask: Tensor, output_tensor: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
    mask = loss_mask.view(-1).float()
    return (output_tensor.view(-1) * mask).sum(), mask.sum().to(torch.int), {}


def forward_step(cells: Iterator[tuple[int, int]], model: Any) -> Any:
    lengths = next(cells)
    mask = torch.tensor([[t < n for t in range(WIDTH)] for n in lengths])
    return model(torch.randint(0, 17, (2, WIDTH))), partial(loss_func, mask)


def main() -> None:
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.enums import ModelType
    from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
    from megatron.core.transformer import TransformerConfig

    parallel_state.initialize_model_parallel()
    config = TransformerConfig(
        num_layers=1,
        hidden_size=1,
        num_attention_heads=1,
        calculate_per_token_loss=sys.argv[1] == "per-token",
    )
    model: Any = Model()
    model.config, model.model_type = config, ModelType.encoder_or_decoder
    model.set_input_tensor = lambda given: None
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    config.no_sync_func = wrapped.no_sync
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for lengths in LENGTHS:
        wrapped.zero_grad_buffer()
        forward_backward_no_pipelining(
            forward_step_func=forward_step,
            data_iterator=iter(lengths[RANK * K : RANK * K + K]),
            model=wrapped,
            num_microbatches=K,
            seq_length=WIDTH,
            micro_batch_size=2,
        )
        for parameter in model.parameters():
            parameter.grad = parameter.main_grad.clone()
        optimizer.step()


with on_processors():
    main()
