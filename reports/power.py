"""How much is found of reducers written blind: ``reports/power.md``, with its plot.

``python reports/power.py`` writes the page, of first runs (``tests/corpus/blind.jsonl``) and of the
golden table. ``python reports/power.py WAVE [SEED ...]`` first runs the reducers of the newest wave
that have no result for a seed (0 by default): the default run, until a finding fails it. What it
finds goes into their lines, one after the other: interrupted, it goes on where it was. Then the
page has to be written again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from itertools import product
from pathlib import Path

import mpmath

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.errors import AggverifyError  # noqa: E402
from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.corpus.judging import judged  # noqa: E402
from tests.corpus.table import BLIND, TABLE, WAVES, WRONG, Blind  # noqa: E402
from tests.golden import ablation  # noqa: E402
from tests.golden.causes import OUTCOMES, outcome  # noqa: E402
from tests.golden.rows import BY_DEFAULT, Row  # noqa: E402
from tests.golden.table import golden, quick  # noqa: E402

PAGE = ROOT / "reports" / "power.md"
LEVEL = 0.95
COLOURS = {
    "light": {"ink": "#1f2328", "paper": "#ffffff", "line": "#d0d7de", "found": "#2da44e",
              "blamed": "#cf222e"},
    "dark": {"ink": "#e6edf3", "paper": "#0d1117", "line": "#30363d", "found": "#3fb950",
             "blamed": "#f85149"},
}  # fmt: skip
HEAD = """# Power: what is found of reducers that were written blind

Written by `python reports/power.py`; do not edit. The reducers are in `tests/corpus/blind`, by
what their mistakes are about. `tests/corpus/blind.jsonl` has a line for each: where such code is
met, a step on which it is wrong, the causes that count, and its first run. Each wave was written by
people who had not read how the verifier searches, after the earlier waves had been used to improve
it. So only a first run measures power on unknown code.

## First runs

The default run with seed 0, until a finding fails the reducer. A wrong one is *found* where the run
ends with exit code 1 and a true cause: a bug or code among those that were written down for it.
Where only a formula is named, its code counts. A right one with any finding, on any seed that it
was run with, is a false alarm. Intervals are Clopper and Pearson's, of 95 %. *On all seeds* has
pairs of a reducer and a seed.

<picture>
<source media="(prefers-color-scheme: dark)" srcset="power-dark.svg">
<img src="power-light.svg" alt="Detection and false alarms of first runs, by wave">
</picture>

"""
TODAY = """
## Today

Of the golden table (`tests/golden`): quick profile, seed 0. A wrong reducer with exit code 1 counts
as found, a right one with exit code 1 as a false alarm. What was missed at first has been looked at
since, so that these figures are no measure of unknown code.

"""


AMOUNTS = """
## How much is tried

The default profile has longer lists than `quick`, and draws hardly more: 25 cases a check, 50 for
the one that runs most lists. Checks that need few draw a third of their own number, or as many as
make 20 cases. Of the {missed} wrong ones that `quick` misses it finds {found}, for which it has
rows of its own. Until 28 November 2026 it drew 150 cases a check and ran 2,364 steps of a right
reducer; until 30 November it listed twice as many long and large steps, and ran 1,499. It runs
{steps} today. It found the same.

A random sample was also run with seed 1 (25 cases for every check): 174 of 180 are found, and the
six others are not found with seed 0 either. Fifty reducers were written blind once more to compare
both amounts, and are not kept: each finds the same 34 of 36 wrong ones, and blames none of 14.

"""


ALONE = """
## What only one check finds

Each wrong reducer written blind is run once more without the check that found it first
(`python reports/verdicts.py ablate`). Where nothing else finds it, the check earns its place alone.
Beside it what the check costs: lines of its file, cases and steps of a default run of
`examples/native/sum/token_mean.py`. Steps that several checks judge are those of the first.
A check that alone finds nothing stays where its finding names the dimension or the cause: a layout
that is wrong is also wrong in the combination, which does not name it.

"""


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's: quantiles of two beta distributions."""
        tail = (1 - LEVEL) / 2
        low = _quantile(self.count, self.of - self.count + 1, tail) if self.count else 0.0
        rest = self.of - self.count
        return low, _quantile(self.count + 1, rest, 1 - tail) if rest else 1.0

    def __str__(self) -> str:
        if not self.of:
            return "none run"
        low, high = (100 * end for end in self.interval)
        rate = 100 * self.count / self.of
        return f"{self.count} of {self.of}: {rate:.1f} % ({low:.1f} to {high:.1f})"


