"""The rank's side of DeepSpeed ZeRO itself, with Ulysses' groups for sequence parallelism."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from aggverify.engines.per_token import PerToken, one_token
from aggverify.engines.spec import CompletedReduction, LocalStep

_BUCKETS = {"reduce_bucket_size": 1_000_000, "allgather_bucket_size": 1_000_000}
"""In elements: by default buffers of five hundred times as many are allocated at once."""


@dataclass(frozen=True, slots=True)
class Groups:
    """An ``mpu`` for DeepSpeed; without ``data`` it answers as DeepSpeed's own for Ulysses does."""

    data: Any
    sequence: Any
    alone: Any

    def __getattr__(self, name: str) -> Any:
        """``get_data_parallel_group`` and the like."""
        if name == "initialize_sequence_parallel" and self.data is None:
            return None  # DeepSpeed only looks whether the attribute is there
        groups = {
            "get_data_parallel": self.data,
            "get_sequence_parallel": self.sequence,
            "get_sequence_data_parallel": dist.group.WORLD,
            "get_model_parallel": self.alone,
        }
        kind, _, what = name.rpartition("_parallel_")
        group = groups.get(f"{kind}_parallel")
        answers = {
            "group": lambda: group,
            "world_size": lambda: dist.get_world_size(group),
            "rank": lambda: dist.get_rank(group),
        }
        if group is None or what not in answers:
            raise AttributeError(name)
        return answers[what]


@dataclass(slots=True)
class DeepSpeedSession:
    """A new model and engine for every step; the gradient is what its optimizer would take."""

    device: torch.device
    stage: int
    _alone: Any = field(default=None, init=False)

    def warm_up(self) -> None:
        """Import DeepSpeed, make a group of each rank alone, and the process's first engine."""
        self._alone = dist.new_subgroups(1)[0]
        rank, world = str(dist.get_rank()), str(dist.get_world_size())
        launched = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_SIZE": world}
        if self.device.type == "cpu":
            launched["DS_ACCELERATOR"] = "cpu"
        with mock.patch.dict(os.environ, launched):
            import deepspeed  # noqa: F401

            logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
            # Without its shared-memory collective, which it would have to compile first.
            backend = sys.modules["deepspeed.comm.torch"]
            with mock.patch.object(backend, "build_shm_op", lambda: None):
                model, *given = one_token(self.device, self._dtype)
                engine = self._engine(model, 1, Groups(dist.group.WORLD, self._alone, self._alone))
                engine.backward(engine(*given).sum())

    def accumulate(self, step: LocalStep) -> Tensor:
        from deepspeed.utils import safe_get_full_grad

        model = PerToken(len(step.values), self.device, self._dtype)
        data, sequence = step.groups
        # Given a data-parallel group, stage 3 would partition and reduce over that one alone.
        groups = Groups(data if self.stage < 3 else None, sequence, self._alone)
        engine = self._engine(model, step.num_microbatches, groups)
        for k in range(step.num_microbatches):
            engine.backward(step.loss(k, engine(step.values, step.tokens(k))))
            if k < step.num_microbatches - 1:
                engine.step()
        gradient: Tensor | None = safe_get_full_grad(model.theta)
        return step.gradient(model.theta) if gradient is None else gradient.double()

    @property
    def _dtype(self) -> torch.dtype:
        """The parameter's dtype: stage 0 reduces no float64 gradient.

        Stage 3 of DeepSpeed 0.19.8 refuses a float64 parameter on processors with float16.
        """
        return torch.float64 if self.stage in (1, 2) else torch.float32

    def reduce(self, parts: Sequence[Tensor]) -> CompletedReduction:
        return CompletedReduction(list(parts))

    def _engine(self, model: PerToken, micro_batches: int, groups: Groups) -> Any:
        import deepspeed

        made, *_ = deepspeed.initialize(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": micro_batches,
                "zero_optimization": {"stage": self.stage, **_BUCKETS},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
            },
            dist_init_required=False,
            mpu=groups,
        )
        return made
