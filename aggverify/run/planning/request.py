"""What a person asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aggverify.errors import InputError
from aggverify.execution.budget import Budget
from aggverify.execution.options import BY_KEY, OPTIONS, Kind, Option, default, texts
from aggverify.run.planning.waiver import Waiver, waiver


@dataclass(frozen=True, slots=True)
class Request:
    """One ``check`` command; None means "not said": the file's declaration or a default decides."""

    target: str
    modes: tuple[str, ...] = default("mode")
    convention: str | None = default("convention")
    engine: str | None = default("engine")
    divisor: float | None = default("divisor")
    claims: frozenset[str] = default("claim")
    without: frozenset[str] = default("without")
    strict: bool = default("strict")
    accept: frozenset[str] = default("accept")
    """Waivers, as they are written."""
    compiled: bool = default("compile")
    max_world: int = default("world")
    group_size: int | None = default("group_size")
    oracle: str | None = default("oracle")
    against: str | None = default("against")
    """Another target that must agree with this one on every step."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """Readings other than the default, by question."""
    profile: str = default("profile")
    max_examples: int | None = default("max_examples")
    max_time: float | None = default("max_time")
    seed: int = default("seed")
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the project's pyproject.toml says, where neither an option nor the file does."""
    settings_source: str | None = None

    def __post_init__(self) -> None:
        for key in ("world", "group_size"):
            option = BY_KEY[key]
            value, least, most = getattr(self, option.field), option.least, option.most
            if value is not None and not least <= value <= most:
                raise InputError(f"{option.flag} must be between {least} and {most}, got {value}")
        _ = self.budget, self.waivers

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        """What is accepted; raises InputError for what is no waiver."""
        return tuple(waiver(text) for text in sorted(self.accept))

    @property
    def budget(self) -> Budget:
        """How much to try; raises InputError for what no budget can be."""
        return Budget(self.profile, self.max_examples, self.max_time)


def _with(option: Option, given: Any, said: Any) -> Any:
    """What the command line says, or the project; both together of an option that adds."""
    if option.adds and given is not None and said is not None:
        return (*texts(given), *texts(said))
    return said if given is None else given


def requested(
    target: str, given: Mapping[str, Any], said: Mapping[str, Any], source: object = None
) -> Request:
    """The request of a command line, by key, with the project's settings where it says nothing.

    What a file may say of itself waits until the file is known: ``claims.completed``.
    """
    values: dict[str, Any] = {}
    for option in OPTIONS:
        value = given.get(option.key)
        if not option.late:
            value = _with(option, value, said.get(option.key))
        if option.field and value is not None:
            several = frozenset if option.adds else tuple
            values[option.field] = several(texts(value)) if option.kind is Kind.TEXTS else value
    return Request(
        target, **values, settings=said, settings_source=None if source is None else str(source)
    )
