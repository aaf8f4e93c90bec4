"""A validator of arguments, ``validate_args(args)``: what a framework runs before it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

from aggverify.conventions.base import Bound, Misuse, Site
from aggverify.conventions.calls import JudgedCall
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.run_against import RunAgainst
from aggverify.conventions.validated_arguments import Names, Validate, calls, plainly


@dataclass(frozen=True, slots=True)
class Validation:
    """A function that raises where arguments contradict themselves, and leaves others alone.

    Nothing is reduced.
    """

    name: str = "validation"
    title: str = "a validator of arguments"
    usual_name: str = "validate_args"
    signature: str = "def validate_args(args) -> None, which raises"
    returns: str = "nothing that is judged"
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ("arguments only: nothing is reduced, by no engine and in no layout",)
    parameters: tuple[str, ...] = ("args",)
    misuses: tuple[Misuse, ...] = ()
    run_against: tuple[RunAgainst, ...] = ()
    unread: ClassVar[str] = 'an adapter names it with its value in "validates": {"others": ...}'
    """What to do where it reads an argument that it is not given."""
    ranks: int = 1
    names: Names = field(default_factory=Names)
    validate: Callable[[], Validate] = field(default=lambda: plainly, compare=False)
    path: str | None = None
    """Of the adapter that declares how it is called."""

    @property
    def calls(self) -> tuple[JudgedCall, ...]:
        return tuple(calls(self.names, self.validate))

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return ()

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters == ("args",)

    def default_engine(self, mode: str | None) -> str:
        return "sum"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        if mode is not None:
            return "a validator implements no mode: it gets all of them"
        return None if engine == "sum" else "a validator reduces nothing, under no engine"

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        raise TypeError("a validator is given no losses")
