"""The rank's side of Megatron-core itself.

Its schedule, its DistributedDataParallel and its ``finalize_model_grads``, with slime's and miles'
factors around the loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.engines.megatron_on_processors import on_processors
from aggverify.engines.per_token import PerToken
from aggverify.engines.spec import CompletedReduction, LocalStep


@dataclass(slots=True)
class MegatronCoreSession:
    """A new model for every step, run by ``forward_backward_no_pipelining``."""

    device: torch.device
    per_token: bool
    _alone: Any = field(default=None, init=False)
    """A group of this rank alone, for every kind of parallelism that is not used."""

    def warm_up(self) -> None:
        """Import Megatron-core, and make a group of each rank alone."""
        ranks = [[rank] for rank in range(dist.get_world_size())]
        self._alone = dist.new_subgroups_by_enumeration(ranks)[0]
        with warnings.catch_warnings(), on_processors():
            warnings.simplefilter("ignore")  # that there is no Apex
            import megatron.core.distributed
            import megatron.core.pipeline_parallel.schedules  # noqa: F401

    def accumulate(self, step: LocalStep) -> Tensor:
        with on_processors():
            return self._trained(step)

    def reduce(self, parts: Sequence[Tensor]) -> CompletedReduction:
        return CompletedReduction(list(parts))

    def _trained(self, step: LocalStep) -> Tensor:
        from megatron.core.distributed import (
            DistributedDataParallel,
            DistributedDataParallelConfig,
            finalize_model_grads,
        )
        from megatron.core.enums import ModelType
        from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
        from megatron.core.transformer import TransformerConfig

        config = TransformerConfig(
            num_layers=1,
            hidden_size=1,
            num_attention_heads=1,
            context_parallel_size=step.sizes.cp_size,
            calculate_per_token_loss=self.per_token,
        )
        model: Any = PerToken(len(step.values), self.device)
        model.config, model.model_type = config, ModelType.encoder_or_decoder
        model.set_input_tensor = lambda given: None
        reached: list[bool] = []
        model.theta.register_hook(lambda gradient: reached.append(True))
        groups = self._groups()
        reduction = DistributedDataParallelConfig(grad_reduce_in_fp32=False)
        wrapped = DistributedDataParallel(config, reduction, model, pg_collection=groups)
        config.no_sync_func = wrapped.no_sync
        config.finalize_model_grads_func = finalize_model_grads
        wrapped.zero_grad_buffer()
        forward_backward_no_pipelining(
            forward_step_func=self._forward_step(step),
            data_iterator=iter(range(step.num_microbatches)),
            model=wrapped,
            num_microbatches=step.num_microbatches,
            seq_length=1,
            micro_batch_size=1,
            pg_collection=groups,
        )
        if not reached:
            return step.gradient(model.theta)  # raises: Megatron never fills ``theta.grad``
        gradient: Tensor = model.theta.main_grad.clone()
        return gradient

    def _forward_step(self, step: LocalStep) -> Callable[..., Any]:
        """Return what Megatron calls for each micro-batch.

        Its ``loss_func`` scales the candidate's loss as slime's and miles' ``loss_function`` does.
        """
        sizes = step.sizes

        def forward_step(micro_batches: Iterator[int], model: Any) -> Any:
            k = next(micro_batches)
            before = step.num_tokens

            def loss_func(losses: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
                loss = step.loss(k, losses)
                if self.per_token:
                    return loss * sizes.cp_size, _count(step.num_tokens - before), {}
                scaled = loss * sizes.num_microbatches / sizes.num_rollouts
                return scaled * sizes.world_size, _count(1), {}

            return model(step.values, step.tokens(k)), loss_func

        return forward_step

    def _groups(self) -> Any:
        """Return the rank's groups; those of data and context parallelism are its trainer's."""
        from megatron.core import parallel_state
        from megatron.core.process_groups_config import ProcessGroupCollection

        groups = ProcessGroupCollection()
        groups.tp = groups.pp = groups.ep = groups.expt_dp = self._alone
        groups.embd = groups.pos_embd = None
        groups.cp = parallel_state.get_context_parallel_group()
        groups.dp = parallel_state.get_data_parallel_group()
        groups.dp_cp = dist.group.WORLD
        return groups


def _count(tokens: int) -> Tensor:
    return torch.tensor(tokens, dtype=torch.int32)
