"""A whole training step, ``train_step(model, micro_batches, ctx)``.

It is what lies between the reducer and the optimizer, in the person's own code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from aggverify.conventions.base import ExpertPlace, Misuse, Site, WholeStep
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.engines import TRAIN_STEP
from aggverify.oracles import LEGACY, MODES

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True)
class TrainContext:
    """Where a training step runs: its ranks and sizes; each micro-batch has the step's counts."""

    rank: int
    world_size: int
    dp_rank: int
    dp_size: int
    cp_rank: int
    cp_size: int
    dp_group: ProcessGroup | None
    cp_group: ProcessGroup | None
    dp_cp_group: ProcessGroup | None
    """All ranks."""
    device: torch.device
    divisor: float | None
    """The constant mode's L, when one was given."""
    ep_rank: int = 0
    ep_size: int = 1
    ep_group: ProcessGroup | None = None
    """Ranks that share one set of experts: ``model.experts`` holds this rank's part of it. None
    where the step does not claim ``experts``."""
    expert_dp_group: ProcessGroup | None = None
    """Ranks with the same part, over which its gradient is reduced."""

    @property
    def mesh(self) -> DeviceMesh:
        """All ranks as a mesh with the dimensions ``dp`` and ``cp``; every rank must ask for it."""
        return _mesh(self.device.type, self.dp_size, self.cp_size)


@cache  # it makes groups, of which a rank can have only so many
def _mesh(device: str, dp_size: int, cp_size: int) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, (dp_size, cp_size), mesh_dim_names=("dp", "cp"))


def _not_claimed() -> dict[str, str]:
    return {
        "loss-function": "the step computes its loss and goes backward itself",
        "gathered": "the model gives a rank its own tokens; what gathers them is the step's code",
        "rejection": "the masks are taken as final",
        "validates-arguments": "only its own trainer calls it",
    }


@dataclass(frozen=True, slots=True)
class TrainStepFunction:
    """A function that wraps the model, runs all micro-batches of one step, and leaves the update.

    It runs them forward and backward. The update is the parameters' gradient, the same on all ranks
    (or sharded, as FSDP2 does), or, after ``torch.optim.SGD(lr=1)``, their change.
    """

    name: str = "trainer"
    title: str = "a whole training step"
    usual_name: str = "train_step"
    signature: str = (
        "def train_step(model: nn.Module, micro_batches: list[aggverify.MicroBatch], "
        "ctx: aggverify.TrainContext) -> None"
    )
    returns: str = (
        "nothing: it leaves the update in the model, as the gradient of its "
        "parameters or, after SGD with a learning rate of 1, as their change"
    )
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=_not_claimed)
    notes: tuple[str, ...] = ("the loss that it computes is not seen: its gradient is judged",)
    parameters: tuple[str, ...] = ("model", "micro_batches", "ctx")
    misuses: tuple[Misuse, ...] = ()

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return (*MODES, LEGACY.name)

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters[:2] == ("model", "micro_batches") and offer.takes(3)

    def default_engine(self, mode: str | None) -> str:
        return TRAIN_STEP.name

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        if engine != TRAIN_STEP.name:
            return f"a whole training step has its own engine ({TRAIN_STEP.name})"
        if impossible := sorted(claimed & {"gathered", "loss-function", "rejection"}):
            return f"{impossible[0]} cannot be claimed of it: {self.not_claimed[impossible[0]]}"
        return None

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> WholeStep:
        def train(model: nn.Module) -> None:
            totals, layout = Totals(site), site.case.layout
            batches = [micro_batch(site, k, totals) for k in range(layout.num_microbatches)]
            self.drive(function, model, batches, context(site))

        return WholeStep(train)

    def drive(
        self, function: Callable[..., Any], model: nn.Module, batches: list[Any], ctx: TrainContext
    ) -> None:
        """Have the candidate run the step."""
        function(model, batches, ctx)


def context(site: Site) -> TrainContext:
    """Of the rank that runs the case."""
    import torch.distributed as dist

    layout = site.case.layout
    experts = site.experts or ExpertPlace(0, 1, None, None)
    return TrainContext(
        rank=dist.get_rank(),
        world_size=layout.world_size,
        dp_rank=site.dp_rank,
        dp_size=layout.dp_size,
        cp_rank=site.cp_rank,
        cp_size=layout.cp_size,
        dp_group=site.dp_group,
        cp_group=site.cp_group,
        dp_cp_group=dist.group.WORLD,
        device=site.device,
        divisor=site.divisor,
        ep_rank=experts.rank,
        ep_size=experts.size,
        ep_group=experts.group,
        expert_dp_group=experts.copies,
    )
