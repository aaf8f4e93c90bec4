"""One finding in words: what it does to training, what was seen, what is computed instead."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from fractions import Fraction

from aggverify.model import FindingRecord, Verdict
from aggverify.report.formatting import counted, fraction, number, ratio
from aggverify.report.weights import short, table

MAX_LINE = 240
"""Characters shown of one line from the candidate."""
MAX_DETAIL = 40
"""Lines of a traceback or of the ranks' stacks."""


def tag(finding: FindingRecord) -> str:
    """Return its severity, or why it is no failure."""
    if finding.waived is not None:
        return "waived, no failure"
    return finding.severity if finding.fails else "hazard, no failure"


def consequence(finding: FindingRecord, verdict: Verdict) -> str:
    """Return a sentence without its subject: "makes every gradient 1/2 of what it must be"."""
    if finding.consequence is not None:
        on = f" (depends on {', '.join(finding.matters)})" if finding.matters else ""
        return finding.consequence + on
    wrong = _wrong(finding, verdict.mode_name) or f"breaks {verdict.mode_name}"
    return f"{wrong}: {finding.title[:1].lower()}{finding.title[1:]}"


def _wrong(finding: FindingRecord, mode: str) -> str | None:
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


def replay(finding: FindingRecord) -> str:
    """Return the command that runs the case again, safe to paste into a shell."""
    return shlex.join(finding.replay)


def exported(finding: FindingRecord) -> str:
    """Return the command that also writes it as a case for plain torch.

    "" for one of a training run.
    """
    return f"{replay(finding)} --export DIR" if finding.replay[1] == "replay" else ""


def facts(finding: FindingRecord, *, drawn: bool = False) -> list[str]:
    """Return what was seen, the smallest case as a table unless it is ``drawn``, and its layout."""
    lines = [*_seen_once(finding), *finding.message.split("\n"), *_worst(finding)]
    lines += [] if drawn else [f"    {row}" for row in table(finding)]
    lines.append(f"case: {_layout(finding)}")
    if finding.confirmed is None:
        lines.append("seen once, and not run again: the command was stopped first")
    return [shortened(line) for line in lines if line]


def _seen_once(finding: FindingRecord) -> Iterator[str]:
    """Yield what stands first where it applies: the rest holds for that one run only."""
    if finding.confirmed is False:
        yield "seen once, not again in fresh ranks: it keeps state between calls, or is random"


def _worst(finding: FindingRecord) -> Iterator[str]:
    """Of the token whose weight is wrong the most: ``weighs 1/2 instead of 1/3``."""
    if finding.worst is None or finding.token is None:
        return
    expected, actual = finding.worst
    sample, inside = finding.step.place(finding.token)
    alone = finding.step.samples[sample].response_length == 1
    name = f"sample {sample}'s token" if alone else f"token {inside} of sample {sample}"
    source = "" if finding.reference == "the oracle" else f" ({finding.reference})"
    if not math.isfinite(actual):
        yield f"{name} weighs {actual} instead of {fraction(expected)}{source}"
        return
    factor = ratio(expected, actual)
    times = "" if factor is None else _times(factor)
    yield f"{name} weighs {number(actual)} instead of {fraction(expected)}{source}{times}"


def _times(factor: Fraction) -> str:
    """``: 3/2 times too much``; nothing where the numbers already show it."""
    if factor <= 0:
        return ""
    if factor.denominator > 10**6 and abs(factor - 1) < Fraction(1, 10):
        return f": a relative error of {float(abs(factor - 1)):.2g}"
    size, how = (factor, "much") if factor > 1 else (1 / factor, "little")
    return f": {short(size)} times too {how}"


def _layout(finding: FindingRecord) -> str:
    step = finding.step
    kind = f" ({step.cp_kind})" if step.cp_size > 1 else ""
    words = f"dp={step.dp_size} cp={step.cp_size}{kind} micro-batches={step.micro_batches}"
    words += f" {step.dtype}"
    if finding.error is None or finding.bound is None:
        return words
    n = finding.roundings
    how = "fixed" if n is None else counted(n, "rounding")
    size = f"error {finding.error:.3g}, bound {finding.bound:.2g}"
    path = "" if finding.precision == step.dtype else f"{finding.precision}, "
    return f"{words}; {size} ({path}{how})"


def _call(finding: FindingRecord) -> Iterator[str]:
    """Yield what the reducer was given, and what it must return."""
    if finding.call is None:
        return
    rows = [(g.name, g.kind, g.value) for g in finding.call.given]
    wide = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:2]]
    yield f"it must return {finding.call.returns}"
    if rows:
        yield "it was given"
    for name, kind, value in rows:
        yield f"  {name:{wide[0]}}  {kind:{wide[1]}}  {value}"


def explanation(
    finding: FindingRecord, *, in_suite: bool = False, brief: bool = False
) -> list[tuple[str, str]]:
    """Return what is computed instead, the fix, where it was seen before, what matters; labelled.

    ``brief``: without the formula of a bug that is recognised.
    """
    lines = [("Factor", finding.factor)] if finding.factor else []
    if finding.waived is not None:
        lines.append(("Waived", finding.waived))
    elif not finding.fails:
        claimed = f"--claim {finding.promise}, or " if finding.promise else ""
        lines += [("Hazard", f"right where that never happens; a failure with {claimed}--strict")]
    bugs = finding.bugs
    lines += [("You compute", bug.sentence) for bug in bugs]
    sentence = finding.diagnosis
    if sentence and not bugs:
        lines.append(("You compute", f"{sentence} (no historic bug is known to be this)"))
    elif sentence and sentence not in [bug.sentence for bug in bugs]:
        lines += [("In detail", sentence)] * (not brief)
    elif _is_unknown(finding):
        nothing = "unknown: no known factor, formula or historic bug gives these weights"
        lines.append(("Cause", nothing))
    lines += [("Where", suspect.sentence) for suspect in finding.suspects[:1]]
    lines += [("Fix", fix) for fix in dict.fromkeys(bug.fix for bug in bugs)]
    lines += [("Seen in", bug.seen) for bug in bugs]
    lines += _matters(finding)
    accept = f"--accept {finding.code}:{finding.signature}=REASON"
    if in_suite:
        accept = f'xfail=[("{finding.code}:{finding.id}", "REASON")]'
    # A reducer that fails on the very first step: accepting that would leave nothing to judge.
    return lines + [("Accept", accept)] * (finding.fails and not finding.call)


def _matters(finding: FindingRecord) -> Iterator[tuple[str, str]]:
    """Yield the fields of the case that the failure depends on."""
    rest = ", ".join(finding.does_not_matter)
    if finding.matters:
        yield "Matters", ", ".join(finding.matters) + (f" (not {rest})" if rest else "")
    elif rest:
        yield "Matters", f"none of {rest}"


def _is_unknown(finding: FindingRecord) -> bool:
    """Whether its weights were diagnosed without a result."""
    weights = finding.worst is not None and not finding.consequence
    return weights and not finding.diagnosis and finding.confirmed is not None


def trace(finding: FindingRecord) -> list[str]:
    """Return the traceback or the ranks' stacks.

    Of one that fails at once also what it was given.
    """
    lines = finding.detail.rstrip().split("\n")[:MAX_DETAIL] if finding.detail else []
    lines += [""] * bool(lines and finding.call) + list(_call(finding))
    return [shortened(line) for line in lines]


def shortened(line: str, most: int = MAX_LINE) -> str:
    """Return a line no longer than a person reads."""
    return line if len(line) <= most else f"{line[:most]}…"
