"""What the default run says of reducers that nothing was tuned to.

``python reports/untuned.py ROWS.json [SEED ...] [--folder unread]`` runs ``check`` with each seed
(0 by default) over every reducer of ``tests/branchy/untuned`` (or another folder of
``tests/branchy/corpora.py``), in one process, each until its first confirmed finding that fails,
and writes ``reports/untuned.md`` (``unread.md`` and so on). A pair of reducer and seed that ROWS
has already is kept: interrupted, it goes on where it was. ``untuned-first.json`` and its like are
what was found when they were first run, before anything was mended: those figures stay. Where
there is no such file, there is no first figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.branchy.causes import is_found  # noqa: E402
from tests.branchy.corpora import CORPORA, Corpus  # noqa: E402
from tests.branchy.untuned import Untuned  # noqa: E402
from tests.branchy.untuned.judging import Row, judged  # noqa: E402

from aggverify.errors import AggverifyError  # noqa: E402
from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.world import Pool  # noqa: E402

Rows = Mapping[str, Row]
CAUSES = (
    "What is a cause of each is in `tests/branchy/causes.py`: a finding with another code, or told",
    "to be another bug, does not count as found.",
)
FOLDERS = {corpus.name: corpus for corpus in CORPORA}


def kept(name: str) -> Path:
    """Rows of the day on which a folder was first run; no file before that."""
    return ROOT / "reports" / f"{name}-first.json"


def recorded(folder: Corpus, path: Path, seeds: Sequence[int]) -> Rows:
    """The rows of every reducer and seed, of which those in the file are not run again."""
    rows: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    with Pool(LIMITS) as pool:
        for some in (folder.wrong, folder.right):
            for seed, entry in product(seeds, some):
                key = f"{entry.name} {seed}"
                if key not in rows:
                    rows[key] = row(entry, seed, pool)
                    path.write_text(json.dumps(rows, indent=1) + "\n")
                    codes = [f["code"] for f in rows[key]["findings"]]
                    print(key, rows[key]["exit"], codes, file=sys.stderr, flush=True)
    return rows


def row(entry: Untuned, seed: int, pool: Pool) -> Row:
    """What the run says; what it cannot judge is a row too, so that the others are still run."""
    try:
        return judged(entry, seed, pool)
    except AggverifyError as error:
        return {"exit": 2, "findings": [], "unseen": [f"not judged: {error}"]}


def of(entry: Untuned, rows: Rows) -> list[Row]:
    """Those of a reducer, one a seed."""
    return [row for key, row in rows.items() if key.rpartition(" ")[0] == entry.name]


def found(entry: Untuned, rows: Rows) -> list[bool]:
    """Of each seed, whether it ends with exit 1 and a cause that is there."""
    return [is_found(entry.name, row) for row in of(entry, rows)]


def figures(folder: Corpus, rows: Rows) -> str:
    """How many wrong ones are found, and right ones blamed."""
    by_seed = [found(entry, rows) for entry in folder.wrong]
    pairs = [each for some in by_seed for each in some]
    fails = sum(row["exit"] == 1 for entry in folder.wrong for row in of(entry, rows))
    seeds = sorted({key.rpartition(" ")[2] for key in rows})
    missed = sum(not any(some) for some in by_seed)
    right = [some for entry in folder.right if (some := of(entry, rows))]
    blamed = sum(any(row["findings"] for row in some) for some in right)
    told = f"{blamed} of {len(right)} right ones that were run have a finding"
    if not folder.wrong:
        return f"{told} (seeds: {', '.join(seeds)})."
    return (
        f"{sum(pairs)} of {len(pairs)} pairs of a wrong reducer and a seed end with exit 1 and a "
        f"cause that is there ({100 * sum(pairs) / max(len(pairs), 1):.1f} %; seeds: "
        f"{', '.join(seeds)}), {fails - sum(pairs)} with exit 1 and another cause, {missed} of "
        f"{len(folder.wrong)} reducers are found on no seed; {told}."
    )


def report(folder: Corpus, now: Rows) -> str:
    """The report."""
    option = "" if folder.name == "untuned" else f" --folder {folder.name}"
    lines = [
        "# Reducers that nothing was tuned to",
        "",
        f"Written by `python reports/untuned.py{option}`; do not edit. The reducers, with the",
        f"reason each is realistic, are in `tests/branchy/{folder.name}`, written before the",
        "generator was read.",
        *(CAUSES if folder.wrong else ()),
        "",
    ]
    columns: dict[str, Rows] = {"now": now}
    if kept(folder.name).exists():
        first: Rows = json.loads(kept(folder.name).read_text())
        lines.append(
            f"- When they were first run: {figures(folder, first)} This is the untuned figure."
        )
        columns = {"first": first} | ({} if now == first else columns)
        since = "Now, after whole classes that were missed were mended"
    else:
        since = "As they are run now, with no first run kept"
    if "now" in columns:
        lines.append(f"- {since}: {figures(folder, now)}")
    heads = " | ".join(columns)
    rule = "|---" * len(columns)
    if folder.wrong:
        lines += ["", f"| wrong | {heads} | missed, because | met where |", f"|---{rule}|---|---|"]
    for entry in folder.wrong:
        told = " | ".join(
            shown(of(entry, rows)) + another(entry, rows) for rows in columns.values()
        )
        lines.append(f"| `{entry.name}` | {told} | {entry.missed} | {entry.met} |")
    lines += ["", f"| right | {heads} | met where |", f"|---{rule}|---|"]
    for entry in folder.right:
        told = " | ".join(shown(of(entry, rows)) for rows in columns.values())
        lines.append(f"| `{entry.name}` | {told} | {entry.met} |")
    return "\n".join([*lines, ""])


def another(entry: Untuned, rows: Rows) -> str:
    """A remark on what is told where it is not there."""
    failed = [row["exit"] == 1 for row in of(entry, rows)]
    return " (another cause)" if failed != found(entry, rows) else ""


def shown(rows: Sequence[Row]) -> str:
    """On how many seeds it is found, the codes of findings with what they were told to be, and the
    lines that never ran where a seed found nothing."""
    if not rows:
        return "not run"
    told = dict.fromkeys(
        f"{f['code']} {f['bug'] or f.get('cause', '')}".strip().replace("|", "\\|")
        for row in rows
        for f in row["findings"][-1:]
    )
    unseen = dict.fromkeys(
        f"not run: {text}" for row in rows if row["exit"] != 1 for text in row["unseen"]
    )
    seeds = [f"{sum(row['exit'] == 1 for row in rows)} of {len(rows)}"] if len(rows) > 1 else []
    return "; ".join([*seeds, *told, *unseen]) or "none"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--folder", choices=FOLDERS, default="untuned")
    given = parser.parse_intermixed_args(arguments)
    folder = FOLDERS[given.folder]
    now = recorded(folder, given.rows, given.seeds or [0])
    table = ROOT / "reports" / f"{folder.name}.md"
    table.write_text(report(folder, now), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
