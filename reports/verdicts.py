"""The golden table: the quick profile's verdict on every example, mutant and corpus reducer.

Of 200 of them, and 12 that only the default profile finds, it has that profile's too.

``python reports/verdicts.py record OUT.jsonl [--part 1/2] [--only WORD]`` runs the rows of
``tests/golden/rows.py`` in one process (rows that OUT has already are kept: interrupted, it goes
on). ``keep OUT.jsonl ... --why WHY`` makes them the table and notes those that differ in
``tests/golden/changed.jsonl``, ``compare OUT.jsonl ...`` prints what differs from it, and
``causes OUT.jsonl [BEFORE.jsonl]`` how often the cause that is named is the known one.
``documents`` makes the stored documents, and what every format makes of them, anew.
``ablate OUT.jsonl [--part 1/2] [--only CHECK]`` runs wrong reducers without the check that found
them first; appended to ``tests/golden/ablation.jsonl``, they are in the page of ``power.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.golden import ablation, causes, documents, table  # noqa: E402
from tests.golden.rows import Row, judged, requests  # noqa: E402


def record(out: Path, part: str, only: str) -> None:
    """Run each row that is missing, and append it as a line."""
    done = read([out]) if out.exists() else {}
    number, count = map(int, part.split("/"))
    wanted = {name: request for name, request in requests().items() if only in name}
    with Pool(LIMITS) as pool, out.open("a", encoding="utf-8") as file:
        for name, request in list(wanted.items())[number - 1 :: count]:
            if name not in done:
                began = monotonic()
                row = judged(request, pool) | {"seconds": round(monotonic() - began, 1)}
                file.write(json.dumps({"name": name, **row}) + "\n")
                file.flush()
                print(name, row["exit"], table.summary(row), file=sys.stderr, flush=True)


def read(paths: Sequence[Path]) -> dict[str, Row]:
    """Rows by name, of several files."""
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return {row.pop("name"): row for row in map(json.loads, lines)}


def compared(new: Mapping[str, Row]) -> list[str]:
    """A line for each row that differs from the golden one."""
    old = table.golden()
    differ = {name: table.differs(old[name], row) for name, row in new.items() if name in old}
    return [f"{name}: {why}" for name, why in differ.items() if why] + [
        f"{name}: has no golden row" for name in new.keys() - old.keys()
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("record", "rows with this in their name"), ("ablate", "of this check")):
        recording = commands.add_parser(name)
        recording.add_argument("out", type=Path)
        recording.add_argument("--part", default="1/1", help="K/N: the K-th of N equal parts")
        recording.add_argument("--only", default="", help=what)
    for name in ("keep", "compare"):
        reading = commands.add_parser(name)
        reading.add_argument("rows", type=Path, nargs="+")
        if name == "keep":
            reading.add_argument("--why", default="", help="the reason for those that differ")
    commands.add_parser("documents")
    known = commands.add_parser("causes")
    known.add_argument("rows", type=Path)
    known.add_argument("before", type=Path, nargs="?")
    given = parser.parse_args(arguments)
    if given.command == "record":
        record(given.out, given.part, given.only)
    elif given.command == "ablate":
        with Pool(LIMITS) as pool:
            ablation.record(given.out, given.part, given.only, table.golden(), pool)
    elif given.command == "documents":
        with Pool(LIMITS) as pool:
            documents.keep(documents.made(pool))
    elif given.command == "keep":
        table.keep(read(given.rows), requests(), given.why)
    elif given.command == "compare":
        lines = compared(read(given.rows))
        print("\n".join(lines) or "No row differs.")
        sys.exit(bool(lines))
    else:
        before = read([given.before]) if given.before else None
        print(causes.page(read([given.rows]), before))


if __name__ == "__main__":
    main(sys.argv[1:])
