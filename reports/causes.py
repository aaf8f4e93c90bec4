"""Whether the cause that ``check`` names is the known one: over mutants and the branchy corpora.

``python reports/causes.py record OUT.json [EVERY]`` in a checkout runs the quick profile at seed 0
over every EVERY-th mutant of ``tests/corpus`` and wrong reducer of ``tests/branchy`` (4 and 12 by
default; ``1`` takes all), or over the rows of another record; rows that OUT has already are kept.
``python reports/causes.py compare BEFORE.json AFTER.json`` prints the table.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.errors import AggverifyError  # noqa: E402
from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.oracles import MODES  # noqa: E402
from aggverify.run.outcome.verdict import ReportedFinding, Verdict, exit_code  # noqa: E402
from aggverify.run.planning.request import Request  # noqa: E402
from aggverify.run.session import verify  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.branchy.causes import CAUSES  # noqa: E402
from tests.branchy.corpora import WRONG  # noqa: E402
from tests.contradicted import contradicted  # noqa: E402
from tests.corpus import FAMILIES  # noqa: E402

Row = dict[str, Any]
BUDGET = {"profile": "quick", "max_examples": 12, "max_time": 120.0, "seed": 0}
UNNAMED = ("", "another-formula")
OUTCOMES = ("right", "code only", "wrong cause", "nothing found")


def requests(mutants: int, corpora: int) -> Iterator[tuple[str, Request, frozenset[str]]]:
    """Name of a row, what is run, and the bugs and codes that are its known cause."""
    entries = [(family.__name__, m) for family in FAMILIES for m in family.MUTANTS]
    for module, entry in entries[::mutants]:
        policy = {
            question.name: str(reading)
            for question in fields(entry.policy)
            if (reading := getattr(entry.policy, question.name)) != question.default
        }
        given = Request(
            target=f"{module}:{entry.function}",
            modes=(entry.mode,),
            engine=entry.engine,
            convention=entry.convention,
            divisor=entry.divisor,
            claims=frozenset(entry.claims),
            policy=policy,
            **BUDGET,  # type: ignore[arg-type]
        )
        yield f"mutant {entry.function}", given, frozenset((entry.bug, *entry.codes))
    for untuned in WRONG[::corpora]:
        divisor = 16.0 if MODES[untuned.mode].needs_divisor else None
        given = Request(target=untuned.target, modes=(untuned.mode,), divisor=divisor, **BUDGET)  # type: ignore[arg-type]
        yield f"corpus {untuned.target}", given, CAUSES[untuned.name]


def row(request: Request, known: frozenset[str], pool: Pool) -> Row:
    """What the run says, and how that stands to the known cause."""
    try:
        verdicts = verify(request, lambda event: None, pool=pool)
    except AggverifyError as error:
        return {"exit": 2, "outcome": OUTCOMES[3], "why": str(error), "findings": [], "causes": 0}
    found = [told(report) for v in verdicts for group in v.causes for report in group]
    return {
        "exit": int(exit_code(verdicts)),
        "outcome": outcome(found, known),
        "findings": found,
        "causes": sum(map(causes, verdicts)),
    }


def causes(verdict: Verdict) -> int:
    """How many causes are told of what fails."""
    return sum(any(report.fails for report in group) for group in verdict.causes)


def told(report: ReportedFinding) -> Row:
    """What is kept of a finding."""
    d, f = report.diagnosis, report.finding
    return {
        "code": f.code,
        "check": f.check,
        "bug": d.bug.name if d and d.bug else "",
        "sentence": d.sentence if d else "",
        "signature": report.signature,
        "fails": report.fails,
        "refuted": contradicted(f, d, report.stored.claim.divisor),
    }


def outcome(found: list[Row], known: frozenset[str]) -> str:
    """Of the first finding that fails: the known bug, or only its code, or something else."""
    first = next((f for f in found if f["fails"]), None)
    if first is None:
        return OUTCOMES[3]
    if first["bug"] in known:
        return OUTCOMES[0]
    return OUTCOMES[1] if first["bug"] in UNNAMED and first["code"] in known else OUTCOMES[2]


def recorded(path: Path, given: list[str]) -> None:
    rows: dict[str, Row] = json.loads(path.read_text()) if path.exists() else {}
    like = given[0] if given and given[0].endswith(".json") else None
    wanted = None if like is None else json.loads(Path(like).read_text())
    every = [1] if like is not None else [int(text) for text in given] or [4, 12]
    with Pool(LIMITS) as pool:
        for name, request, known in requests(every[0], every[-1]):
            if name not in rows and (wanted is None or name in wanted):
                rows[name] = row(request, known, pool)
                path.write_text(json.dumps(rows, indent=1) + "\n")
                print(name, rows[name]["outcome"], file=sys.stderr, flush=True)


def figures(rows: Mapping[str, Row], kind: str) -> list[str]:
    """One cell a figure."""
    mine = [r for name, r in rows.items() if name.startswith(kind)]
    counts = Counter(r["outcome"] for r in mine)
    shared = Counter(
        signature
        for r in mine
        for signature in {f["signature"] for f in r["findings"] if f["bug"] in UNNAMED}
    )
    return [
        str(len(mine)),
        *(str(counts[each]) for each in OUTCOMES),
        f"{100 * counts['wrong cause'] / max(len(mine), 1):.1f} %",
        str(sum(r["causes"] > 1 for r in mine)),
        str(sum(f["refuted"] for r in mine for f in r["findings"])),
        str(sum(n for n in shared.values() if n > 1)),
    ]


def table(before: Mapping[str, Row], after: Mapping[str, Row]) -> Iterator[str]:
    """The figures of the rows that both have, and what differs."""
    both = [name for name in before if name in after]
    heads = ("", "rows", *OUTCOMES, "wrong-cause rate", "several causes", "refuted by its step")
    yield f"| {' | '.join((*heads, 'share a signature'))} |"
    yield "|---" * (len(heads) + 1) + "|"
    for kind in ("mutant", "corpus"):
        for when, rows in (("before", before), ("after", after)):
            cells = figures({name: rows[name] for name in both}, kind)
            yield f"| {kind}, {when} | {' | '.join(cells)} |"
    for name in both:
        was, now = before[name]["outcome"], after[name]["outcome"]
        if was != now:
            yield f"- `{name}`: {was} → {now}"


def main(arguments: list[str]) -> None:
    if arguments[0] == "record":
        recorded(Path(arguments[1]), arguments[2:])
    else:
        rows = [json.loads(Path(path).read_text()) for path in arguments[1:3]]
        print("\n".join(table(rows[0], rows[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
