"""What each shape of the search costs and what it alone finds, in ``reports/shapes.md``.

``python reports/shapes.py`` runs each shape by itself on every wrong reducer of
``tests/corpus/blind`` and ``tests/corpus/branches``, as many cases as the default run has. With
``ROWS.json``, what has been found is kept there, and a run that was broken off goes on.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aggverify.checks import Check, check, shapes  # noqa: E402
from aggverify.execution.executor import Executor  # noqa: E402
from aggverify.execution.limits import LIMITS  # noqa: E402
from aggverify.execution.subject import Subject  # noqa: E402
from aggverify.generation.constants import CONSTANTS, shaped  # noqa: E402
from aggverify.generation.shapes import FAMILIES  # noqa: E402
from aggverify.run.opening import loaded  # noqa: E402
from aggverify.run.outcome.statistics import RunStatistics  # noqa: E402
from aggverify.run.planning.plan import plan  # noqa: E402
from aggverify.run.planning.request import Request  # noqa: E402
from aggverify.run.search.drawing import draws, search  # noqa: E402
from aggverify.run.search.entry_runner import on_branches  # noqa: E402
from aggverify.run.search.runner import CheckRun  # noqa: E402
from aggverify.run.session import prepared  # noqa: E402
from aggverify.steps.case import Case  # noqa: E402
from aggverify.steps.layouts import Layout  # noqa: E402
from aggverify.steps.notation import parse_step  # noqa: E402
from aggverify.world import Pool  # noqa: E402
from tests.corpus.branches import wrong  # noqa: E402
from tests.corpus.judging import request  # noqa: E402
from tests.corpus.table import WRONG  # noqa: E402

TABLE = ROOT / "reports" / "shapes.md"
RIGHT = Request(target="examples/native/sum/token_mean.py", modes=("token_mean",))
OTHERS = "every property on all branches"
CHECKS: Mapping[str, tuple[str, ...]] = {
    "virtual worlds, pretended counts": ("holds_in_larger_worlds", "counts_of_a_larger_step"),
    "backward, no_grad, autocast": (
        "gradient_follows_the_loss",
        "the_same_in_validation_and_autocast",
    ),
    "steps and calls before": ("keeps_nothing_between_steps",),
    "every log key": ("logs_say_the_objective",),
    "late collectives, infinities": ("waits_for_collectives", "infinities_are_seen"),
    "launched ranks": ("launched_as_forked",),
}
"""Shapes that are checks of their own."""
BRANCHES = Request("tests.corpus.branches.right:fused_rows_are_scaled_back", modes=("token_mean",))
NEEDS: Mapping[str, Request] = {
    CONSTANTS: BRANCHES,
    OTHERS: BRANCHES,
    "every log key": Request(
        target="tests.corpus.blind.worlds.nodes:logs_what_it_has", modes=("token_mean",)
    ),
    "launched ranks": Request(
        target="tests.corpus.blind.worlds.nodes:two_levels", modes=("token_mean",)
    ),
}
"""Right reducers that have what a shape is about: numbers, conditions, logs, collectives."""
WORLDS = (1, 2, 4, 8)
SHAPES = (CONSTANTS, *FAMILIES, OTHERS, *CHECKS)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a shape, on a right reducer, with ranks that are up."""

    cases: int
    steps: int
    seconds: float
    """Of all processes together."""


GONE = """
Two shapes are not in the table any more. Cases drawn towards a condition by branch distance
(388 steps) found nine of then 602 alone: five were written for it and went with it, four are
found without it today. Cases made for conditions that only went one way (273 steps) found two
alone: `fused_rows_are_scaled_twice`, which is found without them, and
`group_counts_from_probed_slots`, which is not."""


def targets() -> list[Request]:
    """The wrong reducers."""
    own = [
        Request(f"tests.corpus.branches.wrong:{entry.function}", modes=(entry.mode,))
        for entry in wrong.WRONG
    ]
    return [*own, *map(request, WRONG)]


def listed(subject: Subject, shape: str) -> tuple[Case, ...]:
    """The cases of one shape, as many as the profile has."""
    budget = subject.claim.budget
    most = dict.fromkeys(budget.shapes, 0) | {shape: budget.shapes[shape]}
    return shaped(shapes.space(subject), subject.found.constants, most, subject.found.dtypes)


def of_shape(shape: str) -> list[Check]:
    """The checks that run a shape, and nothing else."""
    if shape == OTHERS:
        # The lists are what they start from; what those find by themselves is theirs.
        return [shapes.CHECK]
    if shape in CHECKS:
        return [check(name) for name in CHECKS[shape]]
    return [replace(shapes.CHECK, stored=partial(listed, shape=shape))]


