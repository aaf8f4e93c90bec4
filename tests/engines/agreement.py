"""Formulas against the libraries' own engines that they stand for: the same fixed cases under both.

``python reports/engines.py`` runs all of it and writes the table of ``reports/engines.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aggverify.checks.base import Finding
from aggverify.checks.judging import is_finite, judge_elsewhere
from aggverify.checks.spaces import spread
from aggverify.conventions import CONVENTIONS
from aggverify.engines import ENGINES, RealEngine, formulas
from aggverify.engines.variants import VARIANTS
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import fully_masked, grid_case, plain_losses
from aggverify.oracles import LEGACY, Sample, Step
from aggverify.run.opening import opened
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout
from aggverify.world import Pool
from tests.conftest import EXAMPLES
from tests.frameworks.test_shipped import CHECKED, MODULE, possible

SIZES = (
    *((1, 1, 4), (2, 1, 1), (1, 2, 2), (2, 2, 4), (4, 1, 3), (2, 4, 1), (4, 2, 2), (8, 1, 4)),
    *((1, 3, 2), (3, 1, 2), (2, 3, 1), (1, 4, 4), (2, 1, 3), (4, 1, 2), (8, 1, 1)),
)
"""Data parallel, context parallel, micro-batches."""
_DTYPES = ("float64", "float32")
_DIVISOR = 16.0
DEVIATING = {"deepspeed": "two_outputs", "deepspeed-3": "over_all_ranks"}
"""Functions of ``deviating.py`` for formulas without examples."""
COMBINED = {"data-parallel", "context-parallel", "micro-batches"}
REAL = tuple(spec for spec in ENGINES.values() if isinstance(spec, RealEngine))
FORMULAS = tuple(dict.fromkeys(spec.formula.name for spec in REAL))


@dataclass(frozen=True, slots=True)
class Row:
    """A reducer that is run under a formula and under the engines that it stands for."""

    formula: str
    convention: str
    mode: str
    setup: tuple[str, str]
    """What has the reducer: "path" or "module", and which."""
    function: str

    @property
    def subject(self) -> Subject:
        divisor = _DIVISOR if self.mode == "constant" else None
        how = self.convention, self.formula, self.mode, divisor
        terms = getattr(CONVENTIONS[self.convention], "terms", ())
        return Subject.of(Claim(self.setup[1], self.function, *how, terms=terms))

    @property
    def engines(self) -> tuple[RealEngine, ...]:
        """Where a reducer is ours, other settings of the engines too."""
        found = (e for e in REAL if e.formula.name == self.formula)
        more = (e for e in VARIANTS if e.formula.name == self.formula)
        return (*found, *(more if self.convention == "native" else ()))

    def cases(self) -> list[Case]:
        """Those of the fixed ones that its convention has."""
        space = spread(
            self.subject, cp=4, micro_batches=4, min_units=1, empty_samples=True, max_world=8
        )
        return [case for case in fixed(space.cp_kinds) if case in space]


def rows() -> Iterator[Row]:
    """Every convention and mode that can be right under a formula with an engine behind it, where
    the convention claims something that an engine combines."""
    for formula in FORMULAS:
        folder = EXAMPLES / "native" / formula.replace("-", "_")
        for path in sorted(folder.glob("*.py")):
            if path.stem not in ("length_weighted", "vl_norm"):
                yield Row(formula, "native", path.stem, ("path", str(path)), "reduce")
        if formula in DEVIATING:
            module = "tests.engines.deviating"
            yield Row(formula, "native", "token_mean", ("module", module), DEVIATING[formula])
        for mode in ("sample_mean", "constant", "sequence_sum", "token_mean"):
            if CONVENTIONS["slime"].why_not(mode, formula, frozenset()) is None:
                path = EXAMPLES / "slime" / f"{mode}.py"
                yield Row(formula, "slime", mode, ("path", str(path)), "get_pg_loss_reducer")
        for name, function in CHECKED.items():
            for mode, what in possible(CONVENTIONS[name]):
                promised = CONVENTIONS[name].why_not(mode, what, frozenset()) is not None
                if what == formula and not promised and not mode.startswith(LEGACY.name):
                    row = Row(formula, name, mode, ("module", MODULE), function)
                    if row.subject.features & COMBINED:
                        yield row


def fixed(kinds: Sequence[CpKind]) -> list[Case]:
    """Of every size a ragged step, one with an empty rank, and one with as many samples in each
    micro-batch; context-parallel kinds and dtypes take turns."""
    found: list[Case] = []
    for n, (dp, cp, k) in enumerate(SIZES):
        one, other = _DTYPES[n % 2], _DTYPES[1 - n % 2]
        ragged = grid_case(2000 + n, dp, cp, k, kinds[n % len(kinds)] if kinds else "zigzag", one)
        *_, empty = fully_masked(replace(ragged, dtype=other))
        found += (ragged, empty, _even(ragged, other))
    return found


def _even(case: Case, dtype: str) -> Case:
    """Two samples of the case's in each micro-batch, in order."""
    layout = case.layout
    cells = layout.dp_size * layout.num_microbatches
    taken = [case.step.samples[i % len(case.step.samples)] for i in range(2 * cells)]
    step = Step(tuple(Sample(s.prompt_length, s.loss_mask, i, i) for i, s in enumerate(taken)))
    order = iter(range(2 * cells))
    dealt = tuple(
        tuple((next(order), next(order)) for _ in range(layout.num_microbatches))
        for _ in range(layout.dp_size)
    )
    return Case(step, Layout(dealt, layout.cp_size, layout.cp_kind), plain_losses(step), dtype)


