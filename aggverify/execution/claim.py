"""What is verified and how: one value with one JSON form, and nothing that was found out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from aggverify.codes import Code, Effect
from aggverify.conventions import ADAPTED, FEATURES, Convention, convention
from aggverify.conventions.base import NONLINEAR as NONLINEAR
from aggverify.engines import engine
from aggverify.errors import InputError, shown, unknown
from aggverify.execution.budget import LARGEST, MAX_GROUP, MAX_WORLD, Budget
from aggverify.execution.installed import installed_modes
from aggverify.execution.limits import RankKind
from aggverify.files import is_path
from aggverify.oracles import DEFAULT_POLICY, OracleError, Policy, mode, objective
from aggverify.world import GLOO, backend

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """Everything that says what is run; the ranks, stored cases, verdicts and replay all read it.

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
    """The person's own file that says how the reducer is called, instead of a known convention."""
    terms: tuple[str, ...] = ()
    """Per-token inputs beside the losses that the reducer takes, each an additive term; with its
    reading, ``aux=micro_batch_mean``, where that is said."""
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
        """What a finding of this code does to the verdict: a hazard fails where what it depends on
        is claimed."""
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
        Data of before there were others is of the usual backend."""
        usual = {"backend": GLOO.name}
        values = _exactly(usual | data if isinstance(data, dict) else data, "the claim", _READERS)
        claim = Claim(**{name: read(name, values[name]) for name, read in _READERS.items()})
        if (claim.adapter is None) == (claim.convention == ADAPTED):
            raise InputError(
                f"an adapter goes with the convention {ADAPTED!r} and no other, got "
                f"{claim.convention!r:.200} and {claim.adapter!r:.200}"
            )
        return claim


def is_nonlinear(name: str | None) -> bool:
    """Whether it stands for an objective that is not linear in its inputs, a known one or not;
    raises OracleError for a known one that cannot be formed."""
    return name is not None and (name == NONLINEAR or objective(name) is not None)


def readings(policy: Policy) -> dict[str, Any]:
    """The policy's readings other than the default, by question."""
    values = {f.name: getattr(policy, f.name) for f in fields(Policy)}
    return {q: r for q, r in values.items() if r != getattr(DEFAULT_POLICY, q)}


Reader = Callable[[str, object], Any]


def _exactly(data: object, what: str, readers: Mapping[str, Reader]) -> Mapping[str, Any]:
    """A JSON object of this schema with these keys, no more and no fewer."""
    if not isinstance(data, Mapping):
        raise InputError(f"{what} is a JSON object, got {data!r:.200}")
    if data.get("schema") != SCHEMA:
        raise InputError(f"{what}'s schema must be {SCHEMA}, got {data.get('schema')!r:.200}")
    if missing := readers.keys() - data.keys():
        raise InputError(f"{what} lacks {', '.join(sorted(missing))}")
    for key in data:
        if key not in readers and key != "schema":
            raise unknown(f"key of {what}", key, readers)
    return data


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} must be text, got {value!r:.200}")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(f"{name} must be a list of texts, got {value!r:.200}")
    return tuple(_text(name, item) for item in value)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return value
    except OverflowError:
        pass  # an integer beyond every float
    raise InputError(f"{name} must be a finite number, got {value!r:.200}")


def _file(name: str, value: object) -> str:
    if not is_path(text := _text(name, value)):
        raise InputError(f"{name} must be a Python file, got {value!r:.200}")
    return text


def _integer(least: int | None = None, most: int | None = None) -> Reader:
    def read(name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{name} must be an integer, got {value!r:.200}")
        if abs(value) > LARGEST:
            raise InputError(f"{name} must be an integer of at most 64 bits, got {shown(value)}")
        if least is not None and most is not None and not least <= value <= most:
            raise InputError(f"{name} must be between {least} and {most}, got {value!r:.200}")
        return value

    return read


def _or_null(read: Reader) -> Reader:
    return lambda name, value: None if value is None else read(name, value)


def called_as(how: Convention) -> dict[str, Any]:
    """The fields that stand for a convention."""
    own = is_path(how.name)
    return {"convention": ADAPTED if own else how.name, "adapter": how.name if own else None}


def _convention(name: str, value: object) -> str:
    text = _text(name, value)
    if is_path(text):
        raise InputError(f"{name} must be a name, got {value!r:.200}")
    return text if text == ADAPTED else convention(text).name


def _engine(name: str, value: object) -> str:
    text = _text(name, value)
    # A person's own, module:OBJECT, is imported where it is used: reading data runs no code.
    return text if ":" in text else engine(text).name


def _mode(name: str, value: object) -> str:
    text = _text(name, value)
    installed_modes()
    try:
        if not is_nonlinear(text):
            mode(text)
    except OracleError as error:
        raise InputError(f"{error!s:.600}") from None
    return text


def _features(name: str, value: object) -> frozenset[str]:
    for feature in _texts(name, value):
        if feature not in FEATURES:
            raise unknown("claim", feature, FEATURES)
    return frozenset(_texts(name, value))


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {value!r:.200}")
    return value


def _policy(name: str, value: object) -> Policy:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be an object, got {value!r:.200}")
    try:
        return Policy(**value)
    except (OracleError, TypeError) as error:
        raise InputError(f"{name} cannot be used: {error!s:.300}") from None


MOST_DIVISOR = 2.0**960
"""Beyond it, and below its reciprocal, a weight ``1/(L*N)`` is no normal float64."""


def check_divisor(divisor: float) -> None:
    """Raise InputError for a divisor by which no float64 can have the right weight."""
    if not 1 / MOST_DIVISOR <= divisor <= MOST_DIVISOR:
        raise InputError(
            f"divisor {divisor!r} cannot be used: a weight 1/(L*N) must be a normal float64, so L "
            f"must lie between {1 / MOST_DIVISOR:.0e} and {MOST_DIVISOR:.0e}"
        )


def _divisor(name: str, value: object) -> float:
    number = _number(name, value)
    check_divisor(number)
    return number


def _backend(name: str, value: object) -> str:
    return backend(_text(name, value)).name


def _against(name: str, value: object) -> Claim:
    # Refused before it is read: a file may nest as deep as it likes.
    if isinstance(value, Mapping) and value.get("against") is not None:
        raise InputError(f"{name}: the other path has no other path itself")
    return Claim.from_json(value)


def _budget(name: str, value: object) -> Budget:
    known = {f.name for f in fields(Budget)}
    if not isinstance(value, Mapping) or set(value) != known:
        raise InputError(f"{name} must have {', '.join(sorted(known))}, got {value!r:.200}")
    return Budget(
        _text("profile", value["profile"]),
        _or_null(_integer())("max_examples", value["max_examples"]),
        _or_null(_number)("max_time", value["max_time"]),
        _text("step", value["step"]),
    )


_READERS: Mapping[str, Reader] = {
    "target": _text,
    "function": _text,
    "convention": _convention,
    "engine": _engine,
    "mode": _or_null(_mode),
    "divisor": _or_null(_divisor),
    "oracle": _or_null(_text),
    "adapter": _or_null(_file),
    "terms": _texts,
    "offered": _texts,
    "policy": _policy,
    "claimed": _features,
    "without": _features,
    "compiled": _flag,
    "strict": _flag,
    "group_size": _or_null(_integer(1, MAX_GROUP)),
    "max_world": _integer(1, MAX_WORLD),
    "backend": _backend,
    "against": _or_null(_against),
    "seed": _integer(),
    "budget": _budget,
}
"""How each field is read; a test holds them to the fields."""
