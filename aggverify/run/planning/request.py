"""What a person asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aggverify.conventions import by_shape, convention
from aggverify.conventions.calls import PerCallConvention
from aggverify.errors import InputError, unknown
from aggverify.execution.budget import Budget
from aggverify.execution.deadline import Deadline
from aggverify.execution.installed import installed_modes
from aggverify.execution.limits import RankKind
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import OPTIONS, Option, default, texts
from aggverify.files import is_path
from aggverify.model import Waiver
from aggverify.run.planning.naming import canonical, own_names
from aggverify.run.planning.waiver import waiver
from aggverify.world import AUTO, BACKENDS, GLOO, KINDS


@dataclass(frozen=True, slots=True)
class Request:
    """One ``check`` command; None means "not said": the file's declaration or a default decides."""

    target: str
    modes: tuple[str, ...] = default("mode")
    convention: str | None = default("convention")
    adapter: str | None = default("adapter")
    """A file that declares how the reducer is called; it goes before a named convention."""
    engine: str | None = default("engine")
    divisor: float | None = default("divisor")
    claims: frozenset[str] = default("claim")
    without: frozenset[str] = default("without")
    strict: bool = default("strict")
    accept: frozenset[str] = default("accept")
    """Waivers, as they are written."""
    compiled: bool = default("compile")
    max_world: int = default("world")
    backend: str | None = default("backend")
    device: str | None = default("device")
    group_size: int | None = default("group_size")
    micro_batch_size: int | None = default("micro_batch_size")
    oracle: str | None = default("oracle")
    against: str | None = default("against")
    """Another target that must agree with this one on every step."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """Readings other than the default, by question."""
    terms: Mapping[str, str] = field(default_factory=dict)
    """Readings of auxiliary terms, by their names."""
    profile: str = default("profile")
    max_examples: int | None = default("max_examples")
    max_time: float | None = default("max_time")
    step: str = default("step")
    sandbox: bool = default("sandbox")
    seed: int = default("seed")
    only: tuple[str, ...] = default("only")
    """Names of checks, in texts that may hold several with commas."""
    skip: tuple[str, ...] = default("skip")
    exit_first: bool = default("exit_first")
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the project's pyproject.toml has, where neither an option nor the file does."""
    settings_source: str | None = None

    def __post_init__(self) -> None:
        for option in OPTIONS:
            value = getattr(self, option.field) if option.field else None
            several = isinstance(value, frozenset)
            plain = sorted(value) if several else value  # type: ignore[arg-type]
            if value is not None and (why := option.wrong(plain)) is not None:
                raise InputError(f"{option.flag} {why}")
        if self.adapter is not None and not is_path(self.adapter):
            raise InputError(f"--adapter must be a Python file, got {self.adapter!r:.200}")
        _ = self.budget, self.waivers  # each raises for what it cannot be made of
        self._check_device()
        own = next((text for text in (self.oracle, self.engine) if is_own_code(text)), None)
        if self.sandbox and own is not None:
            raise InputError(f"--sandbox: {own!r:.200} would be run in this process, outside of it")

    def _check_device(self) -> None:
        """Whether backend and device are names, and go together."""
        if self.backend not in (None, AUTO, *BACKENDS):
            raise unknown("backend", self.backend, (AUTO, *BACKENDS))
        if self.device not in (None, *KINDS):
            raise unknown("device", self.device, KINDS)
        chosen = BACKENDS.get(self.backend or "")
        if chosen is not None and self.device not in (None, chosen.device):
            raise InputError(
                f"--backend {chosen.name} is for tensors on {chosen.device}, not {self.device}"
            )
        if self.sandbox and not self.is_on_processors:
            asked = f"--backend {self.backend}" if self.backend else f"--device {self.device}"
            raise InputError(f"--sandbox hides devices: with --backend gloo, not {asked}")

    @property
    def is_on_processors(self) -> bool:
        """Whether its ranks use CPUs, whatever the machine has."""
        usual = self.backend is None and self.device is None
        return usual or self.backend == GLOO.name or self.device == GLOO.device

    @property
    def ranks(self) -> RankKind:
        """The kind of ranks it is run by, once ``opening.placed`` has settled its backend."""
        return RankKind(self.compiled, self.backend or GLOO.name)

    @property
    def called(self) -> str:
        """What declares how the reducer is called; ``auto`` where it is to be found out."""
        return self.adapter or self.convention or "auto"

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        """What is accepted; raises InputError for what is no waiver."""
        return tuple(waiver(text) for text in sorted(self.accept))

    def deadline(self, began: float | None = None) -> Deadline:
        """Return the deadline of a command that ``began`` then, or begins now."""
        seconds = math.inf if self.max_time is None else self.max_time
        return Deadline(seconds, time.monotonic() if began is None else began)

    @property
    def budget(self) -> Budget:
        """How much to try; raises InputError for what no budget can be."""
        return Budget(self.profile, self.max_examples, self.max_time, self.step)


def is_own_code(text: str | None) -> bool:
    """Whether an oracle or an engine is the person's file or module, which this process runs."""
    return text is not None and (":" in text or is_path(text))


def _combined(option: Option, given: Any, settings_values: Any) -> Any:
    """Return the command line's value, or the project's; both together of an option that adds."""
    if option.adds and given is not None and settings_values is not None:
        return (*texts(given), *texts(settings_values))
    return settings_values if given is None else given


def requested(
    target: str, given: Mapping[str, Any], settings_values: Mapping[str, Any], source: object = None
) -> Request:
    """Return the request of a command line, by key, with the project's settings for the rest.

    What a file may declare waits until the file is known: ``claims.completed``.
    """
    installed_modes()
    values: dict[str, Any] = {}
    for option in OPTIONS:
        value = given.get(option.key)
        if not option.late:
            value = _combined(option, value, settings_values.get(option.key))
        if option.field and value is not None:
            several = frozenset if option.adds else tuple
            values[option.field] = (
                several(texts(value)) if option.kind is OptionType.TEXTS else value
            )
    if given.get("convention") is not None:
        if given.get("adapter") is None:
            values.pop("adapter", None)  # the project's gives way to an option
        elif not _is_same_kind(given["convention"], given["adapter"]):
            raise InputError("--adapter is a convention of your own: give it or --convention")
        else:
            values.pop("convention")
    found = Request(
        target,
        **values,
        settings=settings_values,
        settings_source=None if source is None else str(source),
    )
    _check_modes(found, texts(settings_values.get("mode", ())))
    return found


def _is_same_kind(name: str, adapter: str) -> bool:
    """Whether the adapter is for the kind of function that this convention is for."""
    kind = convention(name)
    return isinstance(kind, PerCallConvention) and type(convention(adapter)) is type(kind)


def _check_modes(request: Request, settings: Sequence[str]) -> None:
    """Whether these are modes, by any name: before anything is imported."""
    if not (names := request.modes or settings):
        return
    known = by_shape() if request.called == "auto" else [convention(request.called)]
    own = {alias: mode for how in known for alias, mode in own_names(how).items()}
    for name in names:
        canonical(name, request.micro_batch_size or 1, own)
