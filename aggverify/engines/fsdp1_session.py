"""The rank's side of torch's FSDP1, ``FullyShardedDataParallel``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

from aggverify.engines.per_token import PerToken, one_token
from aggverify.engines.spec import CompletedReduction, LocalStep


@dataclass(frozen=True, slots=True)
class Fsdp1Session:
    """A new model for every step, its one parameter flattened and sharded over all ranks.

    All micro-batches but the last run under ``no_sync``: its backward reduces and shards the
    gradient, which is gathered afterwards. ``each``: every backward does.
    """

    device: torch.device
    each: bool = False
    strategy: str = "FULL_SHARD"

    def warm_up(self) -> None:
        """Set up what a process's first sharded model needs."""
        model, *given = one_token(self.device)
        wrapped = self._wrapped(model)
        wrapped(*given).sum().backward()
        gradient = _flat(wrapped).grad
        assert gradient is not None
        self.reduce([(gradient, 1)])

    def accumulate(self, step: LocalStep) -> tuple[Tensor, int]:
        tokens = len(step.values)
        wrapped = self._wrapped(PerToken(tokens, self.device))
        for k in range(step.num_microbatches):
            reduces = self.each or k == step.num_microbatches - 1
            with contextlib.nullcontext() if reduces else wrapped.no_sync():
                step.loss(k, wrapped(step.values, step.tokens(k))).backward()  # type: ignore[no-untyped-call]
        flat = _flat(wrapped)
        gradient = step.gradient(flat)
        if gradient.shape != flat.shape:
            raise RuntimeError(
                "the loss of the last micro-batch does not come from the losses it was given: "
                "FSDP1 has not reduced this rank's gradient"
            )
        return gradient, tokens

    def reduce(self, parts: Sequence[tuple[Tensor, int]]) -> CompletedReduction:
        return CompletedReduction([_gathered(shard)[:tokens] for shard, tokens in parts])

    def _wrapped(self, model: PerToken) -> FullyShardedDataParallel:
        strategy = getattr(ShardingStrategy, self.strategy)
        return FullyShardedDataParallel(model, sharding_strategy=strategy, device_id=self.device)


def _flat(wrapped: FullyShardedDataParallel) -> Tensor:
    """Return the rank's shard of the parameters, padded to the length of all others'."""
    [parameter] = wrapped.parameters()
    return parameter


def _gathered(shard: Tensor) -> Tensor:
    whole = shard.new_empty(dist.get_world_size() * len(shard))
    dist.all_gather_into_tensor(whole, shard)
    return whole