def runs(subject: Subject, shape: str, executor: Executor) -> tuple[int, bool]:
    """The cases of a shape, until one is found to be wrong; whether one is."""
    cases = 0
    for entry in plan(subject, of_shape(shape)).entries:
        if entry.instead is not None or entry.space is None:
            continue
        run = CheckRun(entry.check, subject, entry.space, executor, RunStatistics())
        found = run.stored_failure()
        if shape == OTHERS:
            before, other = run.cases, on_branches(run) if found is None else None
            return run.cases - before, other is not None
        if found is None and shape in CHECKS and entry.examples:
            found = search(
                draws(entry.check.draws(entry.space), seed=0),
                run.submit,
                max_examples=entry.examples,
                deadline=math.inf,
            )
        cases += run.cases
        if found is not None:
            return cases, True
    return cases, False


def found_by(wanted: Request, pool: Pool) -> list[str]:
    """The shapes that find it, each by itself."""
    with loaded(wanted, pool) as (subjects, executor):
        found = []
        executor.begin()
        subject = prepared(subjects[0], executor)
        for shape in SHAPES:
            executor.begin()
            if runs(subject, shape, executor)[1]:
                found.append(shape)
        return found


def spent() -> float:
    """Processor seconds of this process and all below it, ended ones too."""
    times: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                times[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in times.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return sum(times[pid][1] for pid in mine if pid in times) / os.sysconf("SC_CLK_TCK")


def import_torch() -> float:
    """Processor seconds of one ``import torch``."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    after = os.times()
    both = after.children_user + after.children_system
    return both - before.children_user - before.children_system


def cost(shape: str, request: Request, pool: Pool) -> Cost:
    """Of one shape, on a right reducer whose ranks are up."""
    with loaded(request, pool) as (subjects, executor):
        executor.begin()
        subject = prepared(subjects[0], executor)
        executor.run(subject, up_to_eight())
        steps, began = executor.executed, spent()
        cases, wrong = runs(subject, shape, executor)
        made = Cost(cases, executor.executed - steps, spent() - began)
    if wrong or not cases:
        raise SystemExit(f"{shape} is not measured on {request.target}: {made}")
    return made


def up_to_eight() -> list[Case]:
    """A case for each world, so that its ranks are there."""
    step = parse_step("1/1; 1/1; 1/1; 1/1; 1/1; 1/1; 1/1; 1/1")
    cells = [(i,) for i in range(8)]
    # Every rank has as many micro-batches of one sample.
    spread = [tuple(tuple(cells[d::n]) for d in range(n)) for n in WORLDS]
    return [Case(step, Layout(ranks), (0.5,) * 8) for ranks in spread]


def report(found: Mapping[str, list[str]], cost: Mapping[str, Cost], torch: float) -> str:
    """The report."""
    lines = [
        "# Shapes",
        "",
        "Written by `python reports/shapes.py`; do not edit. The reducers are the wrong ones of",
        "`tests/corpus/blind` and `tests/corpus/branches`, each shape by itself.",
        "Cost is measured on a right reducer with the numbers, logs or collectives that",
        "a shape needs. It is processor time of all processes, in units of one",
        f"`import torch` ({torch:.1f} s).",
        "*Every property on all branches* starts from all listed cases. Their cost is not counted,",
        "and reducers that they find are left out.",
        "",
        "| shape | cases | steps | processor time | finds | finds alone |",
        "|---|---|---|---|---|---|",
    ]
    for shape, one in cost.items():
        mine = [name for name, by in found.items() if shape in by]
        alone = sorted(name for name in mine if found[name] == [shape])
        names = f": {', '.join(f'`{name}`' for name in alone)}" if alone else ""
        ratio = f"{one.seconds / torch:.2f}" if shape != OTHERS else "with the lists"
        lines.append(
            f"| {shape} | {one.cases} | {one.steps} | {ratio} | {len(mine)} | {len(alone)}{names} |"
        )
    none = [f"`{name}`" for name, by in found.items() if not by]
    lines += [
        "",
        f"{len(found)} wrong reducers; {len(none)} are found by none of these: by other checks, by",
        "cases that are drawn around the lists, or not at all ([power](power.md)).",
        *GONE.split("\n"),
    ]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> None:
    rows = Path(arguments[0]) if arguments else None
    found: dict[str, list[str]] = {}
    if rows is not None and rows.exists():
        found = json.loads(rows.read_text(encoding="utf-8"))
    torch = min(import_torch() for _ in range(3))
    with Pool(LIMITS) as pool:
        spend = {shape: cost(shape, NEEDS.get(shape, RIGHT), pool) for shape in SHAPES}
        for wanted in targets():
            name = wanted.target.rpartition(":")[2]
            if name not in found:
                found[name] = found_by(wanted, pool)
                print(name, found[name], file=sys.stderr, flush=True)
                if rows is not None:
                    rows.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    TABLE.write_text(report(found, spend, torch), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
