"""What a head no longer verifies, or verifies less: checks, worlds, features, policy, bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from aggverify.codes.state import State
from aggverify.regression.model import Change, Kind
from aggverify.report import reading
from aggverify.report.drawing import counted
from aggverify.report.marked import share
from aggverify.report.model import Check, Margin, Tried, Verdict

THIN = 2
"""So many times less is thinner. Which cases are drawn follows constants of the reducer's code, so
that a change of it moves their number a little."""
WIDER = 2
"""So many times wider is a wider bound, for the same reason: it is that of the smallest weight."""
WORSE, BEYOND = 2, 0.05
"""An error over its bound that is so many times larger, and by so much, is a worse precision."""


@dataclass(frozen=True, slots=True)
class Lost:
    """One thing that is verified less."""

    what: str
    base: str
    head: str
    sentence: str
    kind: Kind = Kind.COVERAGE_LOST


def lost(base: Verdict, head: Verdict) -> Iterator[Change]:
    """Everything that the head's verdict says less of than the base's on the same subject."""
    said = [*_refused(base, head), *_claims(base, head)]
    found = [*said, *_policy(base, head), *_asked(base, head), *_checks(base, head)]
    found += [*_waivers(base, head), *_cuts(base, head)]
    if not said and not _has_more_findings(base, head):
        found += [*_thinner(base, head), *_figures(base, head), *_bounds(base, head)]
    for one in found:
        yield Change(one.kind, head.about, one.what, one.base, one.head, one.sentence, "", None, ())


def _has_more_findings(base: Verdict, head: Verdict) -> bool:
    """Whether the head has been busy with findings that the base has not: then less else is run."""
    known = {finding.identity for finding in base.findings}
    return any(finding.identity not in known for finding in head.findings)


def gone(base: Verdict) -> Change:
    """A subject that the head does not have at all."""
    about = base.about
    what = f"mode {about.mode} under engine {about.engine}"
    sentence = f"no longer verifies {about.target} as {what}"
    return Change(
        Kind.COVERAGE_LOST, about, what, reading.summary(base), "gone", sentence, "", None, ()
    )


def _checks(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """Checks that came to a result and do not, those with one reason together."""
    now = {check.name: check for check in head.checks}
    together: dict[tuple[Kind, str], list[Check]] = {}
    for check in base.checks:
        after = now.get(check.name)
        if not check.state.judged or (after is not None and after.spoiled and head.findings):
            continue
        if after is None:
            together.setdefault((Kind.COVERAGE_LOST, "gone"), []).append(check)
        elif not after.state.judged:
            together.setdefault((Kind.COVERAGE_LOST, reading.state(after)), []).append(check)
        elif after.state is State.REFUSED is not check.state:
            refused = after.refused or reading.state(after)
            together.setdefault((Kind.NEWLY_REFUSED, refused), []).append(check)
        elif after.refused is not None and check.refused is None:
            sentence = f"refuses steps of {check.name}"
            yield Lost(check.name, "refuses none", after.refused, sentence, Kind.NEWLY_REFUSED)
    for (kind, why), checks in together.items():
        names = [check.name for check in checks]
        more = f" and {counted(len(names) - 1, 'more check')}" if len(names) > 1 else ""
        verb = "refuses all of" if kind is Kind.NEWLY_REFUSED else "no longer judges"
        cases = counted(sum(check.cases for check in checks), "case")
        yield Lost(names[0] + more, cases, why, f"{verb} {', '.join(names)}", kind)


def _thinner(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """Checks that pass on clearly fewer cases."""
    now = {check.name: check for check in head.checks}
    for check in base.checks:
        after = now.get(check.name)
        if after is None or not check.state is after.state is State.OK:
            continue
        if after.cases * THIN < check.cases:
            cases = counted(check.cases, "case"), counted(after.cases, "case")
            yield Lost(check.name, *cases, f"runs fewer cases of {check.name}")


def _refused(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """Features that are declined now; layouts that are missing for another reason."""
    known = {refusal.feature for refusal in base.refused}
    new = [refusal for refusal in head.refused if refusal.feature not in known]
    layouts = counted(base.layouts_left, "layout"), counted(head.layouts_left, "layout")
    for refusal in new:
        words = f"{layouts[1]}, refused: '{reading.shortened(refusal.words)}'"
        sentence = f"refuses {refusal.what}: '{refusal.words}'"
        yield Lost(refusal.what, layouts[0], words, sentence, Kind.NEWLY_REFUSED)
    if head.layouts_left < base.layouts_left and not new:
        yield Lost("layouts", *layouts, "judges fewer layouts")


def _claims(base: Verdict, head: Verdict) -> Iterator[Lost]:
    withdrawn = {*base.claimed} - {*head.claimed} | {*head.without} - {*base.without}
    for feature in sorted(withdrawn):
        now = "--without" if feature in head.without else "not claimed"
        sentence = f"withdraws the claim {feature}"
        yield Lost(feature, "claimed", now, sentence, Kind.CLAIM_WITHDRAWN)
    for feature in head.not_claimed:
        if feature not in base.not_claimed and feature not in withdrawn:
            why = head.not_claimed[feature]
            yield Lost(feature, "tested", "not claimed", f"no longer tests {feature}: {why}")
    for feature in head.narrowed:
        if feature not in base.narrowed:
            yield Lost(feature, "tested", "assumed away", f"no longer tests {feature}")


def _policy(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """What decides what is right, and is something else now: either way nobody has agreed to it."""
    now = {reading.question: reading.reading for reading in head.policy}
    for before in base.policy:
        answer = now.get(before.question, "not asked")
        if answer != before.reading:
            what, sentence = f"policy {before.question}", f"reads {before.question} as {answer}"
            yield Lost(what, before.reading, answer, sentence)
    for what, was, after in (
        ("convention", base.convention, head.convention),
        ("divisor", base.divisor, head.divisor),
    ):
        if was != after:
            sentence = f"is judged by another {what}"
            yield Lost(what, _said(was), _said(after), sentence)
    if head.identified and not base.identified:
        yield Lost("mode", "said", "found out", "no longer says its mode", Kind.CLAIM_WITHDRAWN)
    if base.against is not None and head.against is None:
        yield Lost("against", base.against, "nothing", "is no longer held to its other path")
    if base.linear and not head.linear:
        yield Lost("oracle", "exact weights", "the same value everywhere", "has no oracle any more")


def _said(value: object) -> str:
    return "none" if value is None else str(value)


def _asked(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """A plan that asks for less."""
    was, now = base.asked, head.asked
    for what, before, after in (
        ("drawn cases per check", was.examples, now.examples),
        ("largest world", was.max_world, now.max_world),
    ):
        if after < before:
            yield Lost(what, str(before), str(after), f"asks for less: {what}")
    for what, had, has in (
        ("strict", was.strict, now.strict),
        ("compile", was.compiled, now.compiled),
        ("any number of rollouts of a prompt", was.group_size is None, now.group_size is None),
    ):
        if had and not has:
            yield Lost(what, "yes", "no", f"no longer asks for it: {what}")


def _waivers(base: Verdict, head: Verdict) -> Iterator[Lost]:
    known = {waiver.identity or waiver.what for waiver in base.waivers}
    for waiver in head.waivers:
        if (waiver.identity or waiver.what) not in known:
            sentence = f"accepts {waiver.what}: {waiver.reason}"
            yield Lost(f"waiver {waiver.what}", "not accepted", "accepted", sentence)


def _cuts(base: Verdict, head: Verdict) -> Iterator[Lost]:
    known = {cut.check: cut for cut in base.cuts}
    for cut in head.cuts:
        before = known.get(cut.check)
        if before is None or cut.drawn * THIN < before.drawn:
            drawn = f"{cut.drawn} of {cut.planned} drawn in time"
            was = f"{before.drawn} in time" if before else "all in time"
            yield Lost(cut.check, was, drawn, f"has no time for all cases of {cut.check}")


def _figures(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """Worlds, kinds of layouts and sizes that nothing was run on.

    Steps are counted with those that make a counterexample smaller and name its cause: beside a
    base that has more of them, only what nothing is run on any more says something.
    """
    found = len(base.findings) > len(head.findings)
    for world, steps in base.worlds.items():
        now = head.worlds.get(world, 0)
        if now * THIN < steps and not (found and now):
            sides = counted(steps, "step"), counted(now, "step") if now else "no step"
            less = "fewer steps" if now else "nothing"
            yield Lost(f"world of {world}", *sides, f"runs {less} on {world} ranks")
    yield from _lines(base, head)
    (was, of), (now, of_now) = share(base.covered), share(head.covered)
    if now * of < was * of_now:
        thin = now * of * THIN < was * of_now
        sides = f"{was} of {of}", f"{now} of {of_now}"
        sentence = f"runs {sides[1]} lines and branches of its code on several ranks"
        kind = Kind.COVERAGE_LOST if thin else Kind.NEW_WARNING
        yield Lost("lines and branches on several ranks", *sides, sentence, kind)
    if head.executed * THIN < base.executed and not found:
        sides = counted(base.executed, "step"), counted(head.executed, "step")
        yield Lost("steps", *sides, "runs fewer steps")
    for dtype, kinds in base.tried.dtypes.items():
        left = [kind for kind in kinds if kind not in head.tried.dtypes.get(dtype, ())]
        if left:
            what = f"{dtype} on {', '.join(left)}"
            yield Lost(what, "run", "not run", f"runs no {what}")
    for field in fields(Tried):
        was, now = getattr(base.tried, field.name), getattr(head.tried, field.name)
        if isinstance(was, int) and now * THIN < was:
            what = field.name.replace("_", " ")
            yield Lost(f"largest {what}", str(was), str(now), f"tries no {what} beyond {now}")


def _lines(base: Verdict, head: Verdict) -> Iterator[Lost]:
    """Functions of which nothing ran, and kinds of steps on which no line did."""
    if base.covered.functions and not head.covered.functions:
        functions = counted(len(base.covered.functions), "function")
        yield Lost("lines of its code", functions, "none", "runs no line of its code that is noted")
    for kind, lines in base.covered.lines.items():
        if lines and not head.covered.lines.get(kind):
            what = f"lines of its code on {kind}"
            yield Lost(what, counted(len(lines), "line"), "none", f"runs no {what}")


def _sizes(base: Margin, head: Margin) -> Iterator[Lost]:
    """Steps of a size that nothing near it was judged of: classes are a factor of 4 apart."""
    was, now = (max((s.tokens for s in m.by_size), default=0) for m in (base, head))
    if now * 4 < was:
        what = f"largest step judged in {base.dtype}"
        sides = f"up to {was} tokens", f"up to {now} tokens"
        yield Lost(what, *sides, f"judges no step of {was} tokens in {base.dtype}")


def _bounds(base: Verdict, head: Verdict) -> Iterator[Lost]:
    if head.computes_in not in ("float64", base.computes_in):
        what, now = "precision it computes in", head.computes_in
        sentence = f"is judged with the bounds of {now}"
        yield Lost(what, base.computes_in, now, sentence)
        return
    now_by = {margin.dtype: margin for margin in head.margins}
    for margin in base.margins:
        after = now_by.get(margin.dtype)
        if after is None:
            what, caught = f"margin in {margin.dtype}", _caught(margin.smallest_caught)
            yield Lost(what, caught, "no result", f"judges nothing in {margin.dtype}")
        else:
            yield from _sizes(margin, after)
        if after is not None and after.smallest_caught > WIDER * margin.smallest_caught:
            sides = _caught(margin.smallest_caught), _caught(after.smallest_caught)
            sentence = f"is judged with wider bounds in {margin.dtype}"
            yield Lost(f"bound in {margin.dtype}", *sides, sentence)
        if after is not None:
            yield from _loss_bounds(margin, after)


def _loss_bounds(before: Margin, after: Margin) -> Iterator[Lost]:
    """How sharply the reported loss is judged, which has bounds of its own."""
    was, now = before.reported_loss, after.reported_loss
    pairs = (
        ("one loss alone", was.smallest_caught_alone, now.smallest_caught_alone),
        ("dense steps", was.smallest_caught_dense, now.smallest_caught_dense),
    )
    for kind, one, other in pairs:
        if other > WIDER * one:
            what = f"bound of the reported loss in {before.dtype}, {kind}"
            sentence = f"judges the reported loss with wider bounds in {before.dtype}"
            yield Lost(what, _caught(one), _caught(other), sentence)


def _caught(factor: float) -> str:
    return f"catches factors {factor:.1g} from 1"


def less_precise(base: Verdict, head: Verdict) -> Iterable[Change]:
    """Errors that are within their bounds, and clearly nearer to them."""
    before = {margin.dtype: margin.worst_error_over_bound for margin in base.margins}
    for margin in head.margins:
        was, now = before.get(margin.dtype), margin.worst_error_over_bound
        if was is not None and now > max(WORSE * was, was + BEYOND):
            what = f"weights in {margin.dtype}"
            share = f"{was:.2f} of the bound", f"{now:.2f} of the bound"
            sentence = f"rounds more in {margin.dtype}: {share[1]}, before {share[0]}"
            yield Change(Kind.PRECISION_WORSE, head.about, what, *share, sentence, "", None, ())
