"""A verdict document read for people: causes, headline, facts of a finding; nothing is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from aggverify.codes import CODES
from aggverify.diagnosis import ratio
from aggverify.report import escape, text
from aggverify.steps.case import Case

Data = Mapping[str, Any]

MAX_LINE = 240
"""Characters shown of one line from the candidate."""
_SEVERAL_LINES = frozenset({"message", "detail", "error"})


def cleaned(data: Any, key: str = "") -> Any:
    """The document with every text harmless (``report.escape``) and, where one is due, one line."""
    if isinstance(data, str):
        return escape.clean(data) if key in _SEVERAL_LINES else escape.line(data)
    if isinstance(data, Mapping):
        return {k: cleaned(v, k) for k, v in data.items()}
    return [cleaned(v, key) for v in data] if isinstance(data, list) else data


def mode_of(verdict: Data) -> str:
    """The mode, the person's own oracle, or that there is none."""
    return str(verdict["oracle"] or verdict["mode"] or "no known mode")


def causes(verdict: Data) -> list[list[Data]]:
    """Findings grouped by root cause, as the document has them."""
    groups: dict[str, list[Data]] = {}
    for finding in verdict["findings"]:
        groups.setdefault(finding["same_cause_as"] or finding["id"], []).append(finding)
    return list(groups.values())


def every_cause(document: Data) -> list[tuple[Data, list[Data]]]:
    """Verdict and findings of every cause, those that are high first."""
    every = [(verdict, found) for verdict in document["verdicts"] for found in causes(verdict)]
    return sorted(every, key=lambda pair: pair[1][0]["severity"] != "high")


def headline(document: Data) -> str:
    """The consequence in words: what happens to a training run that takes this reducer."""
    every = every_cause(document)
    if document.get("error"):
        return "Could not judge"
    if every:
        verdict, (first, *_) = every[0]
        more = f" ({counted(len(every) - 1, 'more finding')})" if len(every) > 1 else ""
        return f"Merging this {consequence(first, mode_of(verdict))}{more}"
    untested = [v for v in document["verdicts"] if not v["executed"]]
    if untested or not document["verdicts"]:
        return "Nothing was tested"
    modes = ", ".join(mode_of(v) for v in document["verdicts"])
    passed = sum(state(c) == "ok" for v in document["verdicts"] for c in v["checks"])
    warnings = sum(len(v["warnings"]) for v in document["verdicts"])
    return f"Conforms: {modes}, {counted(passed, 'check')} passed, {counted(warnings, 'warning')}"


def consequence(finding: Data, mode: str) -> str:
    """A sentence without its subject, as in "makes every gradient 1/2 of what it must be"."""
    known = CODES.get(finding["code"])
    if known is not None and known.consequence:
        on = f" (depends on {', '.join(finding['matters'])})" if finding["matters"] else ""
        return known.consequence + on
    wrong = _wrong(finding, mode)
    title = finding["title"][:1].lower() + finding["title"][1:]
    return f"{wrong}: {title}" if wrong else f"breaks {mode}: {title}"


def _wrong(finding: Data, mode: str) -> str | None:
    weights = Weights.of(finding)
    if weights is None or finding["token"] is None:
        return None
    right = mode if finding["reference"] == "the oracle" else finding["reference"]
    if finding["factor"]:
        return f"makes gradients {finding['factor']} times those of {right}"
    expected, actual = weights.pairs[finding["token"]]
    if actual != actual or actual in (float("inf"), -float("inf")):
        return "makes gradients NaN or infinite"
    if not actual:
        return "takes tokens out of the gradient"
    factor = ratio(expected, actual)
    if factor is None:
        return "gives a gradient to tokens that must have none"
    return f"makes some gradients {text.fraction(factor)} times those of {right}"


@dataclass(frozen=True, slots=True)
class Weights:
    """Expected and actual weight of every response token of a finding's case."""

    case: Case
    pairs: tuple[tuple[Fraction, float], ...]

    @staticmethod
    def of(finding: Data) -> Weights | None:
        """None where no weights were read, or too many to be written down."""
        expected, actual = finding["expected"], finding["observed"]
        if expected is None or actual is None:
            return None
        pairs = zip(map(Fraction, expected), map(float.fromhex, actual), strict=True)
        return Weights(Case.from_json(finding["case"]["case"]), tuple(pairs))


def replay(finding: Data, verdict: Data) -> str:
    """The command that runs the case again, safe to paste into a shell."""
    stored, known = finding["case"], CODES.get(finding["code"])
    return text.replay_command(
        finding["id"],
        stored["target"],
        oracle=stored.get("oracle"),
        against=verdict["against"] if known is not None and known.compares_paths else None,
    )


def facts(finding: Data) -> list[str]:
    """What was seen on which step, one fact a line."""
    lines = [*(finding["message"] or "").split("\n"), *_worst(finding)]
    if finding["error"] is not None and finding["bound"] is not None:
        error, bound = (float.fromhex(finding[key]) for key in ("error", "bound"))
        lines.append(f"error {error:.3g}, bound {bound:.2g}")
    lines += text.drawing(Case.from_json(finding["case"]["case"]))
    lines += _listed("matters", finding["matters"])
    lines += _listed("does not matter", finding["does_not_matter"])
    if not finding["confirmed"]:
        lines.append("seen once, not again in fresh ranks: the reducer keeps state or guesses")
    return [shortened(line) for line in lines if line]


def _worst(finding: Data) -> Iterator[str]:
    weights, token = Weights.of(finding), finding["token"]
    if weights is None or token is None:
        return
    expected, actual = weights.pairs[token]
    yield f"weight of {text.token_name(weights.case, token)}"
    yield f"  expected  {text.fraction(expected)}    ({finding['reference']})"
    factor = ratio(expected, actual) if abs(actual) < float("inf") else None
    told = f"    = expected x {text.fraction(factor)}" if factor is not None else ""
    yield f"  actual    {text.number(actual)}{told}"


def _listed(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what}: {', '.join(names)}"] if names else []


def explanation(finding: Data) -> list[tuple[str, str]]:
    """What is computed instead, where that was seen before, and the usual fix; labelled."""
    lines = [("Factor", finding["factor"])] if finding["factor"] else []
    bugs = finding["bugs"]
    lines += [("You compute", f"{bug['sentence']} ({bug['seen']})") for bug in bugs]
    if finding["diagnosis"] and finding["diagnosis"] not in [bug["sentence"] for bug in bugs]:
        lines.append(("In detail" if bugs else "You compute", finding["diagnosis"]))
    return lines + [("Usual fix", fix) for fix in dict.fromkeys(bug["fix"] for bug in bugs)]


def trace(finding: Data) -> list[str]:
    """The traceback or the ranks' stacks, without frames of this package."""
    detail = finding.get("detail") or ""
    lines = text.own_frames(detail)[: text.MAX_DETAIL] if detail else []
    return [shortened(line) for line in lines]


def state(check: Data) -> str:
    """``failed``, ``ok``, ``skipped``, or ``error`` where nothing was judged and no word why."""
    if check["failed"]:
        return "failed"
    if check["skipped"]:
        return "skipped"
    return "ok" if check["cases"] else "error"


def shortened(line: str) -> str:
    """A line no longer than a person reads."""
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def counted(n: int, noun: str) -> str:
    """``1 check``, ``2 checks``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
