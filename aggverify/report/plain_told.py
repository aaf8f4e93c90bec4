"""What a script is made of, as its template asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks import Finding
from aggverify.checks.base import Shown
from aggverify.conventions import Calling
from aggverify.execution.trial import Trial
from aggverify.files import is_path
from aggverify.report import plain_data
from aggverify.steps.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that a script is made of."""

    title: str
    shown: Shown
    case: Case
    trials: tuple[Trial, ...]
    """The check's, those of this step on this layout."""
    before: tuple[Case, ...]
    target: str
    function: str
    calling: Calling
    counted: int
    """Where a sample has the mask whose tokens count."""
    counts_rejected: bool
    engine: str
    scale: float
    takes_counts: bool
    guarded: bool
    """Whether a rank may not come back."""
    modes: tuple[str | bool, ...]
    """Other names of modes, with which the same call has to give other weights."""
    expected: tuple[Fraction, ...] | None
    finding: Finding
    near: float
    """Of a weight, as a part of it, and beside that ``least``."""
    least: float
    near_sum: float
    """Of the loss, as a part of the sum of what it adds up."""

    @property
    def world(self) -> int:
        return self.case.layout.world_size

    @property
    def dp(self) -> int:
        return self.case.layout.dp_size

    @property
    def cp(self) -> int:
        return self.case.layout.cp_size

    @property
    def dtype(self) -> str:
        return self.case.dtype

    @property
    def gathered(self) -> bool:
        return self.cp > 1 and self.case.layout.cp_kind == "gathered"

    @property
    def is_file(self) -> bool:
        return is_path(self.target)

    @property
    def varied(self) -> bool:
        """Whether runs differ in more than their losses."""
        return any(t.under or t.scale != 1.0 for t in self.trials)

    @property
    def command(self) -> str:
        """What runs it."""
        many = f"torchrun --standalone --nproc-per-node {self.world}"
        return f"{many if self.world > 1 else 'python'} THIS.py{' [REDUCER.py]' * self.is_file}"

    @property
    def samples(self) -> list[str]:
        return plain_data.samples(self.case, counts_rejected=self.counts_rejected)

    @property
    def counts(self) -> str:
        return plain_data.counts(self.case, counts_rejected=self.counts_rejected)

    @property
    def cells(self) -> str:
        return plain_data.cells(self.case)

    @property
    def losses(self) -> str:
        return plain_data.losses(self.case)

    @property
    def returned(self) -> str:
        """Of copies of a loss all, or the first; else the sum over context-parallel ranks."""
        if self.cp == 1 or self.shown is Shown.COPIES:
            return "row"
        first = "row[0]" if self.gathered else "sum(row[:CP])"
        return f"[{first}, *row[CP:]]"

    def allows(self, expected: Fraction) -> float:
        """How far from it a weight may be."""
        return (self.near * abs(float(expected)) + self.least) if expected else 0.0

    def call(self, before: str = "") -> list[str]:
        """The lines that call the reducer; ``before`` comes right before that."""
        lines = self.calling.call.split("\n")
        at = next(n for n, line in enumerate(lines) if "reduce" in line)
        made, itself = lines[:at], lines[at:]
        if self.varied:
            itself = ["with under or nullcontext():", *(f"    {line}" for line in itself)]
        return [*made, *([before] if before else []), *itself]

    def other(self, case: Case) -> str:
        """Another step, on one line."""
        rejected = self.counts_rejected
        samples = ", ".join(plain_data.samples(case, counts_rejected=rejected))
        counts = plain_data.counts(case, counts_rejected=rejected)
        return f"({plain_data.cells(case)}, [{samples}], dict({counts}), {plain_data.losses(case)})"
