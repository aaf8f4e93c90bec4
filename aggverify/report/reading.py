"""What a verdict document says, in words: one place for every format. Nothing is escaped here."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

from aggverify.codes.state import Standing, State
from aggverify.report.drawing import (
    MAX_ROWS,
    counted,
    drawing,
    fraction,
    number,
    ratio,
    token_name,
)
from aggverify.report.marked import share
from aggverify.report.model import Accepted, Check, Document, Finding, Margin, Power, Tried, Verdict

MAX_LINE = 240
"""Characters shown of one line from the candidate."""
MAX_HEADLINE = 400
"""Most of it are words of ours."""
MAX_DETAIL = 40
"""Lines of a traceback or of the ranks' stacks."""
AT_ONCE = "the reducer does not get through the simplest step"
_FIXED_BOUND = (
    "float64: a fixed bound of 2^-30 of the gradient's largest entry, chosen and not proven "
    "(docs/bounds.md); every change beyond 2^-29 is caught"
)


def every_cause(document: Document) -> list[tuple[Verdict, list[Finding]]]:
    """Verdict and findings of every cause: those that fail first, then those that are high."""
    every = [(verdict, found) for verdict in document.verdicts for found in verdict.causes]
    return sorted(every, key=lambda pair: (not pair[1][0].fails, pair[1][0].severity != "high"))


def headline(document: Document) -> str:
    """The consequence in words: what happens to a training run that takes this reducer."""
    every = [cause for cause in every_cause(document) if cause[1][0].fails]
    if document.error:
        return "Could not judge"
    if every:
        verdict, (first, *_) = every[0]
        more = f" ({counted(len(every) - 1, 'more finding')})" if len(every) > 1 else ""
        cut = f"; incomplete: {document.incomplete}" if document.incomplete else ""
        if first.call is not None:
            why = shortened(first.message.split("\n")[0])
            return f"{AT_ONCE[:1].upper()}{AT_ONCE[1:]}: {why}{more}{cut}"
        told = refusals(document.verdicts)
        return f"Merging this {consequence(first, verdict)}{more}{told}{cut}"
    if document.incomplete and document.verdicts:
        return incomplete(document.incomplete, document.verdicts)
    if not document.verdicts or any(not v.executed for v in document.verdicts):
        return "Nothing was tested"
    left = [c for v in document.verdicts for c in v.not_judged]
    if left:
        return f"Could not judge {_names(left)}"
    if document.baseline and (words := baseline_words(document)):
        return words
    if document.unmatched:
        return f"Nothing was found that --accept {', '.join(document.unmatched)} is for"
    open_ones = sorted(document.verdicts, key=lambda v: not v.engine_in_question)
    assumed = next(filter(None, map(assumption, open_ones)), None)
    if assumed is not None:
        told = refusals(document.verdicts) + _shown(document.verdicts, titles=True)
        return assumed[:1].upper() + assumed[1:] + told
    modes = ", ".join(v.mode_name for v in document.verdicts)
    passed = sum(c.state is State.OK for v in document.verdicts for c in v.checks)
    warnings = sum(len(v.loud) for v in document.verdicts)
    hazards = _shown(document.verdicts, titles=True)
    return (
        f"Conforms: {modes}{refusals(document.verdicts)}, {counted(passed, 'check')} passed"
        f"{hazards}, {counted(warnings, 'warning')}"
    )


def baseline_words(document: Document) -> str | None:
    """What keeps a baseline from being taken as it is; None for nothing."""
    expired = [one for one in document.baseline if one.state is Standing.EXPIRED]
    if expired:
        told = "; ".join(f"{one.what} since {one.expires} ({one.reason})" for one in expired)
        return f"No longer accepted: {told}"
    if not document.stale:
        return None
    told = "; ".join(map(_out_of_date, document.stale))
    return f"The baseline is out of date: {told}; take it out, or --baseline-write does"


def _out_of_date(entry: Accepted) -> str:
    words = f" ({shortened(entry.words)})" if entry.words else ""
    return f"{entry.what}: {entry.state}{words}"


