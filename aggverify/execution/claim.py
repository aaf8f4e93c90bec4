"""What is verified and how: one value with one JSON form, and nothing that was found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from aggverify import codec
from aggverify.codec import Integer, Part
from aggverify.codes import Code, Effect
from aggverify.conventions import ADAPTED, FEATURES, Convention, convention
from aggverify.conventions.base import NONLINEAR as NONLINEAR
from aggverify.engines import engine
from aggverify.errors import InputError, shown, unknown
from aggverify.execution.budget import MAX_GROUP, MAX_WORLD, Budget
from aggverify.execution.installed import installed_modes
from aggverify.execution.limits import RankKind
from aggverify.files import is_path
from aggverify.oracles import DEFAULT_POLICY, OracleError, Policy, mode, objective
from aggverify.world import GLOO, backend

SCHEMA: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """Everything that determines what is run.

    The ranks, stored cases, verdicts and replay all read it.

    ``convention`` and ``engine`` are names; ``mode`` is a built-in mode, an objective, NONLINEAR,
    or None where the reducer implements no known one.
    """

    target: str
    function: str
    convention: str
    engine: str
    mode: str | None = None
    divisor: float | None = None
    oracle: str | None = None
    """The file of the person's own mode, instead of a built-in one."""
    adapter: str | None = None
    """The person's own file that declares how the reducer is called, instead of a known
    convention."""
    terms: tuple[str, ...] = ()
    """Per-token inputs next to the losses that the reducer takes, each an additive term; with its
    reading, ``aux=micro_batch_mean``, where that is declared."""
    offered: tuple[str, ...] = ()
    """All modes claimed for a candidate that gets the mode as an argument: they must differ."""
    policy: Policy = DEFAULT_POLICY
    claimed: frozenset[str] = frozenset()
    """Features tested although the convention does not claim them."""
    without: frozenset[str] = frozenset()
    """Features that the person disclaims: nothing with them is generated."""
    compiled: bool = False
    """Whether what the reducer gives to torch.compile is compiled everywhere."""
    strict: bool = False
    """Whether a hazard is a failure."""
    group_size: int | None = None
    """G, when the candidate is promised whole prompt groups of G rollouts in every micro-batch."""
    max_world: int = MAX_WORLD
    backend: str = GLOO.name
    """What joins the ranks, and with it the device that every tensor is on."""
    against: Claim | None = None
    """Another path that must agree with this one on every step."""
    seed: int = 0
    budget: Budget = field(default_factory=Budget)

    @property
    def ranks(self) -> RankKind:
        """What ranks its steps are run by."""
        return RankKind(self.compiled, self.backend)

    @property
    def called(self) -> str:
        """What ``convention()`` finds its convention by."""
        return self.convention if self.adapter is None else self.adapter

    def effect(self, code: Code) -> Effect:
        """Return what a finding of this code does to the verdict.

        A hazard fails where what it depends on is claimed.
        """
        fails = self.strict or code.promise in self.claimed
        return Effect.FAILS if code.effect is Effect.HAZARD and fails else code.effect

    def to_json(self) -> dict[str, Any]:
        """Plain data with every field in it; the policy as its readings other than the default."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            "schema": SCHEMA,
            **values,
            "terms": list(self.terms),
            "offered": list(self.offered),
            "policy": readings(self.policy),
            "claimed": sorted(self.claimed),
            "without": sorted(self.without),
            "against": None if self.against is None else self.against.to_json(),
            "budget": asdict(self.budget),
        }

    @staticmethod
    def from_json(data: object) -> Claim:
        """Rebuild a claim from :meth:`to_json`'s data, every value checked; raises InputError.

        Data that names no backend was written when there was only the default one.
        """
        return codec.read(_StoredClaim, data, "the claim").claim()


def is_nonlinear(name: str | None) -> bool:
    """Whether it stands for an objective that is not linear in its inputs, a known one or not.

    Raises OracleError for a known one that cannot be formed.
    """
    return name is not None and (name == NONLINEAR or objective(name) is not None)


def readings(policy: Policy) -> dict[str, Any]:
    """Return the policy's readings other than the default, by question."""
    values = {f.name: getattr(policy, f.name) for f in fields(Policy)}
    return {q: r for q, r in values.items() if r != getattr(DEFAULT_POLICY, q)}


