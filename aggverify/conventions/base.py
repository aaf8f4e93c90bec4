"""What a convention says: which functions it calls, with what, and what it can ever get right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from aggverify.steps.case import Case

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup

NONLINEAR = "nonlinear"
"""What a person writes for a mode when the objective is not linear in its inputs."""
LogRule = Literal["engine", "suffixes", "merge_logs"]
"""How a trainer merges the logs of micro-batches: as Megatron's report does, where a scalar is
reduced as the loss is and a pair is a sum over a count; or each key by what follows its colon, as
Tinker's client does (``loss:sum``, ``kl:mean`` weighted by data, ``:min``, ``:max``); or by a
function of its own, which an adapter has."""
ADAPTED = "adapter"
"""In a convention's place, where a person's own file says how the reducer is called."""
FEATURES: Mapping[str, str] = {
    "data-parallel": "samples dealt to several data-parallel ranks",
    "micro-batches": "several micro-batches accumulated on a rank",
    "context-parallel": "samples sliced over context-parallel ranks",
    "contiguous": "context-parallel ranks that own contiguous chunks",
    "gathered": "losses gathered over context parallelism before the reduction",
    "bshd": "context-parallel ranks that own zigzag chunks of rows padded to one width",
    "fan-out": "rollouts that consist of several samples",
    "straddling-groups": "prompt groups split over ranks or micro-batches",
    "straddling-shards": "prompt groups split over data-parallel ranks",
    "dummy-samples": "fully masked copies of a sample that fill up micro-batches",
    "rejection": "tokens rejected after the fact: the losses' mask differs from the one counted",
    "ragged-micro-batches": "micro-batches with different numbers of samples",
    "generations": "generation batches of several optimizer steps, of which each is judged",
    "whole-groups": "only prompt groups of one size, each whole in one micro-batch",
    "poison": "NaN and infinite losses behind the mask",
    "validates-arguments": "calls that contradict themselves, which must raise",
    "loss-function": "a loss that our trainer has in hand: to scale before backward, to compute "
    "without gradients, to compare with its gradient",
}
"""What a step or layout may contain that not every convention can see."""
UNUSUAL = frozenset({"bshd", "generations"})
"""Those of few frameworks: seen by the conventions that say so, and where they are claimed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Something of the candidate's module that can be called and might be the reducer.

    ``name`` may be dotted, where the person has named an attribute of an object.
    """

    name: str
    parameters: tuple[str, ...]
    """In order; ``*args`` and ``**kwargs`` with their stars."""
    required: tuple[str, ...] = ()
    """Those without a default."""
    keyword_only: tuple[str, ...] = ()
    own: bool = True
    """Whether the file makes it, and does not only import it."""
    why_not: str = ""
    """Why a call of it can give no loss, as what follows its name; "" where it may."""

    @property
    def shown(self) -> str:
        """``name(parameters)``."""
        return f"{self.name}({', '.join(self.parameters)})"

    def takes(self, count: int) -> bool:
        """Whether it can be called with so many positional arguments and no others."""
        if set(self.required) & set(self.keyword_only):
            return False
        named = (p for p in self.parameters if not p.startswith("*"))
        most = sum(p not in self.keyword_only for p in named)
        several = any(p.startswith("*") and not p.startswith("**") for p in self.parameters)
        return len(self.required) <= count and (count <= most or several)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Offer:
        """Rebuild an offer from ``dataclasses.asdict``, what is left out by its default."""
        lists = {"parameters", "required", "keyword_only"} & data.keys()
        return Offer(**{**data, **{name: tuple(data[name]) for name in lists}})


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
    """Auxiliary per-token inputs that the candidate takes beside the losses."""
    term: int | None = None
    """The one that has values, modulo their number; None for the losses."""
    elsewhere: int = 0
    """Tokens of one more rollout and prompt that are counted, and that nobody has."""
    generations: bool = False
    """Whether the step is the first of two that a generation batch is trained in."""
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
    """A call that contradicts itself. ``spoil`` turns a good call's arguments, by name, into it, in
    a rank; a candidate that validates its arguments raises."""

    name: str
    sentence: str
    spoil: Callable[[dict[str, Any]], None]
    modes: tuple[str, ...] = ()
    """Modes it is a mistake in; empty for all."""
    line: str = ""
    """The same in a script, where the arguments are ``given``, by name."""


Bound = Callable[[int, "Tensor"], Output]
"""Calls the candidate for micro-batch ``k`` with the losses its rank sees, 1-D."""


@dataclass(frozen=True, slots=True)
class WholeStep:
    """Bound to a candidate that runs all micro-batches of a step itself, with a model it is given;
    what a convention's ``bind`` returns instead of calls of a loss."""

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
        """Whether the candidate is told the mode, so that one function implements several."""

    @property
    def fixes_engine(self) -> bool:
        """Whether its framework alone says how local losses become the update: where it does not,
        an engine that nobody has named is an assumption."""

    @property
    def not_claimed(self) -> Mapping[str, str]:
        """Features this convention cannot see (or does not promise), each with the reason."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the verdict says of it, such as what is not exercised."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names, as the misuses know them, of what it passes by position; what it passes by keyword
        has its own. Empty where the function's own names hold: then it may call anything, methods
        and keyword-only parameters too."""

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
