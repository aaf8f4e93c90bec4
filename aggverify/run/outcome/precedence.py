"""Which finding is shown first, and which others it accounts for, so that they stand under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggverify.checks.base import ORACLE
from aggverify.codes import Diagnosed

if TYPE_CHECKING:
    from aggverify.run.outcome.verdict import ReportedFinding


def by_cause(reports: Sequence[ReportedFinding]) -> tuple[tuple[ReportedFinding, ...], ...]:
    """Group reports by root cause; without a known one each stands alone."""
    groups: dict[str, list[ReportedFinding]] = {}
    for report in sorted(reports, key=_precedence):
        root = report.diagnosis.root if report.diagnosis else None
        root = root or _where(report)
        root = root or next((r for r, of in groups.items() if _led_by(report, of[0])), None)
        groups.setdefault(root or report.stored.id, []).append(report)
    return tuple(map(tuple, groups.values()))


def _precedence(report: ReportedFinding) -> int:
    return next(n for n, each in enumerate(PRECEDENCE) if each.holds(report))


def _where(report: ReportedFinding) -> str | None:
    """Return the place that all its failing cases took and no passing one did.

    Findings of several checks that have it in common are of one cause.
    """
    first = next(iter(report.suspects), None)
    if first is None or first.failing < first.all_failing or first.passing:
        return None
    return f"line {first.line} of {first.function}: {first.condition} {first.truth}"


def _led_by(report: ReportedFinding, other: ReportedFinding) -> bool:
    """Whether another finding, which came before, accounts for one without a cause.

    One that is accepted, or a hazard, leads none that fails: that would be hidden.
    """
    if report.fails and not other.fails:
        return False
    return _follows(report, other) or _is_wrong_already(report, other)


def _follows(report: ReportedFinding, other: ReportedFinding) -> bool:
    """Whether a finding only shows what the other does to any step.

    Then its own subject, such as split prompt groups, is irrelevant to it.
    """
    if report.finding.not_finite or other.finding.not_finite:
        return False
    return report.finding.traits.field in report.relevance.irrelevant and bool(
        set(report.relevance.matters) & set(other.relevance.matters)
    )


def _is_wrong_already(report: ReportedFinding, other: ReportedFinding) -> bool:
    """Whether its wrong weights, which nothing explains, only show the other's again.

    The other's are wrong on one rank in one micro-batch without an explanation, or not steady.
    """
    wrong = _is_wrong_formula(other) and _is_unexplained(other)
    leads = wrong or _is_unsteady(other)
    return leads and report.diagnosis is None and _has_wrong_weights(report)


def _is_wrong_formula(report: ReportedFinding) -> bool:
    """Whether weights are wrong on one rank in one micro-batch."""
    found = report.finding
    alone = found.case.layout.is_trivial and found.reference == ORACLE
    return alone and _has_wrong_weights(report)


def _is_unexplained(report: ReportedFinding) -> bool:
    """Whether no formula, factor or bug gives the weights; that some are 0 explains nothing."""
    found = report.diagnosis
    return found is None or (found.form, found.factor, found.bug) == (None, None, None)


def _is_unsteady(report: ReportedFinding) -> bool:
    found = report.diagnosis
    return found is not None and found.bug is not None and found.bug.name in _UNSTEADY


def _has_wrong_weights(report: ReportedFinding) -> bool:
    found = report.finding
    by_weights = found.observed is not None and found.traits.diagnosed is Diagnosed.WEIGHTS
    return by_weights and not found.not_finite and found.term is None


@dataclass(frozen=True, slots=True)
class Precedence:
    """Findings that come before others, and why."""

    why: str
    holds: Callable[[ReportedFinding], bool]


PRECEDENCE = (
    Precedence(
        "a wrong formula with a known cause: wrong on one rank, it is wrong in every layout, and "
        "layouts first would send a person to their collectives",
        lambda report: _is_wrong_formula(report) and not _is_unexplained(report),
    ),
    Precedence(
        "weights that change from call to call or with the losses: they look like any other "
        "mistake, and no formula found for them holds",
        lambda report: not _is_wrong_formula(report) and _is_unsteady(report),
    ),
    Precedence("a wrong formula that nothing explains", _is_wrong_formula),
    Precedence("a layout", lambda report: report.finding.traits.field is None),
    Precedence("one kind of unit alone, such as empty samples", lambda report: True),
)
"""The first that holds of a finding is its place."""
_UNSTEADY = ("not-linear", "not-repeatable", "state-between-steps")
"""Known bugs under which weights change with the losses, or from one call to the next."""
