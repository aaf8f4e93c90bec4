"""The verdict document: what every writer starts from, whether it was just made or stored.

Two runs with the same plan on the same code give the same document, as far as it is ``comparable``.
``python -m aggverify.report.model`` prints its JSON schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Literal, TypeVar

from aggverify.codes.identity import About, Identity
from aggverify.codes.state import Again, Incomplete, Standing, State
from aggverify.errors import InputError
from aggverify.files import read_json
from aggverify.report import codec
from aggverify.report.codec import Case, Claim, Fault, Text

SCHEMA: Literal[3] = 3
MAX_BYTES = 1 << 28
"""Of a stored document: every mode of a large step, each with 100,000 weights in full."""


Mask = Literal["unmasked", "masked", "rejected"]


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring response tokens on one context-parallel rank with the same mask."""

    mask: Mask
    cp_rank: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample and where it was. Of a very long and ragged one only the first runs are told."""

    prompt_length: int
    response_length: int
    rollout: int
    prompt_group: int
    dp_rank: int
    micro_batch: int
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if any(run.tokens < 1 for run in self.runs):
            raise InputError("a run needs at least one token")
        if sum(run.tokens for run in self.runs) > self.response_length:
            raise InputError(f"its runs hold more than its {self.response_length} response tokens")


@dataclass(frozen=True, slots=True)
class Step:
    """The step of a case and its layout, as far as they are drawn; ``case`` has all of it."""

    prompts: int
    rollouts: int
    dp_size: int
    cp_size: int
    cp_kind: str
    micro_batches: int
    dtype: str
    samples: tuple[Sample, ...]

    def place(self, token: int) -> tuple[int, int]:
        """Sample, and index in its response, of a flat index of response tokens."""
        for i, sample in enumerate(self.samples):
            if token < sample.response_length:
                return i, token
            token -= sample.response_length
        raise IndexError("no such token")


@dataclass(frozen=True, slots=True)
class Bug:
    """A historic bug that computes the same, where it was seen and how it was mended."""

    name: str
    sentence: str
    seen: str
    fix: str


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the reducer was given: its name there, its type, dtype and shape, itself."""

    name: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Call:
    """What the reducer was given in the simplest step, and what it must return."""

    given: tuple[Given, ...]
    returns: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which the reducer is wrong, on its smallest case.

    ``expected`` and ``observed`` are the weights of all response tokens, ``token`` the flat index
    of the worst one; ``error`` is its absolute error and ``bound`` what would have been allowed.
    """

    id: str
    code: str
    title: str
    severity: str
    effect: Literal["fails", "hazard"]
    """A hazard is right only where something holds that nobody has claimed: shown, no failure."""
    waived: str | None
    """For what reason a person accepts it."""
    signature: str
    """What it has in common with the same finding on other cases."""
    identity: Identity
    """What makes it the same finding in another run."""
    promise: str | None
    """Of a hazard, the feature that makes a failure of it where it is claimed."""
    consequence: str | None
    """What it does to a training run, where that is not told by weights."""
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
    observed: tuple[float, ...] | None
    token: int | None
    error: float | None
    bound: float | None
    precision: str
    """The lowest precision on the path, which the bound is for."""
    roundings: int | None
    """On one token's path; None where the bound is fixed instead of proven."""
    matters: tuple[str, ...]
    does_not_matter: tuple[str, ...]
    factor: str | None
    off: str | None
    """By how much gradients are wrong, where a factor says it: "cp_size times too large"."""
    diagnosis: str | None
    bugs: tuple[Bug, ...]
    """In full: names are shared by shapes of one bug, and a stored document outlives their list."""
    call: Call | None
    """Where not even the simplest step was got through: nothing else was run."""
    script: Text | None
    """Shows the same weights with nothing but torch; None where that takes more than a step."""

    def __post_init__(self) -> None:
        tokens = sum(sample.response_length for sample in self.step.samples)
        for name in ("expected", "observed"):
            weights = getattr(self, name)
            if weights is not None and len(weights) != tokens:
                raise InputError(f"{len(weights)} {name} weights for {tokens} response tokens")
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


@dataclass(frozen=True, slots=True)
class Check:
    """What one check did."""

    name: str
    title: str
    tests: str
    cases: int
    state: State
    reason: str | None
    """Why it was not judged or not run, where the state does not say it all."""
    refused: str | None
    """How often, and with what words, the reducer refused a case where it may."""
    established: str | None
    """What is proven by its passing."""
    spoiled: bool
    """Whether it is not judged for what another check has found."""
    planned: int
    """Cases that were to be drawn at most; 0 for a check that runs all of its own."""


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """Which factor on the reported loss is caught: with one loss alone, and on dense steps."""

    smallest_caught_alone: float
    smallest_caught_dense: float
    dense_steps: int
    vacuous_steps: int


