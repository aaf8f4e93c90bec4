"""What a convention says: which functions it calls, with what, and what it can ever get right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from aggverify.steps.case import Case

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike
    from torch import Tensor
    from torch.distributed import ProcessGroup

FEATURES: Mapping[str, str] = {
    "context-parallel": "samples sliced over context-parallel ranks",
    "contiguous": "context-parallel ranks that own contiguous chunks",
    "gathered": "losses gathered over context parallelism before the reduction",
    "fan-out": "rollouts that consist of several samples",
    "straddling-groups": "prompt groups split over ranks or micro-batches",
    "dummy-samples": "fully masked copies of a sample that fill up micro-batches",
    "rejection": "tokens rejected after the fact: the losses' mask differs from the one counted",
    "ragged-micro-batches": "micro-batches with different numbers of samples",
    "whole-groups": "only prompt groups of one size, each whole in one micro-batch",
    "poison": "NaN and infinite losses behind the mask",
    "validates-arguments": "calls that contradict themselves, which must raise",
}
"""What a step or layout may contain that not every convention can see."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A function of the candidate's module that might be the reducer."""

    name: str
    parameters: tuple[str, ...]
    required: tuple[str, ...] = ()
    """Those without a default."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a rank stands while it runs one case: everything a trainer knows at that place."""

    case: Case
    mode: str | None
    divisor: float | None
    per_token: bool
    dp_rank: int
    cp_rank: int
    dp_group: ProcessGroup | None
    cp_group: ProcessGroup | None
    device: torch.device
    """Where this rank's tensors are: all that a convention makes are made there."""
    counts_rejected: bool = True
    """Whether denominators use the masks before rejection (the policy's default)."""
    terms: int = 0
    """Auxiliary per-token inputs that the candidate takes beside the losses."""
    term: int | None = None
    """The one that has values, modulo their number; None for the losses."""

    def counted(self, sample: int) -> int:
        """Tokens of a sample in the step's denominators."""
        found = self.case.step.samples[sample]
        return found.num_original if self.counts_rejected else found.num_unmasked


class Output(NamedTuple):
    """What a candidate returned for one micro-batch: its loss, token count and log, if any."""

    loss: Any
    count: Any = None
    log: Any = None


@dataclass(frozen=True, slots=True)
class Misuse:
    """A call that contradicts itself. ``spoil`` turns good positional arguments into it, in a rank;
    a candidate that validates its arguments raises."""

    name: str
    sentence: str
    spoil: Callable[[list[Any]], None]
    modes: tuple[str, ...] = ()
    """Modes it is a mistake in; empty for all."""


Bound = Callable[[int, "Tensor"], Output]
"""Calls the candidate for micro-batch ``k`` with the losses its rank sees, 1-D."""


class Convention(Protocol):
    """One framework's way to call a reducer. ``bind`` alone runs in a rank."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """One line for listings."""

    @property
    def signature(self) -> str:
        """The accepted signature, as a person would write it."""

    @property
    def mode_is_argument(self) -> bool:
        """Whether the candidate is told the mode, so that one function implements several."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Features this convention cannot see (or does not promise), each with the reason."""

    @property
    def misuses(self) -> tuple[Misuse, ...]:
        """Calls that a candidate which claims ``validates-arguments`` must refuse."""

    def modes(self, offer: Offer) -> tuple[str, ...]:
        """Modes the offered function can be asked for at all."""

    def recognises(self, offer: Offer) -> bool:
        """Whether the function has this convention's shape."""

    def default_engine(self, mode: str | None) -> str:
        """The engine this convention's trainers use for the mode."""

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        """Why the cell cannot be right, or None (parallel.md, "Which cells can be right").

        ``claimed``: features asked for explicitly; they may open a cell.
        """

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        """Prepare the calls of one case on one rank."""


def mask_tensor(mask: bytes, dtype: DTypeLike, device: torch.device) -> Tensor:
    """A 0/1 mask as a 1-D tensor of its own memory."""
    import torch

    return torch.from_numpy(np.frombuffer(mask, dtype=np.uint8).astype(dtype)).to(device)
