"""What a script is made of, as its template asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks import Finding
from aggverify.checks.base import Shown
from aggverify.conventions import Calling, Misuse
from aggverify.execution.trial import Trial
from aggverify.files import is_path
from aggverify.report import plain_data
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner


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
    owner: str
    """Of which it may be a method: "" where it is called as it stands there."""
    calling: Calling
    others: tuple[str, ...]
    """Steps that are to be run before, as arguments of a run."""
    counts_rejected: bool
    engine: str
    scale: float
    takes_counts: bool
    guarded: bool
    """Whether a rank may not come back."""
    virtual: bool
    """Whether one process is the first rank of a world that is not there."""
    parameters: tuple[str, ...]
    """As the convention names them; empty: by the function's own names."""
    misuse: Misuse | None
    """The first of those that were accepted."""
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
        return plain_data.is_gathered(self.case)

    @property
    def is_file(self) -> bool:
        return is_path(self.target)

    @property
    def varied(self) -> bool:
        """Whether runs differ in more than their losses."""
        return any(t.under or t.scale != 1.0 for t in self.trials)

    @property
    def copies(self) -> bool:
        """Whether context-parallel ranks are told apart by their losses."""
        return self.cp > 1 and self.shown is Shown.COPIES

    @property
    def looks_beyond(self) -> bool:
        """Whether what is returned beside the loss is looked at."""
        return self.takes_counts or self.shown in (Shown.LOGS, Shown.SAME_LOGS, Shown.SHAPES)

    @property
    def command(self) -> str:
        """What runs it."""
        many = f"torchrun --standalone --nproc-per-node {self.world}"
        launch = many if self.world > 1 and not self.virtual else "python"
        return f"{launch} THIS.py{' [REDUCER.py]' * self.is_file}"

    @property
    def cells(self) -> str:
        """By rank and micro-batch."""
        counts = plain_data.counts(self.case, self.counts_rejected) if self.takes_counts else None
        return plain_data.cells(self.case, self.calling, counts, only_first=self.virtual)

    @property
    def losses(self) -> str:
        return plain_data.losses(self.case)

    @property
    def wanted(self) -> tuple[Fraction, ...]:
        """The weights that a run has to give: of a world that is not there, its first rank's."""
        mine = token_owner(self.case.step, self.case.layout)
        pairs = zip(self.expected or (), mine, strict=False)
        return tuple(e if d == 0 or not self.virtual else Fraction(0) for e, (d, _, _) in pairs)

    def allows(self, expected: Fraction) -> float:
        """How far from it a weight may be."""
        return (self.near * abs(float(expected)) + self.least) if expected else 0.0

    def call(self, before: str = "") -> list[str]:
        """The lines that call the candidate; ``before`` comes right before that."""
        lines = self.calling.call.split("\n")
        name = self.calling.whole or "reduce"
        at = next(n for n, line in enumerate(lines) if name in line)
        made, itself = lines[:at], lines[at:]
        if self.varied:
            itself = ["with under or nullcontext():", *(f"    {line}" for line in itself)]
        return [*made, *([before] if before else []), *itself]
