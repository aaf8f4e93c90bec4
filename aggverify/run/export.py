"""A case as data that plain torch can run: each rank's calls, and the weights that are right.

Only what shows in the weights of its step is exported, after any steps before it.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from aggverify.checks import Check, Finding
from aggverify.checks.base import ORACLE
from aggverify.checks.comparison import lowest_precision, worst_weight
from aggverify.conventions import calls_bound
from aggverify.conventions.adapter_convention import AdapterConvention
from aggverify.conventions.calls import PerCallConvention
from aggverify.engines import Sizes
from aggverify.errors import InputError
from aggverify.escape import line
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec, as_run_spec
from aggverify.execution.subject import Subject
from aggverify.files import is_path, parsed, split
from aggverify.oracles.bounds import PRECISIONS, weight_bound
from aggverify.steps.case import Case
from aggverify.trainer.assignment import WHY_NOT

SCHEMA = 2
MOST_TOKENS = 10_000
"""Response tokens of an exported step."""
STAND_INS = "aggverify.conventions.stand_ins"
"""The one module of ours that the code of an exported adapter may import: it imports nothing."""
_OURS = "aggverify"
_SCALING = Fraction(1, 1 << 50)
"""Of a weight: what scaling it in float64 may add, where the engine scales losses."""


@dataclass(frozen=True, slots=True)
class Export:
    """What ``run.py`` reads, and the files of other people's code that go with it."""

    case: dict[str, Any]
    """Plain data, as JSON has it."""
    reducer: Path | None
    """The file that has the reducer; None for a module, which is imported by its name."""
    adapter: Path | None
    """The file that has the adapter's ``call``."""


def export(
    subject: Subject,
    executor: Executor,
    check: Check,
    case: Case,
    finding: Finding | None,
    title: str,
) -> Export:
    """Return the case as it is judged now; raises InputError with the reason where it is no data.

    ``finding``: what it shows, None where all is well; ``title``: what it is about, in one line.
    """
    if (why_not := _why_not(subject, case)) is not None:
        raise InputError(why_not)
    scale = _scale(subject, case)
    if scale is None:
        raise InputError(
            f"the engine {subject.engine.name} does more than scale losses and add them up"
        )
    wanted, expected, allowed = _shown(subject, executor, check, case, finding)
    [ran] = executor.run(subject, [replace(wanted, record=True)])
    head, _ = split(subject.target)
    adapter = _adapter(subject)
    places = [(i, t) for i, s in enumerate(case.step.samples) for t in range(s.response_length)]
    data = {
        "schema": SCHEMA,
        "title": line(title),
        "reducer": "reducer" if is_path(head) else head,
        "bound": calls_bound(subject.convention),
        "adapter": None if adapter is None else "adapter",
        "engine": subject.engine.name,
        "scale": str(scale),
        "per_token": subject.engine.takes_counts,
        "dp_size": case.layout.dp_size,
        "cp_size": case.layout.cp_size,
        "tokens": places,
        "finite": all(map(math.isfinite, wanted.case.losses)),
        "expected": list(map(str, expected)),
        "allowed": allowed,
        "steps": _steps(wanted, ran),
    }
    return Export(data, Path(head) if is_path(head) else None, adapter)


def _why_not(subject: Subject, case: Case) -> str | None:
    """Return what keeps every case of it, or this one, from being exported."""
    if isinstance(subject.convention, PerCallConvention):
        return f"the convention {subject.convention.name} reduces no losses: its calls are judged"
    if (tokens := len(case.losses)) > MOST_TOKENS:
        return f"its step has {tokens:,} response tokens, and {MOST_TOKENS:,} are exported at most"
    if (adapter := _adapter(subject)) is not None and _takes_ours(adapter):
        return f"the convention {subject.convention.name} is called by code of aggverify's own"
    return None


def _adapter(subject: Subject) -> Path | None:
    how = subject.convention
    return Path(how.path) if isinstance(how, AdapterConvention) else None


def _takes_ours(path: Path) -> bool:
    """Whether it imports more of this package than objects that stand in for others."""
    nodes = list(ast.walk(parsed(path.read_text("utf-8"))))
    named = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    named += [word.name for n in nodes if isinstance(n, ast.Import) for word in n.names]
    ours = {name for name in named if name.partition(".")[0] == _OURS}
    return bool(ours - {STAND_INS})