@dataclass(frozen=True, slots=True)
class SizeMargin:
    """How close right weights came to their bound on steps of at most so many unmasked tokens."""

    tokens: int
    """A power of 4; the next smaller one has the shorter steps."""
    worst_error_over_bound: float


@dataclass(frozen=True, slots=True)
class Margin:
    """How close right weights came to their bound in one precision, and what would be caught."""

    dtype: str
    worst_error_over_bound: float
    smallest_caught: float
    reported_loss: ReportedLoss
    by_size: tuple[SizeMargin, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """The largest of everything that was executed; 0 where there was none."""

    response: int
    """Tokens."""
    sharded_response: int
    """Of a response that was sliced over context-parallel ranks."""
    prompt: int
    step_tokens: int
    """Unmasked, of a whole step."""
    step_samples: int
    micro_batch_samples: int
    micro_batches: int
    """On a rank."""
    dp_size: int
    cp_size: int
    identifier: int
    """Of a rollout or a prompt group."""
    dtypes: Mapping[str, tuple[str, ...]]
    """On which kinds of layout losses were of that dtype."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A check whose search the clock has ended: so many cases drawn of those planned."""

    check: str
    drawn: int
    planned: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, beside what is claimed of the reducer."""

    profile: str
    examples: int
    """Drawn cases per check."""
    max_time: float | None
    max_world: int
    seed: int
    strict: bool
    compiled: bool
    group_size: int | None


@dataclass(frozen=True, slots=True)
class Lines:
    """A function of the reducer's file that ran, with the lines of its body that could."""

    function: str
    lines: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Covered:
    """Lines of the reducer's file that ran in some executed step, and on several ranks."""

    functions: tuple[Lines, ...]
    ran: tuple[int, ...]
    sharded: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Warned:
    """What the run could not have seen; never a reason for another exit code."""

    code: str
    title: str
    detail: str
    quiet: bool
    """True of most runs: one line for all of these, and not counted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One question of the policy that the mode asks, and the reading it was judged with."""

    question: str
    reading: str
    declared: bool
    asks: str


@dataclass(frozen=True, slots=True)
class Power:
    """A size of the step, and how often it is a factor; negative where it divides."""

    size: str
    power: int


@dataclass(frozen=True, slots=True)
class OtherEngine:
    """An engine that the trainer may have just as well: nobody has said which it is."""

    name: str
    does: str
    """As in "your trainer averages gradients over ranks"."""
    factor: tuple[Power, ...]
    """Its update over the one judged."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """What a person accepts, and how many findings that covers."""

    what: str
    reason: str
    findings: int
    identity: Identity | None
    """Of one from a baseline, what it is for."""
    owner: str | None
    expires: str | None
    """The last day on which it holds."""
    expired: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """A feature of layouts or steps that the reducer declines, in its own words."""

    feature: str
    what: str
    """After "refuses"."""
    words: str
    claimed: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one subject.

    ``mode`` is None where none was declared or found out, and ``oracle`` the person's own mode.
    """

    claim: Claim
    """All that says what was run."""
    about: About
    """What it is a verdict on, wherever the project lies."""
    asked: Asked
    target: str
    function: str
    against: str | None
    convention: str
    convention_title: str
    engine: str
    engine_title: str
    engine_does: str
    engine_is_default: bool
    engine_assumed: bool
    """Whether nobody has said it, and the convention leaves it open."""
    narrowed: tuple[str, ...]
    """Features without which alone the assumed engine fits: taken out of the claim."""
    other_engines: tuple[OtherEngine, ...]
    """Where it is assumed; the convention's default first."""
    mode: str | None
    oracle: str | None
    identified: bool
    linear: bool
    divisor: float | None
    computes_in: str
    policy: tuple[Reading, ...]
    claimed: tuple[str, ...]
    without: tuple[str, ...]
    """Features that the person took out of the claim."""
    refused: tuple[Refusal, ...]
    layouts_refused: int
    layouts_left: int
    """Sizes of layouts that were judged instead of all that are claimed."""
    not_claimed: Mapping[str, str]
    """With the reason."""
    seed: int
    notes: tuple[str, ...]
    checks: tuple[Check, ...]
    executed: int
    worlds: Mapping[str, int]
    """Steps by number of ranks."""
    tried: Tried
    covered: Covered
    margins: tuple[Margin, ...]
    cuts: tuple[Cut, ...]
    warnings: tuple[Warned, ...]
    findings: tuple[Finding, ...]
    call_milliseconds: int | None
    """About what one call takes by the clock, to one digit; None where it is next to nothing."""
    waivers: tuple[Waiver, ...]
    incomplete: Incomplete | None
    """What ended it before everything planned was judged."""

    @property
    def mode_name(self) -> str:
        """The mode, the person's own oracle, or that there is none."""
        return self.oracle or self.mode or "no known mode"

    @property
    def engine_in_question(self) -> bool:
        """Whether it was judged under an engine that is neither said nor the convention's own."""
        return self.engine_assumed and not self.engine_is_default

    @property
    def loud(self) -> list[Warned]:
        """Warnings about this run rather than about most."""
        return [warned for warned in self.warnings if not warned.quiet]

    @property
    def not_judged(self) -> list[Check]:
        """Checks that should have come to a result, and did not."""
        left = (check for check in self.checks if check.state is State.NOT_JUDGED)
        return [check for check in left if not check.spoiled]

    @property
    def fails(self) -> bool:
        """Whether anything found is a reason not to take the reducer."""
        return any(finding.fails for finding in self.findings)

    @property
    def fails_at_once(self) -> bool:
        """Whether not even the simplest step was got through: nothing else was run."""
        return any(finding.call is not None for finding in self.findings)

    @property
    def conforms(self) -> bool:
        """Whether it is right, and nothing was left open."""
        judged = self.executed and not self.not_judged and not self.incomplete
        judged = judged and not self.engine_in_question
        return bool(judged) and not self.fails

    @property
    def causes(self) -> list[list[Finding]]:
        """Findings grouped by root cause; one that fails stands before those that do not."""
        groups: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda f: not f.fails):
            groups.setdefault(finding.same_cause_as or finding.id, []).append(finding)
        return list(groups.values())


