"""Base and head, compared: a pure function of two verdict documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import fields

from aggverify.codes.state import Standing
from aggverify.model import Document, Environment, Verdict
from aggverify.regression import coverage, findings
from aggverify.regression.model import (
    CONFORMS,
    FAILURES,
    FINDINGS,
    NO_JUDGEMENT,
    SCHEMA,
    Change,
    Comparison,
    Kind,
    Side,
)
from aggverify.report import view_model

KINDS = list(Kind)


def compare(
    base: Document,
    head: Document,
    *,
    strict: bool = False,
    names: tuple[str, str] = ("base", "head"),
) -> Comparison:
    """Return what becomes worse from base to head, the worst first.

    ``strict``: a new hazard counts.
    """
    found = [*_errors(base, names[0]), *_errors(head, names[1]), *_cut(base, names[0])]
    found += _subjects(base, head)
    found.sort(key=lambda change: KINDS.index(change.kind))
    return Comparison(
        schema=SCHEMA,
        exit=_exit([change.kind.exit(strict=strict) for change in found]),
        strict=strict,
        base=_side(base, names[0]),
        head=_side(head, names[1]),
        banner=tuple(_banner(base, head)),
        changes=tuple(found),
    )


def _exit(codes: Sequence[int]) -> int:
    """Return the exit code: findings first; nothing compared is no judgement."""
    if FINDINGS in codes:
        return FINDINGS
    return NO_JUDGEMENT if NO_JUDGEMENT in codes or not codes else CONFORMS


def _side(document: Document, name: str) -> Side:
    return Side(name, document.aggverify, document.environment, document.exit)


_OF_VERDICTS: Mapping[str, Callable[[Verdict], str]] = {
    "processor": lambda v: v.ranks.processor,
    "threads": lambda v: v.ranks.threads,
    "seed": lambda v: str(v.asked.seed),
}


def _banner(base: Document, head: Document) -> Iterator[str]:
    """Yield the differences of both runs that may change results of the same reducer."""
    pairs = [("aggverify", base.aggverify, head.aggverify)]
    for field in fields(Environment):
        name = field.name
        pairs.append((name, getattr(base.environment, name), getattr(head.environment, name)))
    if base.verdicts and head.verdicts:
        for what, of in _OF_VERDICTS.items():
            was, now = (", ".join(sorted({of(v) for v in d.verdicts})) for d in (base, head))
            pairs.append((what, was, now))
    for what, was, now in pairs:
        if was != now:
            yield f"{what} {was} in the base, {now} in the head"


def _errors(document: Document, name: str) -> Iterator[Change]:
    """Yield what keeps a document from being compared as a whole."""

    def error(what: str, why: str) -> Change:
        return Change(Kind.ERROR, None, what, "", "", what, why, None, ())

    if document.error:
        yield error(f"the {name} was not judged", document.error)
    elif document.incomplete:
        yield error(f"the {name} is not complete", str(document.incomplete))
    elif not _explained(document):
        what = f"the {name} ended with exit code {document.exit}"
        yield error(what, "and nothing in the document explains it")


def _explained(document: Document) -> bool:
    """Whether its content accounts for its exit code."""
    if document.exit == CONFORMS:
        return True
    if document.exit == FINDINGS:
        expired = any(entry.state is Standing.EXPIRED for entry in document.baseline)
        return expired or any(verdict.fails for verdict in document.verdicts)
    if document.exit != NO_JUDGEMENT:
        return False
    conform = document.verdicts and all(verdict.conforms for verdict in document.verdicts)
    return not conform or bool(document.stale or document.unmatched)


def _cut(base: Document, name: str) -> Iterator[Change]:
    """Yield an error if the base had no time for all cases, which hides what the head has lost.

    A head without time for all of them is lost coverage.
    """
    checks = ", ".join(dict.fromkeys(cut.check for v in base.verdicts for cut in v.cuts))
    if checks:
        what, why = f"the {name} was cut by the clock", f"not all cases were run of {checks}"
        yield Change(Kind.ERROR, None, what, "", "", what, why, None, ())


def _question(verdict: Verdict) -> Iterator[Change]:
    """Yield what has to be declared before the head can be judged."""
    words = view_model.assumption(verdict)
    if verdict.engine_in_question and not verdict.fails and words:
        yield Change(
            Kind.ERROR, verdict.about, "which engine?", "", "a question", words, "", None, ()
        )


def _subjects(base: Document, head: Document) -> Iterator[Change]:
    before, after = list(base.verdicts), list(head.verdicts)
    for b in before:
        h = next((h for h in after if h.about == b.about), None)
        if h is None and head.error and not head.verdicts:
            continue  # nothing of it was judged, which is reported once
        if h is None:
            yield coverage.gone(b)
            continue
        after.remove(h)
        yield from _changes(b, h, base, head)
    for h in after:
        found = [*findings.first_seen(h), *_question(h)]
        yield from found or [_stays(h, "not verified", view_model.summary(h))]


def _changes(b: Verdict, h: Verdict, base: Document, head: Document) -> Iterator[Change]:
    became = [*findings.changes(b, h, base.replays, head.replays)]
    found = [
        *coverage.lost(b, h, fails=any(change.kind in FAILURES for change in became)),
        *became,
        *coverage.less_precise(b, h),
        *_warnings(b, h),
        *_question(h),
        *_accepted(h, base, head),
    ]
    yield from found or [_stays(h, view_model.summary(b), view_model.summary(h))]


def _accepted(verdict: Verdict, base: Document, head: Document) -> Iterator[Change]:
    """Yield baseline entries that have expired, or that the head puts out of date.

    An expired one only if its own case alone shows it: what a check has found is a change already.
    """
    found = {finding.identity for finding in verdict.findings}
    known = {one.what for one in base.stale}
    for one in head.baseline:
        if one.identity.about != verdict.about:
            continue
        if one.state is Standing.EXPIRED and one.identity not in found:
            consequence = f"still fails, and was accepted until {one.expires}: {one.reason}"
            yield Change(
                Kind.EXPIRED, verdict.about, one.what, "", "expired", consequence, "", None, ()
            )
        elif one.state.stale and one.what not in known:
            consequence = (
                f"puts the baseline out of date: {one.what} is {one.state}; prune it with "
                "--baseline-write"
            )
            what = f"baseline {one.what}"
            yield Change(
                Kind.NEW_WARNING,
                verdict.about,
                what,
                "known",
                str(one.state),
                consequence,
                "",
                None,
                (),
            )


def _stays(verdict: Verdict, was: str, now: str) -> Change:
    mode = verdict.mode_name
    return Change(
        Kind.UNCHANGED, verdict.about, mode, was, now, f"leaves {mode} as it is", "", None, ()
    )


def _warnings(base: Verdict, head: Verdict) -> Iterator[Change]:
    was, now = ({w.code: w for w in v.loud} for v in (base, head))
    for code in sorted(was.keys() | now.keys()):
        if code in was and code in now:
            continue
        new = code in now
        warned = now[code] if new else was[code]
        kind = Kind.NEW_WARNING if new else Kind.FIXED
        sides = ("", warned.detail) if new else (warned.detail, "")
        sentence = f"{'adds' if new else 'takes away'} a warning: {warned.title}: {warned.detail}"
        what = f"{code} {warned.title}"
        yield Change(kind, head.about, what, *sides, sentence, "", None, ())
