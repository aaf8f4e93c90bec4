"""What a person asked for, with the budgets of the profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aggverify.errors import InputError, unknown


@dataclass(frozen=True, slots=True)
class Profile:
    """A budget: drawn cases per check, and seconds for the whole search."""

    examples: int
    seconds: float


PROFILES: Mapping[str, Profile] = {
    "quick": Profile(examples=25, seconds=20),
    "ci": Profile(examples=150, seconds=25),
    "thorough": Profile(examples=3000, seconds=600),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One ``check`` command; None means "not said": the file's declaration or a default decides."""

    target: str
    modes: tuple[str, ...] = ()
    convention: str | None = None
    engine: str | None = None
    divisor: float | None = None
    claims: frozenset[str] = frozenset()
    max_world: int = 8
    group_size: int | None = None
    oracle: str | None = None
    against: str | None = None
    """Another target that must agree with this one on every step."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """Readings other than the default, by question."""
    profile: str = "ci"
    max_examples: int | None = None
    max_time: float | None = None
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the project's pyproject.toml says, where neither an option nor the file does."""
    settings_source: str | None = None

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise unknown("profile", self.profile, PROFILES)
        if not 1 <= self.max_world <= 8:
            raise InputError(f"--world must be between 1 and 8, got {self.max_world}")
        if self.group_size is not None and not 1 <= self.group_size <= 64:
            raise InputError(f"--group-size must be between 1 and 64, got {self.group_size}")
        if self.max_examples is not None and self.max_examples < 1:
            raise InputError(f"--max-examples must be at least 1, got {self.max_examples}")
        if self.max_time is not None and not (self.max_time > 0 and math.isfinite(self.max_time)):
            raise InputError(f"--max-time must be a positive number, got {self.max_time}")

    @property
    def budget(self) -> Profile:
        """The profile with the explicit limits put in."""
        profile = PROFILES[self.profile]
        return Profile(self.max_examples or profile.examples, self.max_time or profile.seconds)