@dataclass(frozen=True, slots=True)
class Environment:
    """What verdicts depend on beside the reducer."""

    python: str
    torch: str
    backend: str
    transport: str


@dataclass(frozen=True, slots=True)
class Replay:
    """A finding of another document whose case was run again on this one's reducer."""

    id: str
    identity: Identity
    outcome: Again
    code: str | None
    """What it shows now."""
    words: Text | None
    """Why it was refused or not run."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A known finding of a baseline, and how it stands."""

    what: str
    identity: Identity
    reason: str
    owner: str
    expires: str | None
    state: Standing
    words: Text | None
    """Why it is refused or not run; the code that it shows instead."""


@dataclass(frozen=True, slots=True)
class Document:
    """All verdicts of one command, or why there is none."""

    schema: Literal[3]
    aggverify: str
    environment: Environment
    exit: int
    error: Text | None
    incomplete: Incomplete | None
    """What ended the command before everything planned was judged."""
    verdicts: tuple[Verdict, ...]
    replays: tuple[Replay, ...]
    baseline: tuple[Accepted, ...]
    """Of the entries that are about this reducer."""

    @property
    def stale(self) -> list[Accepted]:
        """Entries of the baseline that have to go, or to be written anew."""
        return [entry for entry in self.baseline if entry.state.stale]

    @property
    def unmatched(self) -> list[str]:
        """What is accepted and was found nowhere."""
        found: dict[str, int] = {}
        every = (waiver for verdict in self.verdicts for waiver in verdict.waivers)
        for waiver in (w for w in every if w.identity is None):
            found[waiver.what] = found.get(waiver.what, 0) + waiver.findings
        return [what for what, findings in found.items() if not findings]


def comparable(document: Document) -> Document:
    """What two runs with the same plan on the same code have in common: all but what the clock and
    the order of threads have a part in."""
    verdicts = tuple(
        replace(
            verdict,
            call_milliseconds=None,
            findings=tuple(replace(f, fault=None, detail=None) for f in verdict.findings),
        )
        for verdict in document.verdicts
    )
    return replace(document, verdicts=verdicts)


D = TypeVar("D", Document, Verdict, Finding)


def harmless(part: D) -> D:
    """The same with every text escaped and, where one is due, on one line."""
    return codec.read(type(part), codec.plain(part), "the document", harmless=True)


def render(document: Document) -> str:
    """The document as JSON."""
    return json.dumps(codec.plain(document), indent=1) + "\n"


def from_json(data: object) -> Document:
    """The document that plain data is; raises InputError saying what is wrong, and where."""
    given = data.get("schema") if isinstance(data, dict) else None
    if type(given) is int and given != SCHEMA:
        raise InputError(f"the schema of the verdict document must be {SCHEMA}, got {given}")
    return codec.read(Document, data, "the verdict document")


def load(path: Path | str) -> Document:
    """The document that ``--report json`` wrote; raises InputError for any other file."""
    try:
        return from_json(read_json(Path(path), "a verdict document", MAX_BYTES))
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None


def schema() -> str:
    """``schema/verdict.json``: the tests hold that file to this."""
    named = {"title": "aggverify verdict document", **codec.schema(Document)}
    return json.dumps(named, indent=2) + "\n"


if __name__ == "__main__":
    print(schema(), end="")
