"""What the default run says of reducers that nothing was tuned to, in ``reports/untuned.md``.

``python reports/untuned.py ROWS.json [SEED ...]`` runs ``check`` with each seed (0, 1 and 2 by
default) over every reducer of ``tests/branchy/untuned``, in one process, and writes the report; a
pair of reducer and seed that ROWS has already is kept.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.run.outcome.events import Event, Found  # noqa: E402
from aggverify.run.outcome.verdict import ReportedFinding, Verdict, exit_code  # noqa: E402
from aggverify.run.planning.request import Request  # noqa: E402
from aggverify.run.session import verify  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.branchy.untuned import RIGHT, WRONG, Untuned  # noqa: E402

TABLE = ROOT / "reports" / "untuned.md"
UNSEEN = ("AGVW17", "AGVW18")
"""Warnings that name lines which never ran, at all or on several ranks."""
Row = dict[str, Any]


class _Enough(Exception):
    """A finding that fails is confirmed."""


def judged(entry: Untuned, seed: int, pool: Pool) -> Row:
    """Exit code, and what was found; a run ends at its first finding that fails."""
    found: list[ReportedFinding] = []

    def emit(event: Event) -> None:
        if isinstance(event, Found):
            found.append(event.report)
            if event.report.fails and event.report.confirmed:
                raise _Enough

    verdicts: Sequence[Verdict] = ()
    try:
        request = Request(target=entry.target, modes=(entry.mode,), seed=seed)
        verdicts = verify(request, emit, pool=pool)
    except _Enough:
        code = 1
    else:
        code = int(exit_code(verdicts))
    weak = [w.detail for v in verdicts for w in v.weaknesses if w.code in UNSEEN]
    return {"exit": code, "findings": [told(report) for report in found], "unseen": weak}


def told(report: ReportedFinding) -> Row:
    """What is kept of a finding."""
    diagnosis = report.diagnosis
    return {
        "code": report.finding.code,
        "check": report.finding.check,
        "message": report.finding.message,
        "bug": diagnosis.bug.name if diagnosis is not None and diagnosis.bug is not None else "",
        "confirmed": report.confirmed,
    }


def recorded(path: Path, seeds: Sequence[int]) -> dict[str, Row]:
    """The rows of every reducer and seed, of which those in the file are not run again."""
    rows: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    with Pool(LIMITS) as pool:
        for seed in seeds:
            for entry in (*WRONG, *RIGHT):
                key = f"{entry.name} {seed}"
                if key not in rows:
                    rows[key] = judged(entry, seed, pool)
                    path.write_text(json.dumps(rows, indent=1) + "\n")
                    codes = [f["code"] for f in rows[key]["findings"]]
                    print(key, rows[key]["exit"], codes, file=sys.stderr, flush=True)
    return rows


def report(rows: dict[str, Row], seeds: Sequence[int]) -> str:
    """The report."""
    wrong = {e.name: [rows[f"{e.name} {s}"] for s in seeds] for e in WRONG}
    right = {e.name: [rows[f"{e.name} {s}"] for s in seeds] for e in RIGHT}
    pairs = [row for some in wrong.values() for row in some]
    found = sum(row["exit"] == 1 for row in pairs)
    missed = [name for name, some in wrong.items() if all(row["exit"] != 1 for row in some)]
    blamed = [name for name, some in right.items() if any(row["findings"] for row in some)]
    lines = [
        "# Reducers that nothing was tuned to",
        "",
        "Written by `python reports/untuned.py`; do not edit.",
        "",
        f"{len(WRONG)} wrong and {len(RIGHT)} right reducers (`tests/branchy/untuned`), the "
        f"default run, seeds {', '.join(map(str, seeds))}.",
        "",
        f"Found: {found} of {len(pairs)} pairs of wrong reducer and seed "
        f"({100 * found / len(pairs):.0f} %). Missed on every seed: {len(missed)}. "
        f"Right ones with a finding: {len(blamed)}.",
        "",
        "| wrong | found on | as | met where |",
        "|---|---|---|---|",
    ]
    for entry in WRONG:
        some = wrong[entry.name]
        hits = f"{sum(row['exit'] == 1 for row in some)} of {len(some)}"
        lines.append(f"| `{entry.name}` | {hits} | {_as(some)} | {entry.met} |")
    lines += ["", "| right | findings | met where |", "|---|---|---|"]
    for entry in RIGHT:
        lines.append(f"| `{entry.name}` | {_as(right[entry.name]) or 'none'} | {entry.met} |")
    return "\n".join([*lines, ""])


def _as(rows: Sequence[Row]) -> str:
    """The codes of findings and the bugs they were told to be, or the lines that never ran."""
    found = dict.fromkeys(
        f"{f['code']} {f['bug']}".strip() for row in rows for f in row["findings"][-1:]
    )
    unseen = dict.fromkeys(text for row in rows for text in row["unseen"])
    return ", ".join(found) or "; ".join(f"not run: {text}" for text in unseen)


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.exit(__doc__)
    seeds = [int(seed) for seed in arguments[1:]] or [0, 1, 2]
    TABLE.write_text(report(recorded(Path(arguments[0]), seeds), seeds), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
