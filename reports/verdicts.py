"""Verdicts of a checkout, recorded and compared: of every example and reducer of the corpus.

``python reports/verdicts.py record OUT.json [WORD]`` in a checkout (rows with WORD in their name;
rows that OUT has already are kept), then ``python reports/verdicts.py compare OLD.json NEW.json``
prints a Markdown table: what of a row's verdicts differs, and cases that have become larger.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from aggverify.steps.case import Case

ROOT = Path(__file__).parents[1]
BUDGET = ("--profile", "quick", "--max-examples", "12", "--max-time", "900", "--seed", "0")
ORACLE = "examples/length_weighted.py"
ASPECTS = ("mode", "engine", "identified", "not_claimed", "findings", "bugs", "factor")
Row = dict[str, Any]
Size = tuple[int, int, int, int]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Name of a row, and what ``aggverify check`` is given for it."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name != ORACLE:
            yield name, [name]
    sys.path.insert(0, str(ROOT))
    from tests.corpus import FAMILIES, RIGHT

    for kind, families in (("mutant", FAMILIES), ("right", RIGHT)):
        for family in families:
            for entry in family.MUTANTS if kind == "mutant" else family.CORRECT:
                target = f"{family.__name__}:{entry.function}"
                short = f"{family.__name__.rpartition('.')[2]}:{entry.function}"
                yield f"{kind} {short}", [target, *options(entry)]
                if kind == "right" and entry.convention == "native":
                    yield f"bare {short}", [target]


def options(entry: Any) -> list[str]:
    """What the command line is told of an entry of the corpus."""
    given = ["--mode", entry.mode, "--engine", entry.engine, "--convention", entry.convention]
    if entry.divisor is not None:
        given += ["--divisor", str(entry.divisor)]
    for claim in entry.claims:
        given += ["--claim", claim]
    for question in fields(entry.policy):
        reading = getattr(entry.policy, question.name)
        if reading != question.default:
            given += ["--policy", f"{question.name}={reading}"]
    return given


def recorded(arguments: list[str]) -> Row:
    """Exit code of one check, and what its verdict document says."""
    with tempfile.TemporaryDirectory() as folder:
        written = ("--report", "json", "--report-dir", folder)
        command = [sys.executable, "-m", "aggverify", "check", *arguments, *BUDGET, *written]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        file = Path(folder) / "verdict.json"
        verdicts = json.loads(file.read_text())["verdicts"] if file.exists() else []
    return {"exit": ran.returncode, "verdicts": [outcome(v) for v in verdicts]}


def outcome(verdict: Row) -> Row:
    """What is kept of a verdict."""
    kept = ("check", "code", "confirmed", "factor")
    return {
        **{name: verdict[name] for name in ("mode", "engine", "identified", "computes_in")},
        "not_claimed": sorted(verdict["not_claimed"]),
        "findings": [
            {
                **{name: found[name] for name in kept},
                "bugs": [bug["name"] for bug in found["bugs"]],
                "case": found["case"]["case"],
            }
            for found in verdict["findings"]
        ],
    }


def compared(old: Row, new: Row) -> list[str]:
    """What of two rows differs, where it must not."""
    if old["exit"] != new["exit"]:
        return [f"exit {old['exit']} → {new['exit']}"]
    if len(old["verdicts"]) != len(new["verdicts"]):
        return [f"{len(old['verdicts'])} → {len(new['verdicts'])} verdicts"]
    told = []
    for before, after in zip(old["verdicts"], new["verdicts"], strict=True):
        for what in ASPECTS:
            was, now = told_of(before, what), told_of(after, what)
            if was != now:
                told.append(f"{what}: {was} → {now}")
        told += larger(before, after)
    return told


def told_of(verdict: Row, name: str) -> Any:
    """One aspect of a verdict, as far as it must stay; the order of findings may change."""
    findings = verdict["findings"]
    if name == "not_claimed":
        return sorted(verdict[name])
    if name == "findings":
        return sorted((f["check"], f["code"], f["confirmed"]) for f in findings)
    if name in ("bugs", "factor"):
        return sorted((f["check"], f["code"], str(f[name])) for f in findings)
    return verdict[name]


def larger(old: Row, new: Row) -> list[str]:
    """Findings whose case is larger than it was."""
    was = {(f["check"], f["code"]): size(f["case"]) for f in old["findings"]}
    told = []
    for found in new["findings"]:
        before, now = was.get((found["check"], found["code"])), size(found["case"])
        if before is not None and any(a > b for a, b in zip(now, before, strict=True)):
            told.append(f"{found['code']}: ranks, micro-batches, samples, tokens {before} → {now}")
    return told


def size(data: Any) -> Size:
    """Ranks, micro-batches, samples and response tokens of a stored case."""
    case = Case.from_json(data)
    step, layout = case.step, case.layout
    counts = (layout.num_microbatches, len(step.samples), step.num_response_tokens)
    return (layout.world_size, *counts)


def summary(row: Row) -> str:
    """Exit code, modes, and codes of what was found."""
    modes = ", ".join(f"{v['mode']} / {v['engine']}" for v in row["verdicts"])
    codes = sorted({f["code"] for v in row["verdicts"] for f in v["findings"]})
    return f"{row['exit']} | {modes or '-'} | {' '.join(codes) or '-'}"


def table(old: dict[str, Row], new: dict[str, Row]) -> Iterator[str]:
    """The comparison's lines."""
    differ = {name: compared(old[name], new[name]) for name in old if name in new}
    alike = sum(not told for told in differ.values())
    yield f"{len(differ)} rows; {alike} are alike in exit code, mode, engine, findings (check,"
    yield "code, confirmed), named bugs, factors and what is not claimed, no case being larger."
    for word, missing in (("before", old.keys() - new), ("now", new.keys() - old)):
        if missing:
            some = ", ".join(sorted(missing)[:3])
            yield f"\nOnly {word}: {len(missing)} rows, among them {some}."
    yield "\n| | exit | mode / engine | codes | |\n|---|---|---|---|---|"
    for name, told in differ.items():
        yield f"| {name} | {summary(new[name])} | {'; '.join(told) or 'equal'} |"


def main(arguments: list[str]) -> None:
    match arguments:
        case ["record", out, *word]:
            path = Path(out)
            done = json.loads(path.read_text()) if path.exists() else {}
            for name, given in commands():
                if name not in done and (not word or word[0] in name):
                    done[name] = recorded(given)
                    path.write_text(json.dumps(done, indent=1) + "\n")
                    print(len(done), name, done[name]["exit"], file=sys.stderr, flush=True)
        case ["compare", old, new]:
            print("\n".join(table(*(json.loads(Path(p).read_text()) for p in (old, new)))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
