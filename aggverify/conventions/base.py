"""What a convention declares: which functions it calls, with what, and what it can get right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from aggverify.conventions.candidate_callable import Offer
from aggverify.steps.case import Case

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

NONLINEAR = "nonlinear"
"""What a person writes for a mode when the objective is not linear in its inputs, and is none that
the oracles know."""
LogRule = Literal["engine", "unmerged", "merge_logs"]
"""How a trainer merges the logs of micro-batches: as Megatron's report does, where a scalar is
reduced as the loss is and a pair is a sum over a count; or not at all, as Tinker's client, which
returns what a call has logged; or by the adapter's own function."""
ADAPTED = "adapter"
"""In a convention's place, where a person's own file declares how the reducer is called."""


@dataclass(frozen=True, slots=True)
class ExpertPlace:
    """A rank's place among experts: ``group`` shares one set, ``copies`` hold the same part."""

    rank: int
    size: int
    group: ProcessGroup | None
    copies: ProcessGroup | None


@dataclass(frozen=True, slots=True)
class Site:
    """Where a rank stands while it runs one case: everything a trainer knows at that place."""

    case: Case
    mode: str | None
    """NONLINEAR too; None where none is known."""
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
    """Auxiliary per-token inputs that the candidate takes next to the losses."""
    term: int | None = None
    """The one that has values, modulo their number; None for the losses."""
    elsewhere: int = 0
    """Tokens of one more rollout and prompt that are counted, and that no rank has."""
    generations: bool = False
    """Whether the step is the first of two that a generation batch is trained in."""
    experts: ExpertPlace | None = None
    """Where the model has some (``steps.experts``)."""
    virtual: bool = False
    """Whether the other ranks are not there: nothing can be asked of them."""

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
    """A call that contradicts itself.

    ``spoil`` turns a good call's arguments, by name, into it, in a rank; a candidate that validates
    its arguments raises.
    """

    name: str
    sentence: str
    spoil: Callable[[dict[str, Any]], None]
    modes: tuple[str, ...] = ()
    """Modes it is a mistake in; empty for all."""


Bound = Callable[[int, "Tensor"], Output]
"""Calls the candidate for micro-batch ``k`` with the losses its rank sees, 1-D."""


@dataclass(frozen=True, slots=True)
class WholeStep:
    """Bound to a candidate that runs all micro-batches of a step itself, with a model it is given.

    A convention's ``bind`` returns it instead of calls of a loss.
    """

    train: Callable[[nn.Module], None]

    def __call__(self, k: int, losses: Tensor) -> Output:
        raise TypeError("a whole training step takes no losses: its engine is train-step")


@runtime_checkable
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
    def returns(self) -> str:
        """What the reducer must return, in words."""

    @property
    def usual_name(self) -> str:
        """What a framework's own function is called, which goes before others of its shape."""

    @property
    def mode_is_argument(self) -> bool:
        """Whether the candidate takes the mode as an argument: one function has several."""

    @property
    def fixes_engine(self) -> bool:
        """Whether its framework determines how local losses become the update, or it is assumed."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Features this convention cannot see (or does not promise), each with the reason."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the verdict notes of it, such as what is not exercised."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names, as the misuses know them, of what it passes by position.

        What it passes by keyword has its own. Empty where the function's own names hold: then it
        may call anything, methods and keyword-only parameters too.
        """

    @property
    def misuses(self) -> tuple[Misuse, ...]:
        """Calls that a candidate which claims ``validates-arguments`` must refuse."""

    def modes(self, offer: Offer) -> tuple[str, ...]:
        """Modes the offered function can be asked for at all."""

    def recognises(self, offer: Offer) -> bool:
        """Whether the function has this convention's shape."""

    def default_engine(self, mode: str | None) -> str:
        """Return the engine this convention's trainers use for the mode."""

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        """Why the cell cannot be right, or None (parallel.md, "Which cells can be right").

        ``claimed``: features asked for explicitly; they may open a cell.
        """

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        """Prepare the calls of one case on one rank."""


def mask_tensor(mask: bytes, dtype: DTypeLike, device: torch.device) -> Tensor:
    """Return a 0/1 mask as a 1-D tensor of its own memory."""
    import torch

    return placed(torch.from_numpy(np.frombuffer(mask, dtype=np.uint8).astype(dtype)), device)


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a new tensor to the device; where that is the processor, it is there already."""
    return tensor if device.type == "cpu" else tensor.to(device)
