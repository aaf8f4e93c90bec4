"""The golden table as it is stored, and how a row of today stands to it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from aggverify.run.planning.request import Request
from tests.golden.rows import BY_DEFAULT, Row

STORED = Path(__file__).parent / "verdicts.json.xz"
CHANGED = Path(__file__).parent / "changed.jsonl"
"""Rows whose verdict became another one when they were recorded anew: what differed, and why."""
ALWAYS = (
    "mutant corpus.micro_batches:configured_steps 0",
    "mutant corpus.ratios:penalty_over_what_is_here 1",
    "wrong corpus.blind.state.between_calls:logged_by_the_first_rank 0",
)
"""Wrong on one rank too: a factor of the mode's weights would contradict those beside it. A known
bug in the words of a part, which was an internal error once. And a log that one case shows and
another does not, without any state."""


def golden() -> dict[str, Row]:
    """Every row by its name."""
    rows: dict[str, Row] = json.loads(lzma.decompress(STORED.read_bytes()))
    return rows


def quick(rows: Mapping[str, Row], kind: str = "") -> dict[str, Row]:
    """The rows of the quick profile, all or those of a kind."""
    return {k: row for k, row in rows.items() if k.startswith(kind) and not k.endswith(BY_DEFAULT)}


def keep(rows: Mapping[str, Row], wanted: Container[str], why: str = "") -> None:
    """Store rows, a line each, over those of the same name; those that are not wanted go.

    ``why``: the reason for those that differ from what was stored, which are noted with it. Raises
    ValueError where there are any and no reason.
    """
    before = golden() if STORED.exists() else {}
    known = {name: row for name, row in rows.items() if name in before}
    changed = {n: what for n, row in known.items() if (what := differs(before[n], row))}
    if changed and not why:
        raise ValueError(f"{len(changed)} rows differ, and no --why is given: {min(changed)} …")
    every = before | dict(rows)
    kept = {name: row for name, row in every.items() if name in wanted}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    STORED.write_bytes(lzma.compress(f"{{\n{lines}\n}}\n".encode()))
    noted = ({"row": name, "differs": what, "why": why} for name, what in changed.items())
    with CHANGED.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in noted)


def verdict(row: Row) -> dict[str, Any]:
    """What must stay: the exit code, codes with their dimensions, the first bug, its factor, and
    the size of the smallest case."""
    findings = row["findings"]
    first = next((f for f in findings if f["bug"]), None) or next(iter(findings), {})
    return {
        "exit": row["exit"],
        "codes": sorted([f["code"], *f["dimensions"]] for f in findings),
        "bug": first.get("bug", ""),
        "factor": first.get("factor"),
        "size": min((f["size"] for f in findings), default=[]),
    }


def differs(old: Row, new: Row) -> str:
    """What of a row is not as it was, in one line; nothing where all of it is."""
    was, now = verdict(old), verdict(new)
    return "; ".join(f"{what} {was[what]} → {now[what]}" for what in was if was[what] != now[what])


def summary(row: Row) -> str:
    """Codes, and the bug that is named first."""
    kept = verdict(row)
    return f"{' '.join(code for code, *_ in kept['codes']) or '-'} {kept['bug']}".strip()


SAMPLED = ("wrong", "right", "mutant")
"""Kinds of rows that run as a whole: examples have commands of their own among the tests."""


def whole(rows: Mapping[str, Row]) -> set[str]:
    """Rows of the first seed that the thorough suite runs as they are.

    They have every exit code of each kind, and every number of findings.
    """
    shown: dict[str, set[object]] = {
        n: {(_kind(n), rows[n]["exit"]), len(rows[n]["findings"])}
        for n in _first_seed(rows)
        if _kind(n) in SAMPLED
    }
    return {*ALWAYS, *_cheapest(shown, rows, ALWAYS)}


def by_one_check(rows: Mapping[str, Row], asked: Mapping[str, Request]) -> dict[str, str]:
    """Rows of the first seed that the thorough suite runs with one check alone, the one that finds
    them first: a third of the time.

    Beside those that run as a whole they show every code, check and known bug of any row, and every
    convention and engine of a mutant.
    """
    run = whole(rows)
    shown: dict[str, set[object]] = {}
    for name in _first_seed(rows):
        found = rows[name]["findings"][: None if name in run else 1]
        if found:
            kinds = ("code", "check", "bug")
            shown[name] = {(kind, f[kind]) for f in found for kind in kinds if f[kind]}
            if _kind(name) == "mutant":
                shown[name].add((asked[name].convention, asked[name].engine))
    chosen = _cheapest(shown, rows, run & shown.keys())
    return {name: rows[name]["findings"][0]["check"] for name in chosen}


def _first_seed(rows: Mapping[str, Row]) -> list[str]:
    return [n for n in sorted(quick(rows)) if n in ALWAYS or n.endswith(" 0")]


def _cheapest(
    shown: Mapping[str, set[object]], rows: Mapping[str, Row], have: Iterable[str]
) -> list[str]:
    """Names that show all that these do not, always the one that adds most for its time."""
    left = set().union(*shown.values()).difference(*(shown[name] for name in have))
    chosen = []
    while left:
        gain = {n: len(what & left) / max(0.1, rows[n]["seconds"]) for n, what in shown.items()}
        chosen.append(max(gain, key=lambda name: gain[name]))
        left -= shown[chosen[-1]]
    return chosen


def _kind(name: str) -> str:
    return name.partition(" ")[0]
