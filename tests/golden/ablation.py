"""What only one check finds: wrong reducers written blind, run again without the check that found
them first. The other checks ask the same cases in the same order, so that no other row changes.

Beside it what each check costs: cases and steps of a right reducer, lines of its file.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

from aggverify import checks
from aggverify.checks import Check
from aggverify.run.opening import loaded
from aggverify.run.planning.plan import plan
from aggverify.run.planning.request import Request
from aggverify.run.search.entry_runner import run_check
from aggverify.run.session import prepared
from aggverify.world import Pool
from tests.golden.rows import Row, judged, requests
from tests.golden.table import quick

STORED = Path(__file__).parent / "ablation.jsonl"
RIGHT = Request(target="examples/native/sum/token_mean.py", modes=("token_mean",))


def first_check(row: Row) -> str | None:
    """Return the check whose finding fails the reducer first, None where none does."""
    return next((f["check"] for f in row["findings"] if f["fails"]), None)


def blind(golden: Mapping[str, Row]) -> dict[str, str]:
    """Return each wrong reducer written blind that is found, with its first check."""
    rows = ((name, first_check(row)) for name, row in quick(golden, "wrong ").items())
    return {name: check for name, check in rows if check is not None}


def without(check: str, request: Request, pool: Pool) -> str:
    """Return the check that finds a reducer instead, "" where none does."""
    return first_check(judged(replace(request, skip=(check,)), pool)) or ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a check: cases and steps that it takes of a right reducer, and the lines of its file."""

    check: str
    cases: int
    steps: int
    lines: int


def costs(pool: Pool) -> Iterator[Cost]:
    """Run a right reducer by default; yield the cost of every check it is asked."""
    with loaded(RIGHT, pool) as (subjects, executor):
        executor.begin()
        for entry in plan(prepared(subjects[0], executor)).entries:
            before = executor.executed
            cases = run_check(entry, executor).summary.cases
            if cases:
                steps = executor.executed - before
                yield Cost(entry.check.name, cases, steps, lines(entry.check))


def lines(check: Check) -> int:
    """Return the lines of the file that a check is written in."""
    names = (found.name for found in pkgutil.iter_modules(checks.__path__))
    modules = [import_module(f"{checks.__name__}.{name}") for name in names]
    [home] = [m for m in modules if any(value is check for value in vars(m).values())]
    return len(inspect.getsource(home).splitlines())


def stored() -> tuple[dict[str, tuple[str, str]], dict[str, Cost]]:
    """Return by row the check left out and the one that found it instead; and costs by check."""
    text = STORED.read_text(encoding="utf-8") if STORED.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    again = {row["name"]: (row["without"], row["instead"]) for row in rows if "name" in row}
    return again, {row["check"]: Cost(**row) for row in rows if "name" not in row}


def table(golden: Mapping[str, Row]) -> Iterator[str]:
    """Yield the table: of each check what it found first, and what nothing else finds."""
    first, (again, measured) = blind(golden), stored()
    found = Counter(first.values())
    # Rows whose first check has changed since have to be run again.
    valid = {name: pair for name, pair in again.items() if first.get(name) == pair[0]}
    asked = Counter(check for check, _ in valid.values())
    alone = Counter(check for check, instead in valid.values() if not instead)
    whole = sum(cost.steps for cost in measured.values())
    yield "| check | lines | cases | steps | finds first | run again | found by nothing else |"
    yield "|---|---|---|---|---|---|---|"
    for check in sorted(found, key=lambda name: (-alone[name], -found[name])):
        takes = "not asked | |"
        if (cost := measured.get(check)) is not None:
            share = f"{100 * cost.steps / whole:.0f} %"
            takes = f"{cost.lines} | {cost.cases} | {cost.steps} ({share})"
        lost = f"{alone[check]} ({100 * alone[check] / len(first):.1f} %)" if asked[check] else ""
        yield f"| `{check}` | {takes} | {found[check]} | {asked[check]} | {lost} |"
    idle = [cost for cost in measured.values() if cost.check not in found]
    steps = sum(cost.steps for cost in idle)
    yield (
        f"\nNo blind one is found first by the {len(idle)} other checks that this one is asked, "
        f"with {steps} steps ({100 * steps / whole:.0f} %); mutants are found by them."
    )


def record(out: Path, part: str, only: str, golden: Mapping[str, Row], pool: Pool) -> None:
    """Run each row that has not been run without its first check, and append it as a line.

    A new file begins with what each check costs today.
    """
    number, count = map(int, part.split("/"))
    before = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    first = blind(golden)
    # A row whose first check is another one since is run again.
    again, _ = stored()
    kept = {name for name, (check, _) in again.items() if first.get(name) == check}
    done = kept | {json.loads(line).get("name") for line in before}
    asked, wanted = requests(), [r for r in first.items() if only in r[1]]
    with out.open("a", encoding="utf-8") as file:
        if not before:
            file.writelines(json.dumps(asdict(cost)) + "\n" for cost in costs(pool))
        for name, check in wanted[number - 1 :: count]:
            if name in done:
                continue
            line = {"name": name, "without": check, "instead": without(check, asked[name], pool)}
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(*line.values(), file=sys.stderr, flush=True)