class _Budget(Part, frozen=True):
    """The limits of a search."""

    profile: str
    max_examples: int | None
    max_time: int | float | None
    step: str


class _StoredClaim(Part, frozen=True):
    """A claim as JSON has it; every key is required but ``backend``, which older files lack."""

    schema: Literal[1]
    target: str
    function: str
    convention: str
    engine: str
    mode: str | None
    divisor: int | float | None
    oracle: str | None
    adapter: str | None
    terms: tuple[str, ...]
    offered: tuple[str, ...]
    policy: Mapping[str, Any]
    claimed: tuple[str, ...]
    without: tuple[str, ...]
    compiled: bool
    strict: bool
    group_size: Annotated[int, Meta(ge=1, le=MAX_GROUP)] | None
    max_world: Annotated[int, Meta(ge=1, le=MAX_WORLD)]
    against: Mapping[str, Any] | None
    seed: Integer
    budget: _Budget
    backend: str = GLOO.name

    def claim(self) -> Claim:
        """Return the claim, every name in it checked; raises InputError."""
        if self.divisor is not None:
            check_divisor(self.divisor)
        if self.against is not None and self.against.get("against") is not None:
            raise InputError("against: the other path has no other path itself")
        for feature in (*self.claimed, *self.without):
            if feature not in FEATURES:
                raise unknown("claim", feature, FEATURES)
        known = structs.asdict(self)
        del known["schema"]
        return Claim(
            **known
            | {
                **_called(self.convention, self.adapter),
                # A person's own, module:OBJECT, is imported where it is used: this runs no code.
                "engine": self.engine if ":" in self.engine else engine(self.engine).name,
                "mode": _mode(self.mode),
                "policy": _policy(self.policy),
                "claimed": frozenset(self.claimed),
                "without": frozenset(self.without),
                "against": None if self.against is None else Claim.from_json(self.against),
                "budget": Budget(*structs.astuple(self.budget)),
                "backend": backend(self.backend).name,
            }
        )


def called_as(how: Convention) -> dict[str, Any]:
    """Return the fields of a claim that name a convention: a known one, or an adapter's file."""
    is_file = is_path(how.name)
    name, file = (ADAPTED, how.name) if is_file else (how.name, None)
    return {"convention": name, "adapter": file}


def _called(name: str, adapter: str | None) -> dict[str, str | None]:
    """Return the same two fields as they were stored, checked against each other."""
    if is_path(name):
        raise InputError(f"convention must be a name, got {name!r:.200}")
    if adapter is not None and not is_path(adapter):
        raise InputError(f"adapter must be a Python file, got {adapter!r:.200}")
    name = name if name == ADAPTED else convention(name).name
    if (adapter is None) == (name == ADAPTED):
        raise InputError(
            f"an adapter goes with the convention {ADAPTED!r} and no other, got {name!r:.200} and "
            f"{adapter!r:.200}"
        )
    return {"convention": name, "adapter": adapter}


def _mode(name: str | None) -> str | None:
    installed_modes()
    try:
        if name is not None and not is_nonlinear(name):
            mode(name)
    except OracleError as error:
        raise InputError(f"{error!s:.600}") from None
    return name


def _policy(given: Mapping[str, Any]) -> Policy:
    try:
        return Policy(**given)
    except (OracleError, TypeError) as error:
        raise InputError(f"policy cannot be used: {error!s:.300}") from None


MOST_DIVISOR = 2.0**960
"""Beyond it, and below its reciprocal, a weight ``1/(L*N)`` is no normal float64."""


def check_divisor(divisor: float) -> None:
    """Raise InputError for a divisor by which no float64 can have the right weight."""
    if not 1 / MOST_DIVISOR <= divisor <= MOST_DIVISOR:
        raise InputError(
            f"divisor {shown(divisor)} cannot be used: a weight 1/(L*N) must be a normal float64, "
            f"so L must lie between {1 / MOST_DIVISOR:.0e} and {MOST_DIVISOR:.0e}"
        )
