"""One way in which the reducer is wrong, with the case that shows it."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from aggverify.codec import Case, Double, Fault, Integer, Part, Text
from aggverify.codes.identity import Identity
from aggverify.errors import InputError

MAX_WEIGHTS = 100_000
"""Of a step with more tokens no weights are written: its case has all that is needed."""
Mask = Literal["unmasked", "masked", "rejected"]


class Run(Part, frozen=True):
    """Neighbouring response tokens on one context-parallel rank with the same mask."""

    mask: Mask
    cp_rank: Integer
    tokens: Integer


class Sample(Part, frozen=True):
    """One sample and where it was. Of a very long and ragged one only the first runs are listed."""

    prompt_length: Integer
    response_length: Integer
    rollout: Integer
    prompt_group: Integer
    dp_rank: Integer
    micro_batch: Integer
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if any(run.tokens < 1 for run in self.runs):
            raise InputError("a run needs at least one token")
        if sum(run.tokens for run in self.runs) > self.response_length:
            raise InputError(f"its runs hold more than its {self.response_length} response tokens")


class Step(Part, frozen=True):
    """The step of a case and its layout, as far as they are drawn; ``case`` has all of it."""

    prompts: Integer
    rollouts: Integer
    dp_size: Integer
    cp_size: Integer
    cp_kind: str
    micro_batches: Integer
    dtype: str
    samples: tuple[Sample, ...]

    def place(self, token: int) -> tuple[int, int]:
        """Sample, and index in its response, of a flat index of response tokens."""
        for i, sample in enumerate(self.samples):
            if token < sample.response_length:
                return i, token
            token -= sample.response_length
        raise IndexError("no such token")


class Bug(Part, frozen=True):
    """A historic bug that computes the same, where it was seen and how it was mended."""

    name: str
    sentence: str
    seen: str
    fix: str


class Given(Part, frozen=True):
    """A value that the reducer was given: its name there, its type, dtype and shape, itself."""

    name: str
    kind: str
    value: str


class Call(Part, frozen=True):
    """What the reducer was given in the simplest step, and what it must return."""

    given: tuple[Given, ...]
    returns: str


class Suspect(Part, frozen=True):
    """A line, or a condition that went one way: how many failing and passing cases took it."""

    function: str
    line: Integer
    condition: str | None
    truth: bool
    failing: Integer
    all_failing: Integer
    passing: Integer
    all_passing: Integer
    sentence: str


class FindingRecord(Part, frozen=True):
    """One way in which the reducer is wrong, on its smallest case.

    ``expected`` and ``observed`` are the weights of all response tokens, ``token`` the flat index
    of the worst one; ``error`` is its absolute error and ``bound`` what would have been allowed.
    """

    id: str
    code: str
    title: str
    severity: str
    effect: Literal["fails", "hazard"]
    """A hazard is right only where something holds that is not claimed: shown, no failure."""
    waived: str | None
    """For what reason a person accepts it."""
    signature: str
    """What it has in common with the same finding on other cases."""
    identity: Identity
    """What makes it the same finding in another run."""
    promise: str | None
    """Of a hazard, the feature that makes a failure of it where it is claimed."""
    consequence: str | None
    """What it does to a training run, where that is not expressed by weights."""
    check: str
    confirmed: bool | None
    """Whether it came back in fresh ranks; None where the command was stopped before."""
    same_cause_as: str | None
    message: Text
    fault: Fault | None
    """What the ranks did instead: exceptions, stacks and collectives of each."""
    detail: Text | None
    """The fault in words."""
    case: Case
    replay: tuple[str, ...]
    """The command that runs the case again, word by word."""
    step: Step
    reference: str
    expected: tuple[Fraction, ...] | None
    observed: tuple[Double, ...] | None
    token: Integer | None
    error: Double | None
    bound: Double | None
    precision: str
    """The lowest precision on the path, which the bound is for."""
    roundings: Integer | None
    """On one token's path; None where the bound is fixed instead of proven."""
    matters: tuple[str, ...]
    does_not_matter: tuple[str, ...]
    factor: str | None
    off: str | None
    """By how much gradients are wrong, where a factor expresses it: "cp_size times too large"."""
    diagnosis: str | None
    suspects: tuple[Suspect, ...]
    """Where the mistake may stand, the likeliest place first; of a cause that is not named."""
    bugs: tuple[Bug, ...]
    """In full: names are shared by shapes of one bug, and a stored document outlives their list."""
    call: Call | None
    """Where not even the simplest step was got through: nothing else was run."""

    def __post_init__(self) -> None:
        tokens = sum(sample.response_length for sample in self.step.samples)
        for name in ("expected", "observed"):
            weights = getattr(self, name)
            if weights is not None and len(weights) != tokens:
                raise InputError(f"{len(weights)} {name} weights for {tokens} response tokens")
        if self.replay[:2] not in (("aggverify", "replay"), ("aggverify", "audit")):
            raise InputError(
                f"a finding is seen again with aggverify replay, or audit, got {self.replay[:2]}"
            )
        if self.token is not None and not 0 <= self.token < tokens:
            raise InputError(f"token {self.token} of {tokens}")

    @property
    def fails(self) -> bool:
        """Whether it is a reason not to take the reducer."""
        return self.effect == "fails" and self.waived is None

    @property
    def weights(self) -> tuple[tuple[Fraction, float], ...] | None:
        """Expected and actual weight of every token; None where none were read, or too many."""
        if self.expected is None or self.observed is None:
            return None
        return tuple(zip(self.expected, self.observed, strict=True))

    @property
    def worst(self) -> tuple[Fraction, float] | None:
        """Expected and actual weight of the worst token."""
        weights, token = self.weights, self.token
        return None if weights is None or token is None else weights[token]
