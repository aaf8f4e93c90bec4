"""What an engine declares in the parent, and what it does in a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from aggverify.steps.case import Case


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes an engine may use: they are the trainer's own, never the reducer's."""

    dp_size: int
    cp_size: int
    num_microbatches: int
    num_rollouts: int
    gathered: bool = False
    """Whether context-parallel ranks hold copies of one loss, of gathered per-token losses."""

    @staticmethod
    def of(case: Case) -> Sizes:
        """Those of a case."""
        layout = case.layout
        sizes = (layout.dp_size, layout.cp_size, layout.num_microbatches, case.step.num_rollouts)
        return Sizes(*sizes, gathered=layout.cp_kind == "gathered" and layout.cp_size > 1)

    @property
    def world_size(self) -> int:
        return self.dp_size * self.cp_size


@dataclass(frozen=True, slots=True)
class Deviation:
    """What an engine does otherwise than those whose contract a reducer is written for."""

    usual: tuple[str, ...]
    """Names of those engines; the first is the one that frameworks' conventions mean."""
    instead: str
    """What it does, as in "this trainer averages"."""
    seen: str
    """The frameworks, versions and threads where it was seen."""
    fix: str


class Usual:
    """What most engines are: to be inherited where nothing else is declared."""

    __slots__ = ()

    @property
    def deviates(self) -> Deviation | None:
        return None

    @property
    def not_claimed(self) -> Mapping[str, str]:
        return {}

    @property
    def preloads(self) -> tuple[str, ...]:
        return ()

    def gathers(self, sizes: Sizes) -> int:
        return 1

    def counted(self, tokens: Sequence[int], returned: int | None) -> int:
        return sum(tokens) if returned is None else returned


@runtime_checkable
class EngineSpec(Protocol):
    """One way to turn local losses into one gradient (parallel.md, "Engines").

    All but ``session`` is pure and runs in the parent, without torch.
    """

    @property
    def name(self) -> str:
        """The name in the table, or the ``module:OBJECT`` that the spec is found by."""

    @property
    def title(self) -> str:
        """The engine in words, with the update it makes."""

    @property
    def trainers(self) -> str:
        """Who trains with it."""

    @property
    def does(self) -> str:
        """What such a trainer does with gradients, as in "your trainer averages them".

        These are the words of a person who does not know our names.
        """

    @property
    def required(self) -> str:
        """What a reducer must return per rank and micro-batch for the update to be sum(w*l)."""

    @property
    def roundings(self) -> int:
        """Roundings the engine adds on one token's path from the reducer's value to the update."""

    @property
    def takes_counts(self) -> bool:
        """Whether a token count travels with the loss and is divided by at the end."""

    @property
    def merges(self) -> bool:
        """Whether one reduction can carry several steps, each with the bits it gets alone."""

    @property
    def guessed(self) -> bool:
        """Whether it is tried for a reducer whose engine is not named.

        Not where one framework alone trains so, whose convention names it.
        """

    @property
    def deviates(self) -> Deviation | None:
        """What it does otherwise than a usual one, where it is known for that."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Features of layouts that its trainers never have, each with the reason.

        "zigzag" for losses that stay sliced over context-parallel ranks.
        """

    @property
    def preloads(self) -> tuple[str, ...]:
        """Modules that its sessions import and that take long: once, before ranks are forked."""

    def gathers(self, sizes: Sizes) -> int:
        """Return by what a gather over context parallelism multiplies gradients in backward."""

    def counted(self, tokens: Sequence[int], returned: int | None) -> int:
        """Return a micro-batch's count as its trainer takes it.

        ``tokens``: of each sample; ``returned``: the reducer's own count, if it returns one.
        """

    def available(self) -> str | None:
        """Why it cannot run here, or None."""

    def value(
        self, losses: Sequence[Fraction], num_tokens: Sequence[int], sizes: Sizes
    ) -> Fraction:
        """Return the step scalar, whose gradient is the update, from losses and counts.

        Counts are per rank and micro-batch.
        """

    def session(self, device: torch.device) -> EngineSession:
        """Return the engine on one rank of a world, for all its steps.

        Imports what it needs here.
        """


class EngineSession(Protocol):
    """An engine on one rank: it owns the parameter, the micro-batch loop, the collectives.

    The trainer calls ``accumulate`` once for every step, then ``reduce`` for those that go
    together: one, unless the spec ``merges``.
    """

    def warm_up(self) -> None:
        """Pay first-use costs, on every rank at once; not held against the candidate."""

    def accumulate(self, step: LocalStep) -> Any:
        """Run the micro-batches forward and backward; what ``reduce`` needs of them."""

    def reduce(self, parts: Sequence[Any]) -> Gradients:
        """Begin what is left to make these gradients the update's."""


class LocalStep(Protocol):
    """One rank's part of one step, as the trainer hands it to a session."""

    @property
    def sizes(self) -> Sizes: ...

    @property
    def values(self) -> Tensor:
        """The loss of every response token of the step; float64, 1-D, on the rank's device."""

    @property
    def num_microbatches(self) -> int: ...

    @property
    def groups(self) -> tuple[Any, Any]:
        """The process groups of this rank, of data and of context parallelism."""

    @property
    def experts(self) -> tuple[int, int, Any] | None:
        """Its place among the ranks that share experts, their number and group; None without."""

    @property
    def num_tokens(self) -> int:
        """Tokens counted on this rank, in the micro-batches that were run so far."""

    def tokens(self, k: int) -> Tensor:
        """Which of ``values`` are this rank's in micro-batch ``k``; int64, 1-D."""

    def loss(self, k: int, losses: Tensor) -> Tensor:
        """Return the candidate's loss of micro-batch ``k``, a scalar, from its tokens' losses, 1-D.

        ``losses`` depends on the session's parameter, with derivative 1 per token.
        """

    def gradient(self, parameter: Tensor) -> Tensor:
        """Return what backward left in the parameter; raises where no loss depended on it."""

    @property
    def dtype(self) -> torch.dtype:
        """What the model's losses are computed in."""

    @property
    def gain(self) -> float:
        """The derivative of a token's loss by the model's parameter, for a whole training step."""

    @property
    def scaler(self) -> float:
        """What the scales of its GradScalers are multiplied by."""

    def clipped(self, clips: Sequence[tuple[float, float]]) -> None:
        """Note at which norms, of which kinds, it has clipped gradients."""

    def train(self, model: nn.Module) -> None:
        """Instead of ``loss``, where the candidate is a whole training step: run that.

        ``model(micro_batch)`` is the rank's per-token losses of a micro-batch, which it knows by
        its ``index``.
        """

    def logits(self, k: int, theta: Tensor) -> Tensor:
        """Return logits of whole sequences of micro-batch ``k``.

        Their cross entropy depends on ``theta`` as its losses do.
        """

    def steps_with(self, optimizer: Optimizer) -> None:
        """Raise for an optimizer whose step does not subtract the plain gradient."""

    def trained(self, update: Tensor) -> None:
        """Take a whole training step's update: float64, 1-D, an element per response token."""


class Gradients(Protocol):
    """Gradients on their way to being the update's."""

    @property
    def arrived(self) -> bool:
        """Whether ``wait`` would return at once."""

    def wait(self) -> list[Tensor]:
        """One per step, the same on all ranks: float64, 1-D, an element per response token."""


@dataclass(frozen=True, slots=True)
class CompletedReduction:
    """Gradients that were the update's at once: there is nothing to wait for."""

    gradients: list[Tensor]
    arrived: bool = True

    def wait(self) -> list[Tensor]:
        return self.gradients
