"""What a head no longer verifies, or verifies less: checks, features, policy, what it reaches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aggverify.codes.state import State
from aggverify.model import CheckRecord, Verdict
from aggverify.regression.lost_coverage import THIN, LostCoverage
from aggverify.regression.lost_reach import bounds, figures
from aggverify.regression.model import Change, Kind
from aggverify.report import view_model
from aggverify.report.formatting import counted

WORSE, BEYOND = 2, 0.05
"""Precision is worse where an error over its bound grew by this factor and by this much."""


def lost(base: Verdict, head: Verdict, *, fails: bool) -> Iterator[Change]:
    """Yield everything that the head's verdict covers less of than the base's on its subject.

    ``fails``: whether a finding fails the head that does not fail the base. Amounts are then not
    compared, as less is run after a failure; nor where the head refuses or claims less.
    """
    first = [*_refused(base, head), *_claims(base, head)]
    found = [*first, *_policy(base, head), *_asked(base, head), *_checks(base, head)]
    found += [*_waivers(base, head), *_cuts(base, head)]
    if not first and not fails:
        found += [*_thinner(base, head), *figures(base, head), *bounds(base, head)]
    for one in found:
        yield Change(one.kind, head.about, one.what, one.base, one.head, one.sentence, "", None, ())


def gone(base: Verdict) -> Change:
    """Return a subject that the head does not have at all."""
    about = base.about
    what = f"mode {about.mode} under engine {about.engine}"
    sentence = f"no longer verifies {about.target} as {what}"
    return Change(
        Kind.COVERAGE_LOST, about, what, view_model.summary(base), "gone", sentence, "", None, ()
    )


def _checks(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield checks that came to a result and do not, those with one reason together."""
    now = {check.name: check for check in head.checks}
    together: dict[tuple[str, str], list[CheckRecord]] = {}
    for check in base.checks:
        after = now.get(check.name)
        if not check.state.judged or (after is not None and after.spoiled and head.findings):
            continue
        if after is None:
            together.setdefault(("no longer judges", "gone"), []).append(check)
        elif not after.state.judged:
            together.setdefault(("no longer judges", view_model.state(after)), []).append(check)
        elif after.state is State.REFUSED is not check.state:
            refused = after.refused or view_model.state(after)
            together.setdefault(("refuses all of", refused), []).append(check)
        elif after.refused is not None and check.refused is None:
            sentence = f"refuses steps of {check.name}"
            yield LostCoverage(check.name, "refuses none", after.refused, sentence)
    for (verb, why), checks in together.items():
        names = [check.name for check in checks]
        more = f" and {counted(len(names) - 1, 'more check')}" if len(names) > 1 else ""
        cases = counted(sum(check.cases for check in checks), "case")
        yield LostCoverage(names[0] + more, cases, why, f"{verb} {', '.join(names)}")


