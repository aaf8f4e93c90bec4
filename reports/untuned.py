"""What the default run says of reducers that nothing was tuned to, in ``reports/untuned.md``.

``python reports/untuned.py ROWS.json [SEED ...]`` runs ``check`` with each seed (0 by default) over
every reducer of ``tests/branchy/untuned``, in one process, and writes the report; a pair of reducer
and seed that ROWS has already is kept. ``untuned-first.json`` is what was found when they were
written, before anything was mended: that figure stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.branchy.untuned import RIGHT, WRONG, Untuned  # noqa: E402
from tests.branchy.untuned.judging import Row, judged  # noqa: E402

TABLE = ROOT / "reports" / "untuned.md"
FIRST = ROOT / "reports" / "untuned-first.json"
Rows = Mapping[str, Row]


def recorded(path: Path, seeds: Sequence[int]) -> Rows:
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


def of(entry: Untuned, rows: Rows) -> list[Row]:
    """Those of a reducer, one a seed."""
    return [row for key, row in rows.items() if key.rpartition(" ")[0] == entry.name]


def figures(rows: Rows) -> str:
    """How many wrong ones are found, and right ones blamed."""
    pairs = [row for entry in WRONG for row in of(entry, rows)]
    found = sum(row["exit"] == 1 for row in pairs)
    seeds = sorted({key.rpartition(" ")[2] for key in rows})
    missed = sum(all(row["exit"] != 1 for row in of(entry, rows)) for entry in WRONG)
    right = [some for entry in RIGHT if (some := of(entry, rows))]
    blamed = sum(any(row["findings"] for row in some) for some in right)
    return (
        f"{found} of {len(pairs)} pairs of a wrong reducer and a seed are found "
        f"({100 * found / len(pairs):.0f} %; seeds: {', '.join(seeds)}), {missed} of {len(WRONG)} "
        f"reducers on no seed; {blamed} of {len(right)} right ones that were run have a finding."
    )


def report(first: Rows, now: Rows) -> str:
    """The report."""
    lines = [
        "# Reducers that nothing was tuned to",
        "",
        "Written by `python reports/untuned.py`; do not edit. The reducers, with the reason each",
        "is realistic, are in `tests/branchy/untuned`, written before the generator was read.",
        "",
        f"- When they were written: {figures(first)} This is the untuned figure.",
        f"- Now, after whole classes that were missed were mended: {figures(now)}",
        "",
        "| wrong | first | now | missed, because | met where |",
        "|---|---|---|---|---|",
    ]
    for entry in WRONG:
        told = [shown(of(entry, rows)) for rows in (first, now)]
        lines.append(f"| `{entry.name}` | {' | '.join(told)} | {entry.missed} | {entry.met} |")
    lines += ["", "| right | first | now | met where |", "|---|---|---|---|"]
    for entry in RIGHT:
        told = [shown(of(entry, rows)) for rows in (first, now)]
        lines.append(f"| `{entry.name}` | {' | '.join(told)} | {entry.met} |")
    return "\n".join([*lines, ""])


def shown(rows: Sequence[Row]) -> str:
    """The codes of findings with the bugs they were told to be, or the lines that never ran."""
    if not rows:
        return "not run"
    found = dict.fromkeys(
        f"{f['code']} {f['bug']}".strip() for row in rows for f in row["findings"][-1:]
    )
    unseen = dict.fromkeys(text for row in rows for text in row["unseen"])
    return ", ".join(found) or "; ".join(f"not run: {text}" for text in unseen) or "none"


def main(arguments: list[str]) -> None:
    if not arguments:
        sys.exit(__doc__)
    seeds = [int(seed) for seed in arguments[1:]] or [0]
    now = recorded(Path(arguments[0]), seeds)
    TABLE.write_text(report(json.loads(FIRST.read_text()), now), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
