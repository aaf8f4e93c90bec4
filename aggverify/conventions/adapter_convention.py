"""A convention written as an adapter: a file with ``ADAPTER`` and ``call``.

``ADAPTER`` is plain data that the parent reads without importing it, ``call(function, losses,
batch)`` is for the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aggverify.conventions.adapter_functions import MERGE, loaded, merging
from aggverify.conventions.base import Bound, LogRule, Misuse, Output, Site
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.native import RETURNS, inputs, output
from aggverify.conventions.policy_loss import PolicyLoss, ratios_of
from aggverify.conventions.rows import RowForm, places
from aggverify.conventions.run_against import RunAgainst
from aggverify.conventions.sequence_loss import with_advantages
from aggverify.conventions.step_batches import Totals, micro_batch
from aggverify.engines import usual
from aggverify.oracles import LEGACY, MODES, family

if TYPE_CHECKING:
    from torch import Tensor

ModeValue = str | bool | None
"""What a function is given for a mode."""


def known_modes() -> tuple[str, ...]:
    """Those that can be asked for."""
    return (*MODES, LEGACY.name)


def takes(gradient_of: str, terms: Sequence[str]) -> tuple[str, ...]:
    """Return the parameters of an adapter's ``call``."""
    return ("function", gradient_of or "losses", "batch", *terms)


@dataclass(frozen=True, slots=True)
class AdapterConvention:
    """What an adapter's file declares (``adapter_file.py`` reads it)."""

    name: str
    """The file as it was named, or the framework for those of our own."""
    path: str
    title: str
    usual_name: str = ""
    recognised_by: tuple[str, ...] = ()
    """Parameters that the function has, the first one first; none: it must be named."""
    of_a_class: bool = False
    """Whether ``call`` is given the class, where the function is a method of one."""
    named: bool = False
    """Whether other functions have these parameters, too: then its name must be the usual one."""
    engines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The framework's engines, with their modes (none: all); the first of a mode is its default."""
    mode_values: Mapping[str, ModeValue] | None = None
    """The modes that the function takes as an argument, by what it calls them; None: it takes
    none."""
    only: tuple[str, ...] = ()
    """The modes that a function which takes none can have; none: all."""
    never: Mapping[str, str] = field(default_factory=dict)
    """Modes that can never be right through it, each with the reason."""
    always_wrong: Mapping[str, str] = field(default_factory=dict)
    """Modes that can be asked for, so that what is wrong is found, each with the reason."""
    whole_groups: Mapping[str, str] = field(default_factory=dict)
    """Modes that are right only where every prompt group is whole, each with the reason."""
    terms: tuple[str, ...] = ()
    """Per-token inputs next to the losses that ``call`` takes, each an additive term."""
    gradient_of: str = ""
    """What ``call`` takes in the place of losses, where these are log-probabilities: the weights
    are read off their gradient, with one advantage a sequence."""
    rows: RowForm | None = None
    """None: losses are given as they are, 1-D."""
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    named_by: Mapping[str, str] = field(default_factory=dict)
    """Features that older versions of the function had no parameter for, each with its name."""
    unusual: frozenset[str] = frozenset()
    """Features of few frameworks that its trainer has."""
    misuses: tuple[Misuse, ...] = ()
    notes: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    """Parameters of the function that its trainer leaves at one value in training."""
    unread: str = ""
    """What to do where a stand-in lacks what the function reads."""
    parameters: tuple[str, ...] = ()
    run_against: tuple[RunAgainst, ...] = ()
    """Releases and revisions of the framework, the newest first."""
    logs: LogRule = "engine"
    returns: str = RETURNS

    @property
    def signature(self) -> str:
        if not self.recognised_by:
            return f"any, through call({', '.join(self.takes)})"
        return f"def {self.usual_name}({', '.join(self.recognised_by)}, ...)"

    @property
    def takes(self) -> tuple[str, ...]:
        """Parameters of ``call``."""
        return takes(self.gradient_of, self.terms)

    @property
    def hides_zeros(self) -> bool:
        return bool(self.gradient_of)

    @property
    def roundings(self) -> int:
        return PolicyLoss.roundings if self.gradient_of else 0

    @property
    def mode_is_argument(self) -> bool:
        return self.mode_values is not None

    @property
    def fixes_engine(self) -> bool:
        return bool(self.engines)

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return self._modes

    @property
    def _modes(self) -> tuple[str, ...]:
        known = (self.only or known_modes()) if self.mode_values is None else self.mode_values
        return tuple(mode for mode in known if mode not in self.never)

    def has_shape(self, offer: Offer) -> bool:
        first, wanted = offer.parameters[:1], self.recognised_by
        return bool(wanted) and first == wanted[:1] and set(wanted) <= set(offer.parameters)

    def recognises(self, offer: Offer) -> bool:
        known = not self.named or f".{offer.name}".endswith(f".{self.usual_name}")
        return known and self.has_shape(offer)

    def default_engine(self, mode: str | None) -> str:
        if not self.engines:
            return "sum"
        mode = None if mode is None else family(mode)
        fitting = (e for e, modes in self.engines.items() if not modes or mode in modes)
        return next(fitting, next(iter(self.engines)))

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        mode = None if mode is None else family(mode)
        if mode is not None and mode in self.never:
            return self.never[mode]
        if mode is not None and mode in self.whole_groups and "whole-groups" not in claimed:
            return f"{self.whole_groups[mode]}; --group-size G promises that"
        if mode in known_modes() and mode not in self._modes:
            return f"it has no {mode} (it has {', '.join(self._modes)})"
        if not self.engines or ":" in engine:  # a person's own, who knows what it does
            return None
        what = engine if engine in self.engines else usual(engine)
        if what not in self.engines:
            return f"{self.title} trains with {' or '.join(self.engines)}, not with {engine}"
        right = self.engines[what]
        if mode is None or not right or mode in right:
            return None
        others = [e for e, modes in self.engines.items() if not modes or mode in modes]
        one = f"{mode} works only with --engine {' or '.join(others)}"
        return one if others else f"none of its engines ({', '.join(self.engines)}) makes it {mode}"

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        return self.bound(loaded(self.path), function, site)

    def bound(self, call: Callable[..., Any], function: Any, site: Site) -> Bound:
        """Bind with this ``call``: the adapter's own, or one that only records its arguments."""
        known = MODES.get(site.mode or "")
        if known is not None and not known.needs_divisor:
            site = replace(site, divisor=None)
        totals, mode_values = Totals(site), self.mode_values or {}
        mode = mode_values.get(family(site.mode or ""))

        def bound(k: int, losses: Tensor) -> Output:
            batch = micro_batch(site, k, totals, mode)
            own, terms = inputs(site, losses, batch)
            if self.rows is not None:
                found = places(self.rows, site.case, site.dp_rank, site.cp_rank, k)
                own, *terms = map(found.filled, (own, *terms))
                mask = found.filled(batch.mask)
                batch = replace(batch, _mask=mask, _lengths=found.lengths)
            if self.gradient_of:
                own, batch = with_advantages(own, batch, ratios_of(site.mode))
            return output(call(function, own, batch, *terms))

        return bound if self.logs != MERGE else merging(self.path, bound, site)
