"""One case as a check wants it run: after which others, in which world, watched, spoiled how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aggverify.engines.train_step import SMALL
from aggverify.steps.case import Case

Where = Literal["", "against", "compiled", "launched", "apart", "real"]
"""The ranks that a case is run in; "" for the usual ones."""
AGAINST: Where = "against"
"""Ranks of the subject's other path."""
COMPILED: Where = "compiled"
"""Ranks where torch.compile compiles."""
LAUNCHED: Where = "launched"
"""Ranks that are started as trainers start them, not forked."""
REAL: Where = "real"
"""Ranks with the library's engine that the subject's formula stands for."""
APART: Where = "apart"
"""A fresh process for each virtual rank."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """A case, and what a check asks of its run; a bare case is one with all defaults."""

    case: Case
    before: tuple[Case, ...] = ()
    """Steps that the same ranks run first, in the same job; of one world size."""
    fresh: bool = False
    """In ranks that have run nothing since the candidate was imported."""
    watch: bool = False
    """Whether the candidate's arguments are compared with what they were before the call."""
    mode: str | None = None
    """Another mode than the subject's, where the candidate takes the mode."""
    misuse: bool = False
    """Whether the candidate is called with each of the convention's misuses, which should raise."""

    show: bool = False
    """Whether nothing is wanted but what the candidate is called with."""
    zeros: bool = False
    """Whether losses of 0 stay such where the convention shows no weight of theirs."""
    arrival: str = ""
    """When asynchronous collectives complete (``world.deferred_completion``); "" for any time."""
    scale: float = 1.0
    """What the loss is multiplied by before backward: a power of two, which is taken out of the
    gradient again."""
    under: str = ""
    """The mode of torch that the candidate is called in (``trainer.torch_modes``); "" for none."""

    gain: float = SMALL
    """The derivative of a token's loss by the parameter of a whole training step's model, which is
    taken out of the update again."""
    scaler: float = 1.0
    """What the scales of that step's GradScalers are multiplied by."""
    elsewhere: int = 0
    """Tokens of one more rollout and prompt that other ranks have, and nothing is run of."""
    virtual: tuple[int, ...] = ()
    """Ranks of the layout that one process plays, one after another, without peers; none for
    real ranks."""
    noted: bool = False
    """Whether lines that run are noted however many cases were like it, apart from those of cases
    without this wish."""
    alone: bool = False
    """Whether it has a reduction to itself: in one with others, they change the order in which its
    gradients are added."""
    term: int | None = None
    """Which auxiliary term alone is looked at, modulo their number; None for the losses."""
    where: Where = ""
    record: bool = False
    """Whether nothing is wanted but the candidate's calls, as data, and nothing of it is run."""

    @property
    def num_ranks(self) -> int:
        """Ranks of the world that it is run in."""
        return 1 if self.virtual else self.case.layout.world_size

    @property
    def plain(self) -> bool:
        """Whether nothing but the case is asked for, so that the ranks may run it among others."""
        asked = self.before or self.fresh or self.watch or self.misuse or self.show or self.virtual
        return not (asked or self.alone or self.record)


def as_run_spec(wanted: Case | RunSpec) -> RunSpec:
    """Return a case or a run spec as a run spec."""
    return wanted if isinstance(wanted, RunSpec) else RunSpec(wanted)
