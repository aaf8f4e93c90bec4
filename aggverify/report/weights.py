"""The smallest case as a table: where each sample is, its mask, its weight and the expected one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, groupby, islice, repeat

from aggverify.model import FindingRecord, Run, Sample, Step
from aggverify.report.formatting import cp_ranks, drawn_mask, fraction, legend, number, ratio, signs

MOST = 8
"""Rows at most; a shrunk case has one or two."""
LONGEST = 24
"""Signs of a mask at most."""
Pair = tuple[Fraction, float]


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens of one sample that have the same weights; all of them where ``tokens`` is empty."""

    sample: int
    tokens: str
    mask: str
    rank: str
    pair: Pair | None
    worst: bool


def table(finding: FindingRecord) -> list[str]:
    """Aligned lines, the worst token marked; only the columns that this case needs."""
    step, every = finding.step, list(islice(_rows(finding), 10_000))
    shown = every[:MOST]
    if not any(row.worst for row in shown):
        shown = [*shown[: MOST - 1], *(row for row in every[MOST - 1 :] if row.worst)][:MOST]
    named = {name: [str(cell(step, row)) for row in shown] for name, cell in _COLUMNS.items()}
    used = {name: cells for name, cells in named.items() if _is_needed(name, finding, cells)}
    titles = {name: "" if name in ("factor", "worst") else name for name in used}
    widths = {name: max(len(titles[name]), *map(len, cells)) for name, cells in used.items()}
    rows = [titles] + [{name: cells[n] for name, cells in used.items()} for n in range(len(shown))]
    lines = ["  ".join(_cell(n, row[n], widths[n]) for n in used).rstrip() for row in rows]
    if len(every) > len(shown):
        lines.append(f"… {len(every) - len(shown)} more rows")
    return lines + [f"({words})" for words in filter(None, [legend(step)])]


def _cell(name: str, text: str, width: int) -> str:
    if name in ("weight", "expected"):
        return text.rjust(width)
    return text.center(width) if name in ("sample", "micro-batch") else text.ljust(width)


def _rows(finding: FindingRecord) -> Iterator[Row]:
    step, start = finding.step, 0
    for i, sample in enumerate(step.samples):
        pairs = None if finding.weights is None else finding.weights[start:][: _listed(sample)]
        worst = None if finding.token is None else finding.token - start
        start += sample.response_length
        if pairs is None or _same_everywhere(sample, pairs):
            own = None if pairs is None else _of_unmasked(sample, pairs)
            hit = worst is not None and 0 <= worst < sample.response_length
            mask = drawn_mask(sample, LONGEST)
            yield Row(i, "", mask, cp_ranks(step, sample), own, hit and own is not None)
        else:
            yield from _parts(i, sample, pairs, worst)


def _listed(sample: Sample) -> int:
    """Return the number of tokens in the runs that the document lists."""
    return sum(run.tokens for run in sample.runs)


def _run_of_each_token(sample: Sample) -> Iterator[Run]:
    return chain.from_iterable(repeat(run, run.tokens) for run in sample.runs)


def _same_everywhere(sample: Sample, pairs: Sequence[Pair]) -> bool:
    """Whether one row shows all: one weight where unmasked, and 0 elsewhere."""
    tokens = list(zip(_run_of_each_token(sample), pairs, strict=False))
    unmasked = {repr(pair) for run, pair in tokens if run.mask == "unmasked"}
    rest = (pair for run, pair in tokens if run.mask != "unmasked")
    return len(unmasked) <= 1 and all(expected == actual == 0 for expected, actual in rest)


def _of_unmasked(sample: Sample, pairs: Sequence[Pair]) -> Pair:
    """Return the weights of the first unmasked token; 0 where there is none."""
    tokens = zip(_run_of_each_token(sample), pairs, strict=False)
    return next((pair for run, pair in tokens if run.mask == "unmasked"), (Fraction(0), 0.0))


def _parts(i: int, sample: Sample, pairs: Sequence[Pair], worst: int | None) -> Iterator[Row]:
    """Neighbours with the same weights, mask and context-parallel rank."""
    tokens = enumerate(zip(_run_of_each_token(sample), pairs, strict=False))
    for _, group in groupby(tokens, key=lambda t: (repr(t[1][1]), t[1][0].mask, t[1][0].cp_rank)):
        (first, (run, pair)), *more = group
        last = first + len(more)
        name = f"{first}-{last}" if more else f"{first}"
        hit = worst is not None and first <= worst <= last
        yield Row(i, name, signs(run.mask, 1 + len(more), LONGEST), str(run.cp_rank), pair, hit)


def _factor(pair: Pair | None) -> str:
    """Actual over expected: ``x 3/2``; nothing where it is right."""
    if pair is None:
        return ""
    expected, actual = pair
    if not math.isfinite(actual):
        return "not finite"
    factor = ratio(expected, actual)
    if factor is None:
        return "" if actual == 0 else "must be 0"
    return "" if factor == 1 else f"x {short(factor)}"


def short(factor: Fraction) -> str:
    """Return a factor as a fraction where that is simple, else as a decimal.

    One that six digits do not distinguish from 1 is written as ``(1 +2e-09)``.
    """
    if factor.denominator <= 10**6:
        return fraction(factor)
    return f"{float(factor):.6g}" if abs(factor - 1) > 1e-5 else f"(1 {float(factor - 1):+.2g})"


_COLUMNS: dict[str, Callable[[Step, Row], object]] = {
    "sample": lambda step, row: row.sample,
    "tokens": lambda step, row: row.tokens,
    "group": lambda step, row: step.samples[row.sample].prompt_group,
    "rollout": lambda step, row: step.samples[row.sample].rollout,
    "prompt": lambda step, row: step.samples[row.sample].prompt_length,
    "micro-batch": lambda step, row: step.samples[row.sample].micro_batch,
    "dp rank": lambda step, row: step.samples[row.sample].dp_rank,
    "cp rank": lambda step, row: row.rank,
    "mask": lambda step, row: row.mask,
    "weight": lambda step, row: "" if row.pair is None else number(row.pair[1]),
    "expected": lambda step, row: "" if row.pair is None else fraction(row.pair[0]),
    "factor": lambda step, row: _factor(row.pair),
    "worst": lambda step, row: "<-" if row.worst else "",
}


def _is_needed(name: str, finding: FindingRecord, cells: Sequence[str]) -> bool:
    step, matters = finding.step, " ".join(finding.matters)
    match name:
        case "sample" | "mask":
            return True
        case "group":
            return len({s.prompt_group for s in step.samples}) < len(step.samples)
        case "rollout":
            return len({s.rollout for s in step.samples}) < len(step.samples)
        case "prompt":
            return "prompt length" in matters
        case "micro-batch":
            return step.micro_batches > 1
        case "dp rank":
            return step.dp_size > 1
        case "cp rank":
            return step.cp_size > 1
        case _:
            return any(cells)