def refusals(verdicts: Sequence[Verdict]) -> str:
    """What is not judged because the reducer declines it, in its own words; empty for nothing."""
    told = dict.fromkeys(f"{r.what}: '{shortened(r.words)}'" for v in verdicts for r in v.refused)
    lost = sum(v.layouts_refused for v in verdicts)
    judged = f" ({lost} layouts refused, {sum(v.layouts_left for v in verdicts)} judged)"
    return f"; refuses {', '.join(told)}{judged * bool(lost)}" if told else ""


def incomplete(why: str, verdicts: Sequence[Verdict]) -> str:
    """How far a command came that was stopped without a finding that fails."""
    planned = [c for v in verdicts for c in v.checks if c.state.planned]
    judged = sum(c.state.judged for c in planned)
    return (
        f"Incomplete ({why}): no finding so far{_shown(verdicts)}, "
        f"{judged} of {counted(len(planned), 'check')} judged"
    )


def _shown(verdicts: Sequence[Verdict], *, titles: bool = False) -> str:
    """Causes that are shown and do not fail, by their codes or also their titles."""
    every = [cause[0] for v in verdicts for cause in v.causes if not cause[0].fails]
    found = ""
    for what, waived in (("hazard", False), ("waived finding", True)):
        mine = [f for f in every if (f.waived is not None) == waived]
        names = dict.fromkeys(f"{f.code} {f.title}" if titles else f.code for f in mine)
        found += f", {counted(len(mine), what)} ({'; '.join(names)})" if mine else ""
    return found


def tag(finding: Finding) -> str:
    """How much it weighs."""
    if finding.waived is not None:
        return "waived, no failure"
    return finding.severity if finding.fails else "hazard, no failure"


def summary(verdict: Verdict) -> str:
    """One verdict in one line."""
    ran = [c for c in verdict.checks if c.cases]
    if verdict.fails_at_once:
        return f"{AT_ONCE}; nothing else was run"
    if verdict.fails:
        failed = counted(sum(c.state is State.FAILED for c in ran), "check")
        causes = counted(sum(cause[0].fails for cause in verdict.causes), "finding")
        cut = f"; incomplete: {verdict.incomplete}" if verdict.incomplete else ""
        cut += refusals([verdict])
        return f"{causes}{_shown([verdict])} ({failed} of {len(ran)} failed){cut}"
    if verdict.incomplete:
        return incomplete(verdict.incomplete, [verdict])
    if not verdict.executed:
        return "nothing was tested"
    if verdict.not_judged:
        return f"could not judge {_names(verdict.not_judged)}"
    what = verdict.oracle or verdict.mode or "the same step scalar in every layout (no known mode)"
    what += "" if verdict.linear else " (one value and gradient in every layout)"
    if verdict.engine_in_question:
        what = f"which engine? {what} under {verdict.engine}"
        return f"{what}{refusals([verdict])}{_shown([verdict])}"
    rest = f"0 findings{_shown([verdict])}, {counted(len(verdict.loud), 'warning')}"
    passed = counted(sum(c.state is State.OK for c in ran), "check")
    return f"conforms: {what}{refusals([verdict])}, {passed} passed, {rest}"


def _names(checks: Sequence[Check]) -> str:
    more = f" and {counted(len(checks) - 3, 'more check')}" if len(checks) > 3 else ""
    return ", ".join(check.name for check in checks[:3]) + more


def assumption(verdict: Verdict) -> str | None:
    """What the verdict takes for granted of the trainer, where nobody has said it, and what comes
    of it if the trainer does something else; None where nothing is left open."""
    if not verdict.other_engines:
        return None
    other = verdict.other_engines[0]
    without = "".join(f" --without {feature}" for feature in verdict.narrowed)
    mine = f"your trainer {verdict.engine_does} (engine {verdict.engine}{without}"
    theirs = f"if it {other.does} (engine {other.name}), updates are"
    if verdict.fails:
        return (
            f"judged as if {mine}, which nobody has said); {theirs} "
            f"{_times(other.factor, 'larger', 'smaller')}: say which with --engine"
        )
    mode = verdict.oracle or verdict.mode
    conforms = f"conforms to {mode}" if mode else "gives the same in every layout"
    times = _times(other.factor, "too large", "too small")
    if verdict.engine_in_question:
        return (
            f"{conforms} if {mine}); {theirs} {times}. Which does your trainer do? "
            f"--engine {verdict.engine}{without} or --engine {other.name}"
        )
    return f"{conforms} if {mine}, assumed); {theirs} {times}"


