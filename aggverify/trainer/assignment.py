"""What a rank is given: one run spec with its claim, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import NODEFAULT, Meta, structs

from aggverify import codec
from aggverify.codec import Part
from aggverify.engines.train_step import SMALL
from aggverify.steps.case import Case

MOST_ELSEWHERE = 1 << 40
"""Tokens that a step may pretend to have elsewhere."""
GROUPS = "groups"
"""The one key of a job that is no assignment: layouts whose process groups are to be made."""
WHY_NOT = "why_not"
"""In an answer, in the place of recorded calls: why they are no data, as what follows "because"."""


class Assignment(Part, frozen=True):
    """One case to be run, by which function, called and trained how.

    ``convention`` and ``engine`` are names; the mode is the one that it asks for.
    """

    case: Case
    function: str
    convention: str
    engine: str
    mode: str | None
    divisor: int | float | None
    counts_rejected: bool = True
    """Whether denominators use the masks before rejection (the policy's default)."""
    before: tuple[Case, ...] = ()
    """Steps that the rank runs first."""
    watch: bool = False
    """Whether the candidate's arguments are compared with what they were before the call."""
    misuse: bool = False
    """Whether the candidate is called with each of the convention's misuses instead."""
    show: bool = False
    """Whether nothing is wanted but what the candidate is called with."""
    terms: int = 0
    """Auxiliary per-token inputs that the candidate takes next to the losses."""
    term: int | None = None
    """The one that has values (modulo their number); None for the losses."""
    arrival: str = ""
    """When asynchronous collectives complete (``world.deferred_completion``); "" for any time."""
    scale: float = 1.0
    """What the candidate's loss is multiplied by before backward."""
    under: str = ""
    """The mode of torch that the candidate is called in (``trainer.torch_modes``); "" for none."""

    gain: float = SMALL
    """The derivative of a token's loss by the parameter of a whole training step's model."""
    scaler: float = 1.0
    """What the scales of that step's GradScalers are multiplied by."""
    elsewhere: Annotated[int, Meta(ge=0, le=MOST_ELSEWHERE)] = 0
    """Tokens of one more rollout and prompt that are counted, and that no rank has."""
    generations: bool = False
    """Whether the step is the first of two that a generation batch is trained in."""
    experts: bool = False
    """Whether the model of a whole training step has experts."""
    virtual: tuple[int, ...] = ()
    """Ranks of the layout that this process plays, one after another; empty for its own rank."""
    note: int = 0
    """Lines that run are noted apart from those of assignments with another number."""
    noted: bool = False
    """As in ``RunSpec``: these, too, are noted apart."""
    usual: bool = False
    """Whether many like it were noted already: its lines are only where that costs nothing."""
    record: bool = False
    """Whether nothing is wanted but the candidate's calls, as data, and nothing of it is run."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; what has its default value is left out."""
        data: dict[str, Any] = {
            name: value for name, usual in _USUAL if (value := getattr(self, name)) != usual
        }
        data |= {name: getattr(self, name) for name in _REQUIRED}
        data["case"] = self.case.packed()
        if self.before:
            data["before"] = [case.packed() for case in self.before]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Assignment:
        """Rebuild an assignment from :meth:`to_json`'s data; raises InputError on anything else."""
        case, before = data.get("case"), data.get("before")
        cases: dict[str, Any] = {}
        if isinstance(case, dict):
            cases["case"] = Case.unpacked(case)
        if isinstance(before, list):
            cases["before"] = list(map(Case.unpacked, before))
        return codec.read(Assignment, {**data, **cases}, "the assignment")


_FIELDS = structs.fields(Assignment)
_REQUIRED = tuple(f.name for f in _FIELDS if f.default is NODEFAULT)
_USUAL = tuple((f.name, f.default) for f in _FIELDS if f.default is not NODEFAULT)
