"""One finding in words: what it does to training, what was seen, what is computed instead."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

from aggverify.report.drawing import (
    MAX_ROWS,
    counted,
    drawing,
    fraction,
    number,
    ratio,
    token_name,
)
from aggverify.report.model import Finding, Verdict

MAX_LINE = 240
"""Characters shown of one line from the candidate."""
MAX_DETAIL = 40
"""Lines of a traceback or of the ranks' stacks."""


def tag(finding: Finding) -> str:
    """How much it weighs."""
    if finding.waived is not None:
        return "waived, no failure"
    return finding.severity if finding.fails else "hazard, no failure"


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
        yield "seen once, not again in fresh ranks: it keeps state between calls, or is random"


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
    lines += [("Where", suspect.sentence) for suspect in finding.suspects[:1]]
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


def shortened(line: str, most: int = MAX_LINE) -> str:
    """A line no longer than a person reads."""
    return line if len(line) <= most else f"{line[:most]}…"