@dataclass(frozen=True, slots=True)
class Agreement:
    """In how many cases weights agree within the bound, and in how many of those bit for bit."""

    cases: int
    exactly: int

    @property
    def text(self) -> str:
        return f"{self.cases}" + (" =" if self.exactly == self.cases else f" ({self.exactly} =)")

    @staticmethod
    def read(text: str) -> Agreement:
        found = re.fullmatch(r"(\d+) (?:=|\((\d+) =\))", text)
        assert found is not None, text
        return Agreement(int(found[1]), int(found[2] or found[1]))


def label(spec: RealEngine) -> str:
    """A variant's without its module."""
    return spec.name.rpartition(":")[2]


Found = Mapping[tuple[str, str, str, str], Agreement]
"""By formula, convention, mode and engine."""


def agreement(
    subject: Subject, spec: RealEngine, executor: Executor, cases: Sequence[Case]
) -> Agreement:
    """Run the cases under the subject's formula and under the engine; raises AssertionError where
    they do not agree."""
    executor.begin()
    ours = executor.run(subject, cases)
    theirs = executor.run(replace(subject, engine=spec), cases)
    exactly = sum(map(_same, ours, theirs, [subject] * len(cases), [spec] * len(cases)))
    return Agreement(len(cases), exactly)


def _same(mine: Execution, other: Execution, subject: Subject, spec: RealEngine) -> bool:
    """Whether bit for bit."""
    assert is_finite(mine), mine.failure
    found = Finding("AGV413", spec.name, "", mine.case, subject.mode)
    as_it_computes = subject.knowing(computes_in=spec.computes_in)
    off = judge_elsewhere(found, as_it_computes, mine, other, f"under {spec.name}")
    assert off is None, off
    assert (mine.value, mine.counts, other.altered) == (other.value, other.counts, ())
    assert mine.weights is not None and other.weights is not None
    same: bool = mine.weights.tolist() == other.weights.tolist()
    return same


def compared(wanted: Iterable[Row], pool: Pool) -> Iterator[tuple[Row, str, Agreement]]:
    """Each row under each of its engines that can run here."""
    for row in wanted:
        cases = row.cases()
        kind, where = row.setup
        for spec in row.engines:
            if spec.available() is None:
                with opened(pool, {kind: where}, engine=spec.name) as template:
                    agreed = agreement(row.subject, spec, Executor(template), cases)
                    yield row, label(spec), agreed


def table(formula: str, found: Found) -> Iterator[str]:
    """What was run for one formula: a line a convention and mode, a column an engine."""
    names = dict.fromkeys(e for what, _, _, e in found if what == formula)
    yield "| convention | mode | " + " | ".join(f"`{name}`" for name in names) + " |"
    yield "|---" * (2 + len(names)) + "|"
    for row in (row for row in rows() if row.formula == formula):
        cells = (found.get((formula, row.convention, row.mode, name)) for name in names)
        texts = ("–" if cell is None else cell.text for cell in cells)
        yield f"| `{row.convention}` | `{row.mode}` | {' | '.join(texts)} |"


def read(text: str) -> Found:
    """The tables of a report."""
    found: dict[tuple[str, str, str, str], Agreement] = {}
    for part in re.split(r"(?m)^## ", text)[1:]:
        formula = part.partition("\n")[0].strip("`")
        lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line[:2] == "| "]
        for line in lines[1:]:
            names = zip(lines[0][2:], line[2:], strict=True)
            convention, mode = (name.strip("`") for name in line[:2])
            for name, cell in names:
                if cell != "–":
                    found[formula, convention, mode, name.strip("`")] = Agreement.read(cell)
    return found


def alone() -> list[str]:
    """Formulas that stand for no library's engine that runs here."""
    return [spec.name for spec in formulas() if spec.name not in FORMULAS]


def named(row: Row) -> set[tuple[str, str, str, str]]:
    """What a report must have of a row."""
    return {(row.formula, row.convention, row.mode, label(spec)) for spec in row.engines}


def planned() -> set[tuple[str, str, str, str]]:
    """All that it must have."""
    return set().union(*map(named, rows()))
