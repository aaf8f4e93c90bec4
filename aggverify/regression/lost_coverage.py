"""One thing that a head verifies less than its base."""

from __future__ import annotations

from dataclasses import dataclass

from aggverify.regression.model import Kind

THIN = 2
"""So many times less is thinner. Which cases are drawn follows constants of the reducer's code, so
that a change of it moves their number a little."""


@dataclass(frozen=True, slots=True)
class LostCoverage:
    """One thing that is verified less."""

    what: str
    base: str
    head: str
    sentence: str
    kind: Kind = Kind.COVERAGE_LOST
