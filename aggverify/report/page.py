"""One self-contained HTML file: no script, no address, nothing loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby, islice
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from aggverify.diagnosis import ratio
from aggverify.report import reading, text
from aggverify.report.reading import Data, Weights
from aggverify.steps.layouts import token_owner

MAX_CELLS = 400
"""Cells of one heat map; equal neighbours share one, so shrunk cases never come near."""
STEPS = 4
"""Shades on either side of a ratio of 1, one for each factor of about 1.4."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring response tokens of one sample with equal weights on one rank."""

    tokens: str
    rank: str
    masked: bool
    expected: str
    actual: str
    times: str
    shade: str
    worst: bool


def render(document: Data) -> str:
    """The page; every text goes through the template's escaping."""
    safe = reading.cleaned(document)
    found = [_finding(verdict, cause) for verdict, cause in reading.every_cause(safe)]
    names = dict.fromkeys(c["name"] for v in safe["verdicts"] for c in v["checks"])
    return _template().render(
        document=safe,
        error=safe.get("error"),
        headline=reading.headline(safe),
        findings=found,
        modes=[reading.mode_of(v) for v in safe["verdicts"]],
        matrix=[(name, [_of(v, name) for v in safe["verdicts"]]) for name in names],
        divisors=[v["divisor"] and f"{float.fromhex(v['divisor']):g}" for v in safe["verdicts"]],
        margins=[[_margin(m) for m in v["margins"]] for v in safe["verdicts"]],
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    loader = PackageLoader("aggverify.report", "templates")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template("page.html")


def _of(verdict: Data, name: str) -> dict[str, Any] | None:
    """A check of the verdict with its state."""
    found = next((c for c in verdict["checks"] if c["name"] == name), None)
    return {**found, "state": reading.state(found)} if found else None


def _finding(verdict: Data, cause: Sequence[Data]) -> dict[str, Any]:
    first, *others = cause
    mode = reading.mode_of(verdict)
    weights = Weights.of(first)
    return {
        "first": first,
        "others": others,
        "mode": mode,
        "consequence": reading.consequence(first, mode),
        "facts": "\n".join(reading.facts(first)),
        "explanation": reading.explanation(first),
        "trace": "\n".join(reading.trace(first)),
        "replay": reading.replay(first, verdict),
        "codes": " ".join(dict.fromkeys(f["code"] for f in cause)),
        "heat": heat_map(weights, first["token"]) if weights else [],
    }


def heat_map(weights: Weights, worst: int | None = None) -> list[tuple[str, list[Cell]]]:
    """One labelled row of cells a sample, MAX_CELLS in all; what is left out is told."""
    case = weights.case
    owners = token_owner(case.step, case.layout)
    rows: list[tuple[str, list[Cell]]] = []
    room = MAX_CELLS
    for i, sample in enumerate(case.step.samples):
        start = case.step.offsets[i]
        tokens = range(start, start + sample.response_length)
        cells = list(islice(_cells(weights, owners, tokens, sample.loss_mask, worst), room + 1))
        rows.append((f"sample {i}, prompt group {sample.group}", cells[:room]))
        if len(cells) > room:
            return [*rows, ("the rest is in the case, not shown here", [])]
        room -= len(cells)
    return rows


def _cells(
    weights: Weights,
    owners: Sequence[tuple[int, int, int]],
    tokens: range,
    mask: bytes,
    worst: int | None,
) -> Iterator[Cell]:
    def key(token: int) -> tuple[object, ...]:
        expected, actual = weights.pairs[token]
        # By its text: one NaN is like the other here.
        return expected, repr(actual), owners[token], mask[token - tokens.start], token == worst

    for _, group in groupby(tokens, key):
        run = list(group)
        expected, actual = weights.pairs[run[0]]
        d, c, k = owners[run[0]]
        first, last = run[0] - tokens.start, run[-1] - tokens.start
        times, shade = _shade(expected, actual)
        yield Cell(
            f"{first}" if len(run) == 1 else f"{first}–{last}",
            f"dp{d} cp{c} mb{k}",
            not mask[first],
            text.fraction(expected),
            text.number(actual),
            times,
            shade,
            run[0] == worst,
        )


def _shade(expected: Fraction, actual: float) -> tuple[str, str]:
    """Actual over expected in words, and the class that colours it."""
    if not math.isfinite(actual):
        return "not finite", "broken"
    factor = ratio(expected, actual)
    if factor is None:
        return ("", "none") if actual == 0 else ("must be 0", "broken")
    if abs(factor - 1) < Fraction(1, 10**9):
        return "", "same"
    told = f"× {text.fraction(factor)}"
    if factor <= 0:
        return told, "broken"
    distance = math.log2(float(factor)) * 2
    return told, f"{'high' if distance > 0 else 'low'}{min(STEPS, math.ceil(abs(distance)))}"


def _margin(margin: Data) -> tuple[str, str, str]:
    """dtype, worst error over bound, smallest factor that is caught."""
    worst, caught = (
        float.fromhex(margin[key]) for key in ("worst_error_over_bound", "smallest_caught")
    )
    told = "none: the bound is vacuous" if math.isinf(caught) else f"{caught:.1g}"
    return margin["dtype"], f"{worst:.2f}", told
