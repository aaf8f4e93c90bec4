"""Which findings of a head are new, changed or known, and which of the base are fixed.

They are matched by identity, never by their cases, as each search finds its own. What only one side
has is new or fixed if the other side's replay of its case shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from aggverify.codes.state import Again
from aggverify.model import FindingRecord, Replay, Verdict
from aggverify.regression.model import Also, Change, Kind
from aggverify.report import view_model

Pair = tuple[FindingRecord, FindingRecord]
Replays = Sequence[Replay]
_SEEN_AGAIN = (Again.FAILS, Again.HAZARD)


def changes(base: Verdict, head: Verdict, on_base: Replays, on_head: Replays) -> Iterator[Change]:
    """One change a cause.

    ``on_base``: cases of the head that were run on the base's reducer, and the other way round.
    """
    same, other, fixed, new = _matched(base.findings, head.findings)
    found: list[tuple[Change, FindingRecord]] = []
    for b, h in same:
        found.append((_stays(b, h, head), h))
    for b, h in other:
        same_on_both = _has_same_weights(h, on_base) and _has_same_weights(b, on_head)
        found.append((_stays(b, h, head) if same_on_both else _changed(b, h, head), h))
    for h in new:
        found.append((_only_in_head(h, head, _replay(h, on_base)), h))
    yield from _one_a_cause(found)
    yield from _one_a_cause([(_only_in_base(b, base, _replay(b, on_head)), b) for b in fixed])


def first_seen(head: Verdict) -> Iterator[Change]:
    """Return the findings of a subject that the base has nothing of."""
    made = [(_change(_new_kind(f), head, f, "not verified", _state(f)), f) for f in head.findings]
    return _one_a_cause(made)


def _matched(
    base: Sequence[FindingRecord], head: Sequence[FindingRecord]
) -> tuple[list[Pair], list[Pair], list[FindingRecord], list[FindingRecord]]:
    """Return pairs of the same finding, pairs of one code, and the rest of base and head.

    Those of one code differ in dimensions or factor.
    """
    same, base, head = _paired(base, head, lambda f: f.identity)
    # Of several with one code those of one check belong together.
    near, base, head = _paired(base, head, lambda f: (f.identity.about, f.code, f.check))
    far, base, head = _paired(base, head, lambda f: (f.identity.about, f.code))
    return same, [*near, *far], [*base], [*head]


def _paired(
    base: Sequence[FindingRecord],
    head: Sequence[FindingRecord],
    key: Callable[[FindingRecord], object],
) -> tuple[list[Pair], Sequence[FindingRecord], Sequence[FindingRecord]]:
    left, pairs, rest = list(head), [], []
    for b in base:
        h = next((h for h in left if key(h) == key(b)), None)
        if h is None:
            rest.append(b)
        else:
            left.remove(h)
            pairs.append((b, h))
    return pairs, rest, left


def _replay(finding: FindingRecord, replays: Replays) -> Replay | None:
    """Return the other side's replay of its case."""
    mine = (r for r in replays if r.id == finding.id and r.identity == finding.identity)
    return next(mine, None)


def _has_same_weights(finding: FindingRecord, replays: Replays) -> bool:
    """Whether the other side gives its case the very same wrong weights."""
    seen = _replay(finding, replays)
    same = seen is not None and (seen.code, seen.observed) == (finding.code, finding.observed)
    return same and finding.observed is not None


def _stays(b: FindingRecord, h: FindingRecord, head: Verdict) -> Change:
    return _with_both_sides(_kept(b, h, head), b, h)


def _with_both_sides(change: Change, b: FindingRecord, h: FindingRecord) -> Change:
    """Add the weights of both sides; the base's only where both findings have the same case."""
    other = b.observed if b.case == h.case else None
    return replace(change, base_weights=_fitting(h, other), head_weights=h.observed)


