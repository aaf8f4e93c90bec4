"""How a convention calls a reducer in the script of a finding, with torch alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from aggverify.conventions.rows import Rows
from aggverify.steps.case import Case


@dataclass(frozen=True, slots=True)
class PlainSite:
    """What the script of a finding knows that calls the reducer with torch alone."""

    case: Case
    mode: str | None
    divisor: float | None
    per_token: bool
    counts_rejected: bool = True
    terms: int = 0
    term: int | None = None
    texts: tuple[str, ...] | None = None
    """The source of all functions that run; None where others may, too."""
    elsewhere: int = 0
    generations: bool = False

    @property
    def inputs(self) -> list[str]:
        """Losses and auxiliary terms, of which one has values and all others are 0."""
        zero = "0 * losses"
        if self.term is None or not self.terms:
            return ["losses", *[zero] * self.terms]
        found = [zero] * self.terms
        found[self.term % self.terms] = "losses"
        return [zero, *found]


class PlainData(NamedTuple):
    """What the candidate is told in a script, as literals."""

    step: str
    """Of the whole step."""
    cells: tuple[tuple[str, ...], ...]
    """Beside that, by rank and micro-batch."""


class Calling(NamedTuple):
    """How that script calls it."""

    call: str
    """Lines in its loop over micro-batches (``report/templates/plain_torch.py.j2`` has the names
    they may use), which leave what is returned as ``out``."""
    arguments: str
    """What is handed over beside the losses, to see whether it has changed."""
    told: PlainData
    before: str = ""
    """Lines of its own, before the candidate is imported."""
    code: str = ""
    """A class or function that this takes."""
    adapter: str = ""
    """Code of a person's own."""
    imports: tuple[str, ...] = ()
    """Whole lines, beside what every script imports."""
    mode: str | bool | None = None
    """``MODE``, where the reducer is told one."""
    rows: Rows | None = None
    """The form of the losses; None: 1-D, one response after the other."""
    whole: str = ""
    """What the candidate is called where it runs all of the step, with a model it is given."""
    logits: bool = False
    """Whether its model is asked for logits: ``adapter`` has the function ``logits_of``."""
    zeros: bool = True
    """Whether losses of 0 show their weights."""


@runtime_checkable
class PlainlyCalled(Protocol):
    """A convention whose call takes no more than torch, so that its findings have a script."""

    def plain(self, site: PlainSite) -> Calling:
        """How it is called."""
