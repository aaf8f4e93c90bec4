"""What a person asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aggverify.errors import InputError
from aggverify.execution.budget import Budget
from aggverify.execution.claim import MAX_GROUP, MAX_WORLD


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
        if not 1 <= self.max_world <= MAX_WORLD:
            raise InputError(f"--world must be between 1 and {MAX_WORLD}, got {self.max_world}")
        if self.group_size is not None and not 1 <= self.group_size <= MAX_GROUP:
            raise InputError(
                f"--group-size must be between 1 and {MAX_GROUP}, got {self.group_size}"
            )
        _ = self.budget

    @property
    def budget(self) -> Budget:
        """How much to try; raises InputError for what no budget can be."""
        return Budget(self.profile, self.max_examples, self.max_time)