def _times(factor: Sequence[Power], up: str, down: str) -> str:
    above, below = (
        " x ".join(p.size for p in factor for _ in range(sign * p.power)) for sign in (1, -1)
    )
    if above and below:
        return f"{above} / ({below}) times those"
    return f"{above} times {up}" if above else f"{below} times {down}"


def consequence(finding: Finding, verdict: Verdict) -> str:
    """A sentence without its subject, as in "makes every gradient 1/2 of what it must be"."""
    if finding.consequence is not None:
        on = f" (depends on {', '.join(finding.matters)})" if finding.matters else ""
        return finding.consequence + on
    wrong = _wrong(finding, verdict.mode_name) or f"breaks {verdict.mode_name}"
    return f"{wrong}: {finding.title[:1].lower()}{finding.title[1:]}"


def _wrong(finding: Finding, mode: str) -> str | None:
    if finding.worst is None:
        return None
    expected, actual = finding.worst
    right = mode if finding.reference == "the oracle" else finding.reference
    where = f"in {mode}" if finding.reference == "the oracle" else f"compared with {right}"
    if finding.off:
        return f"makes gradients {finding.off} {where}"
    if not math.isfinite(actual):
        return "makes gradients NaN or infinite"
    if not actual:
        return "takes tokens out of the gradient"
    factor = ratio(expected, actual)
    if factor is None:
        return "gives a gradient to tokens that must have none"
    if factor <= 0:
        return f"turns some gradients around {where}"
    size, how = (factor, "large") if factor > 1 else (1 / factor, "small")
    return f"makes some gradients {fraction(size)} times too {how} {where}"


def replay(finding: Finding) -> str:
    """The command that runs the case again, safe to paste into a shell."""
    return shlex.join(finding.replay)


def facts(finding: Finding) -> list[str]:
    """What was seen on which step, one fact a line."""
    lines = [*_seen_once(finding), *finding.message.split("\n"), *_worst(finding)]
    if finding.error is not None and finding.bound is not None:
        n = finding.roundings
        kind = "fixed" if n is None else counted(n, "rounding")
        lines.append(
            f"error {finding.error:.3g}, bound {finding.bound:.2g} ({finding.precision}, {kind})"
        )
    lines += _unexplained(finding)
    lines += drawing(finding.step)
    lines += _listed("matters", finding.matters)
    lines += _listed("does not matter", finding.does_not_matter)
    if finding.confirmed is None:
        lines.append("seen once, and not run again: the command was stopped first")
    return [shortened(line) for line in lines if line]


def _seen_once(finding: Finding) -> Iterator[str]:
    """Before anything else: what is said of such a step holds for no other run of it."""
    if finding.confirmed is False:
        yield "seen once, not again in fresh ranks: the reducer keeps state or guesses"


def _worst(finding: Finding) -> Iterator[str]:
    if finding.worst is None or finding.token is None:
        return
    expected, actual = finding.worst
    yield f"weight of {token_name(finding.step, finding.token)}"
    yield f"  expected  {fraction(expected)}    ({finding.reference})"
    factor = ratio(expected, actual)
    times = f"    = expected x {fraction(factor)}" if factor is not None else ""
    yield f"  actual    {number(actual)}{times}"


def _call(finding: Finding) -> Iterator[str]:
    """What the reducer was given, and what it must return."""
    if finding.call is None:
        return
    rows = [(g.name, g.kind, g.value) for g in finding.call.given]
    wide = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:2]]
    if rows:
        yield "it was given"
    for name, kind, value in rows:
        yield f"  {name:{wide[0]}}  {kind:{wide[1]}}  {value}"
    yield "it must return"
    yield f"  {finding.call.returns}"


def _listed(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}"] if names else []


