"""What only one check finds: wrong reducers written blind, run again without the check that found
them first. The other checks ask the same cases in the same order, so that no other row changes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aggverify.checks import CHECKS
from aggverify.run.planning.request import Request
from aggverify.world import Pool
from tests.golden.rows import Row, judged, requests
from tests.golden.table import quick

STORED = Path(__file__).parent / "ablation.jsonl"


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


def stored() -> dict[str, tuple[str, str]]:
    """Return, by row, the check that was left out and the one that found it instead."""
    lines = STORED.read_text(encoding="utf-8").splitlines() if STORED.exists() else []
    return {row["name"]: (row["without"], row["instead"]) for row in map(json.loads, lines)}


def table(golden: Mapping[str, Row], cases: Mapping[str, int]) -> Iterator[str]:
    """Yield the table: of each check what it found first, and what nothing else finds.

    ``cases``: of a right reducer, by check.
    """
    first, again = blind(golden), stored()
    found = Counter(first.values())
    # Rows whose first check has changed since have to be run again.
    valid = {name: pair for name, pair in again.items() if first.get(name) == pair[0]}
    asked = Counter(check for check, _ in valid.values())
    alone = Counter(check for check, instead in valid.values() if not instead)
    whole = sum(cases.values())
    yield "| check | cases of a right reducer | finds first | run again | found by nothing else |"
    yield "|---|---|---|---|---|"
    for check in sorted(found, key=lambda name: (-alone[name], -found[name])):
        share = f"{cases.get(check, 0)} ({100 * cases.get(check, 0) / whole:.0f} %)"
        lost = f"{alone[check]} ({100 * alone[check] / len(first):.1f} %)" if asked[check] else ""
        yield f"| `{check}` | {share} | {found[check]} | {asked[check]} | {lost} |"
    idle = [c.name for c in CHECKS if c.name not in found and cases.get(c.name)]
    total = sum(cases[name] for name in idle)
    yield (
        f"\nNo blind one is found first by the {len(idle)} other checks that a right reducer is "
        f"asked, with {total} cases ({100 * total / whole:.0f} %); mutants are found by them."
    )


def record(out: Path, part: str, only: str, golden: Mapping[str, Row], pool: Pool) -> None:
    """Run each row that has not been run without its first check, and append it as a line."""
    number, count = map(int, part.split("/"))
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    first = blind(golden)
    # A row whose first check is another one since is run again.
    kept = {name for name, (check, _) in stored().items() if first.get(name) == check}
    done = kept | {json.loads(line)["name"] for line in lines}
    asked, wanted = requests(), [r for r in first.items() if only in r[1]]
    with out.open("a", encoding="utf-8") as file:
        for name, check in wanted[number - 1 :: count]:
            if name in done:
                continue
            line = {"name": name, "without": check, "instead": without(check, asked[name], pool)}
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(*line.values(), file=sys.stderr, flush=True)
