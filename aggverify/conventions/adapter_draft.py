"""What an adapter between a function of any signature and the native one has to declare.

What a parameter stands for is read off its name (``parameters.py``); where its name is not enough,
a person has declared it, or a call has shown it. What is left is left to the person.
``adapter_claims.py`` has what the file then declares, ``adapter_text.py`` writes it.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from aggverify.conventions.adapter_forms import (
    EXPRESSIONS,
    TAKEN,
    CallForms,
    CallHints,
    in_form,
    tensor,
)
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.parameters import CHOICES, Role, named_modes, role

OBJECT = "_object"
"""The name that an adapter gives to the object whose method it calls."""
_LONGEST = 100


def adaptable(offer: Offer) -> int:
    """How well the parameters are understood: 0 where no adapter can be written, else 1 or more."""
    adapter = Adapter(offer)
    blocked = offer.why_not and not offer.owner  # a person can write how an object is built
    if blocked or not adapter.plain or not (adapter.has_losses or adapter.is_factory):
        return 0
    known = sum(role(p) is not None for p in adapter.given)
    return max(1 + 2 * known - 2 * len(adapter.unknown), 1)


def best(offers: Sequence[Offer]) -> Offer | None:
    """Return the offer whose parameters are understood best; the last of equals, as if on top."""
    scored = [(adaptable(offer), n, offer) for n, offer in enumerate(offers)]
    found = max(scored, key=lambda entry: entry[:2], default=None)
    return found[2] if found is not None and found[0] else None


@dataclass(frozen=True)
class Adapter:
    """An offered function as the adapter calls it."""

    offer: Offer
    known: CallHints = field(default_factory=CallHints)

    @property
    def plain(self) -> bool:
        """Whether every name can be written into a file as it is."""
        names = [*self.offer.name.split("."), *(p.strip("*") for p in self.offer.parameters)]
        names += self.offer.needs
        return all(
            n.isidentifier() and not keyword.iskeyword(n) and len(n) <= _LONGEST for n in names
        )

    @cached_property
    def given(self) -> tuple[str, ...]:
        """Parameters that are passed: those it needs, and those whose meaning is known."""
        named = (p for p in self.offer.parameters if not p.startswith("*"))
        return tuple(
            p
            for p in named
            if p in self.offer.required
            or p in self.known.arguments
            or (role(p) not in (None, Role.AXIS) and not self._no_choice(p))
        )

    @cached_property
    def roles(self) -> frozenset[Role | None]:
        """What the arguments stand for, by name or by what is known of them."""
        role_of = {expression: what for what, expression in EXPRESSIONS.items()}
        return frozenset(
            role_of.get(self.known.arguments[p]) if p in self.known.arguments else role(p)
            for p in self.given
        )

    @property
    def has_losses(self) -> bool:
        """Whether it is given per-token losses in some form."""
        declared = {"{losses}", "-{losses}"} & set(self.known.arguments.values())
        return bool(declared or self.roles & {Role.LOSSES, Role.ADVANTAGES})

    @property
    def has_no_ratio(self) -> bool:
        """Whether log-probabilities are multiplied by advantages: no older ones to divide by."""
        roles = [role(p) for p in self.given if p not in self.known.arguments]
        one_each = roles.count(Role.LOG_PROBS) == roles.count(Role.ADVANTAGES) == 1
        return one_each and Role.LOSSES not in roles and self.shape.value.each == "{}"

    @property
    def is_factory(self) -> bool:
        """Whether it gives a function of the losses, as slime's and miles' does."""
        return not self.has_losses and {Role.MASK, Role.LENGTHS} <= self.roles

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parameters whose names do not show what to pass."""
        return tuple(
            p
            for p in self.given
            if p not in self.known.arguments and (role(p) is None or self._no_choice(p))
        )

    def values_of(self, parameter: str) -> Mapping[str | bool, str]:
        """Return what a parameter for the mode can be, with its mode; none for any other."""
        annotated = self.offer.values.get(parameter, ()) if role(parameter) is Role.MODE else ()
        return named_modes(annotated) or CHOICES.get(parameter, {})

    def _no_choice(self, parameter: str) -> bool:
        return role(parameter) is Role.MODE and not self.values_of(parameter)

    @property
    def mode(self) -> str | None:
        """The parameter that takes the mode, if its values are known."""
        known = self.known.arguments
        return next((p for p in self.given if self.values_of(p) and p not in known), None)

    @property
    def choices(self) -> tuple[str | bool, ...]:
        """Values of that parameter, the one it is given first."""
        values = self.values_of(self.mode) if self.mode is not None else {}
        return tuple(sorted(values, key=lambda value: values[value] != self.known.mode))

    @property
    def divided(self) -> bool:
        """Whether a fixed divisor is all it can have."""
        no_other = self.mode is None and self.known.mode in (None, "constant")
        return Role.DIVISOR in self.roles and no_other

    @property
    def shape(self) -> CallForms:
        """How losses and masks are handed over."""
        if self.known.shape is not None:
            return self.known.shape
        if Role.ENDS in self.roles:
            return CallForms.FLAT
        rows = "{masks}" in self.known.arguments.values() or Role.MASK in self.roles
        return CallForms.ROWS if rows and Role.LENGTHS not in self.roles else CallForms.PIECES

    @property
    def is_megatron(self) -> bool:
        """Whether it has the shape of Megatron-LM's own ``loss_func``."""
        first, *others = self.given or ("",)
        return role(first) is Role.MASK and any(p.startswith("output") for p in others)

    @property
    def usually_several(self) -> bool:
        """Whether functions of its kind return the loss in front of other things."""
        usual = self.is_megatron or Role.ADVANTAGES in self.roles
        return usual and not self.is_factory

    @property
    def returns_several(self) -> bool:
        """Whether the loss is looked for in front of other things."""
        known = self.known.first
        return self.usually_several if known is None else known and not self.is_factory

    @property
    def imported(self) -> str:
        """The name that it, or what it is an attribute of, has in the adapter."""
        head = self.offer.name.partition(".")[0]
        return f"own_{head}" if head in TAKEN else head

    @property
    def called(self) -> str:
        """How the adapter calls it: a method, of the object that is built."""
        _, dot, rest = self.offer.name.partition(".")
        if self.offer.owner:
            return f"{OBJECT}.{rest.rpartition('.')[2]}"
        return self.imported + dot + rest

    @property
    def built(self) -> str:
        """How that object is built, with what it needs as arguments to be filled in."""
        rest = self.offer.owner.partition(".")[1:]
        needs = ", ".join(f"{n}=None" for n in self.offer.needs)
        return "".join([self.imported, *rest, f"({needs})"])

    def expression(self, parameter: str) -> str:
        """Return what is passed for a parameter, as it is written in the adapter."""
        form = self.shape.value
        if parameter in self.known.arguments:
            return in_form(form, self.known.arguments[parameter])
        what = role(parameter)
        if parameter in self.unknown or what is None or what is Role.MODE:
            return parameter.upper()
        if what is Role.DIVISOR and self.divided:
            return "DIVISOR"
        if self.has_no_ratio and what in (Role.LOG_PROBS, Role.ADVANTAGES):
            rows = tensor(form, Role.LOSSES)
            return rows if what is Role.LOG_PROBS else f"-torch.ones_like({rows})"
        return EXPRESSIONS.get(what) or tensor(form, what)