def explanation(finding: Finding, *, in_suite: bool = False) -> list[tuple[str, str]]:
    """What is computed instead, where that was seen before, and the usual fix; labelled."""
    lines = [("Factor", finding.factor)] if finding.factor else []
    if finding.waived is not None:
        lines.append(("Waived", finding.waived))
    elif not finding.fails:
        claimed = f"--claim {finding.promise}, or " if finding.promise else ""
        lines += [("Hazard", f"right where that never happens; a failure with {claimed}--strict")]
    bugs = finding.bugs
    lines += [("You compute", f"{bug.sentence} ({bug.seen})") for bug in bugs]
    sentence = finding.diagnosis
    if sentence and not bugs:
        lines.append(("You compute", f"{sentence} (no historic bug is known to be this)"))
    elif sentence and sentence not in [bug.sentence for bug in bugs]:
        lines.append(("In detail", sentence))
    elif _is_unknown(finding):
        nothing = "no known factor, formula or historic bug gives these weights"
        lines.append(("Not recognised", nothing))
    lines += [("Usual fix", fix) for fix in dict.fromkeys(bug.fix for bug in bugs)]
    accept = f"--accept {finding.code}:{finding.signature}=REASON"
    if in_suite:
        accept = f'xfail=[("{finding.code}:{finding.id}", "REASON")]'
    # Nothing would be judged of a reducer whose very first step is accepted to fail.
    return lines + [("Known, and no failure here", accept)] * (finding.fails and not finding.call)


def _is_unknown(finding: Finding) -> bool:
    """Whether its weights were looked into, and nothing gives them."""
    weights = finding.worst is not None and not finding.consequence
    return weights and not finding.diagnosis and finding.confirmed is not None


def _unexplained(finding: Finding) -> Iterator[str]:
    """Every weight there is to see, where nothing explains them."""
    weights = finding.weights
    if finding.diagnosis or finding.token is None or weights is None or len(weights) < 2:
        return
    rows = [list(run) for _, run in groupby(enumerate(weights), key=lambda row: repr(row[1]))]
    yield "all weights"
    for run in rows[:MAX_ROWS]:
        token, (expected, actual) = run[0]
        more = f" and {len(run) - 1} more" if len(run) > 1 else ""
        pair = f"expected {fraction(expected)}, actual {number(actual)}"
        yield f"  {token_name(finding.step, token)}{more}: {pair}"
    if len(rows) > MAX_ROWS:
        yield f"  … and {counted(sum(map(len, rows[MAX_ROWS:])), 'more token')}"


def trace(finding: Finding) -> list[str]:
    """The traceback or the ranks' stacks; of one that fails at once also what it was given."""
    lines = finding.detail.rstrip().split("\n")[:MAX_DETAIL] if finding.detail else []
    lines += [""] * bool(lines and finding.call) + list(_call(finding))
    return [shortened(line) for line in lines]


def header(verdict: Verdict) -> list[tuple[str, str]]:
    """Who was verified, and how; labelled."""
    mode = verdict.oracle or verdict.mode or "none recognised: invariance only"
    if not verdict.linear:
        mode += ": no oracle, the same value and gradient in every layout"
    mode += f" (divisor {verdict.divisor:g})" if verdict.divisor is not None else ""
    default = f" [{verdict.convention}'s default]" if verdict.engine_is_default else ""
    default = " [assumed: nobody has said it]" if verdict.engine_assumed else default
    return [
        ("reducer", f"{verdict.target} · {verdict.function}"),
        ("convention", f"{verdict.convention} ({verdict.convention_title})"),
        ("engine", f"{verdict.engine}{default} ({verdict.engine_title})"),
        ("mode", mode + "  [identified]" * verdict.identified),
        *([("against", verdict.against)] if verdict.against else []),
        *(
            [("assumed", words)]
            if verdict.fails and not verdict.fails_at_once and (words := assumption(verdict))
            else []
        ),
        *([("incomplete", f"{verdict.incomplete}")] if verdict.incomplete else []),
    ]


def state(check: Check) -> str:
    """What became of a check, and why."""
    words = str(check.state) + (f": {check.reason}" if check.reason else "")
    return words + (f" ({check.refused})" if check.refused else "")


