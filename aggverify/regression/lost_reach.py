"""Worlds, lines, sizes and dtypes that a head reaches no more, and wider bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import fields

from aggverify.model import Covered, Margin, Tried, Verdict
from aggverify.regression.lost_coverage import THIN, LostCoverage
from aggverify.regression.model import Kind
from aggverify.report.annotated_source import share
from aggverify.report.formatting import counted
from aggverify.report.view_model.finding import shortened

WIDER = 2
"""Only so many times wider counts: a bound is that of the smallest weight, which is drawn."""


def _busier(base: Verdict, head: Verdict) -> bool:
    """Whether the base has more findings, so that fewer steps in the head are no loss.

    Steps that shrink a counterexample and find its cause are counted as well. Only what nothing is
    run on any more is reported then.
    """
    return len(base.findings) > len(head.findings)


def _stops_earlier(base: Verdict, head: Verdict) -> bool:
    """Whether the head has findings that the base has not, so that fewer steps are no loss.

    A check stops drawing when it has found something. No step at all is still a loss.
    """
    known = {finding.identity for finding in base.findings}
    return any(finding.identity not in known for finding in head.findings)


def figures(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield worlds, kinds of layouts and sizes that less, or nothing, was run on."""
    fewer = _busier(base, head) or _stops_earlier(base, head)
    for world, steps in base.worlds.items():
        now = head.worlds.get(world, 0)
        if now * THIN < steps and not (fewer and now):
            sides = counted(steps, "step"), counted(now, "step") if now else "no step"
            less = "fewer steps" if now else "nothing"
            yield LostCoverage(f"world of {world}", *sides, f"runs {less} on {world} ranks")
    yield from _lines(base, head)
    (was, of), (now, of_now) = share(base.covered), share(head.covered)
    if now * of < was * of_now:
        thin = now * of * THIN < was * of_now
        sides = f"{was} of {of}", f"{now} of {of_now}"
        sentence = f"runs {sides[1]} lines and branches of its code on several ranks"
        kind = Kind.COVERAGE_LOST if thin else Kind.NEW_WARNING
        yield LostCoverage("lines and branches on several ranks", *sides, sentence, kind)
    if head.executed * THIN < base.executed and not fewer:
        sides = counted(base.executed, "step"), counted(head.executed, "step")
        yield LostCoverage("steps", *sides, "runs fewer steps")
    for dtype, kinds in base.tried.dtypes.items():
        left = [kind for kind in kinds if kind not in head.tried.dtypes.get(dtype, ())]
        if left:
            what = f"{dtype} on {', '.join(left)}"
            yield LostCoverage(what, "run", "not run", f"runs no {what}")
    for field in fields(Tried):
        was, now = getattr(base.tried, field.name), getattr(head.tried, field.name)
        if isinstance(was, int) and now * THIN < was:
            what = field.name.replace("_", " ")
            yield LostCoverage(
                f"largest {what}", str(was), str(now), f"tries no {what} beyond {now}"
            )


