"""A comparison in words: one place for every format. Nothing is escaped here."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.regression.model import FAILURES, QUIET, Change, Comparison, Kind
from aggverify.report import view_model
from aggverify.report.formatting import counted

SIGNS = {
    Kind.COVERAGE_LOST: "🕳️",
    Kind.NEW_FAILURE: "❌",
    Kind.CHANGED_FAILURE: "❌",
    Kind.EXPIRED: "⌛",
    Kind.ERROR: "❓",
    Kind.PRECISION_WORSE: "📉",
    Kind.NEW_HAZARD: "⚡",
    Kind.NEW_WARNING: "⚠️",
    Kind.KNOWN: "☑️",
    Kind.FIXED: "✅",
    Kind.UNCHANGED: "✅",
}
MAX_CELL = 100


def headline(comparison: Comparison) -> str:
    """Return the consequence in words: what happens to a training run, and to what is verified."""
    failures = comparison.of(Kind.NEW_FAILURE, Kind.CHANGED_FAILURE)
    losses = comparison.of(Kind.COVERAGE_LOST)
    expired = comparison.of(Kind.EXPIRED)
    errors, hazards = comparison.of(Kind.ERROR), comparison.of(Kind.NEW_HAZARD)
    strict = hazards if comparison.strict else []
    if failures or strict:
        worst = [*failures, *strict]
        more = f" ({counted(len(worst) - 1, 'more finding')})" if len(worst) > 1 else ""
        less = f"; it also verifies less: it {losses[0].sentence}" if losses else ""
        return f"Merging this {worst[0].sentence}{more}{less}{_more(losses[1:])}"
    if losses:
        return f"Merging this verifies less: it {losses[0].sentence}{_more(losses[1:])}"
    if expired:
        return f"No longer accepted, its time is over: {_names(expired)}"
    if errors or not comparison.changes:
        why = errors[0].sentence if errors else "neither side has an error to show"
        return f"Could not compare: {why}{_more(errors[1:])}"
    return _headline_without_failure(comparison, hazards)


def _more(changes: Sequence[Change]) -> str:
    return f" ({len(changes)} more)" if changes else ""


def _headline_without_failure(comparison: Comparison, hazards: Sequence[Change]) -> str:
    """Return the headline where nothing fails that did not before."""
    fixed = [c for c in comparison.of(Kind.FIXED) if c.finding is not None]
    headline_text = f"Merging this fixes {_names(fixed)}" if fixed else "No failure is new"
    modes = ", ".join(dict.fromkeys(c.about.mode for c in comparison.changes if c.about))
    rest = [f"{counted(len(hazards), 'new hazard')} ({_names(hazards)})"] if hazards else []
    for kind, what in (
        (Kind.PRECISION_WORSE, "larger rounding error"),
        (Kind.NEW_WARNING, "new warning"),
        (Kind.KNOWN, "known finding"),
    ):
        if found := comparison.of(kind):
            rest.append(counted(len(found), what))
    unchanged = not fixed and not rest
    headline_text = f"Nothing changes in {modes}" if unchanged else f"{headline_text} in {modes}"
    return ", ".join([headline_text, *rest])


def _names(changes: Sequence[Change]) -> str:
    names = dict.fromkeys(change.what for change in changes)
    return "; ".join(names)


def loud(comparison: Comparison) -> list[Change]:
    """Return what a reviewer has to act on: failures first, then what coverage they may cost."""
    order = {kind: n for n, kind in enumerate((*FAILURES, Kind.COVERAGE_LOST))}
    left = (change for change in comparison.changes if change.kind not in QUIET)
    return sorted(left, key=lambda change: order.get(change.kind, len(order)))


def quiet(comparison: Comparison) -> list[Change]:
    """Return the rest."""
    return comparison.of(*QUIET)


def is_bad(change: Change, comparison: Comparison) -> bool:
    """Whether it is a reason not to merge, or leaves that open."""
    return change.kind.exit(strict=comparison.strict) != 0


def where(change: Change) -> str:
    """Return the reducer and its mode."""
    return f"{change.about.target} · {change.about.mode}" if change.about else ""


def tally(changes: Sequence[Change]) -> str:
    """How many there are of each kind: ``2 known, 1 unchanged``."""
    counts = {kind: sum(c.kind is kind for c in changes) for kind in Kind}
    return ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)


def change_sentence(change: Change) -> str:
    """Return what it means for a merge, as a sentence."""
    sentence = change.sentence
    if change.kind is Kind.ERROR:
        return f"{sentence[:1].upper()}{sentence[1:]}."
    merging = change.kind in (Kind.NEW_FAILURE, Kind.CHANGED_FAILURE, Kind.NEW_HAZARD)
    return f"{'Merging this' if merging else 'It'} {sentence}."


def details(change: Change) -> list[str]:
    """Return what was seen on which step, where it is about a finding; then further lines."""
    lines = [view_model.shortened(line) for line in change.more.split("\n") if line]
    if change.finding is None:
        return lines
    return [*lines, *view_model.facts(change.finding), *view_model.trace(change.finding)]


def explanation(change: Change) -> list[tuple[str, str]]:
    """Return what is computed instead, how to mend it; the other findings of its cause."""
    if change.finding is None:
        return []
    found = view_model.explanation(change.finding)
    also = [("Also", f"{a.code} {a.title}, case {a.id}") for a in change.also]
    return [*found, *also]


def commands(change: Change) -> list[str]:
    """Commands that run it again, and explain it."""
    if change.finding is None:
        return []
    codes = dict.fromkeys([change.finding.code, *(a.code for a in change.also)])
    return [view_model.replay(change.finding), f"aggverify explain {' '.join(codes)}"]
