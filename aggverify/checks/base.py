"""What a check is: which cases to run, and how to judge what the ranks did with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import InitVar, dataclass, field
from fractions import Fraction

from aggverify.codes import Code, Diagnosed, code, code_of_failure
from aggverify.deprecated_names import warn_of_renamed
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec, Where
from aggverify.execution.subject import Subject
from aggverify.generation.space import Space
from aggverify.steps.case import Case
from aggverify.world import Fault

ORACLE = "the oracle"
"""What weights are compared with, unless with another run of the reducer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which the candidate is wrong, on one case.

    ``expected`` and ``observed`` are weights per response token (None when no weight was read);
    ``token`` is the flat index of the worst one, ``error`` and ``bound`` are absolute.
    """

    code: str
    check: str
    message: str
    case: Case
    mode: str | None
    expected: tuple[Fraction, ...] | None = None
    observed: tuple[float, ...] | None = None
    reference: str = ORACLE
    token: int | None = None
    error: Fraction | None = None
    bound: Fraction | None = None
    limit: Fraction = Fraction(0)
    """Up to here the error may be rounding that the bound does not know of."""
    fault: Fault | None = field(default=None, compare=False)
    """What the ranks did instead of finishing the case."""
    term: str | None = None
    """The auxiliary term whose weights these are; None for the losses."""
    signs: tuple[str, ...] = ()
    """What the check recognised, by names that the diagnosis knows bugs by."""

    @property
    def accumulated(self) -> bool:
        """Whether the error is within ``limit``, and so no finding."""
        return self.error is not None and 0 < self.error <= self.limit

    @property
    def traits(self) -> Code:
        """What its code is: how the rest of the tool treats it."""
        return code(self.code)

    @property
    def not_finite(self) -> bool:
        """Whether it is about a weight or a loss that is not finite though every loss is."""
        how = self.traits.diagnosed
        if how is not Diagnosed.WEIGHTS:
            return how is Diagnosed.NOT_FINITE
        return any(not math.isfinite(weight) for weight in self.observed or ())


Judge = Callable[[Subject, Sequence[Execution]], Finding | None]


FORMULA = "formula"
LAYOUT = "layout"
COLLECTIVES = "collectives"
MASK = "mask"
COUNTS = "counts"


@dataclass(frozen=True, slots=True)
class Need:
    """An aspect that has to be right, and what is reported of a check where it is not."""

    aspect: str
    otherwise: str


RIGHT_FORMULA = Need(FORMULA, "the formula is wrong already")
EXACT_COUNTS = Need(COUNTS, "smaller counts are wrong already")


def as_it_is(case: Case) -> Case:
    """Return the case."""
    return case


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A named property. Its two functions are pure; the ranks' work lies between them."""

    name: str
    title: str
    tests: str = ""
    """The minimal test of historic-bugs.md it carries out, for example ``T1``."""
    space: Callable[[Subject], Space | None]
    """What to generate; None when the subject's claims leave nothing to check."""
    variants: Callable[[Case], tuple[Case | RunSpec, ...]] = lambda case: (case,)
    """What to run; ``judge`` gets the executions in this order."""
    judge: Judge
    project: Callable[[Case], Case] = as_it_is
    """A stored case brought into this check's space, for example to one rank."""
    control_first: bool = False
    """Whether the first variant is a control: needed only without an oracle, or to attribute a
    fault. ``judge`` then gets one execution or both."""
    one_will_do: bool = False
    """Whether its first variant is compared with each of the others, some of which the candidate
    may not offer: it and one of them are enough to judge a case by."""
    max_examples: int | None = None
    """Drawn cases at most, for a check that needs no more, or whose cases cost much: a profile's
    ``part`` of it."""
    max_stored: int | None = None
    """Stored cases at most, for a check whose cases cost much."""
    only: Callable[[Subject], Iterable[Case]] | None = None
    """The cases it runs, all of them that lie in its space; nothing is drawn."""
    stored: Callable[[Subject], Iterable[Case]] | None = None
    """The cases it begins with instead of the catalogue and the grid."""
    draws: Callable[[Space], Space] = lambda space: space
    """The part of its space that cases are drawn from."""
    confirming: Callable[[Case], tuple[Case | RunSpec, ...]] | None = None
    """What to run instead of ``variants`` to confirm a finding; unconfirmed it is a warning."""
    looks_at_branches: bool = False
    """Whether others are judged on cases that take every branch which its own cases took."""
    on_branches: Callable[[Case], Case] | None = None
    """How cases that together take every branch of the reducer's code, each of which may have its
    own mistake, are brought into its space; None: not judged on them. Only while nothing fails."""
    distinguishing_cases: Callable[[Subject], Iterable[Case]] | None = None
    """Cases observed in addition to its stored ones when a finding is diagnosed."""
    of_calls: bool = False
    """Whether it is for functions that reduce no losses: it is run of them alone, and nothing else
    is."""
    thorough: bool = False
    """Whether it costs so much that only ``--profile thorough`` runs it."""
    only_with: str = ""
    """The ``--step`` that alone asks for it, where it costs more than any profile should."""
    not_applicable: str | None = None
    """Why there is nothing to check where the space is None; None: it is not claimed."""
    last: bool = False
    """Whether it is worth its cost only when nothing else failed; runs after all others."""
    establishes: Callable[[Subject, int], str] | None = None
    """What is proven when that many cases pass, for the verdict."""
    linear_only: bool = False
    """Whether it has no meaning for a non-linear objective."""
    may_refuse: Callable[[Case], Set[int]] | None = None
    """Where a clear exception of the candidate's own is as good as the right result: the ranks that
    it must come from."""
    waits_for: str = ""
    """What takes seconds or more before its first case is done: the progress line shows it."""
    elsewhere: Where = ""
    """Where it runs its cases besides; such ranks are begun before its turn where that can be."""
    as_found: bool = False
    """Whether a finding is shown on the case it was found on: cases to shrink it cost too much."""
    compares_paths: bool = False
    """Whether it needs another target next to the subject's, also to see its findings again."""
    judges_scalar: bool = False
    """Whether ``judge`` also compares the reported loss."""
    aspect: str = ""
    """What is known to be wrong once it fails: FORMULA and the like, or a person's own."""
    needs: tuple[Need, ...] = ()
    """Aspects that must be right for it to report anything new; the first wrong one is named."""
    alone_after: tuple[str, ...] = ()
    """Aspects; where one of them is wrong it is judged on one rank only."""
    of_weights: bool = True
    """Whether it compares weights: its findings can be diagnosed from them."""
    codes: tuple[Code, ...] = ()
    """Codes that it brings along, registered with it; those of the catalogue are known."""
    nothing_to_say: InitVar[str | None] = None
    """Renamed: ``not_applicable``."""
    telling: InitVar[Callable[[Subject], Iterable[Case]] | None] = None
    """Renamed: ``distinguishing_cases``."""

    def __post_init__(
        self,
        nothing_to_say: str | None,
        telling: Callable[[Subject], Iterable[Case]] | None,
    ) -> None:
        """Take the old name of a field, with a warning."""
        for old, new, value in (
            ("nothing_to_say", "not_applicable", nothing_to_say),
            ("telling", "distinguishing_cases", telling),
        ):
            if value is not None:
                warn_of_renamed(f"Check({old}=...)", f"Check({new}=...)", stacklevel=4)
                object.__setattr__(self, new, value)


def failure_finding(check: str, subject: Subject, execution: Execution) -> Finding | None:
    """Return the finding for a case the ranks could not finish, or None when they did."""
    fault = execution.failure
    if fault is None:
        return None
    code = code_of_failure(fault.kind, fault.error.breach if fault.error else "").code
    return Finding(code, check, fault.message, execution.case, subject.mode, fault=fault)
