"""In a reducer's place: whatever made the losses of a recorded run into what went backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from aggverify.conventions import Bound, Misuse, Offer, Site
from aggverify.oracles import MODES
from aggverify.report import view_model


@dataclass(frozen=True, slots=True)
class Recorded:
    """Nothing is called: the run's own backward passes gave the weights."""

    name: str = view_model.RECORDED
    title: str = "weights that a training run's own backward passes gave"
    signature: str = "aggverify.probe(losses, mask, ...)"
    returns: str = "the losses"
    usual_name: str = ""
    mode_is_argument: bool = False
    fixes_engine: bool = True
    notes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    misuses: tuple[Misuse, ...] = ()

    @property
    def not_claimed(self) -> Mapping[str, str]:
        return {}

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return tuple(MODES)

    def recognises(self, offer: Offer) -> bool:
        return False

    def default_engine(self, mode: str | None) -> str:
        return ""

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        return None

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        raise NotImplementedError("a recorded run is not called again")


RECORDED = Recorded()
