"""One self-contained HTML file: no script, no address, nothing loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, groupby, islice, repeat
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from aggverify.model import (
    CheckRecord,
    Document,
    FindingRecord,
    Run,
    Sample,
    Step,
    Verdict,
    harmless,
)
from aggverify.report import view_model
from aggverify.report.annotated_source import marked
from aggverify.report.formatting import fraction, number, ratio
from aggverify.report.plot import margin_plot

MAX_CELLS = 400
"""Cells of one heat map; equal neighbours share one, so shrunk cases never come near."""
Seen = tuple[Fraction | None, float]
"""Expected and actual weight of one response token; None where nothing is expected."""
SQUARES = 8
"""Tokens with a square each; more share one."""
STEPS = 4
"""Shades on either side of a ratio of 1, one for each factor of about 1.4."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring response tokens of one sample with equal weights on one rank."""

    tokens: str
    mask: str
    """A square for each token, or one and the number of tokens."""
    rank: str
    masked: bool
    expected: str
    actual: str
    times: str
    shade: str
    worst: bool


def render(document: Document) -> str:
    """Return the page; every text goes through the template's escaping."""
    safe = harmless(document)
    names = dict.fromkeys(c.name for v in safe.verdicts for c in v.checks)
    return _template("page.html").render(
        document=safe,
        headline=view_model.headline(safe),
        tag=view_model.tag,
        header=view_model.header,
        inventory=view_model.inventory,
        counts=view_model.counts,
        state=view_model.state,
        findings=[_finding(verdict, cause) for verdict, cause in view_model.every_cause(safe)],
        sources=[(v.mode_name, marked(v.covered)) for v in safe.verdicts],
        plots=[(v.mode_name, margin_plot(v.margins)) for v in safe.verdicts if v.margins],
        matrix=[(name, [_check_named(v, name) for v in safe.verdicts]) for name in names],
    )


@lru_cache(maxsize=2)
def _template(name: str) -> Template:
    loader = PackageLoader("aggverify.report", "templates")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    ).get_template(name)


def _check_named(verdict: Verdict, name: str) -> CheckRecord | None:
    return next((c for c in verdict.checks if c.name == name), None)


def _finding(verdict: Verdict, cause: Sequence[FindingRecord]) -> dict[str, Any]:
    first, *others = cause
    heat = heat_map(first.step, first.weights, first.token)
    return {
        "first": first,
        "others": others,
        "mode": verdict.mode_name,
        "consequence": view_model.consequence(first, verdict),
        "facts": "\n".join(view_model.facts(first, drawn=bool(heat))),
        "explanation": view_model.explanation(first),
        "trace": "\n".join(view_model.trace(first)),
        "replay": view_model.replay(first),
        "exported": view_model.exported(first),
        "codes": " ".join(dict.fromkeys(f.code for f in cause)),
        "heat": heat,
    }


def observed(
    title: str,
    good: bool | None,
    facts: Sequence[str],
    step: Step,
    weights: Sequence[Seen] | None,
    token: int | None,
) -> str:
    """Return a part of a page for one step, as a notebook shows it.

    ``good``: whether it is as expected, None where nothing is.
    """
    heat = heat_map(step, weights, token)
    return _template("observed.html").render(title=title, good=good, facts=facts, heat=heat)


def heat_map(
    step: Step, weights: Sequence[Seen] | None, token: int | None
) -> list[tuple[str, list[Cell]]]:
    """One labelled row of cells a sample, MAX_CELLS in all; what is left out is named."""
    if weights is None:
        return []
    rows: list[tuple[str, list[Cell]]] = []
    room, start = MAX_CELLS, 0
    for i, sample in enumerate(step.samples):
        owned = weights[start : start + sample.response_length]
        worst = None if token is None else token - start
        cells = list(islice(_cells(sample, owned, worst), room + 1))
        rows.append((f"sample {i}, prompt group {sample.prompt_group}", cells[:room]))
        if len(cells) > room or sum(run.tokens for run in sample.runs) < len(owned):
            return [*rows, ("the rest is in the case, not shown here", [])]
        room, start = room - len(cells), start + len(owned)
    return rows


def _cells(sample: Sample, weights: Sequence[Seen], worst: int | None) -> Iterator[Cell]:
    runs = chain.from_iterable(repeat(run, run.tokens) for run in sample.runs)
    rows = enumerate(zip(runs, weights, strict=False))
    for _, group in groupby(rows, key=lambda row: _appearance(row[1], row[0] == worst)):
        (first, (run, (expected, actual))), *more = group
        last = first + len(more)
        masked = run.mask != "unmasked"
        times, shade = (
            _shade(expected, actual) if expected is not None else _plain_shade(actual, masked)
        )
        yield Cell(
            tokens=f"{first}–{last}" if more else f"{first}",
            mask=_squares(1 + len(more), masked=masked),
            rank=f"dp{sample.dp_rank} cp{run.cp_rank} mb{sample.micro_batch}",
            masked=masked,
            expected="" if expected is None else fraction(expected),
            actual=number(actual),
            times=times,
            shade=shade,
            worst=first == worst,
        )


def _appearance(row: tuple[Run, Seen], worst: bool) -> tuple[object, ...]:
    """Return the key by which neighbours share a cell; the worst token has its own.

    Weights are compared as text, so that NaN equals NaN.
    """
    run, pair = row
    return repr(pair), worst, run.cp_rank, run.mask


def _squares(count: int, *, masked: bool) -> str:
    square = "□" if masked else "■"
    return square * count if count <= SQUARES else f"{square} × {count}"


def _plain_shade(actual: float, masked: bool) -> tuple[str, str]:
    """Return what ``_shade`` does where no weight is expected, except 0 of a masked token."""
    if not math.isfinite(actual):
        return "not finite", "broken"
    return _shade(Fraction(0), actual) if masked else ("", "plain")


def _shade(expected: Fraction, actual: float) -> tuple[str, str]:
    """Actual over expected in words, and the class that colours it."""
    if not math.isfinite(actual):
        return "not finite", "broken"
    factor = ratio(expected, actual)
    if factor is None:
        return ("", "none") if actual == 0 else ("must be 0", "broken")
    if abs(factor - 1) < Fraction(1, 10**9):
        return "", "same"
    times = f"× {fraction(factor)}"
    if factor <= 0:
        return times, "broken"
    distance = math.log2(float(factor)) * 2
    return times, f"{'high' if distance > 0 else 'low'}{min(STEPS, math.ceil(abs(distance)))}"