def _scale(subject: Subject, case: Case) -> Fraction | None:
    """Return what the engine makes of one rank's loss of 1 in one micro-batch, the others' 0.

    Tokens are not counted; None where it is no engine that does just that.
    """
    engine, sizes = subject.engine, Sizes.of(case)
    cells = case.layout.world_size * case.layout.num_microbatches

    def of(*losses: int, tokens: int = 1) -> Fraction:
        given = [Fraction(loss) for loss in losses] + [Fraction(0)] * (cells - len(losses))
        return engine.value(given, [tokens] * cells, sizes)

    one = of(1) * (cells if engine.takes_counts else 1)
    same = of(3) == 3 * of(1) and of(*[1] * cells) == cells * of(1)
    plain = engine.counted([0], None) == 0 and of(1, tokens=2) * (1 + engine.takes_counts) == of(1)
    return one if same and plain else None


def _shown(
    subject: Subject, executor: Executor, check: Check, case: Case, finding: Finding | None
) -> tuple[RunSpec, Sequence[Fraction], list[float]]:
    """Return the check's run of this step that shows the finding by its weights.

    It comes with those that are right, and by how much each may be off.
    """
    wanted = list(_specs(check, case))
    expected = None if finding is None else finding.expected
    if expected is None and all(w.term is None for w in wanted) and subject.objective is None:
        expected = subject.expected(case.step)
    if expected is None:
        raise InputError("no formula gives the weights that are right on this step")
    for one in wanted:
        [ran] = executor.run(subject, [one])
        allowed, off = _judged(subject, ran, expected, finding)
        if off or finding is None:
            return one, expected, allowed
    raise InputError("what is wrong does not show in the weights of this step by itself")


def _specs(check: Check, case: Case) -> Iterator[RunSpec]:
    """Yield the check's runs of the very step on this layout, each without what plain torch lacks.

    Those after other steps first.
    """
    found = map(as_run_spec, check.variants(case))
    mine = [t for t in found if (t.case.step, t.case.layout) == (case.step, case.layout)]
    bare = [RunSpec(t.case, t.before, term=t.term) for t in mine] or [RunSpec(case)]
    yield from sorted(dict.fromkeys(bare), key=lambda t: -len(t.before))


def _judged(
    subject: Subject, ran: Execution, expected: Sequence[Fraction], finding: Finding | None
) -> tuple[list[float], bool]:
    """By how much each weight may be off, and whether one is, or ranks do not get that far."""
    reference = ORACLE if finding is None else finding.reference
    roundings = subject.roundings_on(ran.case.step) * (1 if reference == ORACLE else 2)
    precision = lowest_precision(subject, ran.case)
    more = Fraction(0)
    if subject.nonlinear or subject.objective is not None:
        more = (finding and finding.bound) or more
    weights = ran.weights
    off = None if weights is None else worst_weight(weights, expected, roundings, precision)
    if off is not None and off.accumulated:
        more = max(more, off.limit)
    rounds = PRECISIONS[precision]
    bounds = (weight_bound(e, roundings, rounds) + more + abs(e) * _SCALING for e in expected)
    allowed = [float(b) if e else 0.0 for b, e in zip(bounds, expected, strict=True)]
    if weights is None:
        return allowed, True
    near = np.abs(weights - [float(e) for e in expected]) <= np.array(allowed)
    finite = ran.value is not None or not all(map(math.isfinite, ran.case.losses))
    return allowed, not (finite and near.all())


def _steps(wanted: RunSpec, ran: Execution) -> list[dict[str, Any]]:
    """Of each step its response tokens, and of each rank its micro-batches."""
    if ran.failure is not None:
        raise InputError(f"its calls cannot be recorded: {ran.failure.message}")
    cases, steps = (*wanted.before, wanted.case), []
    try:
        ranks = [json.loads(blob) for blob in ran.recorded]
        for n, case in enumerate(cases):
            parts = [rank[n] for rank in ranks]
            for why_not in (part[WHY_NOT] for part in parts if WHY_NOT in part):
                raise InputError(str(why_not))
            steps.append({"tokens": len(case.losses), "ranks": [part["cells"] for part in parts]})
    except InputError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise InputError(f"a rank sent what is no record of calls: {error!s:.200}") from None
    return steps
