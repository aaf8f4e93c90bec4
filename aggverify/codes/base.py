"""What a code is: its traits, by which everything else treats it, and its explanation."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from aggverify.codec import Part

Severity = Literal["high", "medium", "warning"]


class Effect(StrEnum):
    """What a finding does to the verdict; ``run.outcome.verdict`` makes an exit code of it."""

    FAILS = "fails"
    HAZARD = "hazard"
    """Right only where something holds that is not claimed: shown in full, no failure."""
    WARNING = "warning"
    """Tested, but weakly: counted apart from findings."""


class Diagnosed(StrEnum):
    """What a finding is diagnosed from; a step that gave no weights, from how it failed."""

    WEIGHTS = "weights"
    """Those observed over all layouts."""
    VALUE = "value"
    """The reported losses observed over all layouts."""
    NOT_FINITE = "not finite"
    """Which losses and gradients are not finite, over all layouts and empty units."""
    BEHIND_THE_MASK = "behind the mask"
    """The weights at masked tokens, and what each kind of value does there."""
    SYMPTOM = "symptom"
    """The finding alone: its check has seen everything there is to see."""


class Symptom(StrEnum):
    """Signs by which a code and the known bugs behind it are matched where weights show nothing."""

    NONE = ""
    NOT_LINEAR = "not linear"
    CONSTANT_ADDED = "constant added"
    AUXILIARY_TERM = "auxiliary term"
    PARTIAL_WINDOW = "partial window"
    STATISTIC_PER_SHARD = "statistic per shard"
    SELECTION = "selection"
    EXCEPTION = "exception"
    BLOCKED = "blocked"
    RANKS_DISAGREE = "ranks disagree"
    NOT_REPEATABLE = "not repeatable"
    STATE_KEPT = "state kept"
    UNUSABLE = "unusable"
    ARGUMENTS_CHANGED = "arguments changed"
    MODE_IGNORED = "mode ignored"
    MISUSE_ACCEPTED = "misuse accepted"
    LOGGED_LOSS = "logged loss"
    LOGS_DIFFER = "logs differ"
    CLIPPED = "clipped"
    MEANT = "a mean per micro-batch"
    RATIOS = "ratios"
    OVERFLOWS = "overflows"
    MASKED_LOGGED = "masked logged"
    WRONG_LABEL = "wrong label"


class Code(Part, frozen=True):
    """A stable code by its meaning, never renumbered."""

    code: str
    title: str
    severity: Severity = "high"
    effect: Effect = Effect.FAILS
    consequence: str = ""
    """What it does to a training run, where that is not expressed in weights: "makes training
    hang"."""
    symptom: Symptom = Symptom.NONE
    """A sign of every finding with this code, for the table of known bugs."""
    diagnosed: Diagnosed = Diagnosed.WEIGHTS
    promise: str = ""
    """Of a hazard, the feature it depends on: where that is claimed, it is a failure."""
    failure: str = ""
    """The kind of failure that it names: a ``world.Fault.kind``, or the name of a breach."""
    ends_the_run: bool = False
    """Whether no other check can be judged: there is no result."""
    unsteady: bool = False
    """Whether no other check can be judged: the result is not the step's alone."""
    costs_a_world: bool = False
    """Whether showing it ends a world of ranks: shrinking runs one case at a time, and only few."""
    quiet: bool = False
    """Of a warning, whether most runs have it, so that reports give it no more than a line."""
    spoils: tuple[str, ...] = ()
    """Aspects (``checks.base``) that are known to be wrong once it is found."""
    varies_losses: bool = False
    """Whether its check varies the losses itself; which losses matter is not tried out again."""
    about_rounding: bool = False
    """Whether rounding is the mistake itself, so that it is no excuse for the finding."""
    splits: bool = False
    """Whether it is about samples dealt to several places: a comparison among fewer of them then
    also loses tokens."""
    if_nonlinear: str = ""
    """The code that reports the same of a non-linear objective, where that is another one."""
    compares: bool = False
    """Whether runs are compared, so that state that one of them leaves behind can look like it."""
    field: str = ""
    """The field of a case it is about: where that does not matter, the finding only shows what
    another one with the same fields shows."""
    explanation: Explanation | None = None
    """A person's own; those of the catalogue stand in its TOML files, with the traits."""


class Example(Part, frozen=True, kw_only=True):
    """The smallest step on which a mutant fails with the code, in the notation of steps.

    ``expected`` and ``actual`` are the weight of ``token``; where no weight is read, ``says`` is a
    regular expression that the finding's message matches.
    """

    mutant: str
    """``module.function`` in the corpus of mutants, which the tests keep."""
    reducer: str
    """Its text (a test holds it to the corpus)."""
    check: str
    mode: str
    """"" for what reduces no losses."""
    step: str = ""
    ones: int = 0
    """Instead of ``step``: one sample of so many unmasked tokens."""
    micro_batches: str = "0"
    cp: int = 1
    cp_kind: str = "zigzag"
    dtype: str = "float64"
    losses: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()
    rollouts: tuple[int, ...] = ()
    convention: str = "native"
    engine: str = "sum"
    claims: tuple[str, ...] = ()
    divisor: float | None = None
    terms: tuple[str, ...] = ()
    """Names of the per-token inputs next to the losses."""
    against: str | None = None
    """Another mutant, for a check of two paths, and its text."""
    against_reducer: str = ""
    token: int = 0
    expected: str | None = None
    actual: str | None = None
    says: str | None = None


class Explanation(Part, frozen=True):
    """What ``aggverify explain`` prints about a code; warnings have no example."""

    meaning: str
    fix: str
    bugs: tuple[str, ...] = ()
    example: Example | None = None
    more: tuple[Example, ...] = ()
    """The smallest examples of other checks that find this code."""

    @property
    def examples(self) -> tuple[Example, ...]:
        """All of them; none for a warning."""
        return (self.example, *self.more) if self.example else ()