def _quantile(a: int, b: int, probability: float) -> float:
    def above(x: mpmath.mpf) -> mpmath.mpf:
        return mpmath.betainc(a, b, 0, x, regularized=True) - probability

    return float(mpmath.findroot(above, (0, 1), solver="bisect", tol=1e-12))


@dataclass(frozen=True, slots=True)
class First:
    """The first runs of some reducers."""

    found: Share
    elsewhere: int
    """Exit code 1 and another cause."""
    pairs: Share
    """Of reducers and seeds."""
    never: tuple[str, ...]
    """Found on no seed."""
    blamed: Share


def first(entries: Sequence[Blind]) -> First:
    wrong = [entry for entry in entries if entry.verdict == "wrong"]
    every = [[entry.was_found(seed) for seed in entry.first or ()] for entry in wrong]
    zero = [entry.was_found("0") for entry in wrong]
    fails = sum((entry.first or {})["0"][0] == 1 for entry in wrong)
    right = [entry.first for entry in entries if entry.verdict == "right" and entry.first]
    return First(
        found=Share(sum(zero), len(zero)),
        elsewhere=fails - sum(zero),
        pairs=Share(sum(map(sum, every)), sum(map(len, every))),
        never=tuple(e.id for e, some in zip(wrong, every, strict=True) if not any(some)),
        blamed=Share(sum(any(last for _, last in runs.values()) for runs in right), len(right)),
    )


@cache
def by_wave() -> Mapping[str, First]:
    waves = {wave: first([e for e in BLIND if e.wave == wave]) for wave in WAVES}
    return waves | {"all": first(BLIND)}


def page() -> str:
    first = (HEAD.rstrip("\n"), "", *_first_runs(), *_waves())
    return "\n".join((*first, *_today(golden()), _amounts(golden()), *_alone(), ""))


def _first_runs() -> Iterator[str]:
    yield "| wave | wrong ones found | another cause | on all seeds | right ones blamed |"
    yield "|---|---|---|---|---|"
    for wave, runs in by_wave().items():
        pairs = f"{runs.pairs.count} of {runs.pairs.of}" if runs.pairs.of else "none run"
        yield f"| {wave} | {runs.found} | {runs.elsewhere} | {pairs} | {runs.blamed} |"


def _waves() -> Iterator[str]:
    yield "\n## Waves\n"
    for wave, about in WAVES.items():
        note = f" {about['note']}" if "note" in about else ""
        never = ", ".join(f"`{name}`" for name in by_wave()[wave].never)
        yield f"- **{wave}**: {about['by']}{note}" + (f" Found on no seed: {never}." * bool(never))


def _today(rows: Mapping[str, Row]) -> Iterator[str]:
    yield TODAY.strip("\n").join(("\n", "\n"))
    recorded = {wave: [e for e in WRONG if e.wave == wave and _name(e) in rows] for wave in WAVES}
    yield "| wave | wrong ones | recorded | found | with a true cause |"
    yield "|---|---|---|---|---|"
    every = [entry for some in recorded.values() for entry in some]
    for wave, some in (recorded | {"all": every}).items():
        whole = len([e for e in WRONG if wave in (e.wave, "all")])
        if not whole:
            continue
        found = [e for e in some if rows[_name(e)]["exit"] == 1]
        true = [e for e in found if outcome(rows[_name(e)], e.causes) in OUTCOMES[:2]]
        shares = [str(Share(len(these), len(some))) if some else "" for these in (found, true)]
        yield f"| {wave} | {whole} | {len(some)} | {shares[0]} | {shares[1]} |"
    right = quick(rows, "right ").values()
    blamed = Share(sum(row["exit"] == 1 for row in right), len(right))
    blind = len(quick(rows, "right corpus.blind."))
    yield f"\nFalse alarms on right reducers: {blamed}; {blind} of them were written blind."


