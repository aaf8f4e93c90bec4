"""Arguments that choose how losses are aggregated, by their names.

Which go together, and which a validator must refuse.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aggverify.conventions.base import Site
from aggverify.conventions.calls import JudgedCall
from aggverify.conventions.stand_ins import StandIn

_NOT_DIVISORS = (0, -4.0, math.nan, math.inf, -math.inf, None)
_DIVISORS = (0.5, 1, 4096)
_DIVISOR, _OTHER = 4.0, 8.0
_GROUP = 4
_COEFFICIENT = 0.01
_NO_MODE = "token-avg"


def _modes() -> dict[str, Any]:
    return {mode: mode for mode in ("sample_mean", "prompt_mean", "token_mean", "constant")}


@dataclass(frozen=True, slots=True)
class Names:
    """A framework's arguments that choose how losses are aggregated.

    They are those of slime and miles unless an adapter names others; "" for what it does not have.
    """

    mode: str = "loss_aggregation"
    modes: Mapping[str, Any] = field(default_factory=_modes)
    """What it calls each mode."""
    divisor: str = "loss_aggregation_divisor"
    per_token: str = "calculate_per_token_loss"
    """A flag that contradicts every mode but the token mean."""
    group_size: str = "n_samples_per_prompt"
    batch_size: str = "global_batch_size"
    """Rollouts of a step."""
    shards: str = ""
    """Data-parallel ranks, to each of which as many whole prompt groups must go."""
    overrides: str = ""
    """The path of a file whose values take the place of others (YAML, or JSON that is both)."""
    forbidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Coefficients of auxiliary terms, each with the modes that it must be 0 in."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the validator reads."""

    def right(self, mode: str, **changed: Any) -> dict[str, Any]:
        """Arguments that go together, but for what is ``changed``, by the fields of this class."""
        values: dict[str, Any] = {
            "mode": self.modes[mode],
            "divisor": _DIVISOR if mode == "constant" else None,
            "per_token": False,
            "group_size": _GROUP,
            "batch_size": 2 * _GROUP,
            "shards": 1,
            "overrides": None,
        }
        own = {getattr(self, name): value for name, value in (values | changed).items()}
        own.pop("", None)
        return {**self.others, **dict.fromkeys(self.forbidden, 0.0), **own}


Arguments = dict[str, Any]
Validate = Callable[[Callable[..., Any], StandIn], Any]


def plainly(function: Callable[..., Any], args: StandIn) -> Any:
    """How a validator is called where no adapter declares it."""
    return function(args)


def calls(names: Names, validate: Callable[[], Validate]) -> Iterator[JudgedCall]:
    """Every call that must be refused, with the nearest ones that must not."""

    def once(sentence: str, arguments: Arguments, *, refused: bool) -> JudgedCall:
        def make(function: Callable[..., Any], site: Site) -> None:
            validate()(function, StandIn(**arguments))

        return JudgedCall(sentence, sentence, refused, make)

    for sentence, arguments in _right(names):
        yield once(sentence, arguments, refused=False)
    for sentence, arguments in _wrong(names):
        yield once(sentence, arguments, refused=True)
    if "constant" in names.modes and names.divisor:
        for divisor, refused in ((_OTHER, False), (0, True)):
            yield _again(names, divisor, validate, refused=refused)
            if names.overrides:
                yield _from_file(names, divisor, validate, refused=refused)


Named = Iterator[tuple[str, Arguments]]


def _right(names: Names) -> Named:
    for mode, value in names.modes.items():
        yield f"{names.mode} {value!r}", names.right(mode)
        for coefficient, modes in names.forbidden.items():
            if mode not in modes:
                sentence = f"{coefficient} {_COEFFICIENT} with {names.mode} {value!r}"
                yield sentence, {**names.right(mode), coefficient: _COEFFICIENT}
    if "constant" in names.modes and names.divisor:
        for divisor in _DIVISORS:
            yield f"{names.divisor} {divisor}", names.right("constant", divisor=divisor)
    if "prompt_mean" in names.modes and names.group_size and names.batch_size:
        for size, batch in ((1, 3), (_GROUP, _GROUP), (3, 9)):
            yield (
                f"{names.batch_size} {batch} of {names.group_size} {size}",
                names.right("prompt_mean", group_size=size, batch_size=batch),
            )
        if names.shards:
            yield _dealt(names, 4)


def _wrong(names: Names) -> Named:
    first = next(iter(names.modes))
    sentence = f"{names.mode} {_NO_MODE!r}, which does not exist"
    yield sentence, {**names.right(first), names.mode: _NO_MODE}
    for mode, value in names.modes.items():
        in_mode = f"with {names.mode} {value!r}"
        if names.divisor and mode == "constant":
            for divisor in _NOT_DIVISORS:
                sentence = f"{names.divisor} {divisor} {in_mode}"
                yield sentence, names.right(mode, divisor=divisor)
        elif names.divisor:
            yield f"{names.divisor} {_DIVISOR} {in_mode}", names.right(mode, divisor=_DIVISOR)
        if names.per_token and mode in ("prompt_mean", "constant"):
            yield f"{names.per_token} {in_mode}", names.right(mode, per_token=True)
        for coefficient, modes in names.forbidden.items():
            if mode in modes:
                sentence = f"{coefficient} {_COEFFICIENT} {in_mode}"
                yield sentence, {**names.right(mode), coefficient: _COEFFICIENT}
    if "prompt_mean" in names.modes and names.group_size and names.batch_size:
        for batch in (2 * _GROUP + 1, _GROUP - 1):
            yield (
                f"{names.batch_size} {batch} of {names.group_size} {_GROUP}, no whole groups",
                names.right("prompt_mean", batch_size=batch),
            )
        if names.shards:
            yield _dealt(names, 3)


def _dealt(names: Names, groups: int) -> tuple[str, Arguments]:
    """Return arguments by which so many prompt groups go to two ranks."""
    batch = groups * _GROUP
    sentence = f"{names.batch_size} {batch} of {names.group_size} {_GROUP} to {names.shards} 2"
    return sentence, names.right("prompt_mean", batch_size=batch, shards=2)


def _again(
    names: Names, divisor: Any, validate: Callable[[], Validate], *, refused: bool
) -> JudgedCall:
    """Return a call that validates arguments, changes the divisor, and validates once more."""
    sentence = f"{names.divisor} {divisor}, set after arguments were validated, and validated again"
    given = names.right("constant"), {names.divisor: divisor}

    def make(function: Callable[..., Any], site: Site) -> None:
        args = StandIn()
        for arguments in given:
            vars(args).update(arguments)
            validate()(function, args)

    return JudgedCall(sentence, sentence, refused, make)


def _from_file(
    names: Names, divisor: Any, validate: Callable[[], Validate], *, refused: bool
) -> JudgedCall:
    """Return a call whose value comes from a file that the arguments name."""
    sentence = f"{names.divisor} {divisor} in the file of {names.overrides}"

    def make(function: Callable[..., Any], site: Site) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "overrides.yaml"
            path.write_text(json.dumps({names.divisor: divisor}))
            given = names.right("constant", overrides=str(path))
            validate()(function, StandIn(**given))

    return JudgedCall(sentence, sentence, refused, make)