def inventory(verdict: Verdict) -> list[tuple[str, str]]:
    """What was done beside the checks' own lines, how sharply, and what was left out; labelled."""
    worlds = ", ".join(f"{n} on {w}" for w, n in verdict.worlds.items() if n)
    steps = f"{counted(verdict.executed, 'step')} ({worlds} ranks), seed {verdict.seed}"
    lines = [("established", c.established) for c in verdict.checks if c.established]
    lines.append(("executed", steps))
    if verdict.executed:
        lines.append(("tried", "; ".join(tried(verdict.tried))))
    sharded, of = share(verdict.covered)
    if of:
        on = f"{sharded} of {of} lines and outcomes of conditions on several ranks"
        lines.append(("code", on))
    if verdict.call_milliseconds is not None:
        lines.append(("slow", f"about {verdict.call_milliseconds} ms a call, by the clock"))
    lines += [("margin", text) for m in verdict.margins for text in margin(m)]
    if not verdict.linear:
        lines.append(("margin", _FIXED_BOUND))
    lines += [("warning", f"{w.code} {w.title}: {w.detail}") for w in verdict.loud]
    if quiet := [f"{w.title} ({w.code}: {w.detail})" for w in verdict.warnings if w.quiet]:
        lines.append(("as usual", "; ".join(quiet)))
    if verdict.computes_in != "float64":
        computes = f"the reducer computes in {verdict.computes_in} whatever its input"
        lines.append(("note", computes))
    lines += [("note", note) for note in verdict.notes]
    for w in verdict.waivers:
        until = f" until {w.expires}" if w.expires else ""
        by = f" ({w.owner}{until})" if w.owner else until
        over = " no more" if w.expired else ""
        found = counted(w.findings, "finding")
        lines.append(("waived", f"{w.what} waives {found}{over}: {w.reason}{by}"))
    lines += [("refused", f"{r.what}: '{r.words}'") for r in verdict.refused]
    for p in verdict.policy:
        how = "declared" if p.declared else "default"
        lines.append(("policy", f"{p.question} = {p.reading}  [{how}]  {p.asks}"))
    for feature, reason in verdict.not_claimed.items():
        how = "" if feature in verdict.without else f"  (--claim {feature})"
        lines.append(("not claimed", f"{feature}: {reason}{how}"))
    return lines


def tried(t: Tried) -> Iterator[str]:
    """The largest of everything, and each dtype on which layouts."""
    sharded = f" ({t.sharded_response:,} sharded)" if t.sharded_response else ""
    yield f"up to {t.response:,} tokens a response{sharded}, {t.prompt:,} a prompt"
    yield f"{t.step_tokens:,} tokens and {t.step_samples:,} samples a step"
    yield f"{t.micro_batch_samples:,} samples a micro-batch, {t.micro_batches:,} micro-batches"
    yield f"dp {t.dp_size}, cp {t.cp_size}, ids up to {t.identifier:,}"
    alike: dict[tuple[str, ...], list[str]] = {}
    for dtype, kinds in t.dtypes.items():
        alike.setdefault(kinds, []).append(dtype)
    for kinds, dtypes in alike.items():
        yield f"{', '.join(dtypes)} on {', '.join(kinds)}"


def margin(m: Margin) -> Iterator[str]:
    """How close right results came to their bound, and what would have been caught."""
    caught = f"every factor further from 1 than {m.smallest_caught:.1g} is caught"
    if math.isinf(m.smallest_caught):
        caught = "the bound is vacuous: no factor is caught"
    needed = m.worst_error_over_bound
    how = f"within {needed:.2f} of their bound"
    if needed > 1:
        how = f"need {needed:.3g} times their bound"
    yield f"{m.dtype}: weights {how}; {caught}"
    loss = m.reported_loss
    if loss.dense_steps:
        vacuous = f", vacuous on {loss.vacuous_steps}" if loss.vacuous_steps else ""
        yield (
            f"{m.dtype}, reported loss: beyond {loss.smallest_caught_alone:.1g} with one loss "
            f"alone, {loss.smallest_caught_dense:.1g} at best on "
            f"{counted(loss.dense_steps, 'dense step')}{vacuous}"
        )


def shortened(line: str, most: int = MAX_LINE) -> str:
    """A line no longer than a person reads."""
    return line if len(line) <= most else f"{line[:most]}…"
