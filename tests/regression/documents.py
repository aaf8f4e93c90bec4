"""Pairs of small verdict documents, one for each kind of change, and any text in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from aggverify import model
from aggverify.codes.state import Again, State
from aggverify.model import Document, FindingRecord, Replay, Verdict
from aggverify.regression.model import Kind
from tests import verdicts

HERE = model.Environment("3.11.0", "2.6.0", "gloo", "tcp")
Pair = tuple[Document, Document]


def document(*found: Verdict, replays: Iterable[Replay] = ()) -> Document:
    """The document of these, wherever it is made."""
    failed = any(verdict.fails for verdict in found)
    return Document(model.SCHEMA, "0.1.0", HERE, int(failed), None, None, found, tuple(replays), ())


def verdict(text: str = "", reports: int = 0) -> Verdict:
    """One check of every state, and so many findings."""
    (found,) = verdicts.written(verdicts.verdict(text, reports)).verdicts
    return found


def again(finding: FindingRecord, outcome: Again, words: str | None = None) -> Replay:
    """What became of a finding's case on the other side."""
    shows = finding.code if outcome in (Again.FAILS, Again.HAZARD) else None
    return Replay(finding.id, finding.identity, outcome, shows, words)


def edited(found: Verdict, **changed: object) -> Verdict:
    """The verdict with its one finding changed."""
    return replace(found, findings=(replace(found.findings[0], **changed),))  # type: ignore[arg-type]


def waiver(found: FindingRecord, *, expired: bool) -> model.Waiver:
    """What a baseline says of it."""
    what = f"{found.code}:{found.id}"
    return model.Waiver(what, "for a reason", 1, found.identity, "them", "2026-01-31", expired, ())


def pairs(text: str = "") -> dict[Kind, Callable[[], Pair]]:
    """Base and head in which something is of that kind, and nothing is worse."""
    green, red = verdict(text), verdict(text, reports=1)
    (finding,) = red.findings
    passes = [again(finding, Again.PASSES)]
    hazard = edited(red, effect="hazard")
    states = [replace(check, state=State.OK) for check in red.checks[:2]]
    hazard = replace(hazard, checks=(*states, *red.checks[2:]))
    larger = replace(green.margins[0], worst_error_over_bound=0.75)
    other = replace(finding.identity, factor="cp_size")
    waived = replace(edited(red, waived="for a reason"), waivers=(waiver(finding, expired=False),))
    expired = replace(red, waivers=(waiver(finding, expired=True),))
    quiet = replace(green, warnings=())
    fewer = replace(green, checks=green.checks[1:])
    return {
        Kind.COVERAGE_LOST: lambda: (document(green), document(fewer)),
        Kind.NEW_FAILURE: lambda: (document(green, replays=passes), document(red)),
        Kind.CHANGED_FAILURE: lambda: (
            document(red),
            document(edited(red, identity=other, factor="cp_size", off="cp_size times too large")),
        ),
        Kind.EXPIRED: lambda: (document(waived), document(expired)),
        Kind.ERROR: lambda: (document(green), document(red)),
        Kind.PRECISION_WORSE: lambda: (
            document(green),
            document(replace(green, margins=(larger,))),
        ),
        Kind.NEW_HAZARD: lambda: (document(green, replays=passes), document(hazard)),
        Kind.NEW_WARNING: lambda: (document(quiet), document(green)),
        Kind.KNOWN: lambda: (document(red), document(red)),
        Kind.FIXED: lambda: (document(red), document(green, replays=passes)),
        Kind.UNCHANGED: lambda: (document(green), document(green)),
    }
