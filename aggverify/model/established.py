"""What a verdict has in addition to its findings: checks, margins, sizes, lines, claims."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.codec import Double, Integer, Part
from aggverify.codes.identity import Identity
from aggverify.codes.state import State


class CheckRecord(Part, frozen=True):
    """What one check did."""

    name: str
    title: str
    tests: str
    cases: Integer
    state: State
    reason: str | None
    """Why it was not judged or not run, where the state is not enough."""
    refused: str | None
    """How often, and with what words, the reducer refused a case where it may."""
    established: str | None
    """What is proven by its passing."""
    spoiled: bool
    """Whether another check's finding is why it is not judged."""
    planned: Integer
    """Cases that were to be drawn at most; 0 for a check that runs all of its list."""


class ReportedLoss(Part, frozen=True):
    """Which factor on the reported loss is caught: with one loss alone, and on dense steps."""

    smallest_caught_alone: Double
    smallest_caught_dense: Double
    dense_steps: Integer
    vacuous_steps: Integer


class SizeMargin(Part, frozen=True):
    """How close right weights came to their bound on steps of at most so many unmasked tokens."""

    tokens: Integer
    """A power of 4; the next smaller one has the shorter steps."""
    worst_error_over_bound: Double


class Margin(Part, frozen=True):
    """How close right weights came to their bound in one precision, and what would be caught."""

    dtype: str
    worst_error_over_bound: Double
    smallest_caught: Double
    reported_loss: ReportedLoss
    by_size: tuple[SizeMargin, ...]


class Tried(Part, frozen=True):
    """The largest of everything that was executed; 0 where there was none."""

    response: Integer
    """Tokens."""
    sharded_response: Integer
    """Of a response that was sliced over context-parallel ranks."""
    prompt: Integer
    step_tokens: Integer
    """Unmasked, of a whole step."""
    step_samples: Integer
    micro_batch_samples: Integer
    micro_batches: Integer
    """On a rank."""
    dp_size: Integer
    cp_size: Integer
    virtual_ranks: Integer
    """Ranks of a world in which they were run one after another; 0 where there was none."""
    identifier: Integer
    """Of a rollout or a prompt group."""
    dtypes: Mapping[str, tuple[str, ...]]
    """On which kinds of layout losses were of that dtype."""


class Cut(Part, frozen=True):
    """A check whose search the clock has ended: so many cases drawn of those planned."""

    check: str
    drawn: Integer
    planned: Integer


class Asked(Part, frozen=True):
    """What was asked for, in addition to what is claimed of the reducer."""

    profile: str
    examples: Integer
    """Drawn cases per check."""
    max_time: Double | None
    step: str
    """``usual``, or ``production``, where one of that size was run as well."""
    max_world: Integer
    seed: Integer
    strict: bool
    compiled: bool
    group_size: Integer | None


SHARDED = "several ranks"
"""The kind of step, among those of ``Covered.lines``, that runs on more than one rank."""


class Ranks(Part, frozen=True):
    """What the bits of a result may depend on apart from torch and the code."""

    processor: str
    """The vector instructions that torch uses."""
    threads: str
    """Of torch, in one rank."""


class Lines(Part, frozen=True):
    """A function of the reducer's file that ran, with the lines of its body that could."""

    function: str
    lines: tuple[Integer, ...]
    first: Integer
    """The line that its source begins on."""
    source: tuple[str, ...]
    """Line by line; none of a very long one."""


class Decided(Part, frozen=True):
    """Part of a test in such a function, with the kinds of step on which it was true and false."""

    function: str
    line: Integer
    text: str
    then: Integer
    """The line that comes next where it is true; 0 for none."""
    otherwise: Integer
    true: tuple[str, ...]
    false: tuple[str, ...]


class Covered(Part, frozen=True):
    """What ran of the reducer's file in executed steps, and on which kinds of them."""

    functions: tuple[Lines, ...]
    lines: Mapping[str, tuple[Integer, ...]]
    """By kind; every step is on one rank or on several, and may be of other kinds besides."""
    conditions: tuple[Decided, ...]

    @property
    def ran(self) -> frozenset[int]:
        """The lines that ran at all."""
        return frozenset().union(*self.lines.values())

    @property
    def sharded(self) -> frozenset[int]:
        """Those that ran on several ranks."""
        return frozenset(self.lines.get(SHARDED, ()))


class Warned(Part, frozen=True):
    """What the run could not have seen; never a reason for another exit code."""

    code: str
    title: str
    detail: str
    quiet: bool
    """True of most runs: one line for all of these, and not counted."""


class Reading(Part, frozen=True):
    """One question of the policy that the mode asks, and the reading it was judged with."""

    question: str
    reading: str
    declared: bool
    asks: str


class Power(Part, frozen=True):
    """A size of the step, and how often it is a factor; negative where it divides."""

    size: str
    power: Integer


class Assumption(Part, frozen=True):
    """What an adapter takes for granted of the call, until a person has confirmed it."""

    name: str
    """Of the argument, or ``mode``."""
    reading: str
    line: Integer | None
    """Of the adapter."""


class OtherEngine(Part, frozen=True):
    """An engine that the trainer may have just as well: no option names which it is."""

    name: str
    does: str
    """As in "your trainer averages gradients over ranks"."""
    factor: tuple[Power, ...]
    """Its update over the one judged."""


class Waiver(Part, frozen=True):
    """What a person accepts, and how many findings that covers."""

    what: str
    reason: str
    findings: Integer
    identity: Identity | None
    """Of one from a baseline, what it is for."""
    owner: str | None
    expires: str | None
    """The last day on which it holds."""
    expired: bool
    ambiguous: tuple[str, ...]
    """Of an older version, the findings that it may be for, where they differ: it covers none."""


class Refusal(Part, frozen=True):
    """A feature of layouts or steps that the reducer declines, in its own words."""

    feature: str
    what: str
    """After "refuses"."""
    words: str
    claimed: bool
