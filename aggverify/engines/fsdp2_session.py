"""The rank's side of torch's FSDP2, ``fully_shard``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from aggverify.engines.per_token import PerToken, one_token
from aggverify.engines.spec import CompletedReduction, LocalStep


class Fsdp2Session:
    """A new model for every step, sharded over all ranks.

    The backward of the last micro-batch reduces and shards the gradient, which is gathered
    afterwards. ``each``: every backward does.
    """

    def __init__(
        self,
        device: torch.device,
        *,
        each: bool = False,
        reshard: bool | None = None,
        divide_factor: float | None = None,
    ) -> None:
        self._device = device
        self._each, self._reshard, self._divide_factor = each, reshard, divide_factor
        self._mesh: DeviceMesh | None = None

    def warm_up(self) -> None:
        """Set up the mesh of all ranks, and what a process's first sharded model needs."""
        self._mesh = init_device_mesh(self._device.type, (dist.get_world_size(),))
        model, *given = one_token(self._device)
        self._sharded(model)(*given).sum().backward()
        self.reduce([model.theta.grad])

    def accumulate(self, step: LocalStep) -> Tensor:
        model = PerToken(len(step.values), self._device)
        sharded = self._sharded(model)
        for k in range(step.num_microbatches):
            last = k == step.num_microbatches - 1
            sharded.set_requires_gradient_sync(last or self._each)
            sharded.set_is_last_backward(last)
            step.loss(k, sharded(step.values, step.tokens(k))).backward()  # type: ignore[no-untyped-call]
        gradient = step.gradient(model.theta)
        if not isinstance(gradient, DTensor):
            raise RuntimeError(
                "the loss of the last micro-batch does not come from the losses it was given: "
                "FSDP2 has not reduced this rank's gradient"
            )
        return gradient

    def reduce(self, parts: Sequence[Any]) -> CompletedReduction:
        return CompletedReduction([part.full_tensor() for part in parts])

    def _sharded(self, model: PerToken) -> Any:
        how: dict[str, Any] = (
            {} if self._reshard is None else {"reshard_after_forward": self._reshard}
        )
        sharded: Any = fully_shard(model, mesh=self._mesh, **how)
        if self._divide_factor is not None:
            sharded.set_gradient_divide_factor(self._divide_factor)
        return sharded