def _lines(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield functions of which nothing ran, and code that is still there and no longer reached.

    That is a line or an outcome of a condition, on any step or on a kind of step.
    """
    was, now = base.covered, head.covered
    if was.functions and not now.functions:
        functions = counted(len(was.functions), "function")
        yield LostCoverage(
            "lines of its code", functions, "none", "runs no line of its code that is noted"
        )
        return
    left = {each.function for each in now.functions}
    for each in was.functions:
        if each.function not in left:
            what, lines = f"lines of {each.function}", counted(len(each.lines), "line")
            sentence = f"runs no line of {each.function}"
            yield LostCoverage(what, lines, "none", sentence, Kind.NEW_WARNING)
    for kind, ran in was.lines.items():
        if ran and not now.lines.get(kind):
            what = f"lines of its code on {kind}"
            yield LostCoverage(what, counted(len(ran), "line"), "none", f"runs no {what}")
    on, still = _reached(was), _reached(now)
    here = {(each.function, text.strip()) for each in now.functions for text in each.source}
    same = [place for place in on if (place.function, place.line) in here]
    never = [place for place in same if on[place] and not still.get(place)]
    # Only the runs of the base's counterexamples may have reached them.
    how = Kind.NEW_WARNING if _busier(base, head) else Kind.COVERAGE_LOST
    yield from _left(never, "any step", how)
    for kind in (kind for kind in was.lines if now.lines.get(kind)):
        less = [p for p in same if kind in on[p] and kind not in still.get(p, {kind})]
        yield from _left([p for p in less if p not in never], kind, Kind.NEW_WARNING)


@dataclass(frozen=True, slots=True)
class _LinePlace:
    """A line of a function by its text, or an outcome of a condition on it."""

    function: str
    line: str
    condition: str = ""
    outcome: str = ""

    def __str__(self) -> str:
        if self.condition:
            return f"'{shortened(self.condition)}' {self.outcome}"
        return f"'{shortened(self.line)}'"


def _left(places: list[_LinePlace], kind: str, how: Kind) -> Iterator[LostCoverage]:
    if places:
        more = f" and {counted(len(places) - 1, 'more place')}" if places[1:] else ""
        what = f"{places[0]}{more} on {kind}"
        yield LostCoverage(what, "reached", "not reached", f"does not reach {what}", how)


def _reached(covered: Covered) -> dict[_LinePlace, set[str]]:
    """Return the kinds of step that reached each place; by its text, as its line may have moved."""
    found: dict[_LinePlace, set[str]] = {}
    texts: dict[tuple[str, int], str] = {}
    for f in covered.functions:
        for line in (line for line in f.lines if 0 <= line - f.first < len(f.source)):
            text = texts[f.function, line] = f.source[line - f.first].strip()
            kinds = {kind for kind, lines in covered.lines.items() if line in lines}
            found.setdefault(_LinePlace(f.function, text), set()).update(kinds)
    for c in covered.conditions:
        if (c.function, c.line) in texts:
            text = texts[c.function, c.line]
            for outcome, on in (("true", c.true), ("false", c.false)):
                found.setdefault(_LinePlace(c.function, text, c.text, outcome), set()).update(on)
    return found


def _sizes(base: Margin, head: Verdict, busier: bool) -> Iterator[LostCoverage]:
    """Yield sizes of step that the head judged nothing near of: classes are a factor of 4 apart.

    In which dtype a size is run follows from numbers in the reducer's code, which may change: a
    size that is judged in another one gets a warning, and is no loss.
    """
    was = [size.tokens for size in base.by_size]
    looked_at = [max(was, default=0)] if busier else was
    [same] = [margin for margin in head.margins if margin.dtype == base.dtype]
    left = [n for n in looked_at if n and not _is_near(n, same)]
    lost = [n for n in left if not any(_is_near(n, margin) for margin in head.margins)]
    elsewhere = [n for n in left if n not in lost]
    for sizes, kind in ((lost, Kind.COVERAGE_LOST), (elsewhere, Kind.NEW_WARNING)):
        if sizes:
            steps = f"steps of about {', '.join(map(str, sizes))} tokens in {base.dtype}"
            yield LostCoverage(steps, "judged", "not judged", f"judges no {steps}", kind)


def _is_near(tokens: int, margin: Margin) -> bool:
    sizes = (size.tokens for size in margin.by_size)
    return any(tokens < 4 * size and size < 4 * tokens for size in sizes)


def bounds(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    if head.computes_in not in ("float64", base.computes_in):
        what, now = "precision it computes in", head.computes_in
        sentence = f"is judged with the bounds of {now}"
        yield LostCoverage(what, base.computes_in, now, sentence)
        return
    now_by = {margin.dtype: margin for margin in head.margins}
    for margin in base.margins:
        after = now_by.get(margin.dtype)
        if after is None:
            what, caught = f"margin in {margin.dtype}", _caught(margin.smallest_caught)
            yield LostCoverage(what, caught, "no result", f"judges nothing in {margin.dtype}")
        else:
            yield from _sizes(margin, head, _busier(base, head))
        if after is not None and after.smallest_caught > WIDER * margin.smallest_caught:
            sides = _caught(margin.smallest_caught), _caught(after.smallest_caught)
            sentence = f"is judged with wider bounds in {margin.dtype}"
            yield LostCoverage(f"bound in {margin.dtype}", *sides, sentence)
        if after is not None:
            yield from _loss_bounds(margin, after)


def _loss_bounds(before: Margin, after: Margin) -> Iterator[LostCoverage]:
    """How sharply the reported loss is judged, which has its own bounds."""
    was, now = before.reported_loss, after.reported_loss
    pairs = (
        ("one loss alone", was.smallest_caught_alone, now.smallest_caught_alone),
        ("dense steps", was.smallest_caught_dense, now.smallest_caught_dense),
    )
    for kind, one, other in pairs:
        if other > WIDER * one:
            what = f"bound of the reported loss in {before.dtype}, {kind}"
            sentence = f"judges the reported loss with wider bounds in {before.dtype}"
            yield LostCoverage(what, _caught(one), _caught(other), sentence)


def _caught(factor: float) -> str:
    return f"catches factors {factor:.1g} from 1"
