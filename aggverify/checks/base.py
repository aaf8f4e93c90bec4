"""What a check is: which cases to run, and how to judge what the ranks did with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from aggverify.execution.laboratory import BREACH, Execution
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial
from aggverify.generation.space import Space
from aggverify.steps.case import Case


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
    reference: str = "the oracle"
    token: int | None = None
    error: Fraction | None = None
    bound: Fraction | None = None
    detail: str = ""


Judge = Callable[[Subject, Sequence[Execution]], Finding | None]


@dataclass(frozen=True, slots=True)
class Check:
    """A named property. Its two functions are pure; the ranks' work lies between them."""

    name: str
    title: str
    tests: str
    """The minimal test of historic-bugs.md it carries out, for example ``T1``."""
    space: Callable[[Subject], Space | None]
    """What to generate; None when the subject's claims leave nothing to check."""
    variants: Callable[[Case], tuple[Case | Trial, ...]]
    judge: Judge
    project: Callable[[Case], Case]
    """A stored case brought into this check's space, for example to one rank."""
    control_first: bool = False
    """Whether the first variant is a control: needed only without an oracle, or to attribute a
    fault. ``judge`` then gets one execution or both."""
    max_examples: int | None = None
    """Drawn cases at most, for a check whose cases are large."""
    max_stored: int | None = None
    """Stored cases at most, for a check whose cases cost much."""
    only: Callable[[Subject], Iterable[Case]] | None = None
    """The cases it runs, all of them that lie in its space; nothing is drawn."""
    thorough: bool = False
    """Whether it costs so much that only ``--profile thorough`` runs it."""
    unclaimed: str = "not claimed"
    """Why there is nothing to check where the space is None."""
    last: bool = False
    """Whether it is worth its cost only when nothing else was found."""
    establishes: Callable[[Subject, int], str] | None = None
    """What is proven when that many cases pass, for the verdict."""
    requires_formula: bool = False
    """Whether a candidate with a wrong formula is not judged at all."""
    linear_only: bool = False
    """Whether it says nothing about a non-linear objective."""
    may_refuse: bool = False
    """Whether a clear exception of the candidate's own is as good as the right result."""
    judges_scalar: bool = False
    """Whether ``judge`` also compares the reported loss."""
    requires: tuple[str, ...] = ()
    """Name prefixes of checks without which this one is judged on one rank only."""


_FAILURE_CODES = {
    "exception": "AGV401",
    "blocked": "AGV402",
    "died": "AGV403",
    "diverged": "AGV404",
    "disagree": "AGV405",
    "runaway": "AGV406",
}


COSTLY = frozenset(_FAILURE_CODES[kind] for kind in ("blocked", "died", "diverged", "runaway"))
"""Codes of findings each of which costs a world of ranks: tried one at a time, and not often."""


def failure_finding(check: str, subject: Subject, execution: Execution) -> Finding | None:
    """The finding for a case the ranks could not finish, or None when they did."""
    failure = execution.failure
    if failure is None:
        return None
    code = _FAILURE_CODES[failure.kind]
    message = failure.message
    if message.startswith(BREACH):
        code, message = "AGV501", message.removeprefix(BREACH)
    if failure.rank is not None and not message.startswith(f"rank {failure.rank} "):
        message = f"rank {failure.rank}: {message}"
    return Finding(code, check, message, execution.case, subject.mode, detail=failure.detail)
