"""What each shape costs and what it alone finds, in ``reports/shapes.md``.

``python reports/shapes.py`` runs the listed cases of each shape by themselves on every wrong
reducer of ``tests/branchy`` that has branches, and the default run, check by check, on a right one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.checks import shapes  # noqa: E402
from aggverify.execution.budget import Budget  # noqa: E402
from aggverify.execution.laboratory import Laboratory  # noqa: E402
from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.execution.subject import Subject  # noqa: E402
from aggverify.generation.shapes import shaped  # noqa: E402
from aggverify.run.outcome.tally import Tally  # noqa: E402
from aggverify.run.planning.plan import plan  # noqa: E402
from aggverify.run.planning.request import Request  # noqa: E402
from aggverify.run.search.check_run import CheckRun  # noqa: E402
from aggverify.run.search.run_check import run_check  # noqa: E402
from aggverify.run.session import loaded, prepared  # noqa: E402
from aggverify.steps.case import Case  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.branchy import untuned, wrong  # noqa: E402

TABLE = ROOT / "reports" / "shapes.md"
SHAPES = tuple(Budget().shapes)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of the listed cases of a shape, for a reducer without numbers of its own."""

    cases: int
    ranks: int
    tokens: int


def targets() -> Iterator[tuple[str, str]]:
    """Target and mode of the wrong reducers."""
    for entry in wrong.WRONG:
        if entry.check == shapes.NAME:
            yield f"tests.branchy.wrong:{entry.function}", entry.mode
    for other in untuned.WRONG:
        yield other.target, other.mode


def listed(subject: Subject, shape: str) -> tuple[Case, ...]:
    """The cases of one shape, as many as the profile has."""
    most = dict.fromkeys(SHAPES, 0) | {shape: subject.claim.budget.shapes[shape]}
    return shaped(shapes.space(subject), subject.found.constants, most)


def cost(cases: tuple[Case, ...]) -> Cost:
    return Cost(
        len(cases),
        sum(case.layout.world_size for case in cases),
        sum(case.step.num_response_tokens for case in cases),
    )


def found_by(subject: Subject, laboratory: Laboratory) -> list[str]:
    """The shapes that find it, each by itself."""
    found = []
    for shape in SHAPES:
        check = replace(shapes.CHECK, stored=partial(listed, shape=shape))
        run = CheckRun(check, subject, shapes.space(subject), laboratory, Tally())
        if run.stored_failure() is not None:
            found.append(shape)
    return found


def by_shape(pool: Pool) -> dict[str, list[str]]:
    """By which shapes each reducer is found that an earlier check does not find."""
    rows = {}
    for target, mode in targets():
        with loaded(Request(target=target, modes=(mode,)), pool) as (subjects, laboratory):
            laboratory.begin()
            subject = prepared(subjects[0], laboratory)
            rows[target.rpartition(":")[2]] = found_by(subject, laboratory)
            print(target, rows[target.rpartition(":")[2]], file=sys.stderr, flush=True)
    return rows


def by_check(pool: Pool) -> tuple[dict[str, tuple[int, int]], dict[str, Cost]]:
    """Cases and steps of every check of a default run; the cost of each shape."""
    request = Request(target="examples/native/sum/token_mean.py", modes=("token_mean",))
    with loaded(request, pool) as (subjects, laboratory):
        laboratory.begin()
        subject = prepared(subjects[0], laboratory)
        rows = {}
        for entry in plan(subject).entries:
            before = laboratory.executed
            outcome = run_check(entry, laboratory)
            if laboratory.executed > before:
                rows[entry.check.name] = (outcome.summary.cases, laboratory.executed - before)
        return rows, {shape: cost(listed(subject, shape)) for shape in SHAPES}


def report(
    found: Mapping[str, list[str]], checks: Mapping[str, tuple[int, int]], costs: Mapping[str, Cost]
) -> str:
    """The report."""
    total = sum(steps for _, steps in checks.values())
    lines = [
        "# Shapes",
        "",
        "Written by `python reports/shapes.py`; do not edit. The reducers are the wrong ones of",
        "`tests/branchy`; a shape by itself, on one that has no other number in its code.",
        "",
        "| shape | cases | ranks | response tokens | finds | finds alone |",
        "|---|---|---|---|---|---|",
    ]
    for shape, spent in costs.items():
        mine = [name for name, shapes in found.items() if shape in shapes]
        alone = [name for name in mine if found[name] == [shape]]
        names = f": {', '.join(f'`{name}`' for name in alone)}" if alone else ""
        lines.append(
            f"| {shape} | {spent.cases} | {spent.ranks} | {spent.tokens:,} | {len(mine)} | "
            f"{len(alone)}{names} |"
        )
    none = sum(not shapes for shapes in found.values())
    lines += [
        "",
        f"{len(found)} wrong reducers; {none} are found by no listed case: by other checks, by",
        "drawn ones, or not at all (`untuned.md`).",
        "",
        f"A default run of a right reducer: {total:,} steps.",
        "",
        "| check | cases | steps |",
        "|---|---|---|",
        *(f"| `{name}` | {cases} | {steps} |" for name, (cases, steps) in checks.items()),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    with Pool(LIMITS) as pool:
        checks, costs = by_check(pool)
        TABLE.write_text(report(by_shape(pool), checks, costs), encoding="utf-8")


if __name__ == "__main__":
    main()