def _thinner(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield checks that pass on clearly fewer cases."""
    now = {check.name: check for check in head.checks}
    for check in base.checks:
        after = now.get(check.name)
        if after is None or not check.state is after.state is State.OK:
            continue
        if after.cases * THIN < check.cases:
            cases = counted(check.cases, "case"), counted(after.cases, "case")
            yield LostCoverage(check.name, *cases, f"runs fewer cases of {check.name}")


def _refused(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Features that are declined now; layouts that are missing for another reason."""
    known = {refusal.feature for refusal in base.refused}
    new = [refusal for refusal in head.refused if refusal.feature not in known]
    layouts = counted(base.layouts_left, "layout"), counted(head.layouts_left, "layout")
    for refusal in new:
        words = f"{layouts[1]}, refused: '{view_model.shortened(refusal.words)}'"
        sentence = f"refuses {refusal.what}: '{refusal.words}'"
        yield LostCoverage(refusal.what, layouts[0], words, sentence)
    if head.layouts_left < base.layouts_left and not new:
        yield LostCoverage("layouts", *layouts, "judges fewer layouts")


def _claims(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    withdrawn = {*base.claimed} - {*head.claimed} | {*head.without} - {*base.without}
    for feature in sorted(withdrawn):
        now = "--without" if feature in head.without else "not claimed"
        sentence = f"withdraws the claim {feature}"
        yield LostCoverage(feature, "claimed", now, sentence)
    for feature in head.not_claimed:
        if feature not in base.not_claimed and feature not in withdrawn:
            why = head.not_claimed[feature]
            yield LostCoverage(
                feature, "tested", "not claimed", f"no longer tests {feature}: {why}"
            )
    for feature in head.narrowed:
        if feature not in base.narrowed:
            yield LostCoverage(feature, "tested", "assumed away", f"no longer tests {feature}")


def _policy(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield readings and the like that decide what is right, where the head has others."""
    now = {policy.question: policy.reading for policy in head.policy}
    for before in base.policy:
        answer = now.get(before.question, "not asked")
        if answer != before.reading:
            what, sentence = f"policy {before.question}", f"reads {before.question} as {answer}"
            yield LostCoverage(what, before.reading, answer, sentence)
    asked = {policy.question for policy in base.policy}
    for new in (policy for policy in head.policy if policy.question not in asked):
        what, sentence = f"policy {new.question}", f"reads {new.question} as {new.reading}"
        yield LostCoverage(what, "not asked", new.reading, sentence, Kind.NEW_WARNING)
    for what, was, after in (
        ("convention", base.convention, head.convention),
        ("divisor", base.divisor, head.divisor),
    ):
        if was != after:
            sentence = f"is judged by another {what}"
            yield LostCoverage(what, _text(was), _text(after), sentence)
    for what, field in (("the term", "terms"), ("the mode", "offered")):
        for one in _texts(base.claim, field):
            if one not in _texts(head.claim, field):
                yield LostCoverage(
                    f"{what} {one}", "tested", "not tested", f"no longer tests {what} {one}"
                )
    if head.identified and not base.identified:
        yield LostCoverage("mode", "said", "found out", "no longer names its mode")
    if base.against is not None and head.against is None:
        yield LostCoverage(
            "against", base.against, "nothing", "is no longer held to its other path"
        )
    if base.linear and not head.linear:
        yield LostCoverage(
            "oracle", "exact weights", "the same value everywhere", "has no oracle any more"
        )


def _texts(claim: object, field: str) -> list[str]:
    """Return the texts that a field of a stored claim lists; a document keeps claims as JSON."""
    found = claim.get(field) if isinstance(claim, dict) else None
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _text(value: object) -> str:
    return "none" if value is None else str(value)


def _asked(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield a plan that asks for less."""
    was, now = base.asked, head.asked
    for what, before, after in (
        ("drawn cases per check", was.examples, now.examples),
        ("largest world", was.max_world, now.max_world),
    ):
        if after < before:
            yield LostCoverage(what, str(before), str(after), f"asks for less: {what}")
    for what, had, has in (
        ("strict", was.strict, now.strict),
        ("compile", was.compiled, now.compiled),
        ("any number of rollouts of a prompt", was.group_size is None, now.group_size is None),
    ):
        if had and not has:
            yield LostCoverage(what, "yes", "no", f"no longer asks for it: {what}")


def _waivers(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    """Yield what is accepted now, or for longer."""
    known = {waiver.identity or waiver.what: waiver for waiver in base.waivers}
    for waiver in head.waivers:
        what, before = f"waiver {waiver.what}", known.get(waiver.identity or waiver.what)
        if before is None:
            sentence = f"accepts {waiver.what}: {waiver.reason}"
            yield LostCoverage(what, "not accepted", "accepted", sentence)
        elif before.expires and (waiver.expires is None or waiver.expires > before.expires):
            until = f"until {waiver.expires}" if waiver.expires else "for good"
            sentence = f"accepts {waiver.what} {until}, before until {before.expires}"
            yield LostCoverage(what, f"until {before.expires}", until, sentence)


def _cuts(base: Verdict, head: Verdict) -> Iterator[LostCoverage]:
    known = {cut.check: cut for cut in base.cuts}
    for cut in head.cuts:
        before = known.get(cut.check)
        if before is None or cut.drawn * THIN < before.drawn:
            drawn = f"{cut.drawn} of {cut.planned} drawn in time"
            was = f"{before.drawn} in time" if before else "all in time"
            yield LostCoverage(cut.check, was, drawn, f"has no time for all cases of {cut.check}")


def less_precise(base: Verdict, head: Verdict) -> Iterable[Change]:
    """Yield precisions whose errors are clearly nearer to their bounds."""
    before = {margin.dtype: margin.worst_error_over_bound for margin in base.margins}
    for margin in head.margins:
        was, now = before.get(margin.dtype), margin.worst_error_over_bound
        if was is not None and now > max(WORSE * was, was + BEYOND):
            what = f"weights in {margin.dtype}"
            share = f"{was:.2f} of the bound", f"{now:.2f} of the bound"
            sentence = f"rounds more in {margin.dtype}: {share[1]}, before {share[0]}"
            yield Change(Kind.PRECISION_WORSE, head.about, what, *share, sentence, "", None, ())