def _amounts(rows: Mapping[str, Row]) -> str:
    missed = [name for name in map(_name, WRONG) if rows[name]["exit"] != 1]
    found = sum(
        rows[name + BY_DEFAULT]["exit"] == 1 for name in missed if name + BY_DEFAULT in rows
    )
    _, costs = ablation.stored()
    steps = sum(cost.steps for cost in costs.values())
    text = AMOUNTS.format(missed=len(missed), found=found, steps=f"{steps:,}")
    return text.strip("\n").join(("\n", "\n"))


def _alone() -> Iterator[str]:
    yield ALONE.strip("\n").join(("\n", "\n"))
    yield from ablation.table(golden())


def _name(entry: Blind) -> str:
    return f"wrong {entry.target.removeprefix('tests.')} 0"


LEFT, WIDTH, HEIGHT, TOP = 90, 500, 20, 30


def drawn(waves: Mapping[str, First], colours: Mapping[str, str]) -> Iterator[str]:
    """A line for each wave: its two rates with their intervals, on one axis."""
    height = TOP + HEIGHT * len(waves) + 34
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}">'
    yield "<title>Detection and false alarms of first runs, by wave</title>"
    yield f"<style>text {{ font: 11px sans-serif; fill: {colours['ink']} }}</style>"
    yield f'<rect width="{LEFT + WIDTH + 30}" height="{height}" fill="{colours["paper"]}"/>'
    bottom = TOP + HEIGHT * len(waves)
    for percent in range(0, 101, 20):
        x = LEFT + WIDTH * percent / 100
        yield _line(x, TOP - 6, x, bottom, colours["line"], 1)
        yield _text(x, TOP - 12, f"{percent} %", "middle")
    for n, (wave, runs) in enumerate(waves.items()):
        y = TOP + HEIGHT * (n + 0.5)
        yield _text(LEFT - 10, y + 4, wave, "end")
        yield from _rate(runs.found, y - 3, colours["found"])
        yield from _rate(runs.blamed, y + 3, colours["blamed"])
    for left, kind, what in (
        (LEFT, "found", "wrong ones found"),
        (280, "blamed", "right ones blamed"),
    ):
        yield f'<circle cx="{left}" cy="{bottom + 18}" r="3.5" fill="{colours[kind]}"/>'
        yield _text(left + 9, bottom + 22, what, "start")
    yield "</svg>"


def _rate(share: Share, y: float, colour: str) -> Iterator[str]:
    if share.of:
        low, high = (LEFT + WIDTH * end for end in share.interval)
        yield _line(low, y, high, y, colour, 2)
        x = LEFT + WIDTH * share.count / share.of
        yield f'<circle cx="{x:.1f}" cy="{y}" r="3.5" fill="{colour}"/>'


def _line(x: float, y: float, x2: float, y2: float, colour: str, width: int) -> str:
    ends = f'x1="{x:.1f}" y1="{y}" x2="{x2:.1f}" y2="{y2}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _text(x: float, y: float, what: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(what)}</text>'


def pictures() -> dict[Path, str]:
    waves = by_wave()
    return {
        PAGE.with_name(f"power-{theme}.svg"): "\n".join(drawn(waves, colours)) + "\n"
        for theme, colours in COLOURS.items()
    }


def run(wave: str, seeds: Sequence[str]) -> None:
    """The first runs of a wave that are missing."""
    if wave != list(WAVES)[-1]:
        raise SystemExit(f"{wave}: only the newest wave, {list(WAVES)[-1]}, has first runs to come")
    lines = {row["id"]: row for row in map(json.loads, TABLE.read_text("utf-8").splitlines())}
    with Pool(LIMITS) as pool:
        for seed, entry in product(seeds, (entry for entry in BLIND if entry.wave == wave)):
            results = lines[entry.id].setdefault("first", {})
            if seed in results:
                continue
            try:
                exits, code, bug = judged(entry, int(seed), pool)
            except AggverifyError as error:
                exits, code, bug = 2, "", ""
                print(f"{entry.id}: {error}", file=sys.stderr)
            results[seed] = [exits, f"{code} {bug}".strip()]
            rows = (json.dumps(row, ensure_ascii=False) for row in lines.values())
            TABLE.write_text("\n".join((*rows, "")), encoding="utf-8")
            print(entry.id, seed, *results[seed], file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> None:
    if arguments:
        run(arguments[0], arguments[1:] or ["0"])
        return
    PAGE.write_text(page(), encoding="utf-8")
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
