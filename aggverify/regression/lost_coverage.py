"""One thing that a head verifies less than its base."""

from __future__ import annotations

from dataclasses import dataclass

from aggverify.regression.model import Kind

THIN = 2
"""Only so many times less counts as lost: cases are drawn around constants of the reducer's code,
so that any change of it may move their number a little."""


@dataclass(frozen=True, slots=True)
class LostCoverage:
    """One thing that is verified less."""

    what: str
    base: str
    head: str
    sentence: str
    kind: Kind = Kind.COVERAGE_LOST
