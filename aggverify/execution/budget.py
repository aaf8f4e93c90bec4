"""How much is tried: a profile, with the options that replace parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from aggverify.errors import InputError, shown, unknown

MIN_EXAMPLES = 20
"""Judged in every check however late it is, and before it passes: too little time must not turn a
check into nothing. All that are planned, where those are fewer."""
MAX_WORLD, MAX_GROUP = 8, 64
"""Most ranks, and most rollouts of a prompt group, that can be asked for."""
LARGEST = (1 << 63) - 1
"""Largest integer that any other option takes."""
MAX_EXAMPLES, MAX_SECONDS = 10**9, 10**9
"""Most drawn cases per check, and most seconds; neither is ever reached."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Drawn cases per check, and listed ones: how long a run is. Seconds for the whole search.

    These are a net for slow reducers: several times what a run takes on two idle cores. What
    ranks wait for a processor is not counted, so that the machine's load leaves nothing out.
    """

    examples: int
    seconds: float
    shapes: Mapping[str, int]
    """Of each shape that code branches on (generation/shapes.py, checks/virtual.py), cases listed
    at most."""
    branches: int
    """Cases at most that take every branch, for each check that looks at them."""
    branch_examples: int
    """Drawn cases of the check that runs these lists; it finds the most (reports/power.md)."""
    part: Fraction
    """Of the ``max_examples`` of checks that need few; more with ``--max-examples``."""
    topped_up: bool = True
    """Whether a check that lists few draws more than its part, until MIN_EXAMPLES are judged."""


_SHAPES = ("constants", "long", "low-precision", "many", "ids", "degenerate", "virtual")


def _shapes(*most: int) -> Mapping[str, int]:
    return dict(zip(_SHAPES, most, strict=True))


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(25, 40, _shapes(80, 27, 12, 8, 8, 8, 4), 3, 25, Fraction(1, 3), False),
    "ci": Profile(25, 75, _shapes(300, 37, 44, 14, 24, 37, 7), 12, 50, Fraction(1, 3)),
    "thorough": Profile(3000, 600, _shapes(2000, 81, 44, 30, 24, 37, 16), 60, 3000, Fraction(20)),
}
"""The one table of how much is tried. Not in ``run/planning``: a claim, which is stored and sent,
names its profile, and checks, which may not import a run, ask the claim for their share.

The default has longer lists than ``quick`` where these have found something, and draws hardly more.
With 150 drawn cases a check, and with twice as many long and large ones, it found nothing more of
562 wrong reducers written blind (reports/power.md)."""


PRODUCTION = "production"
STEPS = ("usual", PRODUCTION)
"""Steps that are run: those of the profile, or also one of the size that is trained with."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A profile's limits, or those given; raises InputError for what no budget can be."""

    profile: str = "ci"
    max_examples: int | None = None
    max_time: float | None = None
    step: str = STEPS[0]

    def __post_init__(self) -> None:
        if self.step not in STEPS:
            raise unknown("step", self.step, STEPS)
        if self.profile not in PROFILES:
            raise unknown("profile", self.profile, PROFILES)
        if self.max_examples is not None and not 1 <= self.max_examples <= MAX_EXAMPLES:
            raise InputError(
                f"--max-examples must be between 1 and {MAX_EXAMPLES}, got "
                f"{shown(self.max_examples)}"
            )
        if self.max_time is not None and not 0 < self.max_time <= MAX_SECONDS:
            raise InputError(
                f"--max-time must be a positive number of seconds up to {MAX_SECONDS}, got "
                f"{shown(self.max_time)}"
            )

    @property
    def examples(self) -> int:
        """Drawn cases per check."""
        return self.max_examples or PROFILES[self.profile].examples

    @property
    def branch_examples(self) -> int:
        """Drawn cases of the check that runs lists of every shape."""
        return self.max_examples or PROFILES[self.profile].branch_examples

    @property
    def shapes(self) -> Mapping[str, int]:
        """Of each shape, listed cases at most."""
        return PROFILES[self.profile].shapes

    @property
    def part(self) -> Fraction:
        """Of what checks draw that need few, more if more are asked for."""
        profile = PROFILES[self.profile]
        return profile.part * max(Fraction(self.examples, profile.examples), Fraction(1))

    @property
    def topped_up(self) -> bool:
        """Whether checks that list few draw more than that part."""
        return PROFILES[self.profile].topped_up

    @property
    def branches(self) -> int:
        """Cases at most that take every branch."""
        return PROFILES[self.profile].branches

    @property
    def seconds(self) -> float:
        """For the search of one subject."""
        return self.max_time or PROFILES[self.profile].seconds

    @property
    def thorough(self) -> bool:
        """Whether checks are run that cost so much that only one profile runs them."""
        return self.profile == "thorough"