def _fitting(finding: FindingRecord, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Return weights from another document if they are one for each token of the case."""
    tokens = sum(sample.response_length for sample in finding.step.samples)
    return weights if weights is not None and len(weights) == tokens else None


def _kept(b: FindingRecord, h: FindingRecord, head: Verdict) -> Change:
    if h.fails and any(w.expired and w.identity == h.identity for w in head.waivers):
        return _change(Kind.EXPIRED, head, h, _state(b), "no longer accepted: expired")
    if h.fails and not b.fails:
        kind = Kind.NEW_FAILURE if b.waived is None else Kind.CHANGED_FAILURE
        return _change(kind, head, h, _state(b), _state(h))
    return _change(Kind.KNOWN, head, h, _state(b), _state(h))


def _changed(b: FindingRecord, h: FindingRecord, head: Verdict) -> Change:
    kind = Kind.CHANGED_FAILURE if h.fails else Kind.NEW_HAZARD
    if h.waived is not None:
        kind = Kind.KNOWN
    return _with_both_sides(_change(kind, head, h, _about(b), _about(h)), b, h)


def _about(finding: FindingRecord) -> str:
    """Return what distinguishes two findings of one code."""
    matters = ", ".join(finding.identity.dimensions)
    factor = f"x {finding.identity.factor}" if finding.identity.factor else ""
    depends = f"depends on {matters}" if matters else ""
    return "; ".join(filter(None, (factor or finding.identity.form, depends)))


def _only_in_head(finding: FindingRecord, head: Verdict, seen: Replay | None) -> Change:
    change, other = _new_in_head(finding, head, seen), _weights_on_other_side(finding, seen)
    return replace(change, base_weights=other, head_weights=finding.observed)


def _weights_on_other_side(finding: FindingRecord, seen: Replay | None) -> tuple[float, ...] | None:
    """Return the other side's weights on its case: the expected ones, where it passes."""
    if seen is not None and seen.outcome is Again.PASSES and finding.expected is not None:
        return tuple(map(float, finding.expected))
    return None if seen is None else _fitting(finding, seen.observed)


def _new_in_head(finding: FindingRecord, head: Verdict, seen: Replay | None) -> Change:
    if finding.waived is not None:
        return _change(Kind.KNOWN, head, finding, "not found", _state(finding))
    if seen is None or seen.outcome is Again.NOT_RUN:
        return _unknown(finding, head, seen, "new")
    if seen.outcome in _SEEN_AGAIN and seen.code == finding.code:
        stays = seen.outcome is Again.FAILS or not finding.fails
        kind = Kind.KNOWN if stays else Kind.NEW_FAILURE
        return _change(kind, head, finding, f"{_outcome(seen)} on the same case", _state(finding))
    if seen.outcome is Again.FAILS and finding.fails:
        return _change(Kind.CHANGED_FAILURE, head, finding, _outcome(seen), _state(finding))
    return _change(_new_kind(finding), head, finding, _outcome(seen), _state(finding))


def _only_in_base(finding: FindingRecord, base: Verdict, seen: Replay | None) -> Change:
    change, other = _gone_in_head(finding, base, seen), _weights_on_other_side(finding, seen)
    return replace(change, base_weights=finding.observed, head_weights=other)


def _gone_in_head(finding: FindingRecord, base: Verdict, seen: Replay | None) -> Change:
    if seen is None or seen.outcome is Again.NOT_RUN:
        return _unknown(finding, base, seen, "fixed")
    if seen.outcome is Again.PASSES:
        return _change(Kind.FIXED, base, finding, _state(finding), "passes")
    if seen.outcome is Again.REFUSED:
        change = _change(Kind.COVERAGE_LOST, base, finding, _state(finding), _outcome(seen))
        words = f": '{view_model.shortened(seen.words)}'" if seen.words else ""
        return replace(change, sentence=f"refuses what it got wrong, which is no fix{words}")
    if seen.outcome is Again.FAILS and seen.code != finding.code:
        return _change(Kind.CHANGED_FAILURE, base, finding, _state(finding), _outcome(seen))
    if seen.outcome is Again.FAILS and not finding.fails and finding.waived is None:
        return _change(Kind.NEW_FAILURE, base, finding, _state(finding), _outcome(seen))
    return _change(Kind.KNOWN, base, finding, _state(finding), f"{_outcome(seen)} on the same case")


def _unknown(finding: FindingRecord, verdict: Verdict, seen: Replay | None, which: str) -> Change:
    """Return an error: without a replay the difference may be one of the two searches alone."""
    mine, other = ("head", "base") if which == "new" else ("base", "head")
    why = f"not replayed on the {other}"
    how = f"check the {other} with --replay-from the {mine}'s document"
    if seen is not None:
        why, how = f"its case cannot be run on the {other}", seen.words or ""
    side = (_state(finding), why)
    sides = side if which == "fixed" else side[::-1]
    sentence = f"{finding.code} {finding.title} may be {which}: {why}"
    return replace(_change(Kind.ERROR, verdict, finding, *sides), sentence=sentence, more=how)


def _new_kind(finding: FindingRecord) -> Kind:
    if finding.waived is not None:
        return Kind.KNOWN
    return Kind.NEW_FAILURE if finding.fails else Kind.NEW_HAZARD


def _state(finding: FindingRecord) -> str:
    if finding.waived is not None:
        return f"accepted: {finding.waived}"
    return "fails" if finding.effect == "fails" else "is a hazard"


def _outcome(seen: Replay) -> str:
    words = f": {view_model.shortened(seen.words)}" if seen.words else ""
    return f"{seen.outcome}{f' ({seen.code})' if seen.code else ''}{words}"


def _change(kind: Kind, verdict: Verdict, finding: FindingRecord, base: str, head: str) -> Change:
    what = f"{finding.code} {finding.title}"
    sentence = view_model.consequence(finding, verdict)
    return Change(kind, verdict.about, what, base, head, sentence, "", finding, ())


def _one_a_cause(found: Sequence[tuple[Change, FindingRecord]]) -> Iterator[Change]:
    """Yield one change for all of the same kind and cause, the others as its ``also``."""
    groups: dict[tuple[Kind, str], list[tuple[Change, FindingRecord]]] = {}
    for change, finding in found:
        cause = finding.same_cause_as or finding.id
        groups.setdefault((change.kind, cause), []).append((change, finding))
    for (first, _), *others in groups.values():
        also = tuple(Also(f.code, f.title, f.id) for _, f in others)
        yield replace(first, also=also)
